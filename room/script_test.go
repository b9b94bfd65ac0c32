package room_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"parley/event"
	"parley/room"
)

// TestScripts runs the files of testdata, one per family of rules. A file is a
// conversation with one room; -rewrite records what the room answers, which is
// then to be read against the rules.
//
// Commands (values with blanks in parentheses; Go escapes in texts):
//
//	room [phase=P] [phases=(P:AGENT, …)] [fallback=A] [deadline=D] [wait=D] [busy=(PATTERN:POLICY[!], …)] [by=host]
//	    one agent per input line: NAME [visible=(P, …)] [recovery=fail] [version=V] [driver=D] [label=L]
//	token of=P [scopes=(…)] [match=PATTERN can=(…) disclosure=D] [add]
//	input from=P id=I text=T [channel=C] [to=(A, …)] [disclosure=D] [busy=B] [deadline=D] [modality=M] [as=[KIND:]NAME]
//	    [run=R [request=Q] [token=T]] [times=N] [digest=X]
//	output R NAME [delta=T] [times=N] [final] [purpose=] [history=] [audience=D] [n=N] [attempt=N]
//	progress R STAGE [current=N] [total=N] [message=T] · checkpoint R [pad=N] (value on the input lines)
//	ask R REQUEST [in=D] · decide R (one utterance per input line) · completed R · ended R [failed]
//	cancel R by=P [reason=W] · focus by=P [on=A] · get R by=P · view [as=P] · journal [as=P] · rows
//	clock ±D · tick [±D] · snapshot · crash [snapshot] · recover · drain · wake
//	ambient [unresponsive=(A, …)] [missing=(A, …)]
//
// A disclosure is room, none or a list of people.
func TestScripts(t *testing.T) {
	paths, err := filepath.Glob("testdata/*")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, path := range paths {
		if info, err := os.Stat(path); err != nil || info.IsDir() {
			continue // a folder is of a failed random test
		}
		t.Run(filepath.Base(path), func(t *testing.T) {
			s := &script{n: newNames(), access: map[string]event.Access{"host": hostAccess(), "mod": moderator()}, last: map[string]uint64{}}
			datadriven.RunTest(t, path, func(t *testing.T, td *datadriven.TestData) string {
				if s.w == nil {
					s.w = newWorld(t)
				}
				s.w.fail = func(format string, args ...any) {
					t.Helper()
					td.Fatalf(t, format, args...)
				}
				s.td, s.used, s.out = td, map[string]bool{}, writer{n: s.n}
				s.run()
				for _, a := range td.CmdArgs {
					if len(a.Vals) > 0 && !s.used[a.Key] {
						td.Fatalf(t, "unknown argument %s", a.Key)
					}
				}
				s.w.checkRows()
				return s.out.String()
			})
		})
	}
}

// script is one file of testdata while it runs.
type script struct {
	w        *world
	n        *names
	access   map[string]event.Access
	snapshot []byte
	last     map[string]uint64 // number of the last event, by run and attempt
	td       *datadriven.TestData
	used     map[string]bool
	out      writer
}

