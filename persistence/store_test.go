package persistence

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"parley/event"
)

func TestConfigReportsEveryProblemAtOnce(t *testing.T) {
	_, err := Open(Config{MinFreePercent: 100, CacheBytes: -1})
	for _, key := range []string{"Dir", "MinFreePercent: 100", "CacheBytes: -1"} {
		if err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("the error does not name %s: %v", key, err)
		}
	}
}

func TestARoomThatWasNeverWrittenIsEmpty(t *testing.T) {
	s := open(t, vfs.NewMem())
	r, err := s.Recover("nowhere")
	if err != nil || r.Term == 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	if want := (event.Recovered{Term: r.Term}); !reflect.DeepEqual(r, want) {
		t.Errorf("recovered %+v", r)
	}
	wantHead(t, s, "nowhere", 0)
	if got, err := s.Read("nowhere", 0, 10, 10); got != nil || err != nil {
		t.Errorf("Read: %v, %v", got, err)
	}
	if row, err := s.Row("nowhere", event.RunKey("r")); row != nil || err != nil {
		t.Errorf("Row: %v, %v", row, err)
	}
	if rows, err := s.Transcript("nowhere", "public", 0, 10, 1<<20); rows != nil || err != nil {
		t.Errorf("Transcript: %v, %v", rows, err)
	}
	if names := roomNames(t, s); names != nil {
		t.Errorf("reading created %v", names)
	}
	if err := s.Delete("nowhere"); err != nil {
		t.Error(err)
	}
}

func TestABatchIsReadBackWhole(t *testing.T) {
	fs := vfs.NewMem()
	s := open(t, fs)
	o := own(t, s, "den")
	at := time.UnixMilli(1_900_000_000_123).UTC()
	b := o.batch(3)
	b.Alarm = new(at.Add(999 * time.Microsecond))
	b.Rows = append(b.Rows,
		event.KeyedRow{Key: event.RunKey("r_1"), Row: &event.RunRow{Run: "r_1", Channel: "public", Status: event.RunCompleted, First: 1, Last: 3}},
		event.KeyedRow{Key: event.InputKey("public", event.Person("ann"), "i1"), Row: &event.InputRow{Entry: 1, Run: "r_1", State: event.Started, Digest: [32]byte{1}}})
	b.Snapshot, b.SnapshotAt = []byte("state at two"), 2
	if err := appendWait(s, b); err != nil {
		t.Fatal(err)
	}
	check := func(s *Store) {
		t.Helper()
		wantHead(t, s, "den", 3)
		got, err := s.Read("den", 0, 3, 0)
		if err != nil {
			t.Fatal(err)
		}
		wantEntries(t, "den", got, 0, 3)
		for _, want := range b.Rows {
			if row, err := s.Row("den", want.Key); err != nil || !reflect.DeepEqual(row, want.Row) {
				t.Errorf("row %v: %+v, %v", want.Key.Table, row, err)
			}
		}
		if got := alarms(t, s); len(got) != 1 || !got["den"].Equal(at) {
			t.Errorf("alarms %v, want whole milliseconds, rounded down: %v", got, at)
		}
		r, err := s.Recover("den")
		if err != nil {
			t.Fatal(err)
		}
		if r.Head != 3 || r.Incarnation != 7 || string(r.Snapshot) != "state at two" || r.SnapshotAt != 2 || !r.Alarm.Equal(at) || r.Term <= o.term {
			t.Errorf("recovered %+v", r)
		}
		wantEntries(t, "den", r.Tail, 2, 3)
	}
	check(s)
	closeStore(t, s)
	check(open(t, fs))
}

func TestAnEmptySnapshotIsASnapshot(t *testing.T) {
	s := open(t, vfs.NewMem())
	o := own(t, s, "den")
	b := o.batch(2)
	b.Snapshot, b.SnapshotAt = []byte{}, 2
	if err := appendWait(s, b); err != nil {
		t.Fatal(err)
	}
	r, err := s.Recover("den")
	if err != nil || r.Snapshot == nil || r.SnapshotAt != 2 || r.Tail != nil {
		t.Fatalf("%+v, %v", r, err)
	}
}

