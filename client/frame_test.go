package client

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"parley/event"
	"parley/gateway/wire"
)

// What the server's side of the protocol writes, the client reads.
func TestFramesOfTheServerAreRead(t *testing.T) {
	at := time.Date(2026, 11, 30, 21, 0, 0, 120e6, time.UTC)
	can := []wire.Right{{Channel: "public", Can: []event.Scope{"read", "input"}}}
	rights := Rights{"public": {"read", "input"}}
	yes := true
	for _, c := range []struct {
		frame wire.Server
		want  any
	}{
		{
			wire.Ready{Conn: "c", Sub: "ada", Resumed: true, Cursor: "q", Can: can, ExpiresIn: 840, PingMs: 25000, MaxFrame: 32768, Window: 512},
			&readyFrame{Conn: "c", Sub: "ada", Resumed: &yes, Cursor: "q", Can: rights, ExpiresIn: 840, PingMs: 25000, Window: 512},
		},
		{wire.CaughtUp{Cursor: "q"}, &caughtUpFrame{Cursor: "q"}},
		{
			wire.Accepted{ID: "i", Entry: "e", Run: "r", At: at, State: event.Queued, Duplicate: true},
			&Accepted{ID: "i", Entry: "e", Run: "r", At: at, State: "queued", Duplicate: true},
		},
		{
			wire.Error{Ref: "i", Code: wire.CodeRunConflict, Message: "Busy.", Run: "r", RetryMs: 800, Fatal: true},
			&errorFrame{Ref: "i", Code: wire.CodeRunConflict, Message: "Busy.", Run: "r", RetryMs: 800, Fatal: true},
		},
		{wire.Ping{Cursor: "q", T: 9007199254740991}, &pingFrame{Cursor: "q", T: json.RawMessage("9007199254740991")}},
		{wire.Goaway{Reason: wire.GoawayRestarting, AfterMs: 5}, &goawayFrame{Reason: wire.GoawayRestarting, AfterMs: 5}},
	} {
		raw := c.frame.Append(nil)
		if got, err := decodeFrame(raw); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %+v, %v; want %+v", raw, got, err, c.want)
		}
	}
	got, err := decodeFrame(wire.Done{Ref: "a", Refresh: true, ExpiresIn: 5, Can: can}.Append(nil))
	if f, ok := got.(*doneFrame); err != nil || !ok || *f.ExpiresIn != 5 || !reflect.DeepEqual(f.Can, rights) {
		t.Errorf("done of an auth: got %+v, %v", got, err)
	}
	got, err = decodeFrame(wire.Subscribed{Channels: []event.ChannelID{"public"}, Can: can}.Append(nil))
	if f, ok := got.(*subscribedFrame); err != nil || !ok || len(f.Channels) != 1 || !reflect.DeepEqual(f.Can, rights) {
		t.Errorf("subscribed without a ref: got %+v, %v", got, err)
	}
}

// What the server's side writes of entries, the client reads as items.
func TestItemsOfTheServerAreRead(t *testing.T) {
	at := time.Date(2026, 11, 30, 21, 0, 0, 120e6, time.UTC)
	to := event.ToParticipants("ada", "bob")
	entries := []*event.Entry{
		{Seq: 1, At: at, Channel: "public", Disclosure: to, Body: &event.InputAdmitted{
			Input: "i", Run: "r", Speaker: event.Person("ada"), Agent: "guide", Text: "hello", Modality: event.Speech,
			State: event.Started, RunDisclosure: to,
		}},
		{Seq: 2, At: at, Channel: "public", Disclosure: event.ToRoom(), Body: &event.RunEvent{
			Run: "r", Attempt: 1, Event: event.AssistantOutput{Output: "o", Delta: "x", Final: true, Purpose: event.Answer, History: event.Record},
		}},
		{Seq: 3, At: at, Channel: "public", Disclosure: event.ToRoom(), Body: &event.RunEvent{Run: "r", Attempt: 1, Event: event.Completed{}}},
		{Seq: 4, At: at, Disclosure: event.ToRoom(), Body: &event.RoomConfigured{}},
	}
	var b wire.Batch
	b.Reset(nil)
	v := wire.Viewer{Subject: "ada"}
	for i, e := range entries {
		b.Add(wire.AppendItem(nil, e, string(rune('a'+i)), v, v.Variant(e)))
	}
	got, err := decodeFrame(b.Frame(7, []byte("cursor")))
	if err != nil {
		t.Fatal(err)
	}
	f := got.(*eventsFrame)
	if f.n != 7 || f.cursor != "cursor" || len(f.items) != len(entries) {
		t.Fatalf("got %+v", f)
	}
	row, err := f.items[0].Input()
	if err != nil || row.Speaker != (Speaker{"participant", "ada"}) || row.Text != "hello" || row.State != "started" || row.InputID != "i" {
		t.Errorf("input: %+v, %v", row, err)
	}
	if i := f.items[0]; i.Run != "r" || !i.At.Equal(at) || !i.Disclosure.Equal(to) {
		t.Errorf("input: %+v", i)
	}
	e, err := f.items[1].RunEvent()
	if err != nil || e.Type != "assistant_output" || e.Output != "o" || e.Delta != "x" || !e.Final {
		t.Errorf("run event: %+v, %v", e, err)
	}
	if i := f.items[1]; i.Terminal() || !i.Disclosure.Equal(event.ToRoom()) || i.Attempt != 1 {
		t.Errorf("run event: %+v", i)
	}
	if !f.items[2].Terminal() || f.items[3].Kind != wire.KindRoom {
		t.Errorf("got %+v", f.items[2:])
	}
	if _, err := f.items[3].Input(); err == nil {
		t.Error("an item of another kind was read as an input")
	}
}

