package persistence

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"parley/event"
)

// modelRoom is what a room's journal should hold, in maps.
type modelRoom struct {
	entries []*event.Entry
	rows    map[event.Key]event.Row
	snap    []byte
	snapAt  event.Seq
	alarm   time.Time
	inc     event.Incarnation
}

func (m *modelRoom) head() event.Seq { return event.Seq(len(m.entries)) }

// machine plays random calls against a store and a model of it.
type machine struct {
	mem    *vfs.MemFS
	s      *Store
	rooms  map[event.RoomID]*modelRoom // those that exist
	terms  map[event.RoomID]event.Term // the last grant in this process
	before map[event.RoomID]event.Term // an earlier grant
}

var modelNames = []event.RoomID{"a", "a:b", "ab", "demo-1"}

func drawRoom(t *rapid.T) event.RoomID { return rapid.SampledFrom(modelNames).Draw(t, "room") }

func (m *machine) open(t *rapid.T) {
	var err error
	// Room for two records in memory only, so that they come and go.
	if m.s, err = Open(Config{Dir: "data", FS: m.mem, idleRooms: 2}); err != nil {
		t.Fatal(err)
	}
	m.terms, m.before = map[event.RoomID]event.Term{}, map[event.RoomID]event.Term{}
}

func (m *machine) close(t *rapid.T) {
	if err := m.s.Close(); err != nil {
		t.Fatal(err)
	}
}

func (m *machine) room(name event.RoomID) *modelRoom {
	if r := m.rooms[name]; r != nil {
		return r
	}
	return &modelRoom{rows: map[event.Key]event.Row{}}
}

func (m *machine) recover(t *rapid.T) {
	name := drawRoom(t)
	got, err := m.s.Recover(name)
	if err != nil {
		t.Fatal(err)
	}
	if got.Term <= m.terms[name] {
		t.Fatalf("granted %d after %d", got.Term, m.terms[name])
	}
	m.before[name], m.terms[name] = m.terms[name], got.Term
	r := m.room(name)
	want := event.Recovered{Term: got.Term, Head: r.head(), Incarnation: r.inc, Snapshot: r.snap, SnapshotAt: r.snapAt, Alarm: r.alarm}
	if r.head() > r.snapAt {
		want.Tail = r.entries[r.snapAt:]
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("recovered %+v, want %+v", got, want)
	}
}

func (m *machine) append(t *rapid.T) {
	name := drawRoom(t)
	term := m.terms[name]
	if term == 0 {
		return
	}
	r := m.room(name)
	b := m.draw(t, name, r)
	b.Term = term
	if rapid.IntRange(0, 9).Draw(t, "wait for the answer") > 0 {
		if err := appendWait(m.s, b); err != nil {
			t.Fatal(err)
		}
	} else { // whatever comes next is ordered behind it
		m.s.Append(b, func(err error) {
			if err != nil {
				t.Error(err)
			}
		})
		if _, err := m.s.Recover(name); err != nil {
			t.Fatal(err)
		}
		delete(m.terms, name)
	}
	m.rooms[name] = r
	r.entries = append(r.entries, b.Entries...)
	for _, row := range b.Rows {
		r.rows[row.Key] = row.Row
	}
	if b.Snapshot != nil {
		r.snap, r.snapAt = b.Snapshot, b.SnapshotAt
	}
	if b.Alarm != nil {
		r.alarm = *b.Alarm
	}
	r.inc = b.Incarnation
}

func (m *machine) draw(t *rapid.T, name event.RoomID, r *modelRoom) *event.Batch {
	b := &event.Batch{Room: name, Expect: r.head(), Incarnation: 7}
	least := 0
	if r.head() == 0 {
		least = 1
	}
	for range rapid.IntRange(least, 5).Draw(t, "entries") {
		at := b.Expect + event.Seq(len(b.Entries)) + 1
		b.Entries = append(b.Entries, entryAt(name, at))
		if rapid.Bool().Draw(t, "with a row") {
			b.Rows = append(b.Rows, rowFor(name, at, rapid.StringN(0, 20, 40).Draw(t, "text")))
		}
	}
	for range rapid.IntRange(0, 2).Draw(t, "rows") {
		id := event.RunID(rapid.SampledFrom([]string{"r1", "r2", "r3"}).Draw(t, "run"))
		b.Rows = append(b.Rows, event.KeyedRow{Key: event.RunKey(id), Row: &event.RunRow{Run: id, Sequence: uint64(b.Expect)}})
	}
	end := b.Expect + event.Seq(len(b.Entries))
	if rapid.IntRange(0, 4).Draw(t, "snapshot") == 0 {
		b.Snapshot = rapid.SliceOfN(rapid.Byte(), 1, 50).Draw(t, "state")
		b.SnapshotAt = event.Seq(rapid.Uint64Range(uint64(r.snapAt), uint64(end)).Draw(t, "snapshot at"))
	}
	switch rapid.IntRange(0, 4).Draw(t, "alarm") {
	case 0:
		b.Alarm = new(time.Time{})
	case 1:
		b.Alarm = new(time.UnixMilli(rapid.Int64Range(-5, 1<<41).Draw(t, "alarm at")).UTC())
	}
	return b
}

