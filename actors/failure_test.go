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

	"parley/driver"
	"parley/event"
)

func TestACommitBeyondItsDeadlineIsUnknownAndLaterKnown(t *testing.T) {
	in(t, func(r *rig) {
		r.create("hall")
		hold := make(chan struct{})
		r.journal.set(func(j *memJournal) { j.fate = func(int, *event.Batch) fate { return fate{hold: hold} } })
		first := r.do("hall", submit("public", "i1"))
		synctest.Wait()
		waiting := r.do("hall", submit("public", "i2"))
		time.Sleep(5*time.Second - time.Millisecond)
		synctest.Wait()
		if _, n, _ := first.get(); n != 0 {
			t.Error("answered before the deadline")
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		r.refusedFor(first, event.Unavailable)
		if _, _, err := first.get(); !strings.Contains(err.Error(), "same id") {
			t.Errorf("the refusal does not say what to do: %v", err)
		}
		r.refusedFor(waiting, event.Unavailable)
		new := r.do("hall", submit("public", "i3"))
		synctest.Wait()
		r.refusedFor(new, event.Unavailable)

		r.journal.set(func(j *memJournal) { j.fate = nil })
		close(hold)
		synctest.Wait()
		if again := r.say("hall", "i1"); !again.Duplicate {
			t.Errorf("the late batch is not known: %+v", again)
		}
		if r.counts.recovered.Load() != 1 {
			t.Error("a late answer made the room recover")
		}
		if r.fatal.Load() != 0 {
			t.Error("the process was ended")
		}
	})
}

func TestAJournalThatStaysSilentEndsTheProcess(t *testing.T) {
	in(t, func(r *rig) {
		r.create("hall")
		r.create("other")
		hold := make(chan struct{})
		r.journal.set(func(j *memJournal) {
			j.fate = func(_ int, b *event.Batch) fate {
				if b.Room == "hall" {
					return fate{hold: hold}
				}
				return fate{}
			}
		})
		r.do("hall", submit("public", "i1"))
		time.Sleep(30*time.Second - time.Millisecond)
		synctest.Wait()
		if r.fatal.Load() != 0 {
			t.Error("ended too early")
		}
		r.say("other", "i1")
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if r.fatal.Load() != 1 {
			t.Errorf("Fatal was called %d times", r.fatal.Load())
		}
		close(hold)
	})
}

// TestEveryFailureOfTheJournalIsSurvived fails the k-th batch of a scenario in
// each way, for every k, and compares what is left with what was promised.
func TestEveryFailureOfTheJournalIsSurvived(t *testing.T) {
	ways := map[string]fate{
		"written": {err: errDisk},
		"lost":    {err: errDisk, lost: true},
		"fenced":  {err: event.ErrFenced, lost: true},
		"full":    {err: event.ErrDiskFull, lost: true},
		"slow":    {err: errDisk, lost: true, after: 7 * time.Second},
		"late":    {after: 7 * time.Second},
	}
	for way, bad := range ways {
		t.Run(way, func(t *testing.T) {
			for k := 0; ; k++ {
				happened := false
				in(t, func(r *rig) {
					r.journal.set(func(j *memJournal) {
						j.fate = func(n int, b *event.Batch) fate {
							if n == k {
								happened = true
								return bad
							}
							return fate{after: time.Millisecond}
						}
					})
					scenario(r)
				})
				if t.Failed() {
					t.Fatalf("at batch %d", k)
				}
				if !happened {
					if k < 4 {
						t.Fatalf("the scenario has only %d batches", k)
					}
					return
				}
			}
		})
	}
}

// scenario insists, as a client does, until three inputs on two channels are
// accepted and answered, and checks what every history must hold.
func scenario(r *rig) {
	r.Helper()
	insist := func(cmd event.Command) event.Reply {
		for range 100 {
			reply, err := r.Ask(r.Context(), "hall", cmd)
			if err == nil {
				return reply
			}
			x, ok := event.AsRefusal(err)
			if !ok || x.Reason != event.Unavailable && x.Reason != event.RoomFailed {
				r.Fatalf("refused: %v", err)
			}
			time.Sleep(max(x.Retry, 100*time.Millisecond))
		}
		r.Fatal("never accepted")
		return nil
	}
	insist(event.Configure{Access: host(), Config: config()})
	var runs []event.Receipt
	for i, ch := range []event.ChannelID{"a", "b", "a"} {
		runs = append(runs, insist(submit(ch, event.InputID(fmt.Sprintf("i%d", i)))).(event.Receipt))
		time.Sleep(10 * time.Second)
	}
	synctest.Wait()
	for _, x := range runs {
		got := insist(event.GetRun{Access: host(), Run: x.Run}).(event.RunResult)
		if got.Open != nil || got.Record.Status != event.RunCompleted {
			r.Errorf("run %s: %+v", x.Input, got)
		}
	}
	check(r.T, r.journal.all("hall"))
	if es, head, err := r.Read("hall", 0, 1000); err != nil || int(head) != len(es) || len(es) != len(r.journal.all("hall")) {
		r.Errorf("a reader sees %d entries up to %d (%v), the journal has %d", len(es), head, err, len(r.journal.all("hall")))
	}
}

// check holds what is true of every history: dense positions, one terminal per
// run and nothing after it, dense run sequences, each (attempt, n) once, each
// input once.
func check(t *testing.T, es []*event.Entry) {
	t.Helper()
	seqs := map[event.RunID]uint64{}
	ended := map[event.RunID]bool{}
	inputs := map[event.InputID]bool{}
	taken := map[string]bool{}
	for i, e := range es {
		if e.Seq != event.Seq(i)+1 {
			t.Fatalf("entry %d has position %d", i, e.Seq)
		}
		switch x := e.Body.(type) {
		case *event.InputAdmitted:
			if inputs[x.Input] {
				t.Errorf("input %s was admitted twice", x.Input)
			}
			inputs[x.Input] = true
		case *event.RunEvent:
			if ended[x.Run] {
				t.Errorf("entry %d: %s follows the end of its run", e.Seq, x.Event.RunKind())
			}
			if seqs[x.Run]++; seqs[x.Run] != x.Sequence {
				t.Errorf("entry %d has sequence %d of its run, want %d", e.Seq, x.Sequence, seqs[x.Run])
			}
			if x.N > 0 {
				key := fmt.Sprint(x.Run, x.Attempt, x.N)
				if taken[key] {
					t.Errorf("event %s was taken twice", key)
				}
				taken[key] = true
			}
			switch x.Event.(type) {
			case event.Completed, event.RunCanceled, event.RunFailed, event.DeadlineExceeded:
				ended[x.Run] = true
			}
		}
	}
}

func TestAFullDiskRefusesWhatWritesAndLetsDriversWait(t *testing.T) {
	in(t, func(r *rig) {
		r.create("hall", "slow")
		step := make(chan struct{})
		r.drive("slow", driver.RunFunc(func(ctx context.Context, turn *driver.Turn, out driver.Emitter) error {
			<-step
			return sayHello(ctx, turn, out)
		}))
		r.say("hall", "i1")
		r.journal.set(func(j *memJournal) { j.full = event.ErrDiskFull })
		refused := r.do("hall", submit("public", "i2"))
		again := r.do("hall", submit("public", "i1"))
		view := r.do("hall", event.ReadView{})
		synctest.Wait()
		r.refusedFor(refused, event.Unavailable)
		if _, _, err := refused.get(); err.Error() != event.ErrDiskFull.Error() {
			t.Errorf("refused with %v", err)
		}
		if reply, _, err := again.get(); err != nil || !reply.(event.Receipt).Duplicate {
			t.Errorf("an exact retry on a full disk: %v", err)
		}
		if _, n, err := view.get(); err != nil || n != 1 {
			t.Errorf("a view on a full disk: %v", err)
		}
		close(step)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := len(r.journal.kinds("hall")); n != 3 {
			t.Errorf("%d entries on a full disk", n)
		}
		r.journal.set(func(j *memJournal) { j.full = nil })
		time.Sleep(time.Second)
		synctest.Wait()
		want := []string{"room", "input", "attempt_started/1", "progress/1", "assistant_output/1", "assistant_output/1", "completed/1"}
		if ks := r.journal.kinds("hall"); !slices.Equal(ks, want) {
			t.Errorf("after there was space again: %v", ks)
		}
	})
}

func TestADiskThatFillsUnderABatchLosesNoAttempt(t *testing.T) {
	in(t, func(r *rig) {
		r.create("hall", "counted")
		var filled atomic.Bool
		var calls atomic.Int32
		r.drive("counted", driver.RunFunc(func(ctx context.Context, turn *driver.Turn, out driver.Emitter) error {
			calls.Add(1)
			time.Sleep(time.Millisecond)
			defer time.Sleep(time.Minute)
			return sayHello(ctx, turn, out)
		}))
		r.journal.set(func(j *memJournal) {
			j.fate = func(_ int, b *event.Batch) fate {
				if x, ok := b.Entries[0].Body.(*event.RunEvent); ok && x.N > 0 && filled.CompareAndSwap(false, true) {
					return fate{err: event.ErrDiskFull, lost: true}
				}
				return fate{}
			}
		})
		r.say("hall", "i1")
		time.Sleep(2 * time.Minute)
		want := []string{"room", "input", "attempt_started/1", "progress/1", "assistant_output/1", "assistant_output/1", "completed/1"}
		if ks := r.journal.kinds("hall"); !slices.Equal(ks, want) || !filled.Load() {
			t.Errorf("journal: %v", ks)
		}
		if calls.Load() != 1 {
			t.Errorf("the driver was called %d times", calls.Load())
		}
	})
}

// TestADiskThatFillsUnderAnyBatchKeepsEveryWord cuts a driver's events into
// small batches, and lets the disk be full for each of them.
func TestADiskThatFillsUnderAnyBatchKeepsEveryWord(t *testing.T) {
	for k := 1; ; k++ { // 0 makes the room
		happened := false
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, newMemJournal(), func(c *Config) { c.MaxBatchEntries = 3; c.EmitEvents = 7 })
			r.drive("chatty", driver.RunFunc(func(_ context.Context, _ *driver.Turn, out driver.Emitter) error {
				for i := range 25 {
					if err := out.Emit(event.AssistantOutput{Output: "a", Delta: fmt.Sprint(i, " "), Final: i == 24}); err != nil {
						return err
					}
				}
				return nil
			}))
			r.create("hall", "chatty")
			r.journal.fate = func(n int, _ *event.Batch) fate {
				if n == k {
					happened = true
					return fate{err: event.ErrDiskFull, lost: true, after: time.Millisecond}
				}
				return fate{after: time.Millisecond}
			}
			for {
				if _, err := r.Ask(r.Context(), "hall", submit("public", "i1")); err == nil {
					break
				}
				time.Sleep(time.Second)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			check(t, r.journal.all("hall"))
			var got, want strings.Builder
			for _, e := range r.journal.all("hall") {
				if x, ok := e.Body.(*event.RunEvent); ok {
					if o, ok := x.Event.(event.AssistantOutput); ok {
						got.WriteString(o.Delta)
					}
				}
			}
			for i := range 25 {
				fmt.Fprint(&want, i, " ")
			}
			if got.String() != want.String() {
				t.Errorf("the answer is %q", got.String())
			}
			r.stop()
		})
		if t.Failed() {
			t.Fatalf("at batch %d", k)
		}
		if !happened {
			if k < 9 {
				t.Fatalf("the scenario has only %d batches", k)
			}
			return
		}
	}
}

