package actors

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"parley/driver"
	"parley/event"
)

func TestACancelReachesTheDriverWithItsCause(t *testing.T) {
	in(t, func(r *rig) {
		r.create("hall", "slow")
		var cause, late error
		r.drive("slow", driver.RunFunc(func(ctx context.Context, _ *driver.Turn, out driver.Emitter) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			late = out.Emit(event.Progress{Stage: "more"})
			return late
		}))
		x := r.say("hall", "i1")
		got := r.must(r.Ask(r.Context(), "hall", event.CancelRun{Access: submit("public", "").Access, Run: x.Run})).(event.CancelResult)
		synctest.Wait()
		if !got.Canceled || got.Status != event.RunCanceledStatus {
			t.Errorf("answered %+v", got)
		}
		if !errors.Is(cause, driver.ErrCanceled) || !errors.Is(late, driver.ErrEnded) || !errors.Is(late, driver.ErrCanceled) {
			t.Errorf("cause %v, emit %v", cause, late)
		}
		if n := r.counts.late.Load(); n != 1 {
			t.Errorf("%d late events counted", n)
		}
		if ks := r.journal.kinds("hall"); ks[len(ks)-1] != "run_canceled/1" {
			t.Errorf("journal: %v", ks)
		}
		again := r.must(r.Ask(r.Context(), "hall", event.CancelRun{Access: submit("public", "").Access, Run: x.Run})).(event.CancelResult)
		if again.Canceled || again.Status != event.RunCanceledStatus {
			t.Errorf("a second cancel: %+v", again)
		}
	})
}

// TestACancelAtTheInstantOfCompletionHasOneWinner lets both come at once, with
// the journal slow enough for each to overtake the other.
func TestACancelAtTheInstantOfCompletionHasOneWinner(t *testing.T) {
	canceled, completed := 0, 0
	for i := range 60 {
		in(t, func(r *rig) {
			r.create("hall", "slow")
			r.journal.fate = func(k int, _ *event.Batch) fate { return fate{after: time.Duration(k*i%3) * time.Millisecond} }
			gate := make(chan struct{})
			r.drive("slow", driver.RunFunc(func(ctx context.Context, turn *driver.Turn, out driver.Emitter) error {
				<-gate
				return sayHello(ctx, turn, out)
			}))
			x := r.say("hall", "i1")
			close(gate)
			if i%2 == 0 {
				runtime.Gosched()
			}
			if i%3 == 0 {
				time.Sleep(time.Millisecond)
			}
			got := r.must(r.Ask(r.Context(), "hall", event.CancelRun{Access: submit("public", "").Access, Run: x.Run})).(event.CancelResult)
			time.Sleep(time.Second)
			synctest.Wait()
			check(t, r.journal.all("hall"))
			ks := r.journal.kinds("hall")
			switch end := ks[len(ks)-1]; {
			case got.Canceled && end == "run_canceled/1":
				canceled++
			case !got.Canceled && end == "completed/1" && got.Status == event.RunCompleted:
				completed++
			default:
				t.Errorf("the caller was told %+v, the journal ends with %s", got, end)
			}
		})
	}
	if canceled == 0 || completed == 0 {
		t.Errorf("%d canceled, %d completed: the race was not tried", canceled, completed)
	}
}

