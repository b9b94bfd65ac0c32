package persistence

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"parley/event"
)

// logged opens a store that the test closes, and what it logs.
func logged(t *testing.T, fs vfs.FS) (*Store, *observer.ObservedLogs) {
	t.Helper()
	core, logs := observer.New(zap.InfoLevel)
	s, err := Open(Config{Dir: "data", FS: fs, Logger: zap.New(core)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeStore(t, s) })
	return s, logs
}

// A snapshot only spares reading: without it a room has lost nothing.
func TestARoomWithADamagedSnapshotIsReadFromItsEntries(t *testing.T) {
	for _, raw := range []string{"", "\x00", "\x01", "\x02\x01", "\x01\xff"} {
		fs := written(t)
		rewrite(t, fs, func(db *pebble.DB) {
			if err := db.Set(appendPart(nil, 1, partSnapshot), []byte(raw), pebble.Sync); err != nil {
				t.Fatal(err)
			}
		})
		s, logs := logged(t, fs)
		r, err := s.Recover("den")
		if err != nil || r.Head != 100 || r.Snapshot != nil || r.SnapshotAt != 0 || r.Tail != nil {
			t.Errorf("%q: recovered up to %d, snapshot at %d, %d entries, %v", raw, r.Head, r.SnapshotAt, len(r.Tail), err)
		}
		got, err := s.Read("den", 0, r.Head, 0)
		if err != nil {
			t.Fatal(err)
		}
		wantEntries(t, "den", got, 0, 100)
		if n := logs.FilterMessageSnippet("snapshot").FilterField(zap.String("room", "den")).Len(); n != 1 {
			t.Errorf("%q: the operator was told %d times", raw, n)
		}
		next := &owner{s: s, room: "den", term: r.Term, head: r.Head}
		b := next.batch(1)
		b.Snapshot, b.SnapshotAt = []byte("anew"), 101
		if err := appendWait(s, b); err != nil {
			t.Fatal(err)
		}
		if r, err := s.Recover("den"); err != nil || string(r.Snapshot) != "anew" {
			t.Errorf("%q: after a new snapshot: %q, %v", raw, r.Snapshot, err)
		}
	}
}

func TestAnAlarmThatCannotBeReadIsDueAndStopsNoOtherRoom(t *testing.T) {
	fs := written(t)
	later := time.UnixMilli(4_000_000_000_000).UTC()
	rewrite(t, fs, func(db *pebble.DB) {
		for key, val := range map[string][]byte{"den": []byte("\x01"), "other": appendAlarm(nil, later)} {
			if err := db.Set(appendName(nil, spaceAlarm, event.RoomID(key)), val, pebble.Sync); err != nil {
				t.Fatal(err)
			}
		}
	})
	s, logs := logged(t, fs)
	got := alarms(t, s)
	if len(got) != 2 || !got["den"].Equal(time.UnixMilli(0)) || !got["other"].Equal(later) {
		t.Errorf("alarms %v", got)
	}
	if r, err := s.Recover("den"); err != nil || !r.Alarm.Equal(time.UnixMilli(0)) || len(r.Tail) != 100 {
		t.Errorf("recovered with the alarm %v and %d entries, %v", r.Alarm, len(r.Tail), err)
	}
	if n := logs.FilterMessageSnippet("alarm").FilterField(zap.String("room", "den")).Len(); n != 2 {
		t.Errorf("the operator was told %d times", n)
	}
}

// A journal whose last entries are lost must not go on from an older state.
func TestASnapshotAheadOfTheEntriesIsDamage(t *testing.T) {
	fs := written(t)
	rewrite(t, fs, func(db *pebble.DB) {
		if err := db.Set(appendPart(nil, 1, partSnapshot), append(appendSnapshotHead(nil, 101), 's'), pebble.Sync); err != nil {
			t.Fatal(err)
		}
	})
	s, _ := logged(t, fs)
	if _, err := s.Recover("den"); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "room den, position 101:") {
		t.Errorf("%v", err)
	}
}

// A room that lost its snapshot does not bring all it ever held into memory.
func TestALongTailIsLeftToBeRead(t *testing.T) {
	s := open(t, vfs.NewMem())
	o := own(t, s, "den")
	o.write(t, maxTail)
	if r, err := s.Recover("den"); err != nil || len(r.Tail) != maxTail {
		t.Fatalf("%d entries, %v", len(r.Tail), err)
	}
	o = own(t, s, "den")
	o.write(t, 1)
	r, err := s.Recover("den")
	if err != nil || r.Tail != nil || r.Head != maxTail+1 {
		t.Fatalf("%d entries up to %d, %v", len(r.Tail), r.Head, err)
	}
}

func TestGroupCommitsAreObserved(t *testing.T) {
	seen := make(chan time.Duration, 10)
	s, err := Open(Config{Dir: "data", FS: vfs.NewMem(), Observer: func(took time.Duration) { seen <- took }})
	if err != nil {
		t.Fatal(err)
	}
	o := own(t, s, "den")
	o.write(t, 1)
	o.write(t, 2)
	closeStore(t, s)
	if n := uint64(len(seen)); n == 0 || n != s.Metrics().Commits {
		t.Errorf("%d commits were observed of %d", n, s.Metrics().Commits)
	}
}

// Pebble would try for ever to write its log into a table on such a disk.
func TestADiskWithoutRoomForTheLogIsRefusedAndLeftAsItIs(t *testing.T) {
	fs := written(t)
	size := uint64(0)
	for _, name := range files(t, fs, ".log") {
		info, err := fs.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		size += uint64(info.Size())
	}
	before, err := fs.List("data")
	if err != nil {
		t.Fatal(err)
	}
	free := func(n uint64) {
		fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: n, TotalBytes: 100 << 20, UsedBytes: 100<<20 - n})
	}
	free(size + openSlack - 1)
	refuse(t, fs, ErrNoSpace)
	if after, err := fs.List("data"); err != nil || len(after) != len(before) {
		t.Errorf("files before %v, after %v, %v", before, after, err)
	}
	free(size + openSlack)
	s := open(t, fs)
	wantHead(t, s, "den", 100)
	if err := s.Writable(); !errors.Is(err, event.ErrDiskFull) {
		t.Errorf("Writable: %v", err)
	}
	if m := s.Metrics(); m.DiskAvailable != size+openSlack || m.DiskTotal != 100<<20 || !m.Full {
		t.Errorf("metrics: %d of %d free, full %t", m.DiskAvailable, m.DiskTotal, m.Full)
	}
}
