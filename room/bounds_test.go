package room_test

import (
	"fmt"
	"testing"

	"parley/event"
	"parley/room"
)

// TestOpenChannelsAreBounded fills a room with open channels: the next one is
// refused before anything is written, an open one goes on, and the end of one
// makes room for another.
func TestOpenChannelsAreBounded(t *testing.T) {
	s := room.New(roomID)
	draws := 0
	decide := func(msg any) (event.Reply, error) {
		draws++
		d, err := s.Decide(room.Input{Now: began, Rand: [16]byte{byte(draws), byte(draws >> 8), 1}, Msg: msg}, room.Facts{})
		if err != nil {
			return nil, err
		}
		for _, e := range d.Entries {
			s.Apply(e)
		}
		return d.Reply, nil
	}
	say := func(ch int, id string) (event.Reply, error) {
		in := event.FinalInput{ID: event.InputID(id), Text: "hello", Modality: event.Text}
		return decide(event.Submit{Access: person("ann"), Channel: event.ChannelID(fmt.Sprintf("team:%d", ch)), Input: in})
	}
	must := func(r event.Reply, err error) event.Reply {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	must(decide(event.Configure{Access: hostAccess(), Config: configs[0]}))
	var run event.RunID
	for i := range room.MaxLanes {
		run = must(say(i, "i1")).(event.Receipt).Run
	}
	refused := func() {
		t.Helper()
		head := s.Head()
		_, err := say(room.MaxLanes, "i1")
		if r, ok := event.AsRefusal(err); !ok || r.Reason != event.Unavailable || s.Head() != head {
			t.Fatalf("one channel too many: %v", err)
		}
	}
	refused()
	must(say(0, "i2")) // supersedes on an open channel
	refused()
	must(decide(event.CancelRun{Access: person("ann"), Run: run}))
	must(say(room.MaxLanes, "i1"))
	if _, err := room.Restore(roomID, s.Snapshot()); err != nil {
		t.Error(err)
	}
}

// TestFocusIsBounded fills a room with focus: the next subject is refused, one
// that has a focus may change or remove it.
func TestFocusIsBounded(t *testing.T) {
	w := newWorld(t)
	focus := func(i int, to event.AgentID) error {
		_, _, err := w.do(event.SetFocus{Access: person(event.ParticipantID(fmt.Sprintf("p%d", i))), Agent: to})
		return err
	}
	if _, _, err := w.do(event.Configure{Access: hostAccess(), Config: configs[0]}); err != nil {
		t.Fatal(err)
	}
	for i := range room.MaxFocus {
		if err := focus(i, "guide"); err != nil {
			t.Fatal(err)
		}
	}
	if r, ok := event.AsRefusal(focus(room.MaxFocus, "guide")); !ok || r.Reason != event.Unavailable {
		t.Fatal("one focus too many was taken")
	}
	for _, change := range []struct {
		i  int
		to event.AgentID
	}{{0, "brittle"}, {1, ""}, {room.MaxFocus, "guide"}} {
		if err := focus(change.i, change.to); err != nil {
			t.Fatalf("%+v: %v", change, err)
		}
	}
}
