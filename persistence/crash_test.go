package persistence

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"parley/event"
)

// Rooms append at once; in the middle of it the machine loses its power, with a
// random part of what was not synced on disk.
func TestACrashLosesNoAnsweredBatchAndLeavesNoHalfOne(t *testing.T) {
	rng := random(t)
	rounds := 100
	if testing.Short() {
		rounds = 15
	}
	for round := range rounds {
		crashRound(t, rng, round)
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
}

func crashRound(t *testing.T, rng *rand.Rand, round int) {
	const rooms, batches = 6, 8
	mem := vfs.NewCrashableMem()
	s := open(t, mem)
	crashAt := 1 + rng.IntN(rooms*batches)
	cfg := vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rand.New(rand.NewPCG(rng.Uint64(), 0))}

	var mu sync.Mutex // guards what follows
	var crashed *vfs.MemFS
	answers := 0
	answered := map[event.RoomID]event.Seq{}
	ends := map[event.RoomID]map[event.Seq]bool{} // where batches end

	for i := range rooms {
		ends[event.RoomID(fmt.Sprintf("room-%d", i))] = map[event.Seq]bool{0: true}
	}
	var wg sync.WaitGroup
	for i := range rooms {
		room := event.RoomID(fmt.Sprintf("room-%d", i))
		sizes := make([]int, batches)
		for j := range sizes {
			sizes[j] = 1 + rng.IntN(5)
		}
		wg.Go(func() {
			o := own(t, s, room)
			var all sync.WaitGroup
			for _, n := range sizes {
				b := o.batch(n)
				end := o.head
				b.Alarm = new(time.UnixMilli(int64(end)))
				b.Snapshot, b.SnapshotAt = fmt.Append(nil, end), end
				// Long texts make a batch span blocks of the log.
				for k := range b.Rows {
					b.Rows[k] = rowFor(room, b.Entries[k].Seq, string(make([]byte, 3000)))
				}
				mu.Lock()
				ends[room][end] = true
				mu.Unlock()
				all.Add(1)
				s.Append(b, func(err error) {
					defer all.Done()
					mu.Lock()
					defer mu.Unlock()
					if err != nil {
						t.Error(err)
					}
					if crashed != nil {
						return
					}
					answered[room] = end
					if answers++; answers == crashAt {
						crashed = mem.CrashClone(cfg)
					}
				})
				if n%2 == 0 {
					all.Wait() // otherwise the next one goes out at once
				}
			}
			all.Wait()
		})
	}
	wg.Wait()
	closeStore(t, s)

	s = open(t, crashed)
	defer closeStore(t, s)
	for i := range rooms {
		room := event.RoomID(fmt.Sprintf("room-%d", i))
		head, err := s.Head(room)
		if err != nil {
			t.Fatal(err)
		}
		if head < answered[room] {
			t.Errorf("round %d: %s is at %d, %d was answered", round, room, head, answered[room])
		}
		if !ends[room][head] {
			t.Errorf("round %d: %s ends at %d, inside a batch", round, room, head)
		}
		got, err := s.Read(room, 0, head, 0)
		if err != nil {
			t.Fatal(err)
		}
		wantEntries(t, room, got, 0, head)
		rows, err := s.Transcript(room, "public", 0, 1000, 1<<30)
		if err != nil || len(rows) != int(head) {
			t.Errorf("round %d: %s has %d rows at %d, %v", round, room, len(rows), head, err)
		}
		r, err := s.Recover(room)
		if err != nil {
			t.Fatal(err)
		}
		if head == 0 {
			continue
		}
		if r.SnapshotAt != head || string(r.Snapshot) != fmt.Sprint(head) || !r.Alarm.Equal(time.UnixMilli(int64(head))) {
			t.Errorf("round %d: %s at %d has the snapshot of %d and the alarm of %d", round, room, head, r.SnapshotAt, r.Alarm.UnixMilli())
		}
		// The room goes on where it stands.
		if err := appendWait(s, (&owner{room: room, term: r.Term, head: r.Head}).batch(1)); err != nil {
			t.Error(err)
		}
	}
}

// image is all that can be read of a store.
type image map[event.RoomID]roomImage

type roomImage struct {
	Head     event.Seq
	Entries  []*event.Entry
	Said     []event.TranscriptRow
	Snapshot string
	Alarm    int64
	Term     event.Term
}

