package drivertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"parley/driver"
	"parley/event"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// answer is a driver that keeps its contract: two outputs, a checkpoint and pauses.
func answer(ctx context.Context, turn *driver.Turn, out driver.Emitter) error {
	pause := func() error {
		t := time.NewTimer(time.Second)
		defer t.Stop()
		select {
		case <-t.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	for i, body := range []event.RunBody{
		event.Progress{Stage: "think"},
		event.Checkpoint{Value: json.RawMessage(`{"step":1}`)},
		event.AssistantOutput{Output: "a", Delta: "One "},
		event.AssistantOutput{Output: "a", Delta: "and two.", Final: true},
		event.AssistantOutput{Output: "b", Delta: turn.Text, Final: true},
	} {
		if i%2 == 1 {
			if err := pause(); err != nil {
				return err
			}
		}
		if err := out.Emit(body); err != nil {
			return err
		}
	}
	return nil
}

func emits(bodies ...event.RunBody) driver.Driver {
	return driver.RunFunc(func(_ context.Context, _ *driver.Turn, out driver.Emitter) error {
		for _, b := range bodies {
			if err := out.Emit(b); err != nil {
				return err
			}
		}
		return nil
	})
}

func open(d driver.Driver) func(*testing.T) driver.Driver {
	return func(*testing.T) driver.Driver { return d }
}

func TestADriverThatKeepsItsContractPasses(t *testing.T) {
	Run(t, open(driver.RunFunc(answer)), Case{
		Name: "runner", Turn: driver.Turn{Text: "Three."}, Ends: Completes,
		Check: func(t *testing.T, r *Recorder) {
			if got, want := r.Text(), "One and two.\nThree."; got != want {
				t.Errorf("text %q, want %q", got, want)
			}
			if got := string(r.Checkpoint()); got != `{"step":1}` {
				t.Errorf("checkpoint %s", got)
			}
			if got := r.Events()[4].At; got != 2*time.Second {
				t.Errorf("the last event came after %v", got)
			}
		},
	})
	Run(t, open(driver.RespondFunc(func(context.Context, *driver.Turn) (*event.Decision, error) {
		return &event.Decision{Utterances: []event.Utterance{{Text: "Yes."}}}, nil
	})), Case{Name: "responder", Ends: Completes})
	Run(t, open(driver.RespondFunc(func(context.Context, *driver.Turn) (*event.Decision, error) {
		return nil, nil
	})), Case{Name: "responder without an answer", Ends: Completes})
	Run(t, open(emits(
		event.AssistantOutput{Output: "q", Delta: "Which?", Final: true, Purpose: event.Question},
		event.InputRequested{Request: "which"},
	)), Case{Name: "asks", Ends: Waits})
	Run(t, open(driver.RunFunc(func(context.Context, *driver.Turn, driver.Emitter) error {
		return errors.New("no model")
	})), Case{Name: "fails", Ends: Fails})
	Run(t, open(driver.RunFunc(func(context.Context, *driver.Turn, driver.Emitter) error {
		panic("lost")
	})), Case{Name: "panics", Ends: Fails})
}

// TestABreachIsFound has one driver for each way to break the contract.
func TestABreachIsFound(t *testing.T) {
	final := func(id event.OutputID, text string) event.AssistantOutput {
		return event.AssistantOutput{Output: id, Delta: text, Final: true}
	}
	below := int64(-1)
	for _, tc := range []struct {
		name string
		drv  driver.Driver
		turn driver.Turn
		ends Ending
		want string
	}{
		{name: "not a driver", drv: 7, want: "neither Run nor Respond"},
		{name: "open output at the end", drv: emits(event.AssistantOutput{Output: "a", Delta: "x"}), want: `output "a" is open at the end of Run`},
		{name: "open output at completed", drv: emits(event.AssistantOutput{Output: "a", Delta: "x"}, event.Completed{}), want: `open at completed`},
		{name: "open output at a request", drv: emits(event.AssistantOutput{Output: "a", Delta: "x"}, event.InputRequested{Request: "r"}), want: `open at input_requested`},
		{name: "delta after final", drv: emits(final("a", "x"), final("a", "y")), want: "a delta after final"},
		{name: "blank text", drv: emits(final("a", " \n")), want: "finished text is blank"},
		{name: "empty delta", drv: emits(event.AssistantOutput{Output: "a"}), want: "an empty delta that is not final"},
		{name: "long delta", drv: emits(final("a", strings.Repeat("x", event.MaxDelta+1))), want: "at most 4096 bytes, this one has 4097"},
		{name: "delta not UTF-8", drv: emits(final("a", "\xff")), want: "not valid UTF-8"},
		{name: "no output id", drv: emits(final("", "x")), want: "output: an id has 1 to 128 bytes"},
		{name: "purpose changed", drv: emits(event.AssistantOutput{Output: "a", Delta: "x"}, event.AssistantOutput{Output: "a", Delta: "y", Final: true, Purpose: event.Question}), want: "its purpose was answer and became question"},
		{name: "history changed", drv: emits(event.AssistantOutput{Output: "a", Delta: "x", Purpose: event.ProgressText}, event.AssistantOutput{Output: "a", Delta: "y", Final: true, History: event.Record}), want: "its history was ephemeral and became record"},
		{name: "audience of strangers", drv: emits(event.AssistantOutput{Output: "a", Delta: "x", Final: true, Audience: event.ToParticipants("bob")}), turn: driver.Turn{Disclosure: event.ToParticipants("ann")}, want: "leaves nobody"},
		{name: "stage missing", drv: emits(event.Progress{}), want: "a stage has 1 to 64 bytes"},
		{name: "count below nothing", drv: emits(event.Progress{Stage: "s", Current: &below}), want: "current and total lie within"},
		{name: "checkpoint not JSON", drv: emits(event.Checkpoint{Value: json.RawMessage(`{`)}), want: "checkpoint: $"},
		{name: "checkpoint not plain", drv: emits(event.Checkpoint{Value: json.RawMessage(`{"n":9007199254740993}`)}), want: "checkpoint: $.n"},
		{name: "checkpoint too big", drv: emits(event.Checkpoint{Value: json.RawMessage(`"` + strings.Repeat("x", event.MaxCheckpoint) + `"`)}), want: "at most 262144 are allowed"},
		{name: "request without id", drv: emits(event.InputRequested{}), want: "request: an id has"},
		{name: "expired request", drv: emits(event.InputRequested{Request: "r", ExpiresAt: time.Unix(0, 0)}), want: "must expire within the next 168h0m0s"},
		{name: "after a request", drv: emits(event.InputRequested{Request: "r"}, final("a", "x")), want: "an event after input_requested"},
		{name: "after completed", drv: emits(event.Completed{}, final("a", "x")), want: "an event after completed"},
		{name: "two decisions", drv: emits(event.Decision{Utterances: []event.Utterance{{Text: "x"}}}, event.Decision{Utterances: []event.Utterance{{Text: "x"}}}), want: `an output "utterance-1" was sent before`},
		{name: "too many utterances", drv: emits(event.Decision{Utterances: make([]event.Utterance, 17)}), want: "at most 16 utterances"},
		{name: "audience changed", drv: emits(event.AssistantOutput{Output: "a", Delta: "x"}, event.AssistantOutput{Output: "a", Delta: "y", Final: true, Audience: event.ToParticipants("ann")}), want: "its audience changed"},
		{name: "long message", drv: emits(event.Progress{Stage: "s", Message: strings.Repeat("x", 1025)}), want: "a message has at most 1024 bytes"},
		{name: "long spoken form", drv: emits(event.AssistantOutput{Output: "a", Delta: "x", Spoken: strings.Repeat("x", 8193), Final: true}), want: "the spoken form of a delta has at most 8192 bytes"},
		{name: "long language tag", drv: emits(event.AssistantOutput{Output: "a", Delta: "x", Lang: strings.Repeat("x", 65), Final: true}), want: "a language tag has at most 64 bytes"},

		{name: "blank utterance", drv: emits(event.Decision{Utterances: []event.Utterance{{Text: " "}}}), want: "utterance 1 is blank"},
		{name: "the room's event", drv: emits(event.RunCanceled{}), want: "event.RunCanceled is not an event of a driver"},
		{name: "a pointer", drv: emits(&event.Completed{}), want: "*event.Completed is not an event of a driver"},
		{name: "too many events", drv: driver.RunFunc(func(_ context.Context, _ *driver.Turn, out driver.Emitter) error {
			for {
				if err := out.Emit(event.Progress{Stage: "s"}); err != nil {
					return err
				}
			}
		}), want: "more than 10000 events"},
		{name: "too many bytes", drv: driver.RunFunc(func(_ context.Context, _ *driver.Turn, out driver.Emitter) error {
			for {
				if err := out.Emit(event.AssistantOutput{Output: "a", Delta: strings.Repeat("x", event.MaxDelta)}); err != nil {
					return err
				}
			}
		}), want: "more than 8388608 bytes"},

		{name: "ignores a fault", drv: driver.RunFunc(func(_ context.Context, _ *driver.Turn, out driver.Emitter) error {
			_ = out.Emit(final("a", ""))
			return driver.Say(out, "b", "x")
		}), want: "after it was told that the attempt had ended"},
		{name: "ignores the end", drv: driver.RunFunc(func(_ context.Context, _ *driver.Turn, out driver.Emitter) error {
			_ = driver.Say(out, "a", "x")
			_ = driver.Say(out, "b", "y")
			return nil
		}), want: "ended at event 1 (the run was canceled): sent a event.AssistantOutput after it was told"},
		{name: "sleeps through a cancel", drv: driver.RunFunc(func(_ context.Context, _ *driver.Turn, out driver.Emitter) error {
			time.Sleep(8 * time.Second)
			return driver.Say(out, "a", "x")
		}), want: "canceled in a pause, after 4s: sent a"},
		{name: "slow to return", drv: driver.RunFunc(func(_ context.Context, _ *driver.Turn, out driver.Emitter) error {
			err := driver.Say(out, "a", "x")
			time.Sleep(6 * time.Second)
			return err
		}), want: "did not return within 5s"},
		{name: "takes too long", drv: driver.RunFunc(func(ctx context.Context, _ *driver.Turn, _ driver.Emitter) error {
			<-ctx.Done()
			return nil
		}), want: "did not return within 2m0s"},
		{name: "panics", drv: driver.RunFunc(func(context.Context, *driver.Turn, driver.Emitter) error { panic("lost") }), want: "the driver panicked: lost"},
		{name: "ends otherwise", drv: driver.RunFunc(answer), turn: driver.Turn{Text: "x"}, ends: Waits, want: "must be one that waits for input, but it is one that completes"},
		{name: "fails", drv: driver.RunFunc(func(context.Context, *driver.Turn, driver.Emitter) error { return errors.New("no model") }), ends: Completes, want: "it failed: no model"},

		{name: "another text under a closed id", drv: driver.RunFunc(func(_ context.Context, turn *driver.Turn, out driver.Emitter) error {
			if err := driver.Say(out, "a", fmt.Sprintf("attempt %d", turn.Attempt)); err != nil {
				return err
			}
			return driver.Say(out, "b", "x")
		}), want: `output "a" was closed with other text before`},
		{name: "another id for the same text", drv: driver.RunFunc(func(_ context.Context, turn *driver.Turn, out driver.Emitter) error {
			if err := driver.Say(out, event.OutputID(fmt.Sprintf("a%d", turn.Attempt)), "x"); err != nil {
				return err
			}
			return driver.Say(out, "b", "x")
		}), want: `an undisturbed one closes ["a1" "b"]`},
		{name: "differs from run to run", drv: func() driver.Driver {
			n := make(chan int, 1)
			n <- 0
			return driver.RunFunc(func(_ context.Context, _ *driver.Turn, out driver.Emitter) error {
				i := <-n + 1
				n <- i
				return driver.Say(out, "a", fmt.Sprint(i))
			})
		}(), want: "differ from those of an attempt that runs alone"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			found := examine(t, open(tc.drv), Case{Name: tc.name, Turn: tc.turn, Ends: tc.ends})
			if !strings.Contains(fmt.Sprint(found), tc.want) {
				t.Errorf("found %v, want %q", found, tc.want)
			}
		})
	}
}

func TestAFaultEndsTheAttemptWithItsCause(t *testing.T) {
	turn := filled(driver.Turn{})
	ctx, rec := Record(context.Background(), &turn)
	err := rec.Emit(event.AssistantOutput{Output: "a", Final: true})
	if !errors.Is(err, driver.ErrFault) {
		t.Errorf("Emit returned %v, want ErrFault in the chain", err)
	}
	if !errors.Is(context.Cause(ctx), driver.ErrFault) {
		t.Errorf("the cause is %v, want ErrFault", context.Cause(ctx))
	}
	if err := rec.Emit(event.Completed{}); !errors.Is(err, driver.ErrEnded) {
		t.Errorf("Emit after the end returned %v, want ErrEnded", err)
	}
}

func TestLongAttemptsAreSampled(t *testing.T) {
	for _, n := range []int{0, 1, 2, 200, 201, 10_000} {
		picked := sample(n)
		if len(picked) != min(n, 200) {
			t.Errorf("%d of %d", len(picked), n)
		}
		if n > 0 && (picked[0] != 1 || picked[len(picked)-1] != n) {
			t.Errorf("the sample of %d goes from %d to %d", n, picked[0], picked[len(picked)-1])
		}
	}
}