func TestABatchWithoutEntriesReplacesSnapshotAndAlarm(t *testing.T) {
	s := open(t, vfs.NewMem())
	o := own(t, s, "den")
	b := o.batch(2)
	b.Alarm = new(time.UnixMilli(5))
	if err := appendWait(s, b); err != nil {
		t.Fatal(err)
	}
	b = o.batch(0)
	b.Alarm, b.Snapshot, b.SnapshotAt = new(time.Time{}), []byte("asleep"), 2
	if err := appendWait(s, b); err != nil {
		t.Fatal(err)
	}
	if got := alarms(t, s); len(got) != 0 {
		t.Errorf("the zero time leaves the alarm %v", got)
	}
	r, err := s.Recover("den")
	if err != nil || string(r.Snapshot) != "asleep" || len(r.Tail) != 0 || r.Head != 2 || !r.Alarm.IsZero() {
		t.Errorf("%+v, %v", r, err)
	}
}

// The fence: *placement is a hint; the journal is the lock*.
func TestABatchThatDoesNotFollowIsFencedAndWritesNothing(t *testing.T) {
	s := open(t, vfs.NewMem())
	old := own(t, s, "den")
	old.write(t, 2)
	owner := own(t, s, "den")
	if owner.term <= old.term {
		t.Fatalf("term %d after %d", owner.term, old.term)
	}
	owner.write(t, 1)
	for name, b := range map[string]*event.Batch{
		"older term":          {Room: "den", Term: old.term, Expect: 3, Entries: []*event.Entry{entryAt("den", 4)}},
		"term never granted":  {Room: "den", Term: owner.term + 1, Expect: 3, Entries: []*event.Entry{entryAt("den", 4)}},
		"no term":             {Room: "den", Expect: 3, Entries: []*event.Entry{entryAt("den", 4)}},
		"behind the head":     {Room: "den", Term: owner.term, Expect: 2, Entries: []*event.Entry{entryAt("den", 3)}},
		"ahead of the head":   {Room: "den", Term: owner.term, Expect: 4, Entries: []*event.Entry{entryAt("den", 5)}},
		"alarm of older term": {Room: "den", Term: old.term, Expect: 3, Alarm: new(time.UnixMilli(9))},
	} {
		if err := appendWait(s, b); !errors.Is(err, event.ErrFenced) {
			t.Errorf("%s: %v", name, err)
		}
	}
	wantHead(t, s, "den", 3)
	if got := alarms(t, s); len(got) != 0 {
		t.Errorf("a fenced batch left an alarm")
	}
	owner.write(t, 1)
	if m := s.Metrics(); m.Fenced != 6 || m.Entries != 4 {
		t.Errorf("counted %+v", m)
	}
}

func TestTheFenceHoldsAfterARestart(t *testing.T) {
	fs := vfs.NewMem()
	s := open(t, fs)
	old := own(t, s, "den")
	old.write(t, 1)
	closeStore(t, s)
	s = open(t, fs)
	if err := appendWait(s, (&owner{room: "den", term: old.term + 1, head: 1}).batch(1)); !errors.Is(err, event.ErrFenced) {
		t.Errorf("a term that nobody granted: %v", err)
	}
	if o := own(t, s, "den"); o.term <= old.term {
		t.Errorf("term %d after %d", o.term, old.term)
	}
}

// A recovery fences the owner before it at once and for good, though the new
// owner wrote nothing and the store was opened again.
func TestAGrantIsDurable(t *testing.T) {
	fs := vfs.NewCrashableMem()
	s := open(t, fs)
	old := own(t, s, "den")
	old.write(t, 1)
	silent := own(t, s, "den")
	s = open(t, fs.CrashClone(vfs.CrashCloneCfg{}))
	if err := appendWait(s, old.batch(1)); !errors.Is(err, event.ErrFenced) {
		t.Errorf("the owner before the last grant: %v", err)
	}
	if o := own(t, s, "den"); o.term <= silent.term {
		t.Errorf("term %d after %d", o.term, silent.term)
	}
}

