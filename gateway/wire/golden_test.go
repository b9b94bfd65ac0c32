package wire

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"parley/event"
)

// The golden frames in testdata/golden are read by the tests of other clients
// as well. What was sent once stays readable: a changed file is a changed
// protocol. go test ./gateway/wire -rewrite writes those of the server anew.
var rewrite = flag.Bool("rewrite", false, "write the golden frames of the server anew")

var goldenTime = time.Date(2026, 11, 30, 21, 0, 0, 120e6, time.UTC)

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	if !json.Valid(got) {
		t.Fatalf("%s is not JSON: %s", name, got)
	}
	path := filepath.Join("testdata", "golden", name+".json")
	got = append(bytes.Clone(got), '\n')
	if *rewrite {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want := readFile(t, path); want != string(got) {
		t.Errorf("%s:\n got %s\nwant %s", name, got, want)
	}
}

func goldenRights() []Right {
	return []Right{
		{"public", []event.Scope{event.ScopeRead, event.ScopeInput}},
		{"private:visitor-7", []event.Scope{event.ScopeRead, event.ScopeInput, event.ScopeCancel}},
	}
}

func TestGoldenServerFrames(t *testing.T) {
	frames := map[string]Server{
		"server_ready": Ready{
			Conn: "c_8JxQ0aWc2kLm", Sub: "visitor-7", Cursor: "q0Zb", Can: goldenRights(), ExpiresIn: 840, PingMs: 25000,
			MaxFrame: 32768, Window: 512,
		},
		"server_ready_resumed": Ready{
			Conn: "c_8JxQ0aWc2kLm", Sub: "visitor-7", Resumed: true, Cursor: "q0Zb", Can: goldenRights(), ExpiresIn: 840,
			PingMs: 25000, MaxFrame: 32768, Window: 512,
		},
		"server_ready_reset": Ready{
			Conn: "c_8JxQ0aWc2kLm", Sub: "visitor-7", Reason: ResetChannelsChanged, Cursor: "q0Zb", Can: goldenRights(),
			ExpiresIn: 840, PingMs: 25000, MaxFrame: 32768, Window: 512,
		},
		"server_subscribed":          Subscribed{Ref: "s1", Channels: []event.ChannelID{"table:3"}, Can: goldenRights()},
		"server_caught_up":           CaughtUp{Cursor: "q0Zb"},
		"server_accepted":            Accepted{ID: "0192f0c2-1", Entry: "k77xYq", Run: "r_G0", At: goldenTime, State: event.Started},
		"server_duplicate":           Accepted{ID: "0192f0c2-1", Entry: "k77xYq", Run: "r_G0", At: goldenTime, State: event.Queued, Duplicate: true},
		"server_done":                Done{Ref: "f1"},
		"server_done_cancel":         Done{Ref: "c1", Cancel: &event.CancelResult{Canceled: true, Status: event.RunCanceledStatus}},
		"server_done_cancel_unknown": Done{Ref: "c2", Cancel: &event.CancelResult{}},
		"server_done_auth":           Done{Ref: "a1", Refresh: true, ExpiresIn: 3600, Can: goldenRights()},
		"server_error":               Error{Ref: "0192f0c2-1", Code: CodeRateLimited, Message: "too many inputs; wait a moment", RetryMs: 800},
		"server_error_run":           Error{Ref: "0192f0c2-1", Code: CodeRunConflict, Message: "busy", Run: "r_F9"},
		"server_error_fatal":         Error{Code: CodeBadRequest, Message: "hello was sent before", Fatal: true},
		"server_ping":                Ping{Cursor: "q0Zb", T: 1796072400120},
		"server_goaway":              Goaway{Reason: GoawayRestarting, AfterMs: 1200},
	}
	for name, f := range frames {
		golden(t, name, f.Append(nil))
	}
}

func one(v int64) *int64 { return &v }

