package gateway

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"parley/event"
	"parley/gateway/wire"
)

func input(id, text string, more ...any) frame {
	f := frame{"type": "input", "id": id, "channel": "public", "text": text, "modality": "text"}
	for i := 0; i < len(more); i += 2 {
		f[more[i].(string)] = more[i+1]
	}
	return f
}

func TestRefusalsLeaveTheConnectionAsItWas(t *testing.T) {
	rooms := newCoreRooms()
	s := serve(t, rooms)
	p := s.live(t, "room-1", "ann", "public")
	head := len(rooms.entries("room-1"))
	for _, c := range []struct {
		name string
		send frame
		ref  any
		code wire.Code
	}{
		{"an unknown type", frame{"type": "dance", "ref": "d"}, "d", wire.CodeUnknownType},
		{"a type of later rules", frame{"type": "interrupt", "ref": "d"}, "d", wire.CodeUnknownType},
		{"a blank text", input("b", " \n\t"), "b", wire.CodeBlankText},
		{"a long text", input("l", strings.Repeat("x", 8193)), "l", wire.CodeTextTooLong},
		{"a bell", input("c", "a\u0007"), "c", wire.CodeInvalidText},
		{"append", input("a", "x", "onBusy", "append"), "a", wire.CodeBadRequest},
		{"a channel without right", input("f", "x", "channel", "private:bob"), "f", wire.CodeChannelForbidden},
		{"another speaker", input("s", "x", "as", frame{"kind": "participant", "id": "bob"}), "s", wire.CodeForbidden},
		{"an agent that is not there", input("n", "x", "agents", []string{"ghost"}), "n", wire.CodeAgentUnknown},
		{"a focus that is not there", frame{"type": "focus", "ref": "fo", "agent": "ghost"}, "fo", wire.CodeAgentUnknown},
		{"a reason of a participant", frame{"type": "auth", "ref": "au", "token": "x.y.z"}, "au", wire.CodeForbidden},
	} {
		t.Run(c.name, func(t *testing.T) {
			p.send(c.send)
			f := p.expect("error")
			if f["code"] != string(c.code) || f["ref"] != c.ref || f["fatal"] != false || f["message"] == "" {
				t.Errorf("got %v, want %s", f, c.code)
			}
		})
	}
	p.sendRaw(`{"type":"input","id":"u","channel":"public","modality":"text","text":"\ud800"}`)
	if f := p.expect("error"); f["code"] != "invalid_text" || f["ref"] != "u" {
		t.Errorf("a lone surrogate: %v", f)
	}
	p.send(frame{"type": "cancel", "ref": "c", "run": "r_unknown"})
	if f := p.expect("done"); f["canceled"] != false || f["status"] != nil {
		t.Errorf("cancel of an unknown run: %v", f)
	}
	if got := len(rooms.entries("room-1")); got != head {
		t.Errorf("%d entries were written", got-head)
	}
}

func TestRetriesGetTheSameReceipt(t *testing.T) {
	rooms := newCoreRooms()
	s := serve(t, rooms)
	p := s.live(t, "room-1", "ann", "public")
	p.send(input("i1", "hello"))
	first := p.until("accepted")
	p.send(input("i1", "hello"))
	second := p.until("accepted")
	if second["duplicate"] != true || first["duplicate"] != false {
		t.Errorf("duplicate: %v, then %v", first["duplicate"], second["duplicate"])
	}
	for _, m := range []string{"id", "entry", "run", "at", "state"} {
		if first[m] != second[m] {
			t.Errorf("%s: %v, then %v", m, first[m], second[m])
		}
	}
	p.send(input("i1", "hello!"))
	if f := p.until("error"); f["code"] != "input_conflict" || f["ref"] != "i1" {
		t.Errorf("other words under the same id: %v", f)
	}
}