func imageOf(t testing.TB, s *Store) image {
	t.Helper()
	all := image{}
	v := s.views.acquire()
	defer s.views.release(v)
	for _, name := range roomNames(t, s) {
		rm := &room{name: name}
		err := v.load(rm)
		entries, err1 := s.Read(name, 0, 1<<60, 0)
		said, err2 := s.Transcript(name, "public", 0, 1000, 1<<30)
		_, snap, err3 := v.snapshot(name, rm.num, true)
		if err := errors.Join(err, err1, err2, err3); err != nil {
			t.Fatal(err)
		}
		all[name] = roomImage{Head: rm.head, Entries: entries, Said: said, Snapshot: string(snap), Term: rm.term}
	}
	for room, at := range alarms(t, s) {
		i := all[room]
		i.Alarm = at.UnixMilli()
		all[room] = i
	}
	return all
}

// scenario is a life of a few rooms, one durable step after the other.
func scenario() []func(s *Store) error {
	owners := map[event.RoomID]*owner{}
	recover := func(room event.RoomID) func(*Store) error {
		return func(s *Store) error {
			r, err := s.Recover(room)
			owners[room] = &owner{s: s, room: room, term: r.Term, head: r.Head}
			return err
		}
	}
	write := func(room event.RoomID, n int, more func(*event.Batch)) func(*Store) error {
		return func(s *Store) error {
			o := owners[room]
			b := o.batch(n)
			if more != nil {
				more(b)
			}
			return appendWait(s, b)
		}
	}
	alarm := func(ms int64) func(*event.Batch) {
		return func(b *event.Batch) { b.Alarm = new(time.UnixMilli(ms)) }
	}
	snapshot := func(b *event.Batch) {
		b.SnapshotAt = b.Expect + event.Seq(len(b.Entries))
		b.Snapshot = fmt.Append(nil, "state at ", b.SnapshotAt)
	}
	flush := func(s *Store) error { return s.db.Flush() }
	return []func(*Store) error{
		recover("a"), write("a", 1, nil), write("a", 3, alarm(10)), recover("b"), write("b", 2, nil),
		write("a", 2, snapshot), flush, write("b", 1, alarm(20)), recover("a"), write("a", 1, alarm(5)),
		func(s *Store) error { return s.Delete("b") },
		recover("b"), write("b", 1, nil), flush, write("a", 0, snapshot), write("b", 4, alarm(7)),
	}
}

// The machine loses its power before each write operation of a scenario in
// turn. What is found is the state after the last answered step, or after the
// one that was on its way.
func TestACrashAtEveryWriteLeavesAStateThatWas(t *testing.T) {
	rng := random(t)
	want := []image{{}}
	ops := sweepOnce(t, func(errorfs.Op) {}, func(s *Store) { want = append(want, imageOf(t, s)) })
	if ops < 50 {
		t.Fatalf("the scenario makes only %d write operations", ops)
	}
	step := 1
	if testing.Short() {
		step = 9
	}
	crashes := 0
	for k := 0; k < ops; k += step {
		for _, percent := range []int{0, 50} {
			mem := vfs.NewCrashableMem()
			var crashed *vfs.MemFS
			var at, steps, n int
			var mu sync.Mutex
			sweepOn(t, mem, func(errorfs.Op) {
				mu.Lock()
				defer mu.Unlock()
				if n == k && crashed == nil {
					at = steps
					crashed = mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(rng.Uint64(), 0))})
				}
				n++
			}, func(*Store) {
				mu.Lock()
				defer mu.Unlock()
				steps++
			})
			if crashed == nil {
				continue // background work made fewer operations this time
			}
			crashes++
			s := open(t, crashed)
			got := imageOf(t, s)
			closeStore(t, s)
			if !reflect.DeepEqual(got, want[at]) && (at+1 == len(want) || !reflect.DeepEqual(got, want[at+1])) {
				t.Fatalf("crash before write %d with %d %% of the unsynced data, after step %d:\n%+v\nwant\n%+v", k, percent, at, got, want[at])
			}
		}
	}
	if crashes < ops/step {
		t.Errorf("only %d crashes in %d operations", crashes, ops)
	}
}

// sweepOnce plays the scenario on a fresh disk and returns how many write
// operations it made.
func sweepOnce(t *testing.T, onWrite func(errorfs.Op), onStep func(*Store)) int {
	n := 0
	var mu sync.Mutex
	sweepOn(t, vfs.NewCrashableMem(), func(op errorfs.Op) {
		mu.Lock()
		n++
		mu.Unlock()
		onWrite(op)
	}, onStep)
	return n
}

func sweepOn(t *testing.T, mem *vfs.MemFS, onWrite func(errorfs.Op), onStep func(*Store)) {
	t.Helper()
	s := open(t, errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			onWrite(op)
		}
		return nil
	})))
	for i, step := range scenario() {
		if err := step(s); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		onStep(s)
	}
	closeStore(t, s)
}