func TestADeadlineStopsTheDriver(t *testing.T) {
	in(t, func(r *rig) {
		r.create("hall", "slow")
		cause := make(chan error, 1)
		r.drive("slow", driver.RunFunc(func(ctx context.Context, turn *driver.Turn, out driver.Emitter) error {
			if d := time.Until(turn.Deadline); d > 120*time.Second || d < 119*time.Second {
				t.Errorf("the deadline lies %v ahead", d)
			}
			<-ctx.Done()
			cause <- context.Cause(ctx)
			return nil
		}))
		r.say("hall", "i1")
		time.Sleep(119 * time.Second)
		synctest.Wait()
		if len(cause) > 0 {
			t.Error("too early")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if err := <-cause; !errors.Is(err, driver.ErrDeadline) {
			t.Errorf("cause %v", err)
		}
		if ks := r.journal.kinds("hall"); ks[len(ks)-1] != "deadline_exceeded/1" {
			t.Errorf("journal: %v", ks)
		}
	})
}

func TestDriversThatFailInAnyWayFailTheirRunOnly(t *testing.T) {
	secret := "What is this?"
	for name, d := range map[string]driver.Driver{
		"error":  driver.RunFunc(func(context.Context, *driver.Turn, driver.Emitter) error { return errors.New(secret) }),
		"panic":  driver.RunFunc(func(context.Context, *driver.Turn, driver.Emitter) error { panic(secret) }),
		"goexit": driver.RunFunc(func(context.Context, *driver.Turn, driver.Emitter) error { runtime.Goexit(); return nil }),
		"fault": driver.RunFunc(func(_ context.Context, _ *driver.Turn, out driver.Emitter) error {
			return out.Emit(event.AssistantOutput{Output: "a"})
		}),
		"nil": driver.RunFunc(func(_ context.Context, _ *driver.Turn, out driver.Emitter) error { return out.Emit(nil) }),
		"open": driver.RunFunc(func(_ context.Context, _ *driver.Turn, out driver.Emitter) error {
			return out.Emit(event.AssistantOutput{Output: "a", Delta: "Well"})
		}),
		"respond error": driver.RespondFunc(func(context.Context, *driver.Turn) (*event.Decision, error) {
			return nil, errors.New(secret)
		}),
		"respond fault": driver.RespondFunc(func(context.Context, *driver.Turn) (*event.Decision, error) {
			return &event.Decision{Utterances: []event.Utterance{{Text: " "}}}, nil
		}),
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(r *rig) {
				r.create("hall", "bad", "guide")
				r.drive("bad", d)
				r.say("hall", "i1")
				time.Sleep(time.Second)
				synctest.Wait()
				if ks := r.journal.kinds("hall"); ks[len(ks)-1] != "run_failed/1" {
					t.Errorf("journal: %v", ks)
				}
				s := submit("public", "i2")
				s.Input.Agents = []event.AgentID{"guide"}
				r.must(r.Ask(r.Context(), "hall", s))
				synctest.Wait()
				if ks := r.journal.kinds("hall"); ks[len(ks)-1] != "completed/1" {
					t.Errorf("journal: %v", ks)
				}
				if r.counts.recovered.Load() != 1 {
					t.Error("the room was recovered")
				}
				r.quiet(secret)
			})
		})
	}
}

func TestAResponderAnswersAtOnce(t *testing.T) {
	in(t, func(r *rig) {
		r.create("hall", "one", "none")
		r.drive("one", driver.RespondFunc(func(context.Context, *driver.Turn) (*event.Decision, error) {
			return &event.Decision{Utterances: []event.Utterance{{Text: "Yes."}, {Text: "No."}}}, nil
		}))
		r.drive("none", driver.RespondFunc(func(context.Context, *driver.Turn) (*event.Decision, error) { return nil, nil }))
		r.say("hall", "i1")
		synctest.Wait()
		s := submit("public", "i2")
		s.Input.Agents = []event.AgentID{"none"}
		r.must(r.Ask(r.Context(), "hall", s))
		synctest.Wait()
		want := []string{
			"room", "input", "attempt_started/1", "decision/1", "assistant_output/1", "assistant_output/1", "completed/1",
			"input", "attempt_started/1", "completed/1",
		}
		if ks := r.journal.kinds("hall"); !slices.Equal(ks, want) {
			t.Errorf("journal: %v", ks)
		}
	})
}

func TestAFaultComesBackFromALaterEmit(t *testing.T) {
	in(t, func(r *rig) {
		r.create("hall", "bad")
		var first, last error
		var cause error
		r.drive("bad", driver.RunFunc(func(ctx context.Context, _ *driver.Turn, out driver.Emitter) error {
			first = out.Emit(event.AssistantOutput{Output: "a"})
			<-ctx.Done()
			cause = context.Cause(ctx)
			last = out.Emit(event.Progress{Stage: "more"})
			return nil
		}))
		r.say("hall", "i1")
		time.Sleep(time.Second)
		synctest.Wait()
		if first != nil {
			t.Errorf("the event itself: %v", first)
		}
		if !errors.Is(cause, driver.ErrFault) || !errors.Is(last, driver.ErrFault) || !errors.Is(last, driver.ErrEnded) || !strings.Contains(last.Error(), "empty delta") {
			t.Errorf("cause %v, emit %v", cause, last)
		}
	})
}

