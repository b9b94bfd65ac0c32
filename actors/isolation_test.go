package actors

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"parley/driver"
	"parley/event"
)

// TestAPanicInApplyDropsTheStateAndRecoversTheRoom: the input is not written and
// may come again, the run that was at work goes on with its next attempt, and
// the third panic in a minute takes the room out of service. The other room
// notices nothing.
func TestAPanicInApplyDropsTheStateAndRecoversTheRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var boom atomic.Int32
		r := newRig(t, newMemJournal(), func(c *Config) {
			c.inApply = func(id event.RoomID, e *event.Entry) {
				if _, ok := e.Body.(*event.InputAdmitted); ok && id == "hall" && boom.Add(-1) >= 0 {
					panic("What is this?")
				}
			}
		})
		r.create("hall", "slow", "guide")
		r.create("other")
		r.drive("slow", driver.RunFunc(hang))
		r.say("hall", "first")
		synctest.Wait()

		boom.Store(1)
		refused := r.do("hall", submit("more", "i1"))
		synctest.Wait()
		r.refusedFor(refused, event.Unavailable)
		if _, _, err := refused.get(); !strings.Contains(err.Error(), "same id") {
			t.Errorf("the refusal does not say what to do: %v", err)
		}
		want := []string{"room", "input", "attempt_started/1", "checkpoint/1", "attempt_started/2", "checkpoint/2"}
		if ks := r.journal.kinds("hall"); !slices.Equal(ks, want) {
			t.Errorf("journal: %v", ks)
		}
		again := submit("more", "i1")
		again.Input.Agents = []event.AgentID{"guide"}
		if x := r.must(r.Ask(t.Context(), "hall", again)).(event.Receipt); x.Duplicate {
			t.Error("what was refused had been written")
		}
		if first := r.say("hall", "first"); !first.Duplicate {
			t.Error("what was acknowledged is lost")
		}
		if n := r.counts.panics[InRoom].Load(); n != 1 || r.counts.dead.Load() != 0 || r.counts.resumed.Load() != 1 {
			t.Errorf("%d panics, %d rooms given up, %d attempts resumed", n, r.counts.dead.Load(), r.counts.resumed.Load())
		}

		boom.Store(2)
		for i := range 2 {
			x := r.do("hall", submit("more", event.InputID(fmt.Sprint("x", i))))
			synctest.Wait()
			r.refusedFor(x, event.Unavailable)
		}
		dead := r.do("hall", event.ReadView{})
		synctest.Wait()
		r.refusedFor(dead, event.RoomFailed)
		if r.counts.dead.Load() != 1 || r.logs.FilterMessageSnippet("out of service").Len() != 1 {
			t.Errorf("the operator was not told: %d rooms given up", r.counts.dead.Load())
		}
		r.say("other", "i1")
		synctest.Wait()
		if ks := r.journal.kinds("other"); ks[len(ks)-1] != "completed/1" {
			t.Errorf("the other room: %v", ks)
		}
		check(t, r.journal.all("hall"))
		r.quiet("What is this?")
		r.stop()
	})
}

func TestDriversThatPanicOrFailAreCounted(t *testing.T) {
	in(t, func(r *rig) {
		r.create("hall", "panics", "fails", "lies", "leaves")
		r.drive("panics", driver.RunFunc(func(context.Context, *driver.Turn, driver.Emitter) error { panic("What is this?") }))
		r.drive("fails", driver.RunFunc(func(context.Context, *driver.Turn, driver.Emitter) error { return errors.New("What is this?") }))
		r.drive("lies", driver.RunFunc(func(_ context.Context, _ *driver.Turn, out driver.Emitter) error {
			return out.Emit(event.AssistantOutput{Output: "a"})
		}))
		r.drive("leaves", driver.RunFunc(hang))
		for _, a := range []event.AgentID{"panics", "fails", "lies", "leaves"} {
			s := submit(event.ChannelID(a), event.InputID(a))
			s.Input.Agents = []event.AgentID{a}
			x := r.must(r.Ask(r.Context(), "hall", s)).(event.Receipt)
			time.Sleep(time.Second)
			if a == "leaves" { // it returns an error because it was told to
				r.must(r.Ask(r.Context(), "hall", event.CancelRun{Access: host(), Run: x.Run, Reason: "enough"}))
			}
			synctest.Wait()
		}
		if c := r.counts; c.panics[InDriver].Load() != 1 || c.driverFailures.Load() != 3 || c.started.Load() != 4 || c.over.Load() != 4 {
			t.Errorf("%d panics, %d failures, %d attempts of which %d are over", c.panics[InDriver].Load(), c.driverFailures.Load(), c.started.Load(), c.over.Load())
		}
		r.quiet("What is this?")
	})
}

