package room_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"parley/event"
	"parley/room"
)

// pick draws an attempt that has a driver at work.
func (m *model) pick() (attempt, bool) {
	var all []attempt
	for _, e := range m.w.state.Outstanding(m.w.now) {
		s := e.(room.StartAttempt)
		all = append(all, attempt{s.Run, s.Attempt})
	}
	if len(all) == 0 {
		return attempt{}, false
	}
	return rapid.SampledFrom(all).Draw(m.T, "attempt"), true
}

func (m *model) emit() {
	a, ok := m.pick()
	if !ok {
		return
	}
	msg := room.Emit{Run: a.run, Attempt: a.n, N: m.last[a] + 1, Event: m.event(a)}
	if m.last[a] > 0 && m.chance("again", 10) {
		msg.N = uint64(rapid.IntRange(1, int(m.last[a])).Draw(m.T, "n"))
	}
	d, err := m.step(msg)
	if err != nil {
		m.Fatalf("a driver at work is refused: %v", err)
	}
	if d.Fault != nil && m.w.check.Status(a.run) != event.RunFailedStatus {
		m.Fatalf("a fault left the run %s", m.w.check.Status(a.run))
	}
	if len(d.Entries) > 0 && d.Fault == nil {
		m.last[a] = msg.N
		if x, ok := msg.Event.(event.AssistantOutput); ok && x.Final {
			if m.closed[a] == nil {
				m.closed[a] = map[event.OutputID]bool{}
			}
			m.closed[a][x.Output] = true
		}
		return
	}
	// A number that was taken stays taken (R5); else nothing is dropped in silence
	// but what an earlier attempt at the same input closed (R2).
	switch x, output := msg.Event.(event.AssistantOutput); {
	case msg.N <= m.last[a]:
		if d.Fault != nil || len(d.Entries) > 0 {
			m.Fatalf("number %d of %v was taken twice", msg.N, a)
		}
	case d.Fault == nil && !(output && m.closedBefore(a, x.Output)):
		m.Fatalf("%T of %v was dropped", msg.Event, a)
	}
}

// closedBefore reports whether an attempt before a closed the logical output for
// the input that a works on.
func (m *model) closedBefore(a attempt, logical event.OutputID) bool {
	var input event.InputID
	for _, e := range slices.Backward(m.w.journal) {
		if x, ok := e.Body.(*event.RunEvent); ok && x.Run == a.run {
			input = x.Input
			break
		}
	}
	return slices.ContainsFunc(m.w.journal, func(e *event.Entry) bool {
		x, ok := e.Body.(*event.RunEvent)
		if !ok || x.Run != a.run || x.Input != input || x.Attempt >= a.n || x.Logical != logical {
			return false
		}
		o, ok := x.Event.(event.AssistantOutput)
		return ok && o.Final
	})
}

var logical = []event.OutputID{"a", "b", "c", "utterance-1"}

// event draws what a driver sends, mostly what is allowed.
func (m *model) event(a attempt) event.RunBody {
	switch rapid.IntRange(0, 19).Draw(m.T, "event") {
	case 0, 1:
		return event.Progress{Stage: "s", Message: "working"}
	case 2:
		return event.Checkpoint{Value: json.RawMessage(`{"n":1}`)}
	case 3, 4:
		x := event.InputRequested{Request: rapid.SampledFrom([]event.RequestID{"q1", "q2"}).Draw(m.T, "request")}
		if m.chance("expiry", 30) {
			x.ExpiresAt = m.w.now.Add(time.Duration(rapid.IntRange(1, 10_000_000).Draw(m.T, "µs")) * time.Microsecond)
		}
		return x
	case 5:
		return event.Completed{}
	case 6:
		var d event.Decision
		for range rapid.IntRange(0, 7).Draw(m.T, "utterances") {
			d.Utterances = append(d.Utterances, event.Utterance{Text: "said", Audience: rapid.SampledFrom(disclosures[:4]).Draw(m.T, "audience")})
		}
		return d
	case 7:
		return rapid.SampledFrom([]event.RunBody{
			nil,
			event.AttemptStarted{},
			event.RunCanceled{Reason: "x"},
			event.Checkpoint{Value: json.RawMessage(`{`)},
			event.Progress{},
			event.AssistantOutput{Output: "a"},
			event.InputRequested{},
		}).Draw(m.T, "wrong")
	}
	x := event.AssistantOutput{
		Output: rapid.SampledFrom(logical).Draw(m.T, "output"), Delta: rapid.SampledFrom([]string{"x", "yy ", "\n"}).Draw(m.T, "delta"),
		Final: m.chance("final", 40),
	}
	if m.closed[a][x.Output] && m.chance("fresh", 95) {
		x.Output = event.OutputID(fmt.Sprintf("fresh-%d", m.last[a]))
	}
	if m.chance("worded", 20) {
		x.Purpose = rapid.SampledFrom([]event.Purpose{0, event.Answer, event.Question, event.ProgressText}).Draw(m.T, "purpose")
		x.History = rapid.SampledFrom([]event.History{0, event.Record, event.Ephemeral}).Draw(m.T, "history")
		x.Audience = rapid.SampledFrom(disclosures).Draw(m.T, "audience")
	}
	return x
}

// stale asserts that nothing is taken from an attempt that is not at work.
func (m *model) stale() {
	if len(m.runs) == 0 {
		return
	}
	a := attempt{rapid.SampledFrom(m.runs).Draw(m.T, "run"), uint32(rapid.IntRange(0, 4).Draw(m.T, "attempt"))}
	if m.working()[a] {
		return
	}
	if _, err := m.step(room.Emit{Run: a.run, Attempt: a.n, N: 1000, Event: event.Progress{Stage: "s"}}); !errors.Is(err, room.ErrStale) {
		m.Fatalf("an event of %v, which is not at work, got %v", a, err)
	}
	if _, err := m.step(room.Ended{Run: a.run, Attempt: a.n, N: 1001}); !errors.Is(err, room.ErrStale) {
		m.Fatalf("the return of %v, which is not at work, got %v", a, err)
	}
}