func TestADriverThatIgnoresItsContextIsAbandonedAndCounted(t *testing.T) {
	in(t, func(r *rig) {
		r.create("hall", "deaf", "guide")
		r.create("other", "deaf")
		release := make(chan struct{})
		r.drive("deaf", driver.RunFunc(func(_ context.Context, _ *driver.Turn, out driver.Emitter) error {
			<-release
			return out.Emit(event.Progress{Stage: "late"})
		}))
		for i := range 8 {
			r.say("hall", event.InputID(fmt.Sprint("i", i))) // each supersedes the one before
		}
		x := r.say("hall", "last")
		if n := r.counts.abandoned.Load(); n != 0 {
			t.Errorf("%d drivers abandoned before their grace", n)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if n := r.counts.abandoned.Load(); n != 8 {
			t.Errorf("%d drivers abandoned, want 8", n)
		}
		r.say("hall", "more")
		synctest.Wait()
		ks := r.journal.kinds("hall")
		if ks[len(ks)-1] != "run_failed/0" && ks[len(ks)-1] != "run_failed/1" {
			t.Errorf("a ninth driver was started: %v (last run %s)", ks, x.Run)
		}
		s := submit("public", "guide")
		s.Input.Agents = []event.AgentID{"guide"}
		r.must(r.Ask(r.Context(), "hall", s))
		r.say("other", "i1") // its room has done nothing wrong
		synctest.Wait()
		if ks := r.journal.kinds("other"); ks[len(ks)-1] != "attempt_started/1" {
			t.Errorf("the other room: %v", ks)
		}
		close(release)
		synctest.Wait()
		if n := r.counts.abandoned.Load(); n != 0 {
			t.Errorf("%d drivers are still counted", n)
		}
		r.drive("deaf", driver.RunFunc(sayHello))
		r.say("hall", "again")
		synctest.Wait()
		if ks := r.journal.kinds("hall"); ks[len(ks)-1] != "completed/1" {
			t.Errorf("after they returned: %v", ks)
		}
	})
}

func TestEmitWaitsWhileTooMuchIsNotDurable(t *testing.T) {
	for name, tc := range map[string]struct {
		delta string
		want  int32
	}{"events": {"x", 64}, "bytes": {strings.Repeat("x", 4000), 63}} {
		t.Run(name, func(t *testing.T) {
			in(t, func(r *rig) {
				r.create("hall", "fast")
				var sent atomic.Int32
				gate, hold := make(chan struct{}), make(chan struct{})
				r.drive("fast", driver.RunFunc(func(_ context.Context, _ *driver.Turn, out driver.Emitter) error {
					<-gate
					for range 1000 {
						if err := out.Emit(event.AssistantOutput{Output: "a", Delta: tc.delta}); err != nil {
							return err
						}
						sent.Add(1)
					}
					return out.Emit(event.AssistantOutput{Output: "a", Final: true})
				}))
				r.say("hall", "i1")
				r.journal.set(func(j *memJournal) { j.fate = func(int, *event.Batch) fate { return fate{hold: hold} } })
				close(gate)
				synctest.Wait()
				if n := sent.Load(); n < tc.want-2 || n > tc.want {
					t.Errorf("%d events were emitted, none of them durable", n)
				}
				close(hold)
				time.Sleep(time.Minute)
				synctest.Wait()
				ks := r.journal.kinds("hall")
				if sent.Load() != 1000 || len(ks) != 3+1001+1 {
					t.Errorf("%d events, %d entries", sent.Load(), len(ks))
				}
				check(t, r.journal.all("hall"))
			})
		})
	}
}

func TestDriversShareTheirRoomsPartOfTheJournal(t *testing.T) {
	in(t, func(r *rig) {
		r.create("hall", "fast")
		r.create("other")
		r.drive("fast", driver.RunFunc(func(_ context.Context, _ *driver.Turn, out driver.Emitter) error {
			value := []byte(`"` + strings.Repeat("x", 64<<10) + `"`)
			for range 100 {
				if err := out.Emit(event.Checkpoint{Value: value}); err != nil {
					return err
				}
			}
			return nil
		}))
		start := time.Now()
		r.say("hall", "i1")
		synctest.Wait()
		n := len(r.journal.kinds("hall"))
		if n < 40 || n > 50 { // 10 × 256 KiB are free
			t.Errorf("%d entries at once", n)
		}
		r.say("other", "i1")
		if d := time.Since(start); d > 0 {
			t.Errorf("the other room waited %v", d)
		}
		time.Sleep(4 * time.Second)
		synctest.Wait()
		if m := len(r.journal.kinds("hall")); m < n+12 || m > n+20 { // 4 a second
			t.Errorf("%d entries in the next four seconds", m-n)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if ks := r.journal.kinds("hall"); ks[len(ks)-1] != "completed/1" {
			t.Errorf("ends with %s", ks[len(ks)-1])
		}
	})
}

func TestAContextHoldsWhatAllWhoSeeTheAnswerMaySee(t *testing.T) {
	in(t, func(r *rig) {
		r.create("hall", "spy")
		var turns []*driver.Turn
		var contexts [][]event.TranscriptRow
		r.drive("spy", driver.RunFunc(func(ctx context.Context, turn *driver.Turn, out driver.Emitter) error {
			rows, err := turn.Context(ctx)
			if err != nil {
				return err
			}
			turns, contexts = append(turns, turn), append(contexts, rows)
			return driver.Say(out, "a", "Answer to "+string(turn.Input))
		}))
		say := func(id event.InputID, to event.Disclosure) {
			s := submit("public", id)
			s.Input.Text = "Question " + string(id)
			s.Input.Disclosure = to
			r.must(r.Ask(r.Context(), "hall", s))
			synctest.Wait()
		}
		say("open", event.ToRoom())
		say("private", event.ToParticipants("ann"))
		say("open2", event.ToRoom())
		say("private2", event.ToParticipants("ann"))
		texts := func(rows []event.TranscriptRow) (out []string) {
			for _, x := range rows {
				out = append(out, x.Text)
			}
			return out
		}
		open := []string{"Question open", "Answer to open"}
		private := []string{"Question private", "Answer to private"}
		open2 := []string{"Question open2", "Answer to open2"}
		for i, want := range [][]string{nil, open, open, slices.Concat(open, private, open2)} {
			if got := texts(contexts[i]); !slices.Equal(got, want) {
				t.Errorf("context of %s: %q, want %q", turns[i].Input, got, want)
			}
		}
	})
}

func TestAContextIsTheNewestWithinItsBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newMemJournal(), func(c *Config) { c.ContextRows = 3 })
		var turn *driver.Turn
		r.drive("spy", driver.RunFunc(func(_ context.Context, x *driver.Turn, out driver.Emitter) error {
			turn = x
			return driver.Say(out, "a", "A"+string(x.Input))
		}))
		r.create("hall", "spy")
		for i := range 9 {
			s := submit("public", event.InputID(fmt.Sprint(i)))
			s.Input.Text = fmt.Sprint("Q", i)
			if i > 3 && i < 8 {
				s.Input.Disclosure = event.ToParticipants("ann")
			}
			r.must(r.Ask(r.Context(), "hall", s))
			synctest.Wait()
		}
		var got []string
		rows, err := turn.Context(r.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range rows {
			got = append(got, x.Text)
		}
		if want := []string{"A2", "Q3", "A3"}; !slices.Equal(got, want) {
			t.Errorf("context %v, want %v", got, want)
		}
		r.stop()
	})
}