// flaky is a source of randomness that fails on demand, 16 bytes at a time.
type flaky struct{ broken atomic.Bool }

func (f *flaky) Read(p []byte) (int, error) {
	if f.broken.Load() {
		return 0, errors.New("no more")
	}
	for i := range min(16, len(p)) {
		p[i] = byte(time.Now().UnixNano() >> i)
	}
	return min(16, len(p)), nil
}

func TestAPanicInADecisionRefusesThatInputAndKeepsTheState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var src flaky
		r := newRig(t, newMemJournal(), func(c *Config) { c.Rand = &src })
		r.create("hall")
		src.broken.Store(true)
		x := r.do("hall", submit("public", "i1"))
		synctest.Wait()
		r.refusedFor(x, event.Internal)
		src.broken.Store(false)
		r.say("hall", "i1")
		synctest.Wait()
		if n := len(r.journal.kinds("hall")); n != 7 {
			t.Errorf("%d entries", n)
		}
		if r.counts.recovered.Load() != 1 {
			t.Error("the room was recovered")
		}
		r.quiet("What is this?")
		r.stop()
	})
}

func TestAPanicWhileADriversEventIsDecidedEndsItsAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var src flaky
		r := newRig(t, newMemJournal(), func(c *Config) { c.Rand = &src })
		r.create("hall", "once")
		var last error
		r.drive("once", driver.RunFunc(func(ctx context.Context, turn *driver.Turn, out driver.Emitter) error {
			src.broken.Store(true)
			_ = out.Emit(event.Progress{Stage: "looking"})
			<-ctx.Done()
			last = out.Emit(event.Progress{Stage: "more"})
			return nil
		}))
		r.say("hall", "i1")
		time.Sleep(time.Second)
		src.broken.Store(false)
		time.Sleep(3 * time.Minute) // the deadline ends what no decision could
		synctest.Wait()
		ks := r.journal.kinds("hall")
		if end := ks[len(ks)-1]; end != "deadline_exceeded/1" && end != "run_failed/1" {
			t.Errorf("journal: %v", ks)
		}
		if !errors.Is(last, driver.ErrEnded) {
			t.Errorf("the driver was told %v", last)
		}
		r.stop()
	})
}