// fenced plays a batch that must change nothing.
func (m *machine) fenced(t *rapid.T) {
	name := drawRoom(t)
	r := m.room(name)
	b := m.draw(t, name, r)
	switch b.Term = m.terms[name]; rapid.IntRange(0, 2).Draw(t, "fault") {
	case 0:
		if b.Term = m.before[name]; b.Term == 0 || m.rooms[name] == nil {
			return
		}
	case 1:
		if r.head() == 0 {
			return
		}
		b.Expect = event.Seq(rapid.Uint64Range(0, uint64(r.head())-1).Draw(t, "expect"))
	case 2:
		b.Expect += event.Seq(rapid.Uint64Range(1, 5).Draw(t, "ahead"))
	}
	for i := range b.Entries {
		b.Entries[i] = entryAt(name, b.Expect+event.Seq(i)+1)
	}
	b.SnapshotAt = min(b.SnapshotAt, b.Expect)
	if err := appendWait(m.s, b); !errors.Is(err, event.ErrFenced) {
		t.Fatalf("expect %d in term %d at %d in term %d: %v", b.Expect, b.Term, r.head(), m.terms[name], err)
	}
}

func (m *machine) delete(t *rapid.T) {
	name := drawRoom(t)
	if err := m.s.Delete(name); err != nil {
		t.Fatal(err)
	}
	delete(m.rooms, name)
	delete(m.terms, name)
	delete(m.before, name)
}

// reopen closes the store, or crashes it, and opens what is on the disk.
func (m *machine) reopen(t *rapid.T) {
	if rapid.Bool().Draw(t, "crash") {
		crashed := m.mem.CrashClone(vfs.CrashCloneCfg{})
		m.close(t)
		m.mem = crashed
	} else {
		m.close(t)
	}
	m.open(t)
}

func (m *machine) flush(t *rapid.T) {
	if err := m.s.db.Flush(); err != nil {
		t.Fatal(err)
	}
}

func (m *machine) read(t *rapid.T) {
	name := drawRoom(t)
	r := m.room(name)
	after := event.Seq(rapid.Uint64Range(0, uint64(r.head())+2).Draw(t, "after"))
	to := event.Seq(rapid.Uint64Range(0, uint64(r.head())+5).Draw(t, "to"))
	most := rapid.IntRange(0, 6).Draw(t, "max")
	got, err := m.s.Read(name, after, to, most)
	if err != nil {
		t.Fatal(err)
	}
	var want []*event.Entry
	if end := min(to, r.head()); end > after {
		want = r.entries[after:end]
		if most > 0 && len(want) > most {
			want = want[:most]
		}
	}
	if len(got) != len(want) || len(got) > 0 && !reflect.DeepEqual(got, want) {
		t.Fatalf("Read(%d, %d, %d): %d entries, want %d", after, to, most, len(got), len(want))
	}
}

