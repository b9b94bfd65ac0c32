package room_test

import (
	"fmt"
	"testing"

	"parley/event"
	"parley/room"
)

// bare is a room without a store, for benchmarks.
type bare struct {
	b     *testing.B
	state *room.State
	rand  uint64
}

func newBare(b *testing.B) *bare {
	r := &bare{b: b, state: room.New(roomID)}
	r.do(event.Configure{Access: hostAccess(), Config: configs[0]})
	return r
}

func (r *bare) do(msg any) event.Reply {
	r.rand++
	in := room.Input{Now: began, Msg: msg}
	for i := range 8 {
		in.Rand[i] = byte(r.rand >> (8 * i))
	}
	d, err := r.state.Decide(in, room.Facts{})
	if err != nil || d.Fault != nil {
		r.b.Fatalf("%T: %v %v", msg, err, d.Fault)
	}
	for _, e := range d.Entries {
		r.state.Apply(e)
	}
	return d.Reply
}

func (r *bare) start(n int) event.RunID {
	in := event.FinalInput{ID: event.InputID(fmt.Sprintf("i%d", n)), Text: "What may I carry?", Modality: event.Text}
	return r.do(event.Submit{Access: person("ann"), Channel: "public", Input: in}).(event.Receipt).Run
}

const delta = "about thirty bytes of an answer"

// BenchmarkDelta is the way of one delta through Decide and Apply, in outputs of
// 20 deltas and runs of 2,000 events.
func BenchmarkDelta(b *testing.B) {
	r := newBare(b)
	run, n := event.RunID(""), 0
	b.ReportAllocs()
	for b.Loop() {
		if n%2000 == 0 {
			run = r.start(n)
		}
		i := n%2000 + 1
		r.do(room.Emit{Run: run, Attempt: 1, N: uint64(i), Event: event.AssistantOutput{
			Output: outputs[i/20], Delta: delta, Final: i%20 == 19,
		}})
		n++
	}
}

var outputs = func() (ids [101]event.OutputID) {
	for i := range ids {
		ids[i] = event.OutputID(fmt.Sprintf("output-%d", i))
	}
	return ids
}()

// BenchmarkTurn is a whole turn: an input, one progress, an answer of 20 deltas, the end.
func BenchmarkTurn(b *testing.B) {
	r := newBare(b)
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		n++
		run := r.start(n)
		r.do(room.Emit{Run: run, Attempt: 1, N: 1, Event: event.Progress{Stage: "search"}})
		for i := range 20 {
			r.do(room.Emit{Run: run, Attempt: 1, N: uint64(i + 2), Event: event.AssistantOutput{Output: "a", Delta: delta, Final: i == 19}})
		}
		r.do(room.Ended{Run: run, Attempt: 1, N: 22})
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n)/24, "ns/entry")
}