func TestABatchThatCannotBeWrittenFailsAloneAndWritesNothing(t *testing.T) {
	s := open(t, vfs.NewMem())
	o := own(t, s, "den")
	o.write(t, 1)
	good := own(t, s, "other")
	for name, b := range map[string]*event.Batch{
		"a gap":                  {Entries: []*event.Entry{entryAt("den", 2), entryAt("den", 4)}},
		"an entry of no kind":    {Entries: []*event.Entry{entryAt("den", 2), {Seq: 3, Body: nil}}},
		"a run event of nothing": {Entries: []*event.Entry{{Seq: 2, Body: &event.RunEvent{}}}},
		"a row of no table":      {Entries: []*event.Entry{entryAt("den", 2)}, Rows: []event.KeyedRow{{Key: event.Key{ID: "x"}, Row: &event.RunRow{}}}},
		"a table out of range":   {Entries: []*event.Entry{entryAt("den", 2)}, Rows: []event.KeyedRow{{Key: event.Key{Table: 200, ID: "x"}, Row: &event.RunRow{}}}},
		"a missing row":          {Entries: []*event.Entry{entryAt("den", 2)}, Rows: []event.KeyedRow{{Key: event.RunKey("x")}}},
		"a snapshot ahead":       {Entries: []*event.Entry{entryAt("den", 2)}, Snapshot: []byte("s"), SnapshotAt: 3},
	} {
		b.Room, b.Term, b.Expect = "den", o.term, 1
		err := appendWait(s, b)
		if err == nil || errors.Is(err, event.ErrFenced) {
			t.Errorf("%s: %v", name, err)
		}
		wantHead(t, s, "den", 1)
		good.write(t, 1)
	}
	o.write(t, 1)
	if err := appendWait(s, &event.Batch{Room: "new", Term: 1, Snapshot: []byte("s")}); err == nil {
		t.Error("a batch without entries created a room")
	}
	if names := roomNames(t, s); fmt.Sprint(names) != "[den other]" {
		t.Errorf("rooms %v", names)
	}
}

// Batches of a room that are queued together are written in the order of the
// calls, answered in that order, and share commits with other rooms.
func TestBatchesOfARoomKeepTheirOrder(t *testing.T) {
	s := open(t, vfs.NewMem())
	const rooms, batches = 16, 50
	var wg sync.WaitGroup
	for i := range rooms {
		wg.Go(func() {
			room := event.RoomID(fmt.Sprintf("room-%d", i))
			o := own(t, s, room)
			answers := make(chan event.Seq, batches)
			for n := range batches {
				b := o.batch(n % 4)
				if n == 0 {
					b = o.batch(1)
				}
				s.Append(b, func(err error) {
					if err != nil {
						t.Error(err)
					}
					// What was answered is readable by then.
					if head, err := s.Head(room); err != nil || head < b.Expect+event.Seq(len(b.Entries)) {
						t.Errorf("head %d, %v", head, err)
					}
					answers <- b.Expect
				})
			}
			last := event.Seq(0)
			for range batches {
				at := <-answers
				if at < last {
					t.Errorf("answered %d after %d", at, last)
				}
				last = at
			}
			got, err := s.Read(room, 0, o.head, 0)
			if err != nil {
				t.Error(err)
			}
			wantEntries(t, room, got, 0, o.head)
		})
	}
	wg.Wait()
	if m := s.Metrics(); m.Batches != rooms*batches || m.Commits >= m.Batches || m.Queued != 0 || m.OldestOutstanding != 0 {
		t.Errorf("counted %+v", m)
	}
}