func TestAPanicInTheCommitPathRecoversTheRoom(t *testing.T) {
	in(t, func(r *rig) {
		r.create("hall")
		r.create("other")
		var boom atomic.Int32
		r.journal.set(func(j *memJournal) {
			j.fate = func(_ int, b *event.Batch) fate {
				if b.Room == "hall" && boom.Add(-1) >= 0 {
					panic("What is this?")
				}
				return fate{}
			}
		})
		boom.Store(1)
		x := r.do("hall", submit("public", "i1"))
		synctest.Wait()
		r.refusedFor(x, event.Unavailable)
		r.say("hall", "i1")
		if n := r.counts.recovered.Load(); n != 3 {
			t.Errorf("%d loads, want 3", n)
		}

		time.Sleep(59 * time.Second)
		r.must(r.Ask(r.Context(), "hall", event.ReadView{})) // it stays awake
		time.Sleep(2 * time.Second)
		boom.Store(3)
		for i := range 3 {
			x := r.do("hall", submit("public", event.InputID(fmt.Sprintf("x%d", i))))
			synctest.Wait()
			r.refusedFor(x, event.Unavailable)
		}
		dead := r.do("hall", event.ReadView{})
		synctest.Wait()
		r.refusedFor(dead, event.RoomFailed)
		time.Sleep(time.Hour)
		still := r.do("hall", event.ReadView{})
		synctest.Wait()
		r.refusedFor(still, event.RoomFailed)
		r.say("other", "i1")
		r.quiet("What is this?")
	})
}

