package channel

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"parley/event"
)

// FuzzCheck sends a run whatever a driver may think of. The script is a list of
// events, one a byte: the low bits choose the kind, the others its members.
// Whatever comes, Check does not panic; what it lets through applies, survives
// the journal's encoding, stays within the run's disclosure and the bounds; what
// it refuses is refused without a word of the driver's text.
func FuzzCheck(f *testing.F) {
	f.Add([]byte{0, 8, 16, 24, 1, 33, 2, 3}, "What may I carry?", []byte(`{"step":1}`))
	f.Add([]byte{9, 9, 9, 17, 5}, "👨‍👩‍👧 family", []byte(`{"a":[1,{"b":9007199254740993}]}`))
	f.Add([]byte{4, 20, 36, 52, 5}, strings.Repeat("long ", 2000), []byte(`"\ud800"`))
	f.Add([]byte{1, 65, 129, 193, 225, 255}, "\xff\xfe", []byte(`NaN`))
	f.Add([]byte{3, 3, 11, 99, 6, 7}, " \n\t", []byte(``))
	f.Add([]byte{68, 132, 4, 4}, "twice", []byte(`[1e400]`))
	f.Fuzz(func(t *testing.T, script []byte, text string, value []byte) {
		l, _ := active()
		l.Open.Disclosure = event.ToParticipants("ann", "bob")
		for i, op := range script[:min(len(script), 200)] {
			r := l.Open
			if r == nil || r.Status != event.RunActive {
				return
			}
			n := uint64(i + 1)
			if op == 255 {
				n = r.N // taken before
			}
			before, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			evs, fault := r.Check(nil, n, decodeOp(op, text, value), fresh(byte(i)))
			if after, err := json.Marshal(r); err != nil || !bytes.Equal(before, after) {
				t.Fatalf("Check changed the run: %v", err)
			}
			if fault != nil {
				if len(evs) > 0 {
					t.Fatal("a fault came with events")
				}
				if len(text) >= 12 && strings.Contains(fault.Error(), text) {
					t.Fatalf("the fault repeats what the driver said: %v", fault)
				}
				return
			}
			for _, ev := range evs {
				if !r.Disclosure.Covers(ev.Disclosure) {
					t.Fatalf("%s is disclosed wider than the run", ev.Body.RunKind())
				}
				stored(t, l, n, ev)
				apply(l, ev.Body, r.Attempt, n, ev)
			}
			if r.Events > event.MaxAttemptEvents || r.Bytes > event.MaxAttemptBytes {
				t.Fatalf("the attempt has %d events and %d bytes", r.Events, r.Bytes)
			}
		}
	})
}

// stored asserts that an event comes back from the journal as it went in.
func stored(t *testing.T, l *Lane, n uint64, ev Event) {
	t.Helper()
	e := &event.Entry{Seq: 9, At: noon, Channel: l.Channel, Disclosure: ev.Disclosure, Body: &event.RunEvent{
		Run: l.Open.ID, Agent: "guide", Input: "i1", Attempt: 1, Sequence: 1, N: n, Logical: ev.Logical, Event: ev.Body,
	}}
	got, err := event.DecodeEntry(9, event.AppendEntry(nil, e))
	if err != nil {
		t.Fatalf("%s does not decode: %v", ev.Body.RunKind(), err)
	}
	if !reflect.DeepEqual(e, got) {
		t.Fatalf("stored\n%+v\nread\n%+v", e.Body, got.Body)
	}
}

func decodeOp(op byte, text string, value []byte) event.RunBody {
	member := func(bit byte) bool { return op&bit != 0 }
	switch op & 7 {
	case 0:
		x := event.Progress{Stage: "s", Message: text}
		if member(8) {
			x.Current = new(int64(op))
		}
		if member(16) {
			x.Stage = text
		}
		if member(32) {
			x.Total = new(-int64(op))
		}
		return x
	case 1:
		x := event.AssistantOutput{Output: "a", Delta: text, Final: member(8), Purpose: event.Purpose(op >> 6), Spoken: text}
		if member(16) {
			x.Output = "b"
		}
		if member(32) {
			x.History = event.History(op >> 5 & 3)
			x.Audience = event.Disclosure{Kind: event.DisclosureKind(op >> 6), Participants: []event.ParticipantID{"bob", "ann"}}
		}
		return x
	case 2:
		return event.Checkpoint{Value: value}
	case 3:
		x := event.InputRequested{Request: "q"}
		if member(8) {
			x.ExpiresAt = noon.Add(time.Duration(op) * time.Hour)
		}
		if member(16) {
			x.Request = event.RequestID(text)
		}
		return x
	case 4:
		var d event.Decision
		for range op >> 4 {
			d.Utterances = append(d.Utterances, event.Utterance{Text: text, Lang: "en"})
		}
		return d
	case 5:
		return event.Completed{}
	case 6:
		return event.RunFailed{Code: text}
	}
	return nil
}