func TestAnAgentWithoutADriverHereIsNotThere(t *testing.T) {
	in(t, func(r *rig) {
		r.must(r.Ask(r.Context(), "hall", event.Configure{Access: host(), Config: config("absent")}))
		x := r.do("hall", submit("public", "i1"))
		synctest.Wait()
		r.refusedFor(x, event.NoAgent)
	})
}

func TestManyRoomsWorkSideBySide(t *testing.T) {
	in(t, func(r *rig) {
		r.journal.fate = func(k int, _ *event.Batch) fate { return fate{after: time.Duration(k%5) * time.Millisecond} }
		const n = 300
		for i := range n {
			r.do(event.RoomID(fmt.Sprint("r", i)), event.Configure{Access: host(), Config: config()})
			for k := range 3 {
				r.do(event.RoomID(fmt.Sprint("r", i)), submit("public", event.InputID(fmt.Sprint("i", k))))
			}
		}
		time.Sleep(time.Second)
		synctest.Wait()
		for i := range n {
			es := r.journal.all(event.RoomID(fmt.Sprint("r", i)))
			check(t, es)
			if x, ok := es[len(es)-1].Body.(*event.RunEvent); !ok || x.Event != event.RunBody(event.Completed{}) {
				t.Fatalf("room %d: %v", i, r.journal.kinds(event.RoomID(fmt.Sprint("r", i))))
			}
		}
	})
}

// A fault names what is wrong with an event; its path is made of the driver's own
// member names, which may be words of people. Only debug logs show it.
func TestAFaultIsLoggedWithoutWhatTheDriverSent(t *testing.T) {
	in(t, func(r *rig) {
		r.drive("spy", driver.RunFunc(func(_ context.Context, _ *driver.Turn, out driver.Emitter) error {
			return out.Emit(event.Checkpoint{Value: []byte(`{"my secret":9007199254740993}`)})
		}))
		r.create("hall", "spy")
		r.say("hall", "i1")
		synctest.Wait()
		warned := 0
		for _, e := range r.logs.FilterMessage("driver broke its contract").All() {
			shows := strings.Contains(fmt.Sprint(e.ContextMap()), "my secret")
			if shows != (e.Level == zap.DebugLevel) {
				r.Errorf("at level %s the log shows what the driver sent: %t", e.Level, shows)
			}
			if e.Level == zap.WarnLevel {
				warned++
			}
		}
		if warned != 1 {
			r.Errorf("the fault was logged %d times, want once", warned)
		}
	})
}
