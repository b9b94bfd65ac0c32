package drivertest_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"parley/driver"
	"parley/driver/drivertest"
	"parley/event"
	"parley/room"
)

// real is the state of a room with one run at work.
type real struct {
	t     *rapid.T
	state *room.State
	run   event.RunID
	now   time.Time
	n     uint64 // events of the driver, and what makes randomness differ
}

func newReal(t *rapid.T, to event.Disclosure, visible event.Disclosure) *real {
	r := &real{t: t, state: room.New("room"), now: time.Now()}
	host := event.Access{Subject: "host", Rooms: []string{"room"}, Scopes: []event.Scope{event.ScopeHost}}
	r.decide(event.Configure{Access: host, Config: event.RoomConfig{
		Agents:        []event.Agent{{ID: "agent", Label: "Agent", Role: "guide", Driver: "d", Visibility: visible}},
		FallbackAgent: "agent",
	}})
	ann := event.Access{
		Subject: "ann", Rooms: []string{"room"}, Scopes: []event.Scope{event.ScopeRead, event.ScopeInput},
		Channels: []event.ChannelRule{{Match: "public", Can: []event.Scope{event.ScopeRead, event.ScopeInput}, Disclosure: event.ToRoom()}},
	}
	d := r.decide(event.Submit{Access: ann, Channel: "public", Input: event.FinalInput{ID: "i", Text: "x", Modality: event.Text, Disclosure: to}})
	r.run = d.Reply.(event.Receipt).Run
	r.n = 0
	return r
}

func (r *real) decide(msg any) room.Decision {
	r.n++
	in := room.Input{Now: r.now, Msg: msg, Rand: [16]byte{byte(r.n), byte(r.n >> 8), 1}}
	d, err := r.state.Decide(in, room.Facts{})
	if err != nil {
		r.t.Fatalf("%T: %v", msg, err)
	}
	for _, e := range d.Entries {
		r.state.Apply(e)
	}
	return d
}

// emit sends an event and returns what is wrong with it, and whether the attempt goes on.
func (r *real) emit(body event.RunBody) (wrong error, goesOn bool) {
	d := r.decide(room.Emit{Run: r.run, Attempt: 1, N: r.n + 1, Event: body})
	switch body.(type) {
	case event.InputRequested, event.Completed:
		return d.Fault, false
	}
	return d.Fault, d.Fault == nil
}

var disclosures = []event.Disclosure{{}, event.ToRoom(), event.ToNone(), event.ToParticipants("ann"), event.ToParticipants("ann", "bob"), event.ToParticipants("bob")}