func TestInputsAreLimitedAndDuplicatesAreFree(t *testing.T) {
	rooms := newCoreRooms()
	s := serve(t, rooms, func(c *Config) { c.Limits.InputsPerSec = 1 })
	p := s.live(t, "room-1", "ann", "public")
	for i := range 10 {
		p.send(input(fmt.Sprintf("i%d", i), "hello"))
		p.until("accepted")
	}
	p.send(input("over", "hello"))
	f := p.until("error")
	if f["code"] != "rate_limited" || f["ref"] != "over" || f["retryMs"].(float64) <= 0 || f["fatal"] != false {
		t.Errorf("the eleventh: %v", f)
	}
	// Exact repetitions are free, however empty the bucket is, over a new connection too.
	p2 := s.live(t, "room-1", "ann", "public")
	for i := range 10 {
		p2.send(input(fmt.Sprintf("i%d", i), "hello"))
		if f := p2.until("accepted"); f["duplicate"] != true {
			t.Errorf("repetition %d: %v", i, f)
		}
	}
	p2.send(input("more", "hello"))
	if f := p2.until("error"); f["code"] != "rate_limited" {
		t.Errorf("a new connection refilled the bucket: %v", f)
	}
	// Other subjects and rooms have their own.
	b := s.live(t, "room-1", "bob", "public")
	b.send(input("x", "hello"))
	b.until("accepted")
	o := s.live(t, "room-2", "ann", "public")
	o.send(input("x", "hello"))
	o.until("accepted")
}

func TestARefusedInputIsNotFreeWhenItComesAgain(t *testing.T) {
	s := serve(t, newCoreRooms(), func(c *Config) { c.Limits.InputsPerSec, c.Limits.InputBurst = 1, 2 })
	p := s.live(t, "room-1", "ann", "public")
	for range 2 {
		p.send(input("i1", " "))
		if f := p.expect("error"); f["code"] != "blank_text" {
			t.Fatalf("got %v", f)
		}
	}
	p.send(input("i1", " "))
	if f := p.expect("error"); f["code"] != "rate_limited" {
		t.Errorf("got %v", f)
	}
}