func TestFramesThatBreakTheProtocolAreNamedWithoutTheirValues(t *testing.T) {
	item := `{"id":"e","at":"2026-11-30T21:00:00Z","kind":"input","channel":"c","body":{"speaker":{"kind":"participant","id":"secret"},"text":"secret"}}`
	if _, err := decodeFrame([]byte(`{"type":"events","n":1,"cursor":"q","items":[` + item + `]}`)); err != nil {
		t.Fatalf("a sound frame: %v", err)
	}
	for _, c := range []struct{ frame, member string }{
		{`secret`, ""},
		{`[]`, ""},
		{`{"n":1}`, "type"},
		{`{"type":7}`, "type"},
		{`{"type":"ready","cursor":"q","expiresIn":1,"pingMs":1,"window":1}`, "resumed"},
		{`{"type":"ready","resumed":true,"cursor":"q","expiresIn":1,"pingMs":0,"window":1}`, "pingMs"},
		{`{"type":"ready","resumed":true,"cursor":"q","expiresIn":1,"pingMs":1}`, "window"},
		{`{"type":"ready","resumed":true,"cursor":"q","expiresIn":"secret"}`, "expiresIn"},
		{`{"type":"ready","resumed":true,"expiresIn":1,"pingMs":1,"window":1}`, "cursor"},
		{`{"type":"state","part":3,"parts":2}`, "part"},
		{`{"type":"state","runs":[{"run":"r"}]}`, "runs[0]"},
		{`{"type":"events","cursor":"q","items":[` + item + `]}`, "n"},
		{`{"type":"events","n":1,"items":[` + item + `]}`, "cursor"},
		{`{"type":"events","n":1,"cursor":"q","items":[]}`, "items"},
		{`{"type":"events","n":1,"cursor":"q","items":[{"at":"2026-11-30T21:00:00Z","kind":"room","body":{}}]}`, "items[0].id"},
		{`{"type":"events","n":1,"cursor":"q","items":[{"id":"e","kind":"room","body":{}}]}`, "items[0].at"},
		{`{"type":"events","n":1,"cursor":"q","items":[{"id":"e","at":"2026-11-30T21:00:00Z","body":{}}]}`, "items[0].kind"},
		{`{"type":"events","n":1,"cursor":"q","items":[{"id":"e","at":"2026-11-30T21:00:00Z","kind":"room","body":"secret"}]}`, "items[0].body"},
		{`{"type":"events","n":1,"cursor":"q","items":[{"id":"e","at":"2026-11-30T21:00:00Z","kind":"run.event","channel":"c","run":"r","body":{"type":"assistant_output","delta":"secret"}}]}`, "items[0].body.outputId"},
		{`{"type":"events","n":1,"cursor":"q","items":[{"id":"e","at":"2026-11-30T21:00:00Z","kind":"run.event","channel":"c","body":{"type":"progress"}}]}`, "items[0].run"},
		{`{"type":"events","n":1,"cursor":"q","items":[{"id":"e","at":"2026-11-30T21:00:00Z","kind":"input","channel":"c","body":{"speaker":{},"text":"secret"}}]}`, "items[0].body.speaker"},
		{`{"type":"accepted"}`, "id"},
		{`{"type":"done"}`, "ref"},
		{`{"type":"error","message":"secret"}`, "code"},
		{`{"type":"ping"}`, "t"},
		{`{"type":"caught_up"}`, "cursor"},
	} {
		_, err := decodeFrame([]byte(c.frame))
		var fe *FrameError
		if !errors.As(err, &fe) || fe.Member != c.member {
			t.Errorf("%s: got %v, want one about %q", c.frame, err, c.member)
			continue
		}
		if s := err.Error(); len(s) > 120 || strings.Contains(s, "secret") {
			t.Errorf("%s: the error repeats what was sent: %s", c.frame, s)
		}
	}
}

func TestWhatANewerServerAddsPasses(t *testing.T) {
	got, err := decodeFrame([]byte(`{"type":"hologram","x":1}`))
	if f, ok := got.(*Other); err != nil || !ok || f.Type != "hologram" {
		t.Errorf("an unknown type: %+v, %v", got, err)
	}
	_, err = decodeFrame([]byte(`{"type":"events","n":1,"cursor":"q","more":1,"items":[{"id":"e","at":"2026-11-30T21:00:00Z","kind":"hologram","more":2,"body":{"x":3}}]}`))
	if err != nil {
		t.Errorf("an unknown kind and unknown members: %v", err)
	}
}

