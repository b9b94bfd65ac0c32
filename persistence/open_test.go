package persistence

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"parley/event"
)

// rewrite opens a closed store's directory with bare Pebble.
func rewrite(t *testing.T, fs vfs.FS, f func(db *pebble.DB)) {
	t.Helper()
	db, err := pebble.Open("data", &pebble.Options{FS: fs, Logger: &pebbleLogger{log: Config{}.withDefaults().Logger}, FormatMajorVersion: pebble.FormatTableFormatV6})
	if err != nil {
		t.Fatal(err)
	}
	f(db)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// refuse fails unless the directory is refused for that reason, in one line.
func refuse(t *testing.T, fs vfs.FS, want error) {
	t.Helper()
	s, err := Open(Config{Dir: "data", FS: fs})
	if err == nil {
		closeStore(t, s)
	}
	if !errors.Is(err, want) {
		t.Errorf("opened with %v, want %v", err, want)
	} else if strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), want.Error()) {
		t.Errorf("not one clear sentence: %v", err)
	}
}

// written returns a closed store's disk with two rooms, partly in tables and
// partly in the log.
func written(t *testing.T) *vfs.MemFS {
	t.Helper()
	fs := vfs.NewMem()
	s := open(t, fs)
	o := own(t, s, "den")
	for _, n := range []int{39, 1, 10} { // each a block
		o.write(t, n)
	}
	if err := s.db.Flush(); err != nil {
		t.Fatal(err)
	}
	o.write(t, 50)
	other := own(t, s, "other")
	for range 3 {
		other.write(t, 1)
	}
	closeStore(t, s)
	return fs
}

func TestADirectoryOfANewerVersionIsRefusedUnchanged(t *testing.T) {
	fs := written(t)
	rewrite(t, fs, func(db *pebble.DB) {
		if err := db.Set(formatKey, appendNumber(nil, formatVersion+1), pebble.Sync); err != nil {
			t.Fatal(err)
		}
	})
	refuse(t, fs, ErrNewer)
	rewrite(t, fs, func(db *pebble.DB) {
		if err := db.Set(formatKey, appendNumber(nil, formatVersion), pebble.Sync); err != nil {
			t.Fatal(err)
		}
	})
	wantHead(t, open(t, fs), "den", 100)
}

func TestADirectoryOfAnOlderLayoutIsRefusedUnchanged(t *testing.T) {
	fs := written(t)
	rewrite(t, fs, func(db *pebble.DB) {
		if err := db.Set(formatKey, appendNumber(nil, formatVersion-1), pebble.Sync); err != nil {
			t.Fatal(err)
		}
	})
	refuse(t, fs, ErrOlder)
}

func TestADirectoryOfANewerEngineIsRefused(t *testing.T) {
	fs := written(t)
	f, err := fs.Create("data/marker.format-version.000999.999", vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	refuse(t, fs, ErrNewer)
}

func TestDataWithoutAFormatVersionIsRefused(t *testing.T) {
	fs := vfs.NewMem()
	rewrite(t, fs, func(db *pebble.DB) {
		if err := db.Set([]byte("someone"), []byte("else"), pebble.Sync); err != nil {
			t.Fatal(err)
		}
	})
	refuse(t, fs, ErrDamaged)
}

func TestADirectoryInUseIsRefused(t *testing.T) {
	fs := vfs.NewMem()
	s := open(t, fs)
	refuse(t, fs, ErrLocked)
	own(t, s, "den").write(t, 1)
	closeStore(t, s)
	wantHead(t, open(t, fs), "den", 1)
}

func TestADirectoryInUseByAnotherProcessIsRefused(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Config{Dir: dir}); !errors.Is(err, ErrLocked) {
		t.Errorf("in this process: %v", err)
	}
	out, code := runChild(t, "open", dir)
	if code != 1 || !strings.Contains(out, ErrLocked.Error()) {
		t.Errorf("another process: exit %d, %s", code, out)
	}
	closeStore(t, s)
	if out, code := runChild(t, "open", dir); code != 0 {
		t.Errorf("after Close: exit %d, %s", code, out)
	}
}