// goldenEntries is a short conversation with one entry of each kind.
func goldenEntries() []*event.Entry {
	some := event.ToParticipants("visitor-7", "guest-2")
	run := func(n uint64, to event.Disclosure, body event.RunBody) *event.Entry {
		return &event.Entry{Channel: "public", Disclosure: to, Body: &event.RunEvent{
			Run: "r_F9", Agent: "guide", Input: "i1", Attempt: 1, Sequence: n, N: n, Event: body,
		}}
	}
	out := run(4, some, event.AssistantOutput{Output: "o_x", Delta: "I found <two> \"paths\"\n", Purpose: event.Answer, History: event.Record})
	out.Body.(*event.RunEvent).Logical = "main"
	list := []*event.Entry{
		{Disclosure: event.ToRoom(), Body: &event.RoomConfigured{By: "host-1", Incarnation: 9, Config: event.RoomConfig{
			Agents: []event.Agent{
				{ID: "guide", Label: "Guide", Role: "guide", Description: "Knows the rules.", Voice: &event.Voice{ID: "v1", Lang: "en"}, Version: "2", Driver: "rules", Recovery: event.RecoverAuto},
				{ID: "shadow", Label: "Shadow", Role: "character", Driver: "scripted", Visibility: event.ToParticipants("guest-2")},
			},
			FallbackAgent: "guide", Phase: "lobby", PhaseAgents: map[string]event.AgentID{"end": "shadow"},
			Channels: []event.ChannelPolicy{{Match: "public", OnBusy: event.BusyQueue}},
		}}},
		{Channel: "public", Disclosure: event.ToRoom(), Body: &event.InputAdmitted{
			Input: "i1", Speaker: event.Person("visitor-7"), Text: "Where is the tower & who built it?", Modality: event.Speech,
			Lang: "en", EndedAt: goldenTime, Agent: "guide", Run: "r_F9", State: event.Started, RunDisclosure: event.ToRoom(),
		}},
		{Channel: "public", Disclosure: event.ToRoom(), Body: &event.InputAdmitted{
			Input: "i2", Speaker: event.Person("guest-2"), By: "host-1", Text: "Psst.", Modality: event.Text, Agent: "shadow",
			Run: "r_S1", State: event.Queued, RunDisclosure: event.ToParticipants("guest-2"),
		}},
		run(1, event.ToRoom(), event.AttemptStarted{}),
		run(2, event.ToRoom(), event.Progress{Stage: "search", Current: one(1), Total: one(3), Unit: "rules", Message: "Looking it up"}),
		run(3, event.ToNone(), event.Checkpoint{Value: json.RawMessage(`{"page":2}`)}),
		out,
		run(5, some, event.AssistantOutput{Output: "o_x", Delta: "", Final: true, Purpose: event.Answer, History: event.Record}),
		run(6, event.ToRoom(), event.AssistantOutput{Output: "o_p", Delta: "Still looking", Final: true, Purpose: event.ProgressText, History: event.Ephemeral, Lang: "en", Spoken: "still looking", Interruptible: new(false)}),
		run(7, event.ToNone(), event.Decision{Utterances: []event.Utterance{{Text: "Yes.", Audience: event.ToRoom(), Lang: "en"}}}),
		run(8, event.ToRoom(), event.InputRequested{Request: "q1", Token: "t_secret", ExpiresAt: goldenTime, Speaker: event.Person("visitor-7")}),
		run(9, event.ToRoom(), event.RunBlocked{Step: "s1", Reason: event.BlockedAgentVersion}),
		run(10, event.ToRoom(), event.Completed{}),
		run(11, event.ToRoom(), event.RunCanceled{Reason: event.ReasonSuperseded, By: "guest-2"}),
		run(12, event.ToRoom(), event.DeadlineExceeded{}),
		run(13, event.ToRoom(), event.RunFailed{Code: event.CodeProcessingFailed, Message: "The agent could not finish its answer."}),
		{Disclosure: event.ToParticipants("visitor-7"), Body: &event.FocusSet{Subject: "visitor-7", Agent: "guide"}},
		{Disclosure: event.ToParticipants("visitor-7"), Body: &event.FocusSet{Subject: "visitor-7"}},
		{Disclosure: event.ToNone(), Body: &event.Drained{}},
	}
	for i, e := range list {
		e.Seq, e.At = event.Seq(i+1), goldenTime.Add(time.Duration(i)*time.Millisecond)
	}
	return list
}