func (m *machine) transcript(t *rapid.T) {
	name := drawRoom(t)
	before := event.Seq(rapid.Uint64Range(0, uint64(m.room(name).head())+2).Draw(t, "before"))
	most := rapid.IntRange(0, 6).Draw(t, "rows")
	got, err := m.s.Transcript(name, "public", before, most, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	var want []event.TranscriptRow
	for k, row := range m.room(name).rows {
		if r, ok := row.(*event.TranscriptRow); ok && k.Table == event.TableTranscript && (before == 0 || r.Entry < before) {
			want = append(want, *r)
		}
	}
	slices.SortFunc(want, func(a, b event.TranscriptRow) int { return int(a.Entry) - int(b.Entry) })
	want = want[max(0, len(want)-most):]
	if len(got) != len(want) || len(got) > 0 && !reflect.DeepEqual(got, want) {
		t.Fatalf("transcript before %d: %+v, want %+v", before, got, want)
	}
}

// check compares all that can be listed.
func (m *machine) check(t *rapid.T) {
	var names []event.RoomID
	if err := m.s.Rooms(func(r event.RoomID) bool { names = append(names, r); return true }); err != nil {
		t.Fatal(err)
	}
	if want := slices.Sorted(maps.Keys(m.rooms)); fmt.Sprint(names) != fmt.Sprint(want) {
		t.Fatalf("rooms %v, want %v", names, want)
	}
	got, want := map[event.RoomID]time.Time{}, map[event.RoomID]time.Time{}
	if err := m.s.Alarms(func(r event.RoomID, at time.Time) bool { got[r] = at; return true }); err != nil {
		t.Fatal(err)
	}
	for _, name := range modelNames {
		r := m.room(name)
		if !r.alarm.IsZero() {
			want[name] = r.alarm
		}
		if head, err := m.s.Head(name); err != nil || head != r.head() {
			t.Fatalf("%s: head %d, %v, want %d", name, head, err, r.head())
		}
		for _, id := range []event.RunID{"r1", "r2", "r3"} {
			if row, err := m.s.Row(name, event.RunKey(id)); err != nil || !reflect.DeepEqual(row, r.rows[event.RunKey(id)]) {
				t.Fatalf("%s: row %v, %v, want %v", name, row, err, r.rows[event.RunKey(id)])
			}
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("alarms %v, want %v", got, want)
	}
}

func TestTheStoreBehavesLikeMaps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{mem: vfs.NewCrashableMem(), rooms: map[event.RoomID]*modelRoom{}}
		m.open(t)
		defer m.close(t)
		t.Repeat(map[string]func(*rapid.T){
			"append": m.append, "append again": m.append, "append more": m.append, "recover": m.recover, "recover again": m.recover,
			"fenced": m.fenced, "delete": m.delete, "reopen": m.reopen, "flush": m.flush, "read": m.read, "transcript": m.transcript,
			"": m.check,
		})
	})
}

// The order of keys is what ranges, scans and deletion stand on.
func TestKeysSortAsWhatTheyNameAndReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.Custom(func(t *rapid.T) uint64 {
			return rapid.Uint64().Draw(t, "n") >> rapid.IntRange(0, 63).Draw(t, "shift")
		})
		type place struct {
			room roomNumber
			at   event.Seq
		}
		draw := func(name string) (place, []byte) {
			p := place{roomNumber(number.Draw(t, name+" room")>>1 + 1), event.Seq(number.Draw(t, name+" at"))}
			return p, appendBlockKey(nil, p.room, p.at)
		}
		a, ka := draw("a")
		b, kb := draw("b")
		want := 0
		switch {
		case a.room != b.room:
			want = map[bool]int{true: -1, false: 1}[a.room < b.room]
		case a.at != b.at:
			want = map[bool]int{true: -1, false: 1}[a.at < b.at]
		}
		if got := bytes.Compare(ka, kb); got != want {
			t.Fatalf("%x against %x: %d, want %d", ka, kb, got, want)
		}
		if at, ok := blockLast(ka); !ok || at != a.at {
			t.Fatalf("%x reads back as %d", ka, at)
		}
		lo, hi := roomBounds(a.room)
		if in := bytes.Compare(kb, lo) >= 0 && bytes.Compare(kb, hi) < 0; in != (a.room == b.room) {
			t.Fatalf("the bounds of room %d take in an entry of room %d: %v", a.room, b.room, in)
		}
		lo, hi = blockBounds(a.room, a.at)
		if in := bytes.Compare(kb, lo) >= 0 && bytes.Compare(kb, hi) < 0; in != (a.room == b.room && b.at >= a.at) {
			t.Fatalf("the entries of room %d from %d take in %d of room %d: %v", a.room, a.at, b.at, b.room, in)
		}
		row := appendRowKey(nil, a.room, event.RunKey("r"))
		if bytes.Compare(row, lo) >= 0 && bytes.Compare(row, hi) < 0 {
			t.Fatal("a row lies among the entries")
		}
	})
}
