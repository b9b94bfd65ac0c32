package actors

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"parley/driver"
	"parley/event"
)

func TestShutdownLetsAttemptsGoInGoodOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newMemJournal(), nil)
		r.create("hall", "slow")
		var cause, late error
		r.drive("slow", driver.RunFunc(func(ctx context.Context, turn *driver.Turn, out driver.Emitter) error {
			err := hang(ctx, turn, out)
			cause, late = context.Cause(ctx), out.Emit(event.Progress{Stage: "more"})
			return err
		}))
		r.say("hall", "i1")
		synctest.Wait()
		start := time.Now()
		if err := r.Shutdown(r.Context()); err != nil {
			t.Error(err)
		}
		if d := time.Since(start); d > 0 {
			t.Errorf("it took %v", d)
		}
		if !errors.Is(cause, driver.ErrShutdown) || !errors.Is(late, driver.ErrShutdown) || !errors.Is(late, driver.ErrEnded) {
			t.Errorf("cause %v, emit %v", cause, late)
		}
		if ks := r.journal.kinds("hall"); ks[len(ks)-1] != "drained" {
			t.Errorf("journal: %v", ks)
		}
		x := r.journal.room("hall")
		if x.snapshotAt != x.head || x.alarm.IsZero() || x.alarm.After(time.Now()) {
			t.Errorf("snapshot at %d of %d, alarm %v", x.snapshotAt, x.head, x.alarm)
		}
		if r.counts.rooms.Load() != 0 {
			t.Errorf("%d rooms are awake", r.counts.rooms.Load())
		}

		left := r.journal.crash()
		again := unstarted(t, left, left, nil)
		again.drive("slow", driver.RunFunc(sayHello))
		again.start()
		synctest.Wait()
		ks := again.journal.kinds("hall")
		if !slices.Contains(ks, "attempt_started/2") || ks[len(ks)-1] != "completed/2" {
			t.Errorf("after the restart: %v", ks)
		}
		again.stop()
	})
}

func TestEveryCommandIsAnsweredThoughTheServerGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newMemJournal(), nil)
		r.create("busy")
		r.create("hanging")
		r.create("resting")
		time.Sleep(61 * time.Second) // all hibernate
		r.must(r.Ask(r.Context(), "busy", event.ReadView{}))
		r.must(r.Ask(r.Context(), "hanging", event.ReadView{}))
		hold, load := make(chan struct{}), make(chan struct{})
		r.journal.set(func(j *memJournal) {
			j.fate = func(_ int, b *event.Batch) fate {
				if b.Room == "hanging" {
					return fate{hold: hold}
				}
				return fate{after: 10 * time.Millisecond}
			}
			j.loadWait = func(id event.RoomID) <-chan struct{} {
				if id == "loading" {
					return load
				}
				return nil
			}
		})
		var all []*outcome
		add := func(id event.RoomID, cmd event.Command) { all = append(all, r.do(id, cmd)) }
		add("busy", submit("public", "i1"))
		add("hanging", submit("public", "i1"))
		add("loading", submit("public", "i1"))
		add("cold", event.Configure{Access: host(), Config: config()})
		add("resting", submit("public", "i1"))
		synctest.Wait()
		add("hanging", submit("public", "i2"))
		add("busy", submit("public", "i2"))
		start := time.Now()
		go func() {
			for range 30 {
				add("busy", submit("public", "i3"))
				add("new", submit("public", "i3"))
				time.Sleep(time.Second)
			}
		}()
		if err := r.Shutdown(context.Background()); err == nil {
			t.Error("it did not say that rooms were left")
		}
		if d := time.Since(start); d > 14*time.Second {
			t.Errorf("it took %v", d)
		}
		close(hold)
		close(load)
		time.Sleep(time.Minute)
		synctest.Wait()
		for i, o := range all {
			if _, n, _ := o.get(); n != 1 {
				t.Errorf("command %d has %d answers", i, n)
			}
		}
		for _, i := range []int{0, 3, 4} {
			if _, _, err := all[i].get(); err != nil {
				t.Errorf("command %d was given in time, and refused: %v", i, err)
			}
		}
		r.refusedFor(all[len(all)-1], event.Unavailable)
		if err := r.Shutdown(context.Background()); err == nil {
			t.Error("a second call tells something else")
		}
	})
}

func TestShutdownDoesNotWaitForADriverThatDoesNotObey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newMemJournal(), nil)
		r.create("hall", "deaf")
		release := make(chan struct{})
		r.drive("deaf", driver.RunFunc(func(context.Context, *driver.Turn, driver.Emitter) error {
			<-release
			return nil
		}))
		r.say("hall", "i1")
		start := time.Now()
		if err := r.Shutdown(r.Context()); err != nil {
			t.Error(err)
		}
		if d := time.Since(start); d != 5*time.Second {
			t.Errorf("it took %v", d)
		}
		if ks := r.journal.kinds("hall"); ks[len(ks)-1] != "drained" {
			t.Errorf("journal: %v", ks)
		}
		close(release)
		synctest.Wait()
		if r.counts.abandoned.Load() != 0 {
			t.Error("still counted")
		}
	})
}

func TestARunWhoseTurnComesDuringShutdownIsLetGoUnbegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newMemJournal(), nil)
		r.create("hall", "deaf")
		release := make(chan struct{})
		var calls atomic.Int32
		r.drive("deaf", driver.RunFunc(func(context.Context, *driver.Turn, driver.Emitter) error {
			calls.Add(1)
			<-release
			return nil
		}))
		first := submit("public", "i1")
		first.Input.Deadline = ptr(2 * time.Second)
		second := submit("public", "i2")
		second.Input.OnBusy = event.BusyQueue
		r.must(r.Ask(t.Context(), "hall", first))
		r.must(r.Ask(t.Context(), "hall", second))
		if err := r.Shutdown(t.Context()); err != nil { // the first reaches its deadline meanwhile
			t.Error(err)
		}
		ks := r.journal.kinds("hall")
		if want := []string{"drained", "deadline_exceeded/1", "attempt_started/1", "drained"}; !slices.Equal(ks[len(ks)-4:], want) {
			t.Errorf("journal: %v", ks)
		}
		if n := calls.Load(); n != 1 {
			t.Errorf("the driver was called %d times", n)
		}
		close(release)
		synctest.Wait()
	})
}

func TestShutdownOnAFullDiskLetsGoWithoutAWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newMemJournal(), nil)
		r.create("hall", "slow")
		r.drive("slow", driver.RunFunc(hang))
		r.say("hall", "i1")
		synctest.Wait()
		r.journal.set(func(j *memJournal) { j.full = event.ErrDiskFull })
		if err := r.Shutdown(r.Context()); err != nil {
			t.Error(err)
		}
		if ks := r.journal.kinds("hall"); ks[len(ks)-1] != "checkpoint/1" {
			t.Errorf("journal: %v", ks)
		}
	})
}