func eventsFrame(t *testing.T, v Viewer) []byte {
	t.Helper()
	keys := testKeys(t, "golden")
	var b Batch
	b.Reset(nil)
	access := event.Access{Subject: v.Subject, Scopes: []event.Scope{event.ScopeRead}, Channels: []event.ChannelRule{{Match: "**", Can: []event.Scope{event.ScopeRead}}}}
	if v.Host {
		access.Scopes = []event.Scope{event.ScopeHost}
	}
	for _, e := range goldenEntries() {
		if as := v.Variant(e); as != Hidden && access.Sees(e.Channel, e.Disclosure) {
			b.Add(AppendItem(nil, e, keys.EntryID(9, e.Seq), v, as))
		}
	}
	return b.Frame(1, []byte("q0Zb"))
}

func TestGoldenItems(t *testing.T) {
	golden(t, "server_events_speaker", eventsFrame(t, Viewer{Subject: "visitor-7"}))
	golden(t, "server_events_other", eventsFrame(t, Viewer{Subject: "guest-2"}))
	golden(t, "server_events_third", eventsFrame(t, Viewer{Subject: "visitor-9"}))
	golden(t, "server_events_host", eventsFrame(t, Viewer{Subject: "host-1", Host: true}))
}

func goldenView() *event.View {
	c := goldenEntries()[0].Body.(*event.RoomConfigured).Config
	return &event.View{
		Room: "hall", Incarnation: 9, Head: 12, At: goldenTime, Phase: c.Phase, Fallback: c.FallbackAgent, Agents: c.Agents,
		Focus: []event.FocusView{{Subject: "guest-2", Agent: "shadow"}, {Subject: "visitor-7", Agent: "guide"}},
		Runs: []event.RunView{
			{
				Run: "r_F9", Channel: "public", Agent: "guide", Speaker: event.Person("visitor-7"), Input: "i1",
				Disclosure: event.ToRoom(), Status: event.RunWaiting, Attempt: 2, Sequence: 9,
				Outputs: []event.OutputView{
					{Output: "o_x", Purpose: event.Question, History: event.Record, Disclosure: event.ToRoom(), Text: "Which <one>?", Final: true},
					{Output: "o_y", Purpose: event.Answer, History: event.Ephemeral, Disclosure: event.ToParticipants("visitor-7"), Text: "The east"},
				},
				Waiting: &event.InputRequested{Request: "q1", Token: "t_secret", ExpiresAt: goldenTime},
			},
			{
				Run: "r_S1", Channel: "public", Agent: "shadow", Speaker: event.Person("guest-2"), Input: "i2",
				Disclosure: event.ToParticipants("guest-2"), Status: event.RunQueued, Deadline: goldenTime,
			},
		},
	}
}

func showsTo(v Viewer) func(event.ChannelID, event.Disclosure) bool {
	return func(_ event.ChannelID, d event.Disclosure) bool { return v.Host || d.Includes(v.Subject) }
}

func TestGoldenState(t *testing.T) {
	for name, v := range map[string]Viewer{
		"speaker": {Subject: "visitor-7"}, "other": {Subject: "guest-2"}, "host": {Subject: "host-1", Host: true},
	} {
		frames := State(goldenView(), v, showsTo(v), DefaultMaxFrame)
		if len(frames) != 1 {
			t.Fatalf("%d parts for a small view", len(frames))
		}
		golden(t, "server_state_"+name, frames[0])
	}
	frames := State(nil, Viewer{Subject: "visitor-7"}, showsTo(Viewer{}), DefaultMaxFrame)
	golden(t, "server_state_start", frames[0])
}