func TestInputsOfOneConnectionCommitInTheirOrder(t *testing.T) {
	rooms := newCoreRooms()
	s := serve(t, rooms, func(c *Config) { c.Limits.InputBurst = 60 })
	p := s.live(t, "room-1", "ann", "public")
	var want []string
	for i := range 50 {
		id := fmt.Sprint("i", i)
		want = append(want, id)
		p.send(input(id, "hello"))
	}
	for _, id := range want {
		if f := p.until("accepted"); f["id"] != id {
			t.Fatalf("accepted %v, want %s", f["id"], id)
		}
	}
	var got []string
	for _, e := range rooms.entries("room-1") {
		if x, ok := e.Body.(*event.InputAdmitted); ok {
			got = append(got, string(x.Input))
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("journaled %v", got)
	}
}

func TestARepetitionThatOnlyTheRoomKnowsIsGivenBack(t *testing.T) {
	rooms := newCoreRooms()
	s := serve(t, rooms, func(c *Config) { c.Limits.InputsPerSec, c.Limits.InputBurst = 1, 2 })
	p := s.live(t, "room-1", "ann", "public")
	p.send(input("i1", "hello"))
	p.until("accepted")
	// As after a restart: the gateway has forgotten, the room has not.
	s.mu.Lock()
	for _, seat := range s.seats {
		seat.recent = nil
	}
	s.mu.Unlock()
	for range 5 {
		p.send(input("i1", "hello"))
		if f := p.until("accepted"); f["duplicate"] != true {
			t.Fatalf("got %v", f)
		}
		s.mu.Lock()
		for _, seat := range s.seats {
			seat.recent = nil
		}
		s.mu.Unlock()
	}
}

func TestFramesBeyondTheRateAreToldSo(t *testing.T) {
	s := serve(t, newCoreRooms(), func(c *Config) { c.Limits.FramesPerSec, c.Limits.FrameBurst = 1, 3 })
	p := s.live(t, "room-1", "ann", "public") // hello was the first
	for range 2 {
		p.send(frame{"type": "cancel", "ref": "ok", "run": "r"})
		p.until("done")
	}
	p.send(frame{"type": "cancel", "ref": "over", "run": "r"})
	if f := p.until("error"); f["code"] != "rate_limited" || f["ref"] != "over" || f["retryMs"].(float64) <= 0 {
		t.Errorf("got %v", f)
	}
}

func TestUnansweredRequestsAreBounded(t *testing.T) {
	rooms := newCoreRooms()
	s := serve(t, rooms, func(c *Config) { c.Limits.Requests = 4 })
	p := s.live(t, "room-1", "ann", "public")
	rooms.mu.Lock()
	rooms.hold["room-1"] = true
	rooms.mu.Unlock()
	for i := range 5 {
		p.send(frame{"type": "cancel", "ref": fmt.Sprint(i), "run": "r"})
	}
	if f := p.expect("error"); f["ref"] != "4" || f["code"] != "rate_limited" {
		t.Errorf("got %v", f)
	}
}

func TestCancelAndFocus(t *testing.T) {
	rooms := newCoreRooms()
	s := serve(t, rooms)
	p := s.live(t, "room-1", "ann", "public")
	q := s.live(t, "room-1", "bob", "public")
	p.send(frame{"type": "focus", "ref": "f1", "agent": "shadow"})
	p.until("done")
	// bob may not see the agent, the answer or that there is one; he sees the words.
	p.send(input("i1", "psst"))
	run := p.until("accepted")["run"]
	items := q.items(1)
	if items[0]["kind"] != "input" || items[0]["run"] != nil || body(items[0])["agent"] != nil || body(items[0])["state"] != nil {
		t.Errorf("bob gets %v", items)
	}
	q.send(frame{"type": "cancel", "ref": "c1", "run": run})
	if f := q.until("done"); f["canceled"] != false || f["status"] != nil {
		t.Errorf("bob cancels a run that he cannot see: %v", f)
	}
	p.send(frame{"type": "cancel", "ref": "c2", "run": run})
	if f := p.until("done"); f["canceled"] != true || f["status"] != "canceled" {
		t.Errorf("ann: %v", f)
	}
	p.send(frame{"type": "cancel", "ref": "c3", "run": run})
	if f := p.until("done"); f["canceled"] != false || f["status"] != "canceled" {
		t.Errorf("ann again: %v", f)
	}
	// The focus is in the state of a new tab of hers, and nobody else's.
	for sub, want := range map[string]any{"ann": "shadow", "bob": nil} {
		tab := s.dial(t, "room-1").hello(mint(t, player(sub)), []string{"public"})
		st := tab.until("state")
		if got := st["room"].(map[string]any)["focus"]; got != want {
			t.Errorf("focus of %s: %v", sub, got)
		}
		agents := fmt.Sprint(st["room"].(map[string]any)["agents"])
		if strings.Contains(agents, "shadow") != (sub == "ann") {
			t.Errorf("%s sees the agents %s", sub, agents)
		}
	}
}

func TestAnAnswerWithItsToken(t *testing.T) {
	rooms := newCoreRooms()
	s := serve(t, rooms)
	p, q := s.live(t, "room-1", "ann", "public"), s.live(t, "room-1", "bob", "public")
	p.send(input("i1", "which?"))
	run := event.RunID(p.until("accepted")["run"].(string))
	rooms.emit("room-1", run, event.InputRequested{Request: "q1"})
	var token string
	for _, i := range p.items(3) {
		if body(i)["type"] == "input_requested" {
			token = body(i)["token"].(string)
		}
	}
	for _, i := range q.items(3) {
		if body(i)["token"] != nil {
			t.Errorf("bob gets ann's token: %v", i)
		}
	}
	q.send(input("b1", "me!", "continuation", frame{"run": string(run), "token": token}))
	if f := q.until("error"); f["code"] != "continuation_mismatch" {
		t.Errorf("bob answers for ann: %v", f)
	}
	p.send(input("i2", "that one", "continuation", frame{"run": string(run), "token": token}))
	if f := p.until("accepted"); f["state"] != "continued" || f["run"] != string(run) {
		t.Errorf("ann's answer: %v", f)
	}
}

func TestSubscribeStartsNow(t *testing.T) {
	f := &tape{}
	s := serve(t, f)
	f.add(delta("public", event.ToRoom(), "p1"), delta("private:ann", event.ToRoom(), "before"))
	p := s.dial(t, "r").hello(mint(t, player("ann")), []string{"public"}, "from", "start")
	p.items(1)
	p.until("caught_up")
	p.send(frame{"type": "subscribe", "ref": "s1", "channels": []string{"private:ann", "private:bob", "public"}})
	sub := p.expect("subscribed")
	if fmt.Sprint(sub["channels"]) != "[private:ann public]" || len(sub["can"].(map[string]any)) != 2 || sub["ref"] != "s1" {
		t.Errorf("got %v", sub)
	}
	f.add(delta("private:ann", event.ToRoom(), "after"), delta("private:bob", event.ToRoom(), "never"))
	f.add(delta("public", event.ToRoom(), "p2"))
	got := ""
	for _, i := range p.items(2) {
		got += body(i)["delta"].(string) + " "
	}
	if got != "after p2 " {
		t.Errorf("got %q", got)
	}
}

func TestFreshTokensActAtOnce(t *testing.T) {
	f := &tape{}
	s := serve(t, f)
	wide := player("ann")
	wide.Channels = append(wide.Channels, event.ChannelRule{Match: "table:1", Can: []event.Scope{event.ScopeRead}})
	narrow := player("ann")
	narrow.Channels = narrow.Channels[:1]
	f.add(delta("table:1", event.ToRoom(), "before"))
	p := s.dial(t, "r").hello(mint(t, player("ann")), []string{"public", "private:ann", "table:1"}, "from", "start")
	p.until("caught_up")
	auth := func(a event.Access) frame {
		p.send(frame{"type": "auth", "ref": "a", "token": mint(t, a)})
		return p.next()
	}
	if d := auth(wide); d["type"] != "done" || len(d["can"].(map[string]any)) != 3 || d["expiresIn"].(float64) < 3500 {
		t.Fatalf("got %v", d)
	}
	if sub := p.expect("subscribed"); fmt.Sprint(sub["channels"]) != "[table:1]" {
		t.Errorf("got %v", sub)
	}
	f.add(delta("table:1", event.ToRoom(), "after"), delta("private:ann", event.ToRoom(), "own"))
	if items := p.items(2); body(items[0])["delta"] != "after" || body(items[1])["delta"] != "own" {
		t.Errorf("after the wide token: %v", items)
	}
	if d := auth(narrow); d["type"] != "done" || len(d["can"].(map[string]any)) != 1 {
		t.Fatalf("got %v", d)
	}
	f.add(delta("table:1", event.ToRoom(), "no"), delta("private:ann", event.ToRoom(), "no"), delta("public", event.ToRoom(), "yes"))
	if items := p.items(1); body(items[0])["delta"] != "yes" {
		t.Errorf("after the narrow token: %v", items)
	}
	for name, a := range map[string]event.Access{"another subject": player("bob"), "another room": {
		Subject: "ann", Rooms: []string{"hall"}, Scopes: wide.Scopes, Channels: wide.Channels,
	}, "host": host("ann")} {
		if d := auth(a); d["code"] != "forbidden" || d["ref"] != "a" || d["fatal"] != false {
			t.Errorf("%s: %v", name, d)
		}
	}
	nothing := player("ann")
	nothing.Channels = nil
	p.send(frame{"type": "auth", "ref": "a", "token": mint(t, nothing)})
	p.closed(wire.CloseForbidden)
}

// What a client says of its own clock is taken, except what cannot be: a time
// that has not come yet.
func TestAnUtteranceDoesNotEndInTheFuture(t *testing.T) {
	s := serve(t, newCoreRooms())
	p := s.live(t, "room-1", "ann", "public")
	for i, c := range []struct {
		ended time.Duration
		taken bool
	}{{-time.Hour, true}, {0, true}, {endedAtLeeway - time.Minute, true}, {endedAtLeeway + time.Minute, false}, {24 * time.Hour, false}} {
		id := fmt.Sprint("i", i)
		p.send(input(id, "hello", "endedAt", time.Now().Add(c.ended).UTC().Format(time.RFC3339)))
		f := p.next()
		for f["type"] == "events" {
			f = p.next()
		}
		if c.taken != (f["type"] == "accepted") || !c.taken && f["code"] != "bad_request" || c.taken && f["id"] != id {
			t.Errorf("ended %v from now: %v", c.ended, f)
		}
	}
	for i, year := range []string{"2099", "9999"} {
		p.send(input(fmt.Sprint("y", i), "hello", "endedAt", year+"-01-01T00:00:00Z"))
		if f := p.until("error"); f["code"] != "bad_request" || f["fatal"] != false {
			t.Errorf("ended in %s: %v", year, f)
		}
	}
}