func (s *script) run() {
	switch s.td.Cmd {
	case "room":
		s.do(event.Configure{Access: s.person("by", "host"), Config: s.config()})
	case "open":
		m := event.Open{By: event.ParticipantID(s.str("by", "ann"))}
		if strings.TrimSpace(s.td.Input) != "" {
			c := s.config()
			m.Template = &c
		}
		s.do(m)
	case "token":
		s.token()
	case "input":
		s.input()
	case "output", "progress", "checkpoint", "ask", "decide", "completed":
		s.emit()
	case "ended":
		run, attempt, n := s.attempt()
		s.do(room.Ended{Run: run, Attempt: attempt, N: n, Failed: s.has("failed")})
	case "cancel":
		s.do(event.CancelRun{Access: s.person("by", ""), Run: s.runID(), Reason: s.str("reason", "")})
	case "focus":
		s.do(event.SetFocus{Access: s.person("by", ""), Agent: event.AgentID(s.str("on", ""))})
	case "get":
		s.do(event.GetRun{Access: s.person("by", ""), Run: s.runID()})
	case "view":
		s.out.view(viewFor(s.w.state.View(), s.person("as", "host")))
	case "journal":
		for _, e := range visible(s.w.journal, s.person("as", "host")) {
			s.out.entry(e)
		}
	case "rows":
		keys := slices.SortedFunc(maps.Keys(s.w.rows), func(a, b event.Key) int {
			return cmp.Or(cmp.Compare(a.Table, b.Table), cmp.Compare(position(s.w.rows[a]), position(s.w.rows[b])))
		})
		for _, key := range keys {
			s.out.row(s.w.rows[key])
		}
	case "clock":
		s.advance()
	case "tick":
		s.advance()
		s.do(room.Tick{})
	case "snapshot":
		s.snapshot = s.w.state.Snapshot()
	case "crash":
		if !s.has("snapshot") {
			s.snapshot = nil
		}
		s.w.crash(s.snapshot)
	case "recover":
		s.do(room.Recover{})
	case "drain":
		s.do(room.Drain{})
	case "wake":
		s.out.line("wake %s, next tick %s, active %v", at(s.w.state.Wake()), at(s.w.state.NextTick()), s.w.state.Active())
		for _, e := range s.w.state.Outstanding(s.w.now) {
			s.out.effect(e)
		}
	case "ambient":
		s.w.ambient = room.Ambient{Unresponsive: s.agents("unresponsive"), Missing: s.agents("missing")}
	default:
		s.w.fail("unknown command %s", s.td.Cmd)
	}
}

// do has a message decided and writes what follows from it.
func (s *script) do(msg any) {
	d, rows, err := s.w.do(msg)
	if err != nil {
		s.out.refusal(err)
		return
	}
	for _, e := range d.Entries {
		s.out.entry(e)
	}
	for _, r := range rows {
		s.out.row(r.Row)
	}
	for _, e := range d.After {
		s.out.effect(e)
	}
	s.out.reply(d.Reply)
	if d.Fault != nil {
		s.out.line("fault: %v", d.Fault)
	}
	if s.out.Len() == 0 {
		s.out.line("nothing")
	}
}

// position is where in the journal a row begins.
func position(r event.Row) event.Seq {
	switch x := r.(type) {
	case *event.InputRow:
		return x.Entry
	case *event.RunRow:
		return x.First
	case *event.TranscriptRow:
		return x.Entry
	}
	return 0
}

func (s *script) list(key string) ([]string, bool) {
	for _, a := range s.td.CmdArgs {
		if a.Key == key {
			s.used[key] = true
			return a.Vals, true
		}
	}
	return nil, false
}

func (s *script) str(key, otherwise string) string {
	vals, ok := s.list(key)
	if !ok {
		return otherwise
	}
	return strings.Join(vals, ", ")
}

// text returns a value with its Go escapes resolved and repeated.
func (s *script) text(key, times string) string {
	v, err := strconv.Unquote(`"` + strings.ReplaceAll(s.str(key, ""), `"`, `\"`) + `"`)
	if err != nil {
		s.w.fail("%s: %v", key, err)
	}
	if times == "" {
		return v
	}
	return strings.Repeat(v, int(s.number(times, 1)))
}

func (s *script) number(key string, otherwise int64) int64 {
	v := s.str(key, "")
	if v == "" {
		return otherwise
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		s.w.fail("%s: %v", key, err)
	}
	return n
}

func (s *script) duration(v string) time.Duration {
	d, err := time.ParseDuration(v)
	if err != nil {
		s.w.fail("%v", err)
	}
	return d
}

func (s *script) has(flag string) bool {
	for _, a := range s.td.CmdArgs {
		if a.Key == flag && len(a.Vals) == 0 {
			return true
		}
	}
	return false
}

