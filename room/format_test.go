package room_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"parley/event"
	"parley/room"
)

// names gives the random ids of a script short names in the order in which they
// are first printed: r1 for runs, o1 for outputs, t1 for tokens.
type names struct {
	short, long map[string]string
	next        map[byte]int
}

func newNames() *names {
	return &names{short: map[string]string{}, long: map[string]string{}, next: map[byte]int{}}
}

func (n *names) of(kind byte, id string) string {
	if id == "" {
		return "-"
	}
	if n.short[id] == "" {
		n.next[kind]++
		n.short[id] = fmt.Sprintf("%c%d", kind, n.next[kind])
		n.long[n.short[id]] = id
	}
	return n.short[id]
}

func (n *names) run(id event.RunID) string       { return n.of('r', string(id)) }
func (n *names) output(id event.OutputID) string { return n.of('o', string(id)) }
func (n *names) token(t string) string           { return n.of('t', t) }

// full returns the id that a short name stands for; anything else stands for itself.
func (n *names) full(s string) string {
	if id, ok := n.long[s]; ok {
		return id
	}
	return s
}

func at(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return "+" + t.Sub(began).String()
}

func to(d event.Disclosure) string {
	switch d.Kind {
	case event.DiscloseParticipants:
		names := make([]string, len(d.Participants))
		for i, p := range d.Participants {
			names[i] = string(p)
		}
		return strings.Join(names, ",")
	case event.DiscloseUnstated:
		return "unstated"
	}
	return d.Kind.String()
}

func quote(s string) string {
	if len(s) > 60 {
		return fmt.Sprintf("%q… (%d bytes)", s[:20], len(s))
	}
	return fmt.Sprintf("%q", s)
}

// writer collects the lines that a command answers.
type writer struct {
	strings.Builder
	n *names
}

func (w *writer) line(format string, args ...any) {
	_, _ = fmt.Fprintf(w, format, args...)
	w.WriteByte('\n')
}

func (w *writer) entry(e *event.Entry) {
	ch := string(e.Channel)
	if ch == "" {
		ch = "*"
	}
	w.line("%d %s %s [%s] %s", e.Seq, at(e.At), ch, to(e.Disclosure), w.body(e.Body))
}

func (w *writer) body(b event.Body) string {
	switch x := b.(type) {
	case *event.RoomConfigured:
		var ids []string
		for _, a := range x.Config.Agents {
			ids = append(ids, string(a.ID))
		}
		return fmt.Sprintf("room configured by %s: agents %s", x.By, strings.Join(ids, ","))
	case *event.InputAdmitted:
		s := fmt.Sprintf("input %s of %s to %s: %s %s", x.Input, x.Speaker.ID, x.Agent, x.State, w.n.run(x.Run))
		if x.By != "" {
			s += " by " + string(x.By)
		}
		budget := "no deadline"
		if x.Budget > 0 {
			budget = x.Budget.String()
		}
		return fmt.Sprintf("%s [%s] %s %s %s", s, to(x.RunDisclosure), budget, x.Modality, quote(x.Text))
	case *event.RunEvent:
		s := fmt.Sprintf("%s.%d attempt %d", w.n.run(x.Run), x.Sequence, x.Attempt)
		if x.N > 0 {
			s += fmt.Sprintf(" n=%d", x.N)
		}
		return s + " " + w.runBody(x)
	case *event.FocusSet:
		return fmt.Sprintf("focus of %s: %s", x.Subject, x.Agent)
	case *event.Drained:
		return "drained"
	}
	return fmt.Sprintf("%T", b)
}

func (w *writer) runBody(x *event.RunEvent) string {
	kind := x.Event.RunKind().String()
	switch b := x.Event.(type) {
	case event.Progress:
		kind += " " + b.Stage
		if b.Current != nil {
			kind += fmt.Sprintf(" %d", *b.Current)
		}
		if b.Total != nil {
			kind += fmt.Sprintf(" of %d", *b.Total)
		}
		if b.Message != "" {
			kind += " " + quote(b.Message)
		}
	case event.AssistantOutput:
		kind += fmt.Sprintf(" %s=%s %s %s %s", x.Logical, w.n.output(b.Output), b.Purpose, b.History, quote(b.Delta))
		if b.Final {
			kind += " final"
		}
	case event.Checkpoint:
		kind += " " + quote(string(b.Value))
	case event.InputRequested:
		kind += fmt.Sprintf(" %s token %s of %s until %s", b.Request, w.n.token(b.Token), b.Speaker.ID, at(b.ExpiresAt))
	case event.Decision:
		kind += fmt.Sprintf(" of %d utterances", len(b.Utterances))
	case event.AttemptStarted:
		if b.Resumed {
			kind += " resumed"
		}
	case event.RunCanceled:
		kind += fmt.Sprintf(" %s by %s", b.Reason, b.By)
	case event.RunFailed:
		kind += " " + b.Code
	case event.RunBlocked:
		kind += " " + b.Reason
	}
	return kind
}

func (w *writer) row(r event.Row) {
	switch x := r.(type) {
	case *event.InputRow:
		w.line("row input: entry %d %s %s [%s]", x.Entry, w.n.run(x.Run), x.State, to(x.Disclosure))
	case *event.RunRow:
		s := fmt.Sprintf("row run: %s %s attempt %d sequence %d [%s] entries %d-%d", w.n.run(x.Run), x.Status, x.Attempt, x.Sequence,
			to(x.Disclosure), x.First, x.Last)
		w.line("%s", strings.TrimRight(s+" "+x.Reason+x.Code, " "))
	case *event.TranscriptRow:
		w.line("row transcript: %s entry %d [%s] %s: %s", w.n.run(x.Run), x.Entry, to(x.Disclosure), x.Speaker.ID, quote(x.Text))
	}
}

