package channel

import (
	"fmt"
	"strings"
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
	evs, err := l.Open.Check(nil, n, body, fresh(byte(n)))
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
		evs, err := l.Open.Check(nil, 100, d, fresh(seed+1))
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

// TestAnAttemptIsBounded holds E6: 10,000 events and 8 MiB, also for a decision
// that makes many events at once.
func TestAnAttemptIsBounded(t *testing.T) {
	long := event.Decision{}
	for range 16 {
		long.Utterances = append(long.Utterances, event.Utterance{Text: strings.Repeat("x", 64<<10)})
	}
	for _, c := range []struct {
		name   string
		events int
		bytes  int
		body   event.RunBody
		fault  bool
	}{
		{"the last event", event.MaxAttemptEvents - 1, 0, event.Progress{Stage: "s"}, false},
		{"one event more", event.MaxAttemptEvents, 0, event.Progress{Stage: "s"}, true},
		{"a decision that fits", 0, 0, long, false},
		{"a decision of too many events", event.MaxAttemptEvents - 16, 0, long, true},
		{"a delta that fits", 0, event.MaxAttemptBytes - 4096 - 64, event.AssistantOutput{Output: "a", Delta: strings.Repeat("x", 4096)}, false},
		{"a delta too many", 0, event.MaxAttemptBytes - 4096, event.AssistantOutput{Output: "a", Delta: strings.Repeat("x", 4096)}, true},
		{"a decision of too many bytes", 0, event.MaxAttemptBytes - (1 << 20) - 4096, long, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, r := active()
			r.Events, r.Bytes = c.events, c.bytes
			evs, err := r.Check(nil, 1, c.body, fresh(1))
			if (err != nil) != c.fault {
				t.Fatalf("error %v", err)
			}
			total := c.bytes
			for _, ev := range evs {
				total += Size(ev.Body)
			}
			if c.events+len(evs) > event.MaxAttemptEvents || total > event.MaxAttemptBytes {
				t.Errorf("the attempt grows to %d events and %d bytes", c.events+len(evs), total)
			}
		})
	}
}

// TestUnknownWordsAreFaults holds E6: what a driver sends is one of the known words.
func TestUnknownWordsAreFaults(t *testing.T) {
	for _, x := range []event.AssistantOutput{
		{Output: "a", Delta: "x", Purpose: 9},
		{Output: "a", Delta: "x", History: 9},
		{Output: "a", Delta: "x", Audience: event.Disclosure{Kind: 9}},
	} {
		_, r := active()
		if _, err := r.Check(nil, 1, x, fresh(1)); err == nil {
			t.Errorf("purpose %v, history %v, audience %v were taken", x.Purpose, x.History, x.Audience.Kind)
		}
	}
}

// TestAudienceOfUnsortedNames holds E7 also for a driver that writes the names
// of an audience in any order.
func TestAudienceOfUnsortedNames(t *testing.T) {
	l, r := active()
	r.Disclosure = event.ToParticipants("ann", "bob", "cat")
	evs := take(t, l, 1, event.AssistantOutput{
		Output: "a", Delta: "x",
		Audience: event.Disclosure{Kind: event.DiscloseParticipants, Participants: []event.ParticipantID{"cat", "ann", "ann"}},
	})
	if to := evs[0].Disclosure; !to.Equal(event.ToParticipants("ann", "cat")) {
		t.Errorf("the output is for %v", to)
	}
}

// TestClosedTextIsBounded: an open run keeps the newest text of its closed
// outputs and no more than MaxClosedText of it; what is dropped is still known to
// have been shown (R2), and its row has all of it.
func TestClosedTextIsBounded(t *testing.T) {
	l, r := active()
	part := strings.Repeat("x", event.MaxDelta)
	n := uint64(0)
	outputs := 2 * MaxClosedText / len(part)
	for i := range outputs {
		n++
		take(t, l, n, event.AssistantOutput{Output: event.OutputID(fmt.Sprint("o", i)), Delta: part, Final: true})
	}
	kept := 0
	for i := range r.Outputs {
		kept += len(r.Outputs[i].Text())
	}
	if kept != MaxClosedText || len(r.Outputs) != outputs {
		t.Errorf("%d outputs keep %d bytes, want %d that keep %d", len(r.Outputs), kept, outputs, MaxClosedText)
	}
	if v := r.View(l.Channel); len(v.Outputs) != outputs/2 || v.Outputs[0].Text != part {
		t.Errorf("the view has %d outputs, want the newest %d whole", len(v.Outputs), outputs/2)
	}
	apply(l, event.AttemptStarted{Resumed: true}, 2, 0, Event{Disclosure: event.ToRoom()})
	if evs := take(t, l, 1, event.AssistantOutput{Output: "o0", Delta: part, Final: true}); len(evs) != 0 {
		t.Errorf("what was shown before is shown again: %d events", len(evs))
	}
	// A long one is dropped at once, after its row was written.
	var rows []event.KeyedRow
	for i := range 1 + MaxClosedText/len(part) {
		evs, err := r.Check(nil, uint64(i+2), event.AssistantOutput{Output: "long", Delta: part, Final: i == MaxClosedText/len(part)}, fresh(9))
		if err != nil || len(evs) != 1 {
			t.Fatalf("delta %d: %v", i, err)
		}
		x := &event.RunEvent{
			Run: r.ID, Agent: r.Agent, Input: r.Input, Attempt: 2, Sequence: r.Sequence + 1, N: uint64(i + 2), Logical: "long", Event: evs[0].Body,
		}
		rows = l.ApplyRun(&event.Entry{Seq: event.Seq(r.Sequence + 3), At: noon, Channel: l.Channel, Disclosure: evs[0].Disclosure, Body: x}, x)
	}
	if len(rows) != 1 || len(rows[0].Row.(*event.TranscriptRow).Text) != MaxClosedText+len(part) {
		t.Errorf("the row of a long output: %d rows", len(rows))
	}
}