// word returns the i-th argument without a value.
func (s *script) word(i int) string {
	if i >= len(s.td.CmdArgs) || len(s.td.CmdArgs[i].Vals) > 0 {
		s.w.fail("argument %d is missing", i+1)
	}
	return s.td.CmdArgs[i].Key
}

func (s *script) runID() event.RunID { return event.RunID(s.n.full(s.word(0))) }

func (s *script) person(key, otherwise string) event.Access {
	name := s.str(key, otherwise)
	if a, ok := s.access[name]; ok {
		return a
	}
	return person(event.ParticipantID(name))
}

func (s *script) advance() {
	if len(s.td.CmdArgs) > 0 {
		s.w.now = s.w.now.Add(s.duration(s.word(0)))
	}
}

func (s *script) agents(key string) map[event.AgentID]bool {
	ids, _ := s.list(key)
	out := map[event.AgentID]bool{}
	for _, id := range ids {
		out[event.AgentID(id)] = true
	}
	return out
}

func disclosure(vals []string) event.Disclosure {
	switch {
	case len(vals) == 1 && vals[0] == "room":
		return event.ToRoom()
	case len(vals) == 1 && vals[0] == "none":
		return event.ToNone()
	case len(vals) == 0 || vals[0] == "unstated":
		return event.Disclosure{}
	}
	return event.ToParticipants(convert[event.ParticipantID](vals)...)
}

func convert[T ~string](vals []string) []T {
	out := make([]T, len(vals))
	for i, v := range vals {
		out[i] = T(v)
	}
	return out
}

func (s *script) token() {
	name := s.str("of", "")
	a := s.person("of", "")
	if vals, ok := s.list("scopes"); ok {
		a.Scopes = convert[event.Scope](vals)
	}
	if match, ok := s.list("match"); ok {
		can, _ := s.list("can")
		to, _ := s.list("disclosure")
		rule := event.ChannelRule{Match: match[0], Can: convert[event.Scope](can), Disclosure: disclosure(to)}
		if s.has("add") {
			a.Channels = append([]event.ChannelRule{rule}, a.Channels...)
		} else {
			a.Channels = []event.ChannelRule{rule}
		}
	}
	s.access[name] = a
}

func (s *script) config() event.RoomConfig {
	c := event.RoomConfig{
		FallbackAgent: event.AgentID(s.str("fallback", "")), Phase: s.str("phase", ""),
		DeadlineMs: s.duration(s.str("deadline", "0s")).Milliseconds(), WaitMs: s.duration(s.str("wait", "0s")).Milliseconds(),
	}
	phases, _ := s.list("phases")
	for _, p := range phases {
		phase, agent, _ := strings.Cut(p, ":")
		if c.PhaseAgents == nil {
			c.PhaseAgents = map[string]event.AgentID{}
		}
		c.PhaseAgents[phase] = event.AgentID(agent)
	}
	busy, _ := s.list("busy")
	for _, b := range busy {
		i := strings.LastIndexByte(b, ':')
		word, fixed := strings.CutSuffix(b[i+1:], "!")
		policy, ok := event.ParseBusyPolicy(word)
		if !ok {
			s.w.fail("unknown policy in %s", b)
		}
		c.Channels = append(c.Channels, event.ChannelPolicy{Match: b[:i], OnBusy: policy, Fixed: fixed})
	}
	for line := range strings.Lines(s.td.Input) {
		name, args, err := datadriven.ParseLine(line)
		if err != nil {
			s.w.fail("%v", err)
		}
		a := event.Agent{ID: event.AgentID(name), Role: "guide", Driver: "driver-" + name}
		for _, arg := range args {
			switch v := strings.Join(arg.Vals, ", "); arg.Key {
			case "visible":
				a.Visibility = disclosure(arg.Vals)
			case "recovery":
				a.Recovery = event.Recovery(v)
			case "version":
				a.Version = v
			case "driver":
				a.Driver = v
			case "label":
				a.Label = v
			default:
				s.w.fail("unknown attribute %s", arg.Key)
			}
		}
		c.Agents = append(c.Agents, a)
	}
	return c
}