func (w *writer) effect(e room.Effect) {
	switch x := e.(type) {
	case room.StartAttempt:
		s := fmt.Sprintf("start %s attempt %d of %s: %s of %s [%s] until %s", w.n.run(x.Run), x.Attempt, x.Agent.ID, x.Input, x.Speaker.ID,
			to(x.Disclosure), at(x.Deadline))
		if x.Root != x.Input {
			s += " root " + string(x.Root)
		}
		if x.Resumed {
			s += " resumed"
		}
		if x.Continues != "" {
			s += " continues " + string(x.Continues)
		}
		if x.CheckpointAt != 0 {
			s += fmt.Sprintf(" checkpoint %d", x.CheckpointAt)
		}
		if x.Agent.Label != "" {
			s += " as " + x.Agent.Label
		}
		w.line("%s", s)
	case room.StopAttempt:
		w.line("stop %s attempt %d: %s", w.n.run(x.Run), x.Attempt, x.Cause)
	}
}

func (w *writer) reply(r event.Reply) {
	switch x := r.(type) {
	case nil:
	case event.Receipt:
		dup := ""
		if x.Duplicate {
			dup = " duplicate"
		}
		w.line("receipt %s: %s %s entry %d at %s%s", x.Input, w.n.run(x.Run), x.State, x.Entry, at(x.At), dup)
	case event.CancelResult:
		status := "unknown"
		if x.Status != 0 {
			status = x.Status.String()
		}
		w.line("canceled: %v, the run is %s", x.Canceled, status)
	case event.Done:
		w.line("done at %d", x.Head)
	case event.RunResult:
		if x.Open != nil {
			w.line("run as of %d:", x.Head)
			w.runView(*x.Open)
			return
		}
		w.line("ended run as of %d:", x.Head)
		w.row(&x.Record)
	case *event.View:
		w.view(x)
	default:
		w.line("reply %T", r)
	}
}

func (w *writer) view(v *event.View) {
	w.line("view at %d %s", v.Head, at(v.At))
	for _, a := range v.Agents {
		w.line("agent %s [%s]", a.ID, to(a.Visible()))
	}
	for _, f := range v.Focus {
		w.line("focus of %s: %s", f.Subject, f.Agent)
	}
	for _, r := range v.Runs {
		w.runView(r)
	}
}

func (w *writer) runView(r event.RunView) {
	w.line("%s %s [%s] %s attempt %d sequence %d of %s, input %s of %s until %s", w.n.run(r.Run), r.Channel, to(r.Disclosure), r.Status,
		r.Attempt, r.Sequence, r.Agent, r.Input, r.Speaker.ID, at(r.Deadline))
	for _, o := range r.Outputs {
		end := "…"
		if o.Final {
			end = ""
		}
		w.line("  output %s %s %s [%s] %s%s", w.n.output(o.Output), o.Purpose, o.History, to(o.Disclosure), quote(o.Text), end)
	}
	if q := r.Waiting; q != nil {
		w.line("  waits for %s token %s until %s", q.Request, w.n.token(q.Token), at(q.ExpiresAt))
	}
}

// refusals are the reasons as the wire words of the protocol.
var refusals = map[event.Reason]string{
	event.BadRequest: "bad_request", event.InvalidText: "invalid_text", event.BlankText: "blank_text",
	event.TextTooLong: "text_too_long", event.Forbidden: "forbidden", event.ChannelForbidden: "channel_forbidden",
	event.DisclosureRequired: "disclosure_required", event.DisclosureEmpty: "disclosure_empty", event.NoAgent: "no_agent",
	event.AgentUnknown: "agent_unknown", event.InputConflict: "input_conflict", event.RunConflict: "run_conflict",
	event.QueueFull: "queue_full", event.NotWaiting: "not_waiting", event.AlreadyResolved: "already_resolved",
	event.ContinuationMismatch: "continuation_mismatch", event.NotFound: "not_found", event.Unavailable: "unavailable",
	event.Internal: "internal",
}

func (w *writer) refusal(err error) {
	r, ok := event.AsRefusal(err)
	switch {
	case !ok:
		w.line("stale")
	case r.Run != "":
		w.line("refused: %s, %s is in the way", refusals[r.Reason], w.n.run(r.Run))
	default:
		w.line("refused: %s", refusals[r.Reason])
	}
}

// viewFor keeps of a view what the holder of a token may see, as a gateway does.
func viewFor(v *event.View, a event.Access) *event.View {
	out := *v
	out.Agents = slices.DeleteFunc(slices.Clone(v.Agents), func(g event.Agent) bool { return !a.Sees("", g.Visible()) })
	out.Focus = slices.DeleteFunc(slices.Clone(v.Focus), func(f event.FocusView) bool { return !a.Host() && f.Subject != a.Subject })
	out.Runs = nil
	for _, r := range v.Runs {
		if !a.Sees(r.Channel, r.Disclosure) {
			continue
		}
		r.Outputs = slices.DeleteFunc(slices.Clone(r.Outputs), func(o event.OutputView) bool { return !a.Sees(r.Channel, o.Disclosure) })
		if r.Waiting != nil && !a.Host() && r.Speaker != event.Person(a.Subject) {
			asked := *r.Waiting
			asked.Token = ""
			r.Waiting = &asked
		}
		out.Runs = append(out.Runs, r)
	}
	return &out
}
