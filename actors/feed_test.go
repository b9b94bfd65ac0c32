package actors

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"parley/event"
)

func TestReadServesFromMemoryAndElseFromTheJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newMemJournal(), func(c *Config) { c.TailEntries = 8 })
		r.create("hall")
		for i := range 10 {
			r.say("hall", event.InputID(fmt.Sprint("i", i)))
			synctest.Wait()
		}
		reads := r.journal.reads
		for _, tc := range []struct {
			after    event.Seq
			max      int
			want     int
			fromDisk bool
		}{{61, 10, 0, false}, {99, 10, 0, false}, {60, 10, 1, false}, {53, 100, 8, false}, {55, 3, 3, false}, {52, 100, 9, true}, {0, 5, 5, true}} {
			es, head, err := r.Read("hall", tc.after, tc.max)
			if err != nil || head != 61 || len(es) != tc.want {
				t.Errorf("after %d, at most %d: %d entries, head %d, %v", tc.after, tc.max, len(es), head, err)
			}
			for i, e := range es {
				if e.Seq != tc.after+event.Seq(i)+1 {
					t.Errorf("after %d: entry %d has position %d", tc.after, i, e.Seq)
				}
			}
			if disk := r.journal.reads > reads; disk != tc.fromDisk {
				t.Errorf("after %d: read from the journal: %v", tc.after, disk)
			}
			reads = r.journal.reads
		}
		r.stop()
	})
}

// TestReadersSeeEveryEntryOnceAndInOrder reads while rooms write, hibernate and wake.
func TestReadersSeeEveryEntryOnceAndInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newMemJournal(), func(c *Config) { c.TailEntries = 5; c.IdleAfter = 50 * time.Millisecond })
		r.journal.fate = func(k int, _ *event.Batch) fate { return fate{after: time.Duration(k%4) * time.Millisecond} }
		r.create("hall")
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for reader := range 4 {
			wg.Go(func() {
				wake := make(chan struct{}, 1)
				defer r.Follow("hall", func(event.Seq) {
					select {
					case wake <- struct{}{}:
					default:
					}
				})()
				var at event.Seq
				for {
					es, head, err := r.Read("hall", at, 1+reader*3)
					if err != nil {
						t.Error(err)
						return
					}
					for _, e := range es {
						if e.Seq != at+1 || e.Seq > head {
							t.Errorf("reader at %d got %d, head %d", at, e.Seq, head)
							return
						}
						at++
					}
					if at < head {
						continue
					}
					select {
					case <-wake:
					case <-stop:
						if at != 121 {
							t.Errorf("reader %d saw %d entries", reader, at)
						}
						return
					}
				}
			})
		}
		for i := range 20 {
			r.say("hall", event.InputID(fmt.Sprint("i", i)))
			time.Sleep([]time.Duration{20, 50, 51, 200}[i%4] * time.Millisecond)
		}
		synctest.Wait()
		close(stop)
		wg.Wait()
		r.stop()
	})
}

// headHook is a Journal with something to do before Head answers.
type headHook struct {
	*memJournal
	before func()
}

func (h *headHook) Head(id event.RoomID) (event.Seq, error) {
	h.before()
	return h.memJournal.Head(id)
}

func TestAReaderWhoComesWhileTheRoomWakesSeesOnlyWhatIsDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newMemJournal()
		h := &headHook{memJournal: j, before: func() {}}
		r := unstarted(t, h, j, nil)
		r.start()
		r.create("hall")
		time.Sleep(62 * time.Second)
		hold := make(chan struct{})
		h.before = func() { // the room wakes, and writes what is not durable yet
			j.set(func(j *memJournal) { j.fate = func(int, *event.Batch) fate { return fate{hold: hold} } })
			r.do("hall", submit("public", "i1"))
			synctest.Wait()
		}
		if es, head, err := r.Read("hall", 0, 100); err != nil || head != 1 || len(es) != 1 {
			t.Errorf("the reader sees %d entries, head %d, %v", len(es), head, err)
		}
		close(hold)
		r.stop()
	})
}

func TestAFollowerWhoStopsIsToldNothingMore(t *testing.T) {
	in(t, func(r *rig) {
		r.create("hall")
		told := make([]int, 20)
		stops := make([]func(), 20)
		for i := range told {
			stops[i] = r.Follow("hall", func(event.Seq) { told[i]++ })
		}
		for i := 0; i < 20; i += 3 {
			stops[i]()
			stops[i]() // twice does no harm
		}
		r.say("hall", "i1")
		synctest.Wait()
		for i, n := range told {
			if want := i%3 != 0; want != (n > 0) {
				t.Errorf("follower %d was told %d times", i, n)
			}
			stops[i]()
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if r.feeds.find("hall") != nil {
			t.Error("the feed of a room that nobody follows and that hibernates is kept")
		}
	})
}

func TestATailIsBoundedInEntriesAndBytes(t *testing.T) {
	p := publisher{maxEntries: 10, maxBytes: 50_000}
	var head event.Seq
	for i := range 500 {
		var batch []*event.Entry
		for range 1 + i%4 {
			head++
			n := 10
			if i%7 == 0 {
				n = 20_000
			}
			batch = append(batch, &event.Entry{Seq: head, Body: &event.RunEvent{Event: event.AssistantOutput{Delta: strings.Repeat("x", n)}}})
		}
		x := p.add(head, batch)
		size := 0
		for k, e := range x.entries {
			size += entrySize(e)
			if e.Seq != x.first()+event.Seq(k) {
				t.Fatalf("entry %d of a tail from %d has position %d", k, x.first(), e.Seq)
			}
		}
		if len(x.entries) > 10 || size > 50_000 {
			t.Fatalf("a tail has %d entries, %d bytes", len(x.entries), size)
		}
		if cap(p.entries) > 64 {
			t.Fatalf("the array behind it grew to %d", cap(p.entries))
		}
	}
}
