package channel

import (
	"fmt"
	"testing"
	"time"

	"parley/event"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// active returns a run in its first attempt, and the lane that owns it.
func active() (*Lane, *Run) {
	l := &Lane{Channel: "public"}
	in := &event.InputAdmitted{
		Input: "i1", Speaker: event.Person("ann"), Text: "hello", Modality: event.Text, Agent: "guide", Run: "r1",
		State: event.Started, Budget: time.Minute, RunDisclosure: event.ToRoom(),
	}
	l.ApplyInput(&event.Entry{Seq: 2, At: noon, Channel: l.Channel, Disclosure: event.ToRoom(), Body: in}, in)
	apply(l, event.AttemptStarted{}, 1, 0, Event{Disclosure: event.ToRoom()})
	return l, l.Open
}

func apply(l *Lane, body event.RunBody, attempt uint32, n uint64, ev Event) {
	r := l.Open
	x := &event.RunEvent{
		Run: r.ID, Agent: r.Agent, Input: r.Input, Attempt: attempt, Sequence: r.Sequence + 1, N: n, Logical: ev.Logical, Event: body,
	}
	l.ApplyRun(&event.Entry{Seq: event.Seq(r.Sequence + 3), At: noon, Channel: l.Channel, Disclosure: ev.Disclosure, Body: x}, x)
}

func fresh(seed byte) Fresh {
	return Fresh{Now: noon, Rand: [16]byte{seed, 1, 2, 3}, Wait: time.Minute}
}

// take has an event checked and applies what became of it.
func take(t *testing.T, l *Lane, n uint64, body event.RunBody) []Event {
	t.Helper()
	evs, err := l.Open.Check(n, body, fresh(byte(n)))
	if err != nil {
		t.Fatalf("event %d: %v", n, err)
	}
	for _, ev := range evs {
		apply(l, ev.Body, l.Open.Attempt, n, ev)
	}
	return evs
}

// TestUtterancesAreOutputsOfTheirOwn holds E3 and E5: each utterance of a
// decision gets a delivery id that nothing else of the run has, whatever the
// randomness is.
func TestUtterancesAreOutputsOfTheirOwn(t *testing.T) {
	for _, seed := range []byte{0, 1, 7} {
		l, _ := active()
		take(t, l, uint64(seed)+1, event.AssistantOutput{Output: "a", Delta: "first", Final: true})
		var d event.Decision
		for i := range 16 {
			d.Utterances = append(d.Utterances, event.Utterance{Text: fmt.Sprintf("utterance %d", i)})
		}
		evs, err := l.Open.Check(100, d, fresh(seed+1))
		if err != nil {
			t.Fatal(err)
		}
		seen := map[event.OutputID]bool{}
		for _, ev := range evs[1:] {
			id := ev.Body.(event.AssistantOutput).Output
			if seen[id] || l.Open.delivery(id) != nil {
				t.Errorf("the delivery id %s is used twice", id)
			}
			seen[id] = true
		}
		if len(seen) != 16 {
			t.Errorf("%d outputs", len(seen))
		}
	}
}
