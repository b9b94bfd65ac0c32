package actors

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"parley/driver"
	"parley/event"
	"parley/room"
)

func TestAnIdleRoomHibernatesAndWakesOnACommand(t *testing.T) {
	in(t, func(r *rig) {
		r.create("hall")
		r.say("hall", "i1")
		var heads []event.Seq
		defer r.Follow("hall", func(h event.Seq) { heads = append(heads, h) })()
		time.Sleep(61 * time.Second)
		synctest.Wait()
		if n := r.counts.rooms.Load(); n != 0 {
			t.Fatalf("%d rooms are awake", n)
		}
		x := r.journal.room("hall")
		if x.snapshotAt != x.head || x.head != 7 || !x.alarm.IsZero() {
			t.Errorf("hibernated with a snapshot at %d of %d and the alarm %v", x.snapshotAt, x.head, x.alarm)
		}
		if es, head, err := r.Read("hall", 5, 10); err != nil || head != 7 || len(es) != 2 {
			t.Errorf("a reader of a hibernated room gets %d entries, head %d, %v", len(es), head, err)
		}
		if r.counts.rooms.Load() != 0 {
			t.Error("reading woke the room")
		}
		if x := r.say("hall", "i1"); !x.Duplicate {
			t.Errorf("after waking: %+v", x)
		}
		r.say("hall", "i2")
		synctest.Wait()
		if len(heads) == 0 || heads[len(heads)-1] != 13 {
			t.Errorf("the follower was told %v", heads)
		}
	})
}

func TestARoomThatDoesNotExistIsNotKept(t *testing.T) {
	in(t, func(r *rig) {
		for i := range 100 {
			x := r.do(event.RoomID(fmt.Sprintf("no%d", i)), event.Open{})
			synctest.Wait()
			r.refusedFor(x, event.NotFound)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n := r.counts.rooms.Load(); n != 0 {
			t.Errorf("%d rooms are awake", n)
		}
		if r.journal.appends != 0 {
			t.Error("something was written")
		}
	})
}

func TestARoomWithAnActiveRunStaysAwake(t *testing.T) {
	in(t, func(r *rig) {
		r.create("hall", "slow")
		go1 := make(chan struct{})
		r.drive("slow", driver.RunFunc(func(context.Context, *driver.Turn, driver.Emitter) error {
			<-go1
			return nil
		}))
		r.say("hall", "i1")
		time.Sleep(110 * time.Second)
		synctest.Wait()
		if n := r.counts.rooms.Load(); n != 1 {
			t.Errorf("%d rooms are awake", n)
		}
		close(go1)
		time.Sleep(61 * time.Second)
		synctest.Wait()
		if n := r.counts.rooms.Load(); n != 0 {
			t.Errorf("%d rooms are awake after the run", n)
		}
	})
}

// ask is a driver that asks back.
func ask(_ context.Context, turn *driver.Turn, out driver.Emitter) error {
	if turn.Continues != "" {
		return driver.Say(out, "a", "Thanks.")
	}
	if err := driver.Say(out, "q", "Which one?"); err != nil {
		return err
	}
	return out.Emit(event.InputRequested{Request: "which"})
}

func TestAWaitingRunExpiresWhileItsRoomHibernates(t *testing.T) {
	in(t, func(r *rig) {
		r.create("hall", "ask")
		r.drive("ask", driver.RunFunc(ask))
		r.say("hall", "i1")
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if n := r.counts.rooms.Load(); n != 0 {
			t.Fatalf("%d rooms are awake", n)
		}
		time.Sleep(13*time.Minute - time.Second)
		synctest.Wait()
		if r.counts.recovered.Load() != 1 {
			t.Error("woken too early")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		ks := r.journal.kinds("hall")
		if ks[len(ks)-1] != "deadline_exceeded/1" {
			t.Errorf("journal: %v", ks)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if n := r.counts.rooms.Load(); n != 0 {
			t.Errorf("%d rooms are awake", n)
		}
		if at := r.journal.room("hall").alarm; !at.IsZero() {
			t.Errorf("the alarm is still set to %v", at)
		}
	})
}

func TestAWaitingRunIsContinuedAfterHibernation(t *testing.T) {
	in(t, func(r *rig) {
		r.create("hall", "ask")
		r.drive("ask", driver.RunFunc(ask))
		first := r.say("hall", "i1")
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if n := r.counts.rooms.Load(); n != 0 {
			t.Fatalf("%d rooms are awake", n)
		}
		x := r.say("hall", "i2")
		if x.State != event.Continued || x.Run != first.Run {
			t.Errorf("receipt: %+v", x)
		}
		synctest.Wait()
		ks := r.journal.kinds("hall")
		if !slices.Contains(ks, "attempt_started/2") || ks[len(ks)-1] != "completed/2" {
			t.Errorf("journal: %v", ks)
		}
	})
}

// TestNothingIsLostBetweenPassivationAndCommands lets callers come at the very
// instants at which rooms go to rest, over and over.
func TestNothingIsLostBetweenPassivationAndCommands(t *testing.T) {
	n := seed(t)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newMemJournal(), func(c *Config) { c.IdleAfter = 100 * time.Millisecond })
		r.journal.fate = func(k int, b *event.Batch) fate { return fate{after: time.Duration(k%3) * time.Millisecond} }
		rooms := []event.RoomID{"a", "b", "c"}
		for _, id := range rooms {
			r.create(id)
		}
		const callers, rounds = 3, 200
		var wg sync.WaitGroup
		var mu sync.Mutex
		accepted := map[event.RoomID]map[event.InputID]event.Receipt{"a": {}, "b": {}, "c": {}}
		order := map[string][]int{}
		for c := range callers {
			wg.Go(func() {
				rnd := rand.New(rand.NewPCG(n, uint64(c)))
				for i := range rounds {
					id := rooms[rnd.IntN(len(rooms))]
					in := event.InputID(fmt.Sprintf("c%d-%d", c, i))
					who := fmt.Sprint(c, id)
					for range 1 + rnd.IntN(3) { // some say it more than once
						r.Do(id, submit(event.ChannelID(fmt.Sprintf("ch%d", c)), in), func(reply event.Reply, err error) {
							mu.Lock()
							defer mu.Unlock()
							order[who] = append(order[who], i)
							if err != nil {
								t.Errorf("refused: %v", err)
								return
							}
							x := reply.(event.Receipt)
							if was, ok := accepted[id][in]; ok != x.Duplicate || ok && was.Entry != x.Entry {
								t.Errorf("receipts %+v and %+v", was, x)
							}
							if !x.Duplicate {
								accepted[id][in] = x
							}
						})
					}
					time.Sleep([]time.Duration{0, time.Millisecond, 99 * time.Millisecond, 100 * time.Millisecond, 101 * time.Millisecond, 103 * time.Millisecond}[rnd.IntN(6)])
				}
			})
		}
		wg.Wait()
		time.Sleep(time.Second)
		synctest.Wait()
		if r.counts.rooms.Load() != 0 {
			t.Errorf("%d rooms are awake", r.counts.rooms.Load())
		}
		if n := r.counts.recovered.Load(); n < 10 {
			t.Errorf("only %d activations; the race was not tried", n)
		}
		for id, inputs := range accepted {
			check(t, r.journal.all(id))
			found := 0
			for _, e := range r.journal.all(id) {
				if x, ok := e.Body.(*event.InputAdmitted); ok {
					found++
					if inputs[x.Input].Entry != e.Seq {
						t.Errorf("input %s was journaled at %d, its receipt says %d", x.Input, e.Seq, inputs[x.Input].Entry)
					}
				}
			}
			if found != len(inputs) {
				t.Errorf("%d inputs accepted, %d journaled", len(inputs), found)
			}
		}
		for who, is := range order {
			if !slices.IsSorted(is) {
				t.Errorf("caller %s was answered in the order %v", who, is)
			}
		}
		r.stop()
	})
}