func TestADirectoryThatCannotBeMadeIsNotCalledDamagedOrInUse(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Open(Config{Dir: filepath.Join(file, "data")})
	if err == nil || errors.Is(err, ErrDamaged) || errors.Is(err, ErrLocked) || errors.Is(err, ErrNewer) {
		t.Errorf("%v", err)
	}
}

// files returns the names in the data directory that have one of the endings or beginnings.
func files(t *testing.T, fs vfs.FS, part string) (names []string) {
	t.Helper()
	all, err := fs.List("data")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	for _, n := range all {
		if strings.Contains(n, part) {
			names = append(names, "data/"+n)
		}
	}
	if len(names) == 0 {
		t.Fatalf("no %s among %v", part, all)
	}
	return names
}

// overwrite replaces a file by what f makes of it.
func overwrite(t *testing.T, fs vfs.FS, name string, f func([]byte) []byte) {
	t.Helper()
	r, err := fs.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	w, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.Write(f(raw))
	if err := errors.Join(err, r.Close(), w.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestADamagedDirectoryIsRefused(t *testing.T) {
	for name, harm := range map[string]func(t *testing.T, fs *vfs.MemFS){
		"a table is missing": func(t *testing.T, fs *vfs.MemFS) {
			if err := fs.Remove(files(t, fs, ".sst")[0]); err != nil {
				t.Fatal(err)
			}
		},
		"the manifest is missing": func(t *testing.T, fs *vfs.MemFS) {
			if err := fs.Remove(files(t, fs, "MANIFEST")[0]); err != nil {
				t.Fatal(err)
			}
		},
		"the markers are missing": func(t *testing.T, fs *vfs.MemFS) {
			for _, f := range files(t, fs, "marker.") {
				if err := fs.Remove(f); err != nil {
					t.Fatal(err)
				}
			}
		},
		"the manifest is garbled": func(t *testing.T, fs *vfs.MemFS) {
			overwrite(t, fs, files(t, fs, "MANIFEST")[0], func(b []byte) []byte { b[20] ^= 0xff; return b })
		},
		"the log is garbled in its middle": func(t *testing.T, fs *vfs.MemFS) {
			// Pebble tells a torn end from damage by what follows, from 32 KiB on.
			s := open(t, fs)
			o := own(t, s, "den")
			for range 20 {
				o.write(t, 100)
			}
			closeStore(t, s)
			logs := files(t, fs, ".log")
			overwrite(t, fs, logs[len(logs)-1], func(b []byte) []byte { b[40] ^= 0xff; return b })
		},
	} {
		t.Run(name, func(t *testing.T) {
			fs := written(t)
			harm(t, fs)
			refuse(t, fs, ErrDamaged)
		})
	}
}

func TestAGapInTheJournalIsDamageAndNamesItsPlace(t *testing.T) {
	fs := written(t)
	rewrite(t, fs, func(db *pebble.DB) {
		if err := db.Delete(appendBlockKey(nil, 1, 40), pebble.Sync); err != nil {
			t.Fatal(err)
		}
		if err := db.Set(appendBlockKey(nil, 2, 2), []byte("\x01\x01\x0csecret words"), pebble.Sync); err != nil {
			t.Fatal(err)
		}
	})
	s := open(t, fs)
	damage := func(err error, room event.RoomID, at int) {
		t.Helper()
		if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), fmt.Sprintf("room %s, position %d:", room, at)) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v", err)
		}
	}
	for _, c := range []struct{ after, to event.Seq }{{0, 100}, {39, 40}, {39, 50}, {30, 40}} {
		_, err := s.Read("den", c.after, c.to, 0)
		damage(err, "den", 40)
	}
	if got, err := s.Read("den", 40, 100, 0); err != nil || len(got) != 60 {
		t.Errorf("beyond the gap: %d, %v", len(got), err)
	}
	if got, err := s.Read("den", 0, 39, 0); err != nil || len(got) != 39 {
		t.Errorf("before the gap: %d, %v", len(got), err)
	}
	_, err := s.Recover("den")
	damage(err, "den", 40)
	_, err = s.Read("other", 0, 3, 0)
	damage(err, "other", 2)
	_, err = s.Recover("other")
	damage(err, "other", 2)
}