func (s *script) input() {
	in := event.FinalInput{
		ID: event.InputID(s.text("id", "")), Text: s.text("text", "times"), Modality: event.Text, Lang: s.text("lang", ""),
	}
	switch s.str("modality", "text") {
	case "speech":
		in.Modality = event.Speech
	case "none":
		in.Modality = 0
	}
	to, _ := s.list("to")
	in.Agents = convert[event.AgentID](to)
	if vals, ok := s.list("disclosure"); ok {
		in.Disclosure = disclosure(vals)
	}
	if v := s.str("busy", ""); v != "" {
		in.OnBusy, _ = event.ParseBusyPolicy(v)
	}
	if v := s.str("deadline", ""); v != "" {
		d := s.duration(v)
		in.Deadline = &d
	}
	if v := s.str("run", ""); v != "" {
		in.Continuation = &event.ContinuationRef{
			Run: event.RunID(s.n.full(v)), Request: event.RequestID(s.str("request", "")), Token: s.n.full(s.str("token", "")),
		}
	}
	m := event.Submit{Access: s.person("from", ""), Channel: event.ChannelID(s.str("channel", "public")), Input: in, Digest: digest(in)}
	if v, ok := s.list("as"); ok {
		kind, id, found := strings.Cut(v[0], ":")
		if !found {
			kind, id = event.Participant.String(), v[0]
		}
		m.As.Kind, _ = event.ParseEndpointKind(kind)
		m.As.ID = id
	}
	s.do(m)
}

// attempt returns the run of a driver's message, its attempt and the message's
// number; the current attempt and the next number, unless the script says otherwise.
func (s *script) attempt() (event.RunID, uint32, uint64) {
	id := s.runID()
	attempt := uint32(1)
	for _, r := range s.w.state.View().Runs {
		if r.Run == id {
			attempt = r.Attempt
		}
	}
	attempt = uint32(s.number("attempt", int64(attempt)))
	key := fmt.Sprintf("%s %d", id, attempt)
	n := uint64(s.number("n", int64(s.last[key]+1)))
	s.last[key] = max(n, s.last[key])
	return id, attempt, n
}

func (s *script) emit() {
	run, attempt, n := s.attempt()
	m := room.Emit{Run: run, Attempt: attempt, N: n}
	switch s.td.Cmd {
	case "output":
		x := event.AssistantOutput{Output: event.OutputID(s.word(1)), Delta: s.text("delta", "times"), Final: s.has("final")}
		x.Purpose, _ = event.ParsePurpose(s.str("purpose", ""))
		x.History, _ = event.ParseHistory(s.str("history", ""))
		if vals, ok := s.list("audience"); ok {
			x.Audience = disclosure(vals)
		}
		m.Event = x
	case "progress":
		x := event.Progress{Stage: s.word(1), Message: s.text("message", "")}
		if v := s.str("current", ""); v != "" {
			x.Current = new(s.number("current", 0))
		}
		if v := s.str("total", ""); v != "" {
			x.Total = new(s.number("total", 0))
		}
		m.Event = x
	case "checkpoint":
		value := strings.TrimSpace(s.td.Input)
		if pad := int(s.number("pad", 0)); pad > 0 {
			value = `"` + strings.Repeat("x", pad-2) + `"`
		}
		m.Event = event.Checkpoint{Value: json.RawMessage(value)}
	case "ask":
		x := event.InputRequested{Request: event.RequestID(s.word(1))}
		if v := s.str("in", ""); v != "" {
			x.ExpiresAt = s.w.now.Add(s.duration(v))
		}
		m.Event = x
	case "decide":
		var d event.Decision
		for line := range strings.Lines(s.td.Input) {
			d.Utterances = append(d.Utterances, event.Utterance{Text: strings.TrimSpace(line)})
		}
		m.Event = d
	case "completed":
		m.Event = event.Completed{}
	}
	s.do(m)
}