// gate is an Observer that can make the registry wait.
type gate struct {
	counts
	shut chan struct{}
}

func (g *gate) RoomsAwake(d int) {
	if g.shut != nil {
		<-g.shut
	}
	g.counts.RoomsAwake(d)
}

func TestACommandOnItsWayKeepsTheRoomAwake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{counts: counts{refused: map[event.Reason]int{}}}
		r := newRig(t, newMemJournal(), func(c *Config) { c.Observer = g })
		r.create("hall")
		time.Sleep(59 * time.Second)
		synctest.Wait()
		g.shut = make(chan struct{})
		r.do("other", event.Open{}) // the registry is busy with it
		x := r.do("hall", submit("public", "i1"))
		time.Sleep(2 * time.Second) // the room asks to rest, behind the command
		close(g.shut)
		synctest.Wait()
		if _, n, err := x.get(); n != 1 || err != nil {
			t.Errorf("%d answers, %v", n, err)
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if n := r.journal.room("hall").recovers; n != 1 {
			t.Errorf("the room was loaded %d times", n)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := g.rooms.Load(); n != 0 {
			t.Errorf("%d rooms are awake in the end", n)
		}
		r.stop()
	})
}

func TestARoomStaysAwakeWhileADriverHasItsGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newMemJournal(), func(c *Config) { c.IdleAfter = time.Second })
		r.create("hall", "deaf")
		release := make(chan struct{})
		r.drive("deaf", driver.RunFunc(func(context.Context, *driver.Turn, driver.Emitter) error {
			<-release
			return nil
		}))
		x := r.say("hall", "i1")
		r.must(r.Ask(t.Context(), "hall", event.CancelRun{Access: host(), Run: x.Run}))
		time.Sleep(4 * time.Second)
		synctest.Wait()
		if r.counts.rooms.Load() != 1 || r.counts.abandoned.Load() != 0 {
			t.Error("the room hibernated under its driver")
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if r.counts.rooms.Load() != 0 || r.counts.abandoned.Load() != 1 {
			t.Error("the room waits for a driver that was abandoned")
		}
		close(release)
		r.stop()
	})
}