// TestBadDriversHoldUpNoOtherRoom: one that never returns, one that ignores that
// it was told to, and one that emits as fast as it can, each in a room of its own.
func TestBadDriversHoldUpNoOtherRoom(t *testing.T) {
	in(t, func(r *rig) {
		release := make(chan struct{})
		r.drive("never", driver.RunFunc(func(context.Context, *driver.Turn, driver.Emitter) error { <-release; return nil }))
		var emitted atomic.Int64
		r.drive("floods", driver.RunFunc(func(_ context.Context, _ *driver.Turn, out driver.Emitter) error {
			for {
				if err := out.Emit(event.Checkpoint{Value: []byte(`"` + strings.Repeat("x", 60<<10) + `"`)}); err != nil {
					return err
				}
				emitted.Add(1)
			}
		}))
		r.create("a", "never")
		r.create("b", "never")
		r.create("c", "floods")
		r.create("good")
		r.say("a", "i")
		canceled := r.say("b", "i")
		r.must(r.Ask(r.Context(), "b", event.CancelRun{Access: host(), Run: canceled.Run, Reason: "enough"}))
		r.say("c", "i")
		for i := range 20 {
			start := time.Now()
			r.say("good", event.InputID(fmt.Sprint("i", i)))
			synctest.Wait()
			if took := time.Since(start); took != 0 {
				t.Fatalf("turn %d took %v", i, took)
			}
			if ks := r.journal.kinds("good"); ks[len(ks)-1] != "completed/1" {
				t.Fatalf("turn %d: %v", i, ks[len(ks)-1])
			}
			time.Sleep(time.Second)
			// 256 KiB a second, and ten seconds' worth of it at once.
			if n := 60 * int(emitted.Load()); n < (i+9)*256 || n > (i+13)*256 {
				t.Errorf("the driver that floods wrote %d KiB in %d s", n, i+1)
			}
		}
		if n := r.counts.abandoned.Load(); n != 1 {
			t.Errorf("%d drivers were abandoned", n)
		}
		close(release)
		time.Sleep(3 * time.Minute) // the deadline ends the rest
		synctest.Wait()
		if n := r.counts.abandoned.Load(); n != 0 || r.counts.started.Load() != r.counts.over.Load() {
			t.Errorf("%d drivers are abandoned, %d attempts were started and %d are over", n, r.counts.started.Load(), r.counts.over.Load())
		}
	})
}

// TestOnTheRealJournalAFullDiskIsWaitedFor fills the disk under people and a
// driver who speaks, frees it, and compares what is there with what was said.
func TestOnTheRealJournalAFullDiskIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		free := func(percent uint64) {
			fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: percent << 20, TotalBytes: 100 << 20, UsedBytes: (100 - percent) << 20})
			time.Sleep(time.Second)
			synctest.Wait()
		}
		free(50)
		store := openStore(t, slowSyncs(fs, time.Millisecond))
		r := unstarted(t, store, nil, nil)
		r.start()
		r.drive("speaks", driver.RunFunc(func(ctx context.Context, _ *driver.Turn, out driver.Emitter) error {
			for i := range 40 {
				if err := out.Emit(event.AssistantOutput{Output: "a", Delta: fmt.Sprint(i, " "), Final: i == 39}); err != nil {
					return err
				}
				time.Sleep(100 * time.Millisecond)
			}
			return nil
		}))
		r.create("hall", "speaks")
		r.create("other")
		r.say("hall", "first")
		r.say("other", "first")
		free(4)
		held := len(journaled(t, r.System, "hall"))
		for range 10 {
			for _, id := range []event.RoomID{"hall", "other", "new"} {
				var cmd event.Command = submit("more", "refused")
				if id == "new" {
					cmd = event.Configure{Access: host(), Config: config()}
				}
				x := r.do(id, cmd)
				synctest.Wait()
				r.refusedFor(x, event.Unavailable)
				if _, _, err := x.get(); err == nil || !strings.Contains(err.Error(), "free some space") {
					t.Errorf("%s: %v", id, err)
				}
			}
			time.Sleep(time.Second)
		}
		if n := len(journaled(t, r.System, "hall")); n != held {
			t.Errorf("%d entries were written on a full disk", n-held)
		}
		free(50)
		r.say("other", "refused")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		es := journaled(t, r.System, "hall")
		check(t, es)
		var said strings.Builder
		for _, e := range es {
			if x, ok := e.Body.(*event.RunEvent); ok {
				if o, ok := x.Event.(event.AssistantOutput); ok {
					said.WriteString(o.Delta)
				}
			}
		}
		var want strings.Builder
		for i := range 40 {
			fmt.Fprint(&want, i, " ")
		}
		if said.String() != want.String() || words(es)[len(es)-1] != "completed/1" {
			t.Errorf("said %q, ends with %s", said.String(), words(es)[len(es)-1])
		}
		if n := r.counts.resumed.Load(); n != 0 {
			t.Errorf("%d attempts were lost for want of space", n)
		}
		for _, id := range []event.RoomID{"hall", "other"} {
			if x := r.say(id, "first"); !x.Duplicate {
				t.Errorf("%s lost what was acknowledged", id)
			}
		}
		r.stop()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
}