// Append may be called without a recovery in sight of it: the record of the room
// was dropped from memory meanwhile. It goes on as if it had stayed.
func TestRoomsOutOfMemoryGoOn(t *testing.T) {
	s, err := Open(Config{Dir: "data", FS: vfs.NewMem(), idleRooms: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer closeStore(t, s)
	var owners []*owner
	for i := range 20 {
		owners = append(owners, own(t, s, event.RoomID(fmt.Sprintf("room-%d", i))))
	}
	for range 5 {
		for _, o := range owners {
			o.write(t, 1)
		}
	}
	for _, o := range owners {
		wantHead(t, s, o.room, 5)
		stale := *o
		fresh := own(t, s, o.room)
		own(t, s, "another").write(t, 1)
		if err := appendWait(s, stale.batch(1)); !errors.Is(err, event.ErrFenced) {
			t.Errorf("room %s: %v", o.room, err)
		}
		fresh.write(t, 1)
	}
	if m := s.Metrics(); m.Rooms > 4 {
		t.Errorf("%d rooms in memory", m.Rooms)
	}
}

func TestADeletedRoomLeavesNothing(t *testing.T) {
	fs := vfs.NewMem()
	s := open(t, fs)
	for _, room := range []event.RoomID{"a", "den", "den2", "z"} {
		o := own(t, s, room)
		b := o.batch(3)
		b.Alarm, b.Snapshot, b.SnapshotAt = new(time.UnixMilli(5)), []byte("s"), 1
		if err := appendWait(s, b); err != nil {
			t.Fatal(err)
		}
	}
	before := own(t, s, "den")
	if err := s.Delete("den"); err != nil {
		t.Fatal(err)
	}
	gone := func() {
		t.Helper()
		if names := roomNames(t, s); fmt.Sprint(names) != "[a den2 z]" {
			t.Errorf("rooms %v", names)
		}
		if got := alarms(t, s); len(got) != 3 {
			t.Errorf("alarms %v", got)
		}
		wantHead(t, s, "den", 0)
		if rows, err := s.Transcript("den", "public", 0, 10, 1<<20); len(rows) != 0 || err != nil {
			t.Errorf("%v, %v", rows, err)
		}
		wantHead(t, s, "den2", 3)
	}
	gone()
	if err := appendWait(s, before.batch(1)); !errors.Is(err, event.ErrFenced) {
		t.Errorf("the owner from before: %v", err)
	}
	closeStore(t, s)
	s = open(t, fs)
	gone()
	r, err := s.Recover("den")
	if err != nil || r.Head != 0 || r.Snapshot != nil || r.Incarnation != 0 || !r.Alarm.IsZero() {
		t.Fatalf("%+v, %v", r, err)
	}
	o := &owner{s: s, room: "den", term: r.Term}
	o.write(t, 1)
	if err := appendWait(s, before.batch(1)); !errors.Is(err, event.ErrFenced) {
		t.Errorf("the owner from before the second life: %v", err)
	}
	got, err := s.Read("den", 0, 9, 0)
	if err != nil {
		t.Fatal(err)
	}
	wantEntries(t, "den", got, 0, 1)
}

// The owner of a deleted room stays fenced when a room of the same name has
// grown to the position it knew.
func TestASecondLifeFencesTheFirst(t *testing.T) {
	s := open(t, vfs.NewMem())
	first := own(t, s, "den")
	first.write(t, 2)
	if err := s.Delete("den"); err != nil {
		t.Fatal(err)
	}
	second := own(t, s, "den")
	second.write(t, 2)
	if err := appendWait(s, first.batch(1)); !errors.Is(err, event.ErrFenced) {
		t.Errorf("the first life wrote into the second: %v", err)
	}
}

func TestReadIsBounded(t *testing.T) {
	s := open(t, vfs.NewMem())
	o := own(t, s, "den")
	o.write(t, 300)
	for _, c := range []struct {
		after, to event.Seq
		max       int
		last      event.Seq
	}{
		{0, 300, 0, 300},
		{0, 1 << 60, 0, 300},
		{0, 300, 10, 10},
		{255, 258, 0, 258},
		{299, 300, 5, 300},
		{300, 400, 5, 300},
		{400, 500, 5, 400},
		{10, 10, 5, 10},
		{10, 5, 5, 10},
		{254, 300, 1, 255},
	} {
		got, err := s.Read("den", c.after, c.to, c.max)
		if err != nil {
			t.Fatal(err)
		}
		wantEntries(t, "den", got, c.after, c.last)
	}

	big := own(t, s, "big")
	for range 5 {
		b := big.batch(1)
		b.Entries[0].Body = &event.RunEvent{Run: "r", Event: event.Checkpoint{Value: make([]byte, 400<<10)}}
		if err := appendWait(s, b); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := s.Read("big", 0, 5, 0); err != nil || len(got) != 2 {
		t.Errorf("%d entries of 400 KiB, %v; 1 MiB holds two", len(got), err)
	}
	b := big.batch(1)
	b.Entries[0].Body = &event.RunEvent{Run: "r", Event: event.Checkpoint{Value: make([]byte, 2<<20)}}
	if err := appendWait(s, b); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Read("big", 5, 6, 0); err != nil || len(got) != 1 {
		t.Errorf("%d entries, %v; an entry above the bound must come alone", len(got), err)
	}
	if r, err := s.Recover("big"); err != nil || len(r.Tail) != 6 {
		t.Errorf("a tail of %d, %v; it has no bound", len(r.Tail), err)
	}
}

func TestTranscriptReturnsTheNewestRowsOldestFirst(t *testing.T) {
	s := open(t, vfs.NewMem())
	o := own(t, s, "den")
	b := o.batch(20)
	for i := range b.Rows {
		// Names that are prefixes of each other must not mix.
		ch := event.ChannelID([]string{"p", "private:a", "private:ab"}[i%3])
		b.Rows[i].Key = event.TranscriptKey(ch, event.Seq(i+1))
	}
	if err := appendWait(s, b); err != nil {
		t.Fatal(err)
	}
	size := len(event.AppendRow(nil, b.Rows[0].Row))
	for _, c := range []struct {
		ch                event.ChannelID
		before            event.Seq
		maxRows, maxBytes int
		want              string
	}{
		{"p", 0, 100, 1 << 20, "[1 4 7 10 13 16 19]"},
		{"private:a", 0, 100, 1 << 20, "[2 5 8 11 14 17 20]"},
		{"private:ab", 0, 2, 1 << 20, "[15 18]"},
		{"p", 16, 2, 1 << 20, "[10 13]"},
		{"p", 17, 2, 1 << 20, "[13 16]"},
		{"p", 1, 2, 1 << 20, "[]"},
		{"p", 0, 100, 2 * size, "[16 19]"},
		{"p", 0, 100, 2*size - 1, "[19]"},
		{"p", 0, 0, 1 << 20, "[]"},
		{"p", 0, 100, 0, "[]"},
		{"private", 0, 100, 1 << 20, "[]"},
	} {
		rows, err := s.Transcript("den", c.ch, c.before, c.maxRows, c.maxBytes)
		if err != nil {
			t.Fatal(err)
		}
		at := []event.Seq{}
		for _, r := range rows {
			at = append(at, r.Entry)
		}
		if fmt.Sprint(at) != c.want {
			t.Errorf("%+v: %v", c, at)
		}
	}
}

func TestScansStopWhenAsked(t *testing.T) {
	s := open(t, vfs.NewMem())
	for i := range 5 {
		o := own(t, s, event.RoomID(fmt.Sprintf("room-%d", i)))
		b := o.batch(1)
		b.Alarm = new(time.UnixMilli(int64(i)))
		if err := appendWait(s, b); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	if err := s.Alarms(func(event.RoomID, time.Time) bool { n++; return n < 2 }); err != nil || n != 2 {
		t.Errorf("%d alarms, %v", n, err)
	}
	n = 0
	if err := s.Rooms(func(event.RoomID) bool { n++; return n < 3 }); err != nil || n != 3 {
		t.Errorf("%d rooms, %v", n, err)
	}
}

func TestCloseAnswersWhatIsQueuedAndRefusesTheRest(t *testing.T) {
	fs := vfs.NewMem()
	s := open(t, fs)
	o := own(t, s, "den")
	const n = 100
	answers := make(chan error, n)
	for range n {
		s.Append(o.batch(1), func(err error) { answers <- err })
	}
	closeStore(t, s)
	for range n {
		if err := <-answers; err != nil {
			t.Errorf("queued before Close: %v", err)
		}
	}
	if err := appendWait(s, o.batch(1)); !errors.Is(err, ErrClosed) {
		t.Errorf("Append: %v", err)
	}
	_, err := s.Recover("den")
	_, err2 := s.Read("den", 0, 1, 1)
	_, err3 := s.Row("den", event.RunKey("r"))
	_, err4 := s.Head("den")
	_, err5 := s.Transcript("den", "public", 0, 1, 1)
	for i, err := range []error{
		err, err2, err3, err4, err5, s.Delete("den"), s.Close(),
		s.Alarms(func(event.RoomID, time.Time) bool { return true }), s.Rooms(func(event.RoomID) bool { return true }),
	} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("call %d after Close: %v", i, err)
		}
	}
	s = open(t, fs)
	wantHead(t, s, "den", n)
}