// What the client writes, the server's side reads.
func TestFramesOfTheClientAreRead(t *testing.T) {
	limit := 5 * time.Second
	full := Input{
		ID: "i", Channel: "public", Text: "a \"<b>\"\n", Modality: event.Speech, Lang: "en", Agents: []event.AgentID{"guide"},
		Disclosure: event.ToParticipants("ada"), OnBusy: event.BusyQueue,
		Continuation: &event.ContinuationRef{Run: "r", Token: "t"}, Deadline: &limit,
		EndedAt: time.Date(2026, 11, 30, 21, 0, 0, 0, time.UTC), As: event.Person("bob"),
	}
	m := NewMachine(Options{
		Channels: []event.ChannelID{"public"}, Session: "s", Render: []string{"captions"}, Kinds: []string{"input"},
		Client: "t/1", Cursor: "q", TokenInHello: true,
	})
	m.token = "jwt"
	for _, c := range []struct {
		frame []byte
		want  wire.Client
	}{
		{encode(m.hello()), &wire.Hello{
			Token: "jwt", Session: "s", Cursor: "q", From: "tail", Channels: []event.ChannelID{"public"}, Kinds: []string{"input"},
			Render: []string{"captions"}, Client: "t/1", MaxFrame: 32768,
		}},
		{encode(NewMachine(Options{From: wire.FromStart}).hello()), &wire.Hello{From: "start", All: true, MaxFrame: 32768}},
		{encode(authJSON{wire.TypeAuth, "a", "jwt"}), &wire.Auth{Ref: "a", Token: "jwt"}},
		{encode(ackJSON{wire.TypeAck, 7}), &wire.Ack{N: 7}},
		{encode(pongJSON{wire.TypePong, json.RawMessage("17")}), &wire.Pong{T: 17}},
		{full.frame(), &wire.Input{Channel: "public", As: event.Person("bob"), Final: event.FinalInput{
			ID: "i", Text: "a \"<b>\"\n", Modality: event.Speech, Lang: "en", Agents: []event.AgentID{"guide"},
			Disclosure: event.ToParticipants("ada"), OnBusy: event.BusyQueue,
			Continuation: &event.ContinuationRef{Run: "r", Token: "t"}, Deadline: &limit, EndedAt: full.EndedAt,
		}}},
		{Input{ID: "i", Channel: "public", Text: "x"}.frame(), &wire.Input{Channel: "public", Final: event.FinalInput{ID: "i", Text: "x", Modality: event.Text}}},
	} {
		got, err := wire.DecodeClient(c.frame)
		if err != nil {
			t.Errorf("%s: %v", c.frame, err)
			continue
		}
		if in, ok := got.(*wire.Input); ok {
			in.Digest = [32]byte{}
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %+v, want %+v", c.frame, got, c.want)
		}
	}
}

func TestAnInputIsKeptAsItIs(t *testing.T) {
	limit := 5 * time.Second
	in := Input{
		ID: "i", Channel: "public", Text: "a", Modality: event.Speech, Lang: "en", Agents: []event.AgentID{"guide"},
		Disclosure: event.ToParticipants("ada"), OnBusy: event.BusyQueue,
		Continuation: &event.ContinuationRef{Run: "r", Request: "q"}, Deadline: &limit,
		EndedAt: time.Date(2026, 11, 30, 21, 0, 0, 0, time.UTC), As: event.Person("bob"),
	}
	raw, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	var back Input
	if err := json.Unmarshal(raw, &back); err != nil || !reflect.DeepEqual(in, back) {
		t.Errorf("kept %+v as %s, got %+v, %v", in, raw, back, err)
	}
	// The retry must be the same bytes: they are compared (A5).
	if string(in.frame()) != string(back.frame()) {
		t.Errorf("sent %s, and again %s", in.frame(), back.frame())
	}
}

func TestInputsThatWouldEndTheConnectionAreNotTaken(t *testing.T) {
	long := make([]byte, event.MaxText+1)
	for i := range long {
		long[i] = 'a'
	}
	for name, in := range map[string]Input{
		"no id":        {Channel: "c", Text: "x"},
		"no channel":   {ID: "i", Text: "x"},
		"blank text":   {ID: "i", Channel: "c", Text: " "},
		"long text":    {ID: "i", Channel: "c", Text: string(long)},
		"control text": {ID: "i", Channel: "c", Text: "a\x00"},
		"not UTF-8":    {ID: "i", Channel: "c", Text: "x", Lang: "\xff"},
	} {
		m := NewMachine(Options{Random: func() float64 { return 0 }})
		if err := m.Submit(time.Now(), in); err == nil || len(m.Outbox()) != 0 {
			t.Errorf("%s: taken (%v)", name, err)
		}
	}
}