// drawn draws what a driver sends: mostly what is allowed, else at the bounds and
// beyond them.
func drawn(t *rapid.T) event.RunBody {
	odd := rapid.IntRange(0, 4).Draw(t, "odd") == 0
	text := func(label string, bound int, usual ...string) string {
		if !odd {
			return rapid.SampledFrom(usual).Draw(t, label)
		}
		n := rapid.SampledFrom([]int{0, 1, bound, bound + 1}).Draw(t, label+" length")
		return strings.Repeat(rapid.SampledFrom([]string{"x", "x", " ", "\xff"}).Draw(t, label+" of"), n)
	}
	count := func(label string) *int64 {
		n := rapid.SampledFrom([]int64{0, 5, 1 << 53}).Draw(t, label)
		if odd {
			n = rapid.SampledFrom([]int64{-1, 1<<53 + 1}).Draw(t, label+" odd")
		}
		return &n
	}
	who := func() event.Disclosure {
		switch {
		case !odd:
			return rapid.SampledFrom([]event.Disclosure{{}, {}, event.ToRoom(), event.ToParticipants("ann")}).Draw(t, "audience")
		case rapid.Bool().Draw(t, "crowd"):
			return event.Disclosure{Kind: event.DiscloseParticipants, Participants: make([]event.ParticipantID, 257)}
		}
		return rapid.SampledFrom(disclosures).Draw(t, "any audience")
	}
	switch rapid.IntRange(0, 29).Draw(t, "kind") {
	case 0, 1, 2:
		return event.Progress{Stage: text("stage", 64, "s"), Unit: text("unit", 64, "", "u"), Message: text("message", 1<<10, "", "m"), Current: count("current"), Total: count("total")}
	case 3, 4:
		values := []string{`{"n":1}`, `null`, `9007199254740992`}
		if odd {
			values = []string{``, `{`, `1 2`, `9007199254740993`, `"\ud800"`, `{"a":1,"a":2}`}
		}
		return event.Checkpoint{Value: json.RawMessage(rapid.SampledFrom(values).Draw(t, "value"))}
	case 5:
		expires := []time.Time{{}, time.Now().Add(time.Hour)}
		if odd {
			expires = []time.Time{time.Now().Add(-time.Hour), time.Now().Add(200 * time.Hour)}
		}
		return event.InputRequested{Request: event.RequestID(text("request", 128, "r")), ExpiresAt: rapid.SampledFrom(expires).Draw(t, "expires")}
	case 6:
		return event.Completed{}
	case 7, 8:
		var d event.Decision
		for range rapid.SampledFrom([]int{0, 1, 2, 16, 17}).Draw(t, "utterances") {
			d.Utterances = append(d.Utterances, event.Utterance{Text: text("text", 64<<10, "x", strings.Repeat("x", 9000)), Audience: who(), Lang: text("lang", 64, "", "en")})
		}
		return d
	case 9:
		if odd {
			return rapid.SampledFrom([]event.RunBody{nil, event.AttemptStarted{}, event.RunFailed{}, &event.Completed{}}).Draw(t, "no driver's")
		}
	}
	return event.AssistantOutput{
		Output: event.OutputID(text("output", 128, "a", "b", "c", "d", "e", "f", "g", "h")),
		Delta:  text("delta", event.MaxDelta, "x", "yy ", "\n"), Final: rapid.IntRange(0, 4).Draw(t, "final") == 0,
		Purpose:  rapid.SampledFrom([]event.Purpose{0, 0, 0, 0, 0, 0, event.Answer, event.Answer, event.Question, event.ProgressText, 9}).Draw(t, "purpose"),
		History:  rapid.SampledFrom([]event.History{0, 0, 0, 0, 0, 0, event.Record, event.Record, event.Ephemeral, 9}).Draw(t, "history"),
		Audience: who(), Lang: text("lang", 64, "", "en"), Spoken: text("spoken", 8<<10, "", "s"),
	}
}

// TestTheContractIsTheRooms sends the same events to the recorder and to a room:
// the one takes what the other takes. Left out is a driver that both streams an
// output under the id of an utterance and decides, which only the recorder refuses.
func TestTheContractIsTheRooms(t *testing.T) {
	taken, refused := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		to := rapid.SampledFrom(disclosures[1:]).Draw(t, "disclosure")
		if to.Empty() {
			to = event.ToRoom() // an empty one is refused before there is a run
		}
		visible := rapid.SampledFrom([]event.Disclosure{{}, event.ToRoom(), event.ToParticipants("ann")}).Draw(t, "visibility")
		if visible.Intersect(to).Empty() {
			visible = event.ToRoom()
		}
		r := newReal(t, to, visible)
		turn := &driver.Turn{Disclosure: to, Agent: event.Agent{ID: "agent", Visibility: visible}}
		_, rec := drivertest.Record(context.Background(), turn)
		for goesOn := true; goesOn; {
			body := drawn(t)
			var want error
			want, goesOn = r.emit(body)
			got := rec.Emit(body)
			if (got == nil) != (want == nil) {
				t.Fatalf("%T: the recorder says %v, the room %v", body, got, want)
			}
			if got == nil {
				taken++
			} else {
				refused++
			}
		}
	})
	if taken < 100 || refused < 30 {
		t.Errorf("only %d events were taken and %d refused", taken, refused)
	}
}