func TestAJournalThatStallsARestingRoomRefusesWhatIsHeld(t *testing.T) {
	in(t, func(r *rig) {
		r.create("hall")
		hold := make(chan struct{})
		r.journal.set(func(j *memJournal) { j.fate = func(int, *event.Batch) fate { return fate{hold: hold} } })
		time.Sleep(62 * time.Second) // it rests, with its last batch under way
		synctest.Wait()
		x := r.do("hall", submit("public", "i1"))
		synctest.Wait()
		if _, n, _ := x.get(); n != 0 {
			t.Error("answered while the room is between two actors")
		}
		time.Sleep(6 * time.Second)
		synctest.Wait()
		r.refusedFor(x, event.Unavailable)
		r.journal.set(func(j *memJournal) { j.fate = nil })
		close(hold)
		synctest.Wait()
		r.say("hall", "i1")
		time.Sleep(62 * time.Second)
		synctest.Wait()
		if n := r.counts.rooms.Load(); n != 0 {
			t.Errorf("%d rooms are awake", n)
		}
	})
}

func TestARoomHibernatesThoughItsLastBatchFails(t *testing.T) {
	in(t, func(r *rig) {
		r.create("hall")
		r.journal.set(func(j *memJournal) { j.fate = func(int, *event.Batch) fate { return fate{err: errDisk, lost: true} } })
		time.Sleep(62 * time.Second)
		synctest.Wait()
		if n := r.counts.rooms.Load(); n != 0 {
			t.Errorf("%d rooms are awake", n)
		}
		r.journal.set(func(j *memJournal) { j.fate = nil })
		r.say("hall", "i1")
	})
}

func TestASnapshotIsWrittenAfter512Entries(t *testing.T) {
	in(t, func(r *rig) {
		r.create("hall")
		for i := range 100 {
			r.say("hall", event.InputID(fmt.Sprint("i", i)))
			synctest.Wait()
		}
		x := r.journal.room("hall")
		if x.head != 601 || x.snapshotAt < 400 || x.snapshotAt > 600 {
			t.Errorf("head %d, snapshot at %d", x.head, x.snapshotAt)
		}
		j := r.journal.crash()
		again := newRig(r.T, j, nil)
		if v := again.must(again.Ask(again.Context(), "hall", event.ReadView{})).(*event.View); v.Head != 601 {
			t.Errorf("restored to %d", v.Head)
		}
		again.stop()
	})
}

func TestAnIdleRoomLetsGoOfWhatCanBeReadAgainAndStaysAwake(t *testing.T) {
	in(t, func(r *rig) {
		r.create("hall")
		r.say("hall", "i1")
		synctest.Wait()
		r.must(r.Ask(context.Background(), "hall", event.ReadView{}))
		synctest.Wait()
		held := func() (entries int, view bool) {
			return len(r.feeds.find("hall").tail.Load().entries), r.View("hall") != nil
		}
		if n, view := held(); n != 7 || !view {
			t.Fatalf("a busy room holds %d entries, view %v", n, view)
		}
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if n, view := held(); n != 0 || view {
			t.Errorf("an idle room holds %d entries, view %v", n, view)
		}
		if n := r.counts.rooms.Load(); n != 1 {
			t.Errorf("%d rooms are awake", n)
		}
		if es, head, err := r.Read("hall", 0, 10); err != nil || head != 7 || len(es) != 7 {
			t.Errorf("a reader gets %d entries, head %d, %v", len(es), head, err)
		}
		if v := r.must(r.Ask(context.Background(), "hall", event.ReadView{})).(*event.View); v.Head != 7 {
			t.Errorf("the view is at %d", v.Head)
		}
		r.say("hall", "i2")
		synctest.Wait()
		if n, _ := held(); n != 6 {
			t.Errorf("a room in use again holds %d entries", n)
		}
		if es, head, err := r.Read("hall", 0, 20); err != nil || head != 13 || len(es) != 13 {
			t.Errorf("a reader from the start gets %d entries, head %d, %v", len(es), head, err)
		}
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if n, _ := held(); n != 0 {
			t.Errorf("idle again, the room holds %d entries", n)
		}
	})
}

// stopping is a context with nothing but the message that an actor has stopped.
type stopping struct{ actor.Context }

func (stopping) Message() any { return &actor.Stopped{} }

// The engine may keep an actor reachable that has stopped.
func TestARoomThatHasStoppedHoldsNothing(t *testing.T) {
	r := &roomActor{state: room.New("hall"), feed: &feed{}, rowAt: map[event.Key]int{}, pending: queue{buf: make([]item, 9)}}
	r.Receive(stopping{})
	if !reflect.DeepEqual(r, &roomActor{}) {
		t.Errorf("it holds %+v", r)
	}
}