func TestGoldenClientFrames(t *testing.T) {
	deadline := 30 * time.Second
	want := map[string]Client{
		"client_hello": &Hello{
			Token: "eyJ", Session: "mZ1kq0V3Yw8rTt5uJ2hNcA", From: FromTail, Channels: []event.ChannelID{"public", "private:visitor-7"},
			Render: []string{"speech", "captions", "cues"}, Stages: map[string]uint64{"main": 12}, Client: "kiosk/1.4", MaxFrame: 32768,
		},
		"client_hello_resume": &Hello{
			Token: "eyJ", Session: "mZ1kq0V3Yw8rTt5uJ2hNcA", Cursor: "q0Zb", From: FromStart, Channels: []event.ChannelID{"public"},
			Kinds: []string{KindInput, KindRunEvent},
		},
		"client_auth":         &Auth{Ref: "a1", Token: "eyJ"},
		"client_subscribe":    &Subscribe{Ref: "s1", Channels: []event.ChannelID{"table:3"}},
		"client_focus":        &Focus{Ref: "f1", Agent: "guide"},
		"client_focus_remove": &Focus{Ref: "f2"},
		"client_cancel":       &Cancel{Ref: "c1", Run: "r_F9"},
		"client_ack":          &Ack{N: 64},
		"client_pong":         &Pong{T: 1796072400120},
		"client_input": &Input{Channel: "public", Final: event.FinalInput{
			ID: "0192f0c2-1", Text: "What should I carry forward?", Modality: event.Speech, OnBusy: event.BusySupersede,
		}},
		"client_input_full": &Input{Channel: "private:visitor-7", As: event.Person("visitor-7"), Final: event.FinalInput{
			ID: "0192f0c2-2", Text: "The <left> one & 🧭\n", Modality: event.Text, Lang: "en-GB", Agents: []event.AgentID{"guide", "shadow"},
			Disclosure: event.ToParticipants("guest-2", "visitor-7"), OnBusy: event.BusyQueue, Deadline: &deadline,
			Continuation: &event.ContinuationRef{Run: "r_F9", Token: "t_secret"}, EndedAt: goldenTime,
		}},
	}
	files, err := filepath.Glob("testdata/golden/client_*.json")
	if err != nil || len(files) != len(want) {
		t.Fatalf("%d golden frames of a client, want %d (%v)", len(files), len(want), err)
	}
	for name, w := range want {
		got, err := DecodeClient([]byte(readFile(t, "testdata/golden/"+name+".json")))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if in, ok := got.(*Input); ok {
			if in.Digest == [32]byte{} {
				t.Errorf("%s has no digest", name)
			}
			in.Digest = [32]byte{}
		}
		if !reflect.DeepEqual(got, w) {
			t.Errorf("%s:\n got %+v\nwant %+v", name, got, w)
		}
	}
}

// What participants get of a conversation never holds what is for the host (E9).
func TestPublicFormHidesWhatIsForTheHost(t *testing.T) {
	for _, v := range []Viewer{{Subject: "visitor-7"}, {Subject: "guest-2"}, {Subject: "visitor-9"}} {
		raw := string(eventsFrame(t, v)) + string(State(goldenView(), v, showsTo(v), DefaultMaxFrame)[0])
		for _, secret := range []string{
			"sequence", "delivery", "logical", "checkpoint", "decision", "page", "driver", "rules\",\"recovery", "recovery",
			"version", "spoken", "interruptible", "phaseAgents", "deadlineMs", "host-1", "drained",
		} {
			if strings.Contains(raw, `"`+secret) {
				t.Errorf("%s gets %q: %s", v.Subject, secret, raw)
			}
		}
		if asked := v.Subject == "visitor-7"; strings.Contains(raw, "t_secret") != asked {
			t.Errorf("%s: token shown is %v", v.Subject, !asked)
		}
		if mine := v.Subject == "visitor-7"; strings.Contains(raw, `"inputId":"i1"`) != mine {
			t.Errorf("%s: the input id is shown wrongly", v.Subject)
		}
		if sees := v.Subject == "guest-2"; strings.Contains(raw, "shadow") != sees || strings.Contains(raw, "r_S1") != sees {
			t.Errorf("%s: an agent that is not visible leaves a trace: %s", v.Subject, raw)
		}
	}
}
