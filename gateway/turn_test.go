package gateway

import (
	"testing"

	"parley/event"
)

func TestTurnFromInputToEnd(t *testing.T) {
	rooms := newCoreRooms()
	s := serve(t, rooms)
	p := s.dial(t, "room-1").hello(mint(t, player("ann")), []string{"public", "private:ann", "private:bob"}, "session", "s1")
	ready := p.expect("ready")
	if ready["resumed"] != false || ready["sub"] != "ann" || ready["reason"] != nil {
		t.Fatalf("ready: %v", ready)
	}
	can := ready["can"].(map[string]any)
	if len(can) != 2 || can["public"] == nil || can["private:ann"] == nil {
		t.Fatalf("can: %v; a channel without right is left out", can)
	}
	st := p.expect("state")
	agents := st["room"].(map[string]any)["agents"].([]any)
	if len(agents) != 2 || st["part"] != 1.0 || st["parts"] != 1.0 {
		t.Fatalf("state: %v", st)
	}
	p.expect("caught_up")

	p.send(frame{"type": "input", "id": "i1", "channel": "public", "text": "Where is <the> tower & why?", "modality": "text"})
	var accepted frame
	var items []frame
	for accepted == nil || len(items) < 2 {
		switch f := p.next(); f["type"] {
		case "accepted":
			accepted = f
		case "events":
			items = append(items, itemsOf(f)...)
		default:
			t.Fatalf("unexpected %v", f)
		}
	}
	if accepted["id"] != "i1" || accepted["state"] != "started" || accepted["duplicate"] != false {
		t.Fatalf("accepted: %v", accepted)
	}
	if items[0]["kind"] != "input" || items[0]["id"] != accepted["entry"] || body(items[0])["inputId"] != "i1" ||
		body(items[0])["text"] != "Where is <the> tower & why?" {
		t.Fatalf("input item: %v", items[0])
	}
	if items[1]["kind"] != "run.event" || body(items[1])["type"] != "attempt_started" || items[1]["agent"] != "guide" {
		t.Fatalf("attempt item: %v", items[1])
	}
	run := event.RunID(accepted["run"].(string))
	rooms.emit("room-1", run,
		event.Progress{Stage: "search"},
		event.AssistantOutput{Output: "a", Delta: "In the "},
		event.Checkpoint{Value: []byte(`{"secret":1}`)},
		event.AssistantOutput{Output: "a", Delta: "north.", Final: true},
		event.Completed{},
	)
	items = p.items(4)
	want := []string{"progress", "assistant_output", "assistant_output", "completed"}
	for i, w := range want {
		if body(items[i])["type"] != w {
			t.Fatalf("item %d: %v, want %s", i, items[i], w)
		}
		for _, hidden := range []string{"sequence", "delivery", "inputId"} {
			if items[i][hidden] != nil {
				t.Fatalf("item %d shows %s to a participant: %v", i, hidden, items[i])
			}
		}
	}
}