func TestARecordThatCannotBeReadIsDamageOfItsRoomOnly(t *testing.T) {
	for name, key := range map[string][]byte{
		"the name": appendName(nil, spaceName, "den"),
		"the term": appendPart(nil, 1, partTerm),
	} {
		for _, raw := range []string{"", "\x00", "\x01", "\x02\x01", "\x01\xff"} {
			fs := written(t)
			rewrite(t, fs, func(db *pebble.DB) {
				if err := db.Set(key, []byte(raw), pebble.Sync); err != nil {
					t.Fatal(err)
				}
			})
			s := open(t, fs)
			if _, err := s.Recover("den"); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "room den") {
				t.Errorf("%s %q: %v", name, raw, err)
			}
			own(t, s, "other").write(t, 1)
			closeStore(t, s)
		}
	}
	fs := written(t)
	rewrite(t, fs, func(db *pebble.DB) {
		if err := db.Delete(appendPart(nil, 1, partTerm), pebble.Sync); err != nil {
			t.Fatal(err)
		}
		if err := db.Set(appendRowKey(nil, 1, event.RunKey("r")), event.AppendRow(nil, &event.InputRow{}), pebble.Sync); err != nil {
			t.Fatal(err)
		}
		if err := db.Set(appendRowKey(nil, 1, event.TranscriptKey("public", 9)), []byte{1, 99}, pebble.Sync); err != nil {
			t.Fatal(err)
		}
		if err := db.Set(appendPart(nil, 2, partSnapshot), append(appendSnapshotHead(nil, 9), 's'), pebble.Sync); err != nil {
			t.Fatal(err)
		}
	})
	s := open(t, fs)
	_, err := s.Recover("den")
	_, err2 := s.Row("den", event.RunKey("r"))
	_, err3 := s.Transcript("den", "public", 0, 99, 1<<20)
	_, err4 := s.Recover("other")
	for i, err := range []error{err, err2, err3, err4} {
		if !errors.Is(err, ErrDamaged) {
			t.Errorf("%d: %v", i, err)
		}
	}
}

// One unreadable block must not end the process and with it every room.
func TestADamagedBlockFailsTheReadThatMeetsIt(t *testing.T) {
	fs := vfs.NewMem()
	s := open(t, fs)
	o := own(t, s, "den")
	o.write(t, 2000)
	own(t, s, "other").write(t, 1)
	if err := s.db.Flush(); err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	overwrite(t, fs, files(t, fs, ".sst")[0], func(b []byte) []byte { b[len(b)/4] ^= 0xff; return b })

	fatal := newFatality()
	s, err := Open(Config{Dir: "data", FS: fs, Fatal: fatal.Fatal, tune: func(o *pebble.Options) { o.DisableAutomaticCompactions = true }})
	if err != nil {
		t.Fatal(err)
	}
	defer closeStore(t, s)
	_, err = s.Read("den", 0, 2000, 0)
	_, err2 := s.Recover("den")
	for _, err := range []error{err, err2} {
		if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "room den") {
			t.Errorf("%v", err)
		}
	}
	own(t, s, "other").write(t, 1)
	select {
	case msg := <-fatal.met:
		t.Errorf("Fatal: %s", msg)
	default:
	}
}

// Pebble tries for ever to write what a crash has left in the log.
func TestADiskThatTakesNothingEndsTheOpening(t *testing.T) {
	out, code := runChild(t, "openOnDeadDisk")
	if code != ExitFatal {
		t.Errorf("exit %d:\n%s", code, out)
	}
}

// Of the names that a directory has got since its last sync a loss of power may
// leave any; a marker must not outlive what it names.
func TestAMarkerIsNotThereBeforeWhatItNames(t *testing.T) {
	mem := vfs.NewCrashableMem()
	s := open(t, mem)
	own(t, s, "den").write(t, 3)
	closeStore(t, s)
	var left []*vfs.MemFS
	s = open(t, errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileSync && op.Path == "data" {
			for i := range uint64(20) {
				left = append(left, mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rand.New(rand.NewPCG(i, 0))}))
			}
		}
		return nil
	})))
	closeStore(t, s)
	if len(left) == 0 {
		t.Error("nothing was synced")
	}
	for _, fs := range left {
		s := open(t, fs)
		wantHead(t, s, "den", 3)
		closeStore(t, s)
	}
}
