package actors

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"parley/driver"
	"parley/event"
)

// hang is a driver that says something and then only waits for its end.
func hang(ctx context.Context, _ *driver.Turn, out driver.Emitter) error {
	if err := out.Emit(event.Checkpoint{Value: []byte(`{"step":1}`)}); err != nil {
		return err
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

func TestAfterACrashTheRunGetsItsNextAttemptResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newMemJournal(), nil)
		r.create("hall", "slow")
		r.drive("slow", driver.RunFunc(hang))
		first := r.say("hall", "i1")
		synctest.Wait()

		left := r.journal.crash() // as after kill -9
		again := unstarted(t, left, left, nil)
		var turn *driver.Turn
		again.drive("slow", driver.RunFunc(func(_ context.Context, x *driver.Turn, out driver.Emitter) error {
			turn = x
			return driver.Say(out, "a", "Here it is.")
		}))
		again.start()
		synctest.Wait()
		if turn == nil {
			t.Fatal("no driver was called")
		}
		if !turn.Resumed || turn.Attempt != 2 || string(turn.Checkpoint) != `{"step":1}` || turn.Run != first.Run || turn.Text != "What is this?" {
			t.Errorf("turn: %+v", turn)
		}
		ks := again.journal.kinds("hall")
		if want := []string{"room", "input", "attempt_started/1", "checkpoint/1", "attempt_started/2", "assistant_output/2", "completed/2"}; !slices.Equal(ks, want) {
			t.Errorf("journal: %v", ks)
		}
		again.stop()
		r.stop()
	})
}

func TestRoomsThatAreDueWakeLatestFirstAndBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newMemJournal(), nil)
		r.drive("slow", driver.RunFunc(hang))
		const n = 100
		for i := range n {
			id := event.RoomID(fmt.Sprintf("r%03d", i))
			r.create(id, "slow")
			r.say(id, "i1")
			synctest.Wait()
			time.Sleep(time.Millisecond)
		}
		r.create("quiet")
		j := r.journal.crash()
		var order []event.RoomID
		var at, most atomic.Int64
		j.loadErr = func(id event.RoomID) error {
			j.mu.Lock()
			order = append(order, id)
			j.mu.Unlock()
			if k := at.Add(1); k > most.Load() {
				most.Store(k)
			}
			time.Sleep(10 * time.Millisecond)
			at.Add(-1)
			return nil
		}
		again := unstarted(t, j, j, func(c *Config) { c.RecoverAtOnce = 4 })
		again.drive("slow", driver.RunFunc(hang))
		again.start()
		time.Sleep(time.Millisecond)
		start := time.Now()
		again.must(again.Ask(again.Context(), "quiet", event.ReadView{}))
		if d := time.Since(start); d > 20*time.Millisecond {
			t.Errorf("a command waited %v for the recovery of other rooms", d)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if most.Load() > 5 { // and the one of the command
			t.Errorf("%d rooms were loaded at once", most.Load())
		}
		order = slices.DeleteFunc(order, func(id event.RoomID) bool { return id == "quiet" })
		if len(order) != n {
			t.Fatalf("%d rooms woke", len(order))
		}
		for i, id := range order {
			var k int
			if _, err := fmt.Sscanf(string(id), "r%d", &k); err != nil {
				t.Fatal(err)
			}
			if want := n - 1 - i; k < want-4 || k > want+4 {
				t.Errorf("room %s woke as number %d", id, i)
			}
		}
		for i := range n {
			ks := again.journal.kinds(event.RoomID(fmt.Sprintf("r%03d", i)))
			if !slices.Contains(ks, "attempt_started/2") || slices.Contains(ks, "attempt_started/3") {
				t.Fatalf("room %d: %v", i, ks)
			}
		}
		again.stop()
		r.stop()
	})
}

func TestARoomIsWokenOnceThoughACommandComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newMemJournal(), nil)
		r.drive("slow", driver.RunFunc(hang))
		for i := range 10 {
			id := event.RoomID(fmt.Sprint("r", i))
			r.create(id, "slow")
			r.say(id, "i1")
		}
		synctest.Wait()
		left := r.journal.crash()
		again := unstarted(t, left, left, func(c *Config) { c.RecoverAtOnce = 1 })
		again.drive("slow", driver.RunFunc(hang))
		again.start()
		for i := range 10 {
			again.do(event.RoomID(fmt.Sprint("r", i)), event.ReadView{})
		}
		synctest.Wait()
		for i := range 10 {
			id := event.RoomID(fmt.Sprint("r", i))
			if n := again.journal.room(id).recovers; n != 2 {
				t.Errorf("room %s was loaded %d times", id, n-1)
			}
			if ks := again.journal.kinds(id); !slices.Contains(ks, "attempt_started/2") || slices.Contains(ks, "attempt_started/3") {
				t.Errorf("room %s: %v", id, ks)
			}
		}
		again.stop()
		r.stop()
	})
}

func TestADeadlineFiresOnceAlsoAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newMemJournal(), nil)
		r.create("hall", "slow")
		r.drive("slow", driver.RunFunc(hang))
		r.say("hall", "i1")
		synctest.Wait()
		j := r.journal.crash()
		time.Sleep(100 * time.Second)
		again := unstarted(t, j, j, nil)
		again.drive("slow", driver.RunFunc(hang))
		again.start()
		time.Sleep(19 * time.Second)
		synctest.Wait()
		if ks := again.journal.kinds("hall"); ks[len(ks)-1] != "checkpoint/2" {
			t.Errorf("before the deadline: %v", ks)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		ks := again.journal.kinds("hall")
		if ks[len(ks)-1] != "deadline_exceeded/2" {
			t.Errorf("after the deadline: %v", ks)
		}
		again.stop()
		r.stop()
	})
}

// TestWhatWasAcceptedSurvivesACrashAfterEveryBatch takes the journal as it is
// after each batch of a scenario and lets a new system go on from there.
func TestWhatWasAcceptedSurvivesACrashAfterEveryBatch(t *testing.T) {
	for k := 0; ; k++ {
		done := false
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, newMemJournal(), nil)
			r.drive("ask", driver.RunFunc(ask))
			cut := make(chan struct{})
			r.journal.fate = func(n int, _ *event.Batch) fate {
				if n >= k {
					return fate{hold: cut, err: errDisk, lost: true}
				}
				return fate{}
			}
			accepted := map[event.InputID]bool{}
			step := func(id event.InputID, cmd event.Command) {
				r.Do("hall", cmd, func(_ event.Reply, err error) {
					if err == nil {
						accepted[id] = true
					}
				})
				synctest.Wait()
			}
			step("", event.Configure{Access: host(), Config: config("guide", "ask")})
			for i := range 4 {
				s := submit("public", event.InputID(fmt.Sprint("i", i)))
				s.Input.Agents = []event.AgentID{[]event.AgentID{"guide", "ask", "ask", "guide"}[i]}
				step(s.Input.ID, s)
			}
			before := r.journal.all("hall")
			done = r.journal.appends <= k
			close(cut)
			synctest.Wait()

			left := r.journal.crash()
			again := unstarted(t, left, left, nil)
			again.drive("ask", driver.RunFunc(ask))
			again.start()
			time.Sleep(time.Hour)
			synctest.Wait()
			after := again.journal.all("hall")
			if len(after) < len(before) {
				t.Fatalf("%d entries before the crash, %d after", len(before), len(after))
			}
			check(t, after)
			admitted := map[event.InputID]bool{}
			for _, e := range after {
				if x, ok := e.Body.(*event.InputAdmitted); ok {
					admitted[x.Input] = true
				}
			}
			for id := range accepted {
				if id != "" && !admitted[id] {
					t.Errorf("input %s was accepted and is gone", id)
				}
			}
			if v := again.must(again.Ask(again.Context(), "hall", event.Open{Template: ptr(config())})); v == nil {
				t.Error("no room")
			}
			v := again.must(again.Ask(again.Context(), "hall", event.ReadView{})).(*event.View)
			if len(v.Runs) != 0 {
				t.Errorf("an hour later %d runs are open", len(v.Runs))
			}
			again.stop()
			r.stop()
		})
		if t.Failed() {
			t.Fatalf("at batch %d", k)
		}
		if done {
			if k < 5 {
				t.Fatalf("the scenario has only %d batches", k)
			}
			return
		}
	}
}

func ptr[T any](v T) *T { return &v }

// heldRecover is a journal in which taking a room over waits, as it does while
// the fsync before it hangs.
type heldRecover struct {
	*memJournal
	gate chan struct{}
}

func (j heldRecover) Recover(id event.RoomID) (event.Recovered, error) {
	<-j.gate
	return j.memJournal.Recover(id)
}

func TestALoadThatHangsIsToldWithinTheCommitDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newMemJournal()
		r := newRig(t, j, nil)
		r.create("hall")
		first := r.say("hall", "i1")
		r.stop()

		held := heldRecover{j, make(chan struct{})}
		again := unstarted(t, held, j, nil)
		again.start()
		waits := again.do("hall", submit("public", "i1"))
		time.Sleep(5*time.Second - time.Millisecond)
		synctest.Wait()
		if _, n, _ := waits.get(); n != 0 {
			t.Fatal("answered before the deadline")
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		again.refusedFor(waits, event.Unavailable)
		late := again.do("hall", submit("public", "i1"))
		synctest.Wait()
		again.refusedFor(late, event.Unavailable)

		close(held.gate)
		synctest.Wait()
		if x := again.say("hall", "i1"); !x.Duplicate || x.Entry != first.Entry {
			t.Errorf("after the load: %+v, before %+v", x, first)
		}
		again.stop()
	})
}