func TestARoomThatCannotBeLoadedHarmsNoOther(t *testing.T) {
	in(t, func(r *rig) {
		r.create("other")
		var broken atomic.Bool
		broken.Store(true)
		r.journal.set(func(j *memJournal) {
			j.loadErr = func(id event.RoomID) error {
				if id == "hall" && broken.Load() {
					return errDisk
				}
				return nil
			}
		})
		x := r.do("hall", event.Configure{Access: host(), Config: config()})
		synctest.Wait()
		r.refusedFor(x, event.RoomFailed)
		y := r.do("hall", event.ReadView{})
		synctest.Wait()
		r.refusedFor(y, event.RoomFailed)
		if n := r.counts.failedLoads.Load(); n != 1 {
			t.Errorf("%d loads without a pause", n)
		}
		r.say("other", "i1")
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := r.counts.failedLoads.Load(); n != 6 { // after 1, 2, 4, 8, 16 seconds
			t.Errorf("%d failed loads in a minute, want 6", n)
		}
		broken.Store(false)
		time.Sleep(time.Minute)
		r.create("hall")
	})
}

func TestARoomWhoseJournalHangsHarmsNoOther(t *testing.T) {
	in(t, func(r *rig) {
		r.create("other")
		hold := make(chan struct{})
		r.journal.set(func(j *memJournal) {
			j.loadWait = func(id event.RoomID) <-chan struct{} {
				if id == "hall" {
					return hold
				}
				return nil
			}
		})
		x := r.do("hall", event.Configure{Access: host(), Config: config()})
		r.say("other", "i1")
		if _, n, _ := x.get(); n != 0 {
			t.Error("answered while the journal hangs")
		}
		close(hold)
		synctest.Wait()
		if _, _, err := x.get(); err != nil {
			t.Error(err)
		}
	})
}

func TestMoreCommandsThanMayWaitAreRefused(t *testing.T) {
	in(t, func(r *rig) {
		r.create("hall")
		hold := make(chan struct{})
		r.journal.set(func(j *memJournal) { j.fate = func(int, *event.Batch) fate { return fate{hold: hold} } })
		r.do("hall", submit("public", "i"))
		synctest.Wait()
		var all []*outcome
		for range 1100 {
			all = append(all, r.do("hall", event.ReadView{}))
		}
		synctest.Wait()
		for _, o := range all[1024:] {
			r.refusedFor(o, event.Unavailable)
		}
		close(hold)
		synctest.Wait()
		for _, o := range all[:1024] {
			if _, n, err := o.get(); err != nil || n != 1 {
				t.Fatalf("%d answers, %v", n, err)
			}
		}
	})
}
