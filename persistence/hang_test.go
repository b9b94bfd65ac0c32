package persistence

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"parley/event"
)

// A batch is readable in Pebble before its fsync is done; showing it would show
// what may be lost.
func TestNothingIsReadBeforeItsFsync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		syncs, fs := newLogSyncs(vfs.NewMem())
		s := open(t, fs)
		o := own(t, s, "den")
		o.write(t, 2)
		gone := own(t, s, "gone")
		gone.write(t, 1)

		syncs.hang()
		defer syncs.release(nil) // else a failure below could not close the store
		answered := 0
		count := func(err error) {
			if err != nil {
				t.Error(err)
			}
			answered++
		}
		b := o.batch(2)
		b.Alarm = new(time.UnixMilli(7))
		b.Snapshot, b.SnapshotAt = []byte("later"), 4
		b.Rows = append(b.Rows, event.KeyedRow{Key: event.RunKey("r"), Row: &event.RunRow{Run: "r"}})
		s.Append(b, count)
		s.Append(own2(o, "fresh").batch(1), count)
		deleted := make(chan error, 1)
		go func() { deleted <- s.Delete("gone") }()
		synctest.Wait()
		s.Append(o.batch(1), count) // a second group in flight
		synctest.Wait()
		if syncs.count() == 0 {
			t.Fatal("no fsync hangs")
		}

		check := func(head event.Seq, rooms int, alarm int, row event.Row) {
			t.Helper()
			wantHead(t, s, "den", head)
			got, err := s.Read("den", 0, 99, 0)
			if err != nil {
				t.Fatal(err)
			}
			wantEntries(t, "den", got, 0, head)
			said, err := s.Transcript("den", "public", 0, 99, 1<<20)
			if err != nil || len(said) != int(head) {
				t.Errorf("%d transcript rows, %v", len(said), err)
			}
			if r, err := s.Row("den", event.RunKey("r")); err != nil || !reflect.DeepEqual(r, row) {
				t.Errorf("row %v, %v", r, err)
			}
			if names := roomNames(t, s); len(names) != rooms {
				t.Errorf("rooms %v", names)
			}
			if got := alarms(t, s); len(got) != alarm {
				t.Errorf("alarms %v", got)
			}
		}
		check(2, 2, 0, nil)
		wantHead(t, s, "gone", 1)
		wantHead(t, s, "fresh", 0)
		if answered != 0 || len(deleted) != 0 {
			t.Error("answered before the fsync")
		}

		syncs.release(nil)
		synctest.Wait()
		if answered != 3 {
			t.Errorf("%d answers", answered)
		}
		if err := <-deleted; err != nil {
			t.Error(err)
		}
		check(5, 2, 1, &event.RunRow{Run: "r"})
		wantHead(t, s, "gone", 0)
		wantHead(t, s, "fresh", 1)
		closeStore(t, s)
	})
}

// own2 makes an owner of another room with the first one's term, as it stands
// for a room that was never created.
func own2(o *owner, room event.RoomID) *owner { return &owner{s: o.s, room: room, term: o.term} }

// The outcome of a late batch is unknown to its owner. The next owner must not
// start before it is known.
func TestRecoveryWaitsForTheOutstandingBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		syncs, fs := newLogSyncs(vfs.NewMem())
		s := open(t, fs)
		o := own(t, s, "den")
		o.write(t, 1)
		syncs.hang()
		defer syncs.release(nil) // else a failure below could not close the store
		s.Append(o.batch(2), func(error) {})
		synctest.Wait()
		s.Append(o.batch(1), func(error) {})
		got := make(chan event.Recovered, 1)
		go func() {
			r, err := s.Recover("den")
			if err != nil {
				t.Error(err)
			}
			got <- r
		}()
		synctest.Wait()
		if len(got) != 0 {
			t.Fatal("recovered past an outstanding batch")
		}
		// The old owner goes on in vain: its term ends with the recovery.
		late := make(chan error, 1)
		s.Append(o.batch(1), func(err error) { late <- err })
		syncs.release(nil)
		r := <-got
		if r.Head != 4 || r.Term <= o.term {
			t.Errorf("%+v", r)
		}
		wantEntries(t, "den", r.Tail, 0, 4)
		if err := <-late; !errors.Is(err, event.ErrFenced) {
			t.Errorf("a batch after the recovery: %v", err)
		}
		closeStore(t, s)
	})
}

func TestTheAgeOfAStuckCommitIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		syncs, fs := newLogSyncs(vfs.NewMem())
		s := open(t, fs)
		o := own(t, s, "den")
		time.Sleep(time.Hour)
		if age := s.Metrics().OldestOutstanding; age != 0 {
			t.Errorf("nothing is outstanding for %v", age)
		}
		syncs.hang()
		defer syncs.release(nil) // else a failure below could not close the store
		s.Append(o.batch(1), func(error) {})
		time.Sleep(10 * time.Second)
		s.Append(o.batch(1), func(error) {})
		time.Sleep(10 * time.Second)
		s.Append(o.batch(1), func(error) {})
		time.Sleep(10 * time.Second)
		if m := s.Metrics(); m.OldestOutstanding != 30*time.Second || m.Queued != 1 {
			t.Errorf("%+v", m)
		}
		syncs.release(nil)
		synctest.Wait()
		if age := s.Metrics().OldestOutstanding; age != 0 {
			t.Errorf("outstanding for %v after the last answer", age)
		}
		closeStore(t, s)
	})
}

// A failed fsync must never become an answer: the log may have lost what Pebble
// still shows.
func TestAFailedFsyncEndsTheProcess(t *testing.T) {
	mem := vfs.NewCrashableMem()
	syncs, fs := newLogSyncs(mem)
	fatal := newFatality()
	s, err := Open(Config{Dir: "data", FS: fs, Fatal: fatal.Fatal})
	if err != nil {
		t.Fatal(err)
	}
	o := own(t, s, "den")
	o.write(t, 3)
	syncs.hang()
	s.Append(o.batch(1), func(err error) { t.Errorf("answered %v", err) })
	s.Append(o.batch(1), func(err error) { t.Errorf("answered %v", err) })
	syncs.release(errorfs.ErrInjected)
	if msg := <-fatal.met; !strings.Contains(msg, "injected error") {
		t.Errorf("Fatal was told %q", msg)
	}
	wantHead(t, s, "den", 3)
	if err := s.Close(); err == nil {
		t.Error("closed as if nothing had been")
	}
	s = open(t, mem.CrashClone(vfs.CrashCloneCfg{}))
	wantHead(t, s, "den", 3)
}

func TestAFullDiskRefusesNewCommitsAndServesTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		free := func(percent uint64) {
			fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: percent << 20, TotalBytes: 100 << 20, UsedBytes: (100 - percent) << 20})
		}
		free(6)
		s := open(t, fs)
		o := own(t, s, "den")
		o.write(t, 2)
		own(t, s, "old").write(t, 1)
		if err := s.Writable(); err != nil {
			t.Errorf("6 %% free: %v", err)
		}

		free(5)
		time.Sleep(time.Second)
		synctest.Wait()
		if err := s.Writable(); !errors.Is(err, event.ErrDiskFull) {
			t.Errorf("5 %% free: %v", err)
		}
		before := s.Metrics().Commits
		if err := appendWait(s, (&owner{room: "den", term: o.term, head: 2}).batch(1)); !errors.Is(err, event.ErrDiskFull) {
			t.Errorf("Append: %v", err)
		}
		if err := appendWait(s, (&owner{room: "new", term: o.term}).batch(1)); !errors.Is(err, event.ErrDiskFull) {
			t.Errorf("Append: %v", err)
		}
		// Reading, activation and deletion, which makes room, go on.
		wantHead(t, s, "den", 2)
		next := own(t, s, "den")
		if next.head != 2 {
			t.Errorf("recovered %d", next.head)
		}
		if m := s.Metrics(); m.Commits != before || m.DiskFull != 2 {
			t.Errorf("something was written: %+v", m)
		}
		if err := s.Delete("old"); err != nil {
			t.Error(err)
		}

		free(50)
		time.Sleep(time.Second)
		synctest.Wait()
		if err := s.Writable(); err != nil {
			t.Errorf("50 %% free: %v", err)
		}
		if err := appendWait(s, (&owner{room: "den", term: o.term, head: 2}).batch(1)); !errors.Is(err, event.ErrFenced) {
			t.Errorf("the owner before the recovery: %v", err)
		}
		next.write(t, 1)
		closeStore(t, s)

		free(1)
		s = open(t, fs)
		if err := s.Writable(); !errors.Is(err, event.ErrDiskFull) {
			t.Errorf("opened on a full disk: %v", err)
		}
		wantHead(t, s, "den", 3)
		closeStore(t, s)
	})
}

// Pebble repeats a background error thousands of times; the log tells it once
// in ten seconds with the number of those left out.
func TestRepeatedErrorsAreLoggedRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l limiter
		logged, suppressed := 0, 0
		for range 40_000 {
			if n, ok := l.allow(); ok {
				logged++
				suppressed += n
			}
			time.Sleep(time.Millisecond)
		}
		if logged != 4 || suppressed != 29_997 {
			t.Errorf("%d lines, %d told as suppressed", logged, suppressed)
		}
	})
}
