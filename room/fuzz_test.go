package room_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"parley/event"
	"parley/room"
)

// FuzzRestore: whatever a snapshot holds, restoring it does not panic. What it
// gives means one thing: its own snapshot is restored to the same state.
func FuzzRestore(f *testing.F) {
	for _, s := range snapshots(f) {
		f.Add(s)
		f.Add(s[:len(s)/2])
		f.Add(append([]byte{s[0] + 1}, s[1:]...))
		f.Add(append(bytes.TrimSuffix(s, []byte("}")), `,"later":{"x":[1]}}`...))
	}
	f.Add([]byte{})
	f.Add([]byte("\x01{\"lanes\":[null]}"))
	f.Add([]byte("\x01{\"lanes\":[{}]}"))
	f.Add([]byte("\x01{\"lanes\":[{\"open\":{}}],\"focus\":{\"\":\"\"}}"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		s, err := room.Restore(roomID, raw)
		if err != nil {
			if s != nil {
				t.Fatal("a state came with an error")
			}
			return
		}
		once := s.Snapshot()
		again, err := room.Restore(roomID, once)
		if err != nil {
			t.Fatalf("%s restores, %s does not: %v", raw, once, err)
		}
		if twice := again.Snapshot(); !bytes.Equal(once, twice) {
			t.Fatalf("the restored state has another snapshot:\n%s\n%s", once, twice)
		}
		if s.Head() != again.Head() || !s.Wake().Equal(again.Wake()) || s.Active() != again.Active() {
			t.Fatalf("%s is restored to two states", once)
		}
	})
}

// snapshots are those of a room in which an input after the other opens, works,
// waits, queues and ends.
func snapshots(t testing.TB) (out [][]byte) {
	w := newWorld(t)
	do := func(msg any) event.Reply {
		d, _, err := w.do(msg)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, w.state.Snapshot())
		return d.Reply
	}
	say := func(ch event.ChannelID, id event.InputID) event.RunID {
		in := event.FinalInput{ID: id, Text: "hello", Modality: event.Text, Deadline: new(time.Minute)}
		return do(event.Submit{Access: person("ann"), Channel: ch, Input: in}).(event.Receipt).Run
	}
	do(event.Configure{Access: hostAccess(), Config: configs[0]})
	do(event.SetFocus{Access: person("ann"), Agent: "guide"})
	first := say("public", "i1")
	for n, e := range []event.RunBody{
		event.Progress{Stage: "thinking", Current: new(int64(1))},
		event.AssistantOutput{Output: "o", Delta: "Hé", Purpose: event.Answer, History: event.Record},
		event.Checkpoint{Value: []byte(`{"step":1}`)},
		event.InputRequested{Request: "q", ExpiresAt: w.now.Add(time.Minute)},
	} {
		do(room.Emit{Run: first, Attempt: 1, N: uint64(n + 1), Event: e})
	}
	for i := range 3 {
		say(event.ChannelID(fmt.Sprintf("team:%d", i)), "i1")
	}
	do(event.CancelRun{Access: person("ann"), Run: first})
	return out
}
