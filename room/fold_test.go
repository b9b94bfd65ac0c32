package room_test

import (
	"maps"
	"slices"
	"time"

	"parley/event"
)

// seen is the visibility rule of the protocol, written down a second time:
// visible(e, v) = v may read e's channel and (the disclosure is the room, or
// names v); a host sees everything.
func seen(a event.Access, ch event.ChannelID, d event.Disclosure) bool {
	if slices.Contains(a.Scopes, event.ScopeHost) {
		return true
	}
	mayRead := ch == ""
	for _, r := range a.Channels {
		if event.Match(r.Match, string(ch), a.Subject) {
			mayRead = mayRead || slices.Contains(r.Can, event.ScopeRead) && slices.Contains(a.Scopes, event.ScopeRead)
			break
		}
	}
	return mayRead && (d.Kind == event.DiscloseRoom || slices.Contains(d.Participants, a.Subject))
}

// fold is what a viewer knows who has read entries and nothing else. It is the
// measure of a View: what that shows to somebody, his entries must imply.
type fold struct {
	agents []event.AgentID
	focus  map[event.ParticipantID]event.AgentID
	runs   map[event.RunID]*foldedRun
	order  []event.RunID
}

type foldedRun struct {
	view   event.RunView
	budget time.Duration
}

func foldOf(entries []*event.Entry) *fold {
	f := &fold{focus: map[event.ParticipantID]event.AgentID{}, runs: map[event.RunID]*foldedRun{}}
	for _, e := range entries {
		switch x := e.Body.(type) {
		case *event.RoomConfigured:
			f.agents = nil
			for _, a := range x.Config.Agents {
				f.agents = append(f.agents, a.ID)
			}
		case *event.FocusSet:
			f.focus[x.Subject] = x.Agent
			if x.Agent == "" {
				delete(f.focus, x.Subject)
			}
		case *event.InputAdmitted:
			f.input(e, x)
		case *event.RunEvent:
			f.run(e, x)
		}
	}
	return f
}

func (f *fold) input(e *event.Entry, x *event.InputAdmitted) {
	r := f.runs[x.Run]
	if r == nil {
		r = &foldedRun{view: event.RunView{
			Run: x.Run, Channel: e.Channel, Agent: x.Agent, Speaker: x.Speaker, Status: event.RunQueued,
		}}
		f.runs[x.Run] = r
		f.order = append(f.order, x.Run)
	}
	if x.State != event.Queued {
		r.view.Status = event.RunActive
	}
	r.view.Input, r.view.Disclosure, r.view.Waiting, r.budget = x.Input, x.RunDisclosure, nil, x.Budget
}

func (f *fold) run(e *event.Entry, x *event.RunEvent) {
	r := f.runs[x.Run]
	if r == nil {
		return // of an input that this viewer may not see; nothing to build on
	}
	v := &r.view
	v.Attempt, v.Sequence = x.Attempt, x.Sequence
	switch b := x.Event.(type) {
	case event.AttemptStarted:
		v.Status = event.RunActive
		if !b.Resumed {
			v.Deadline = time.Time{}
			if r.budget > 0 {
				v.Deadline = e.At.Add(r.budget)
			}
		}
		v.Outputs = slices.DeleteFunc(v.Outputs, func(o event.OutputView) bool { return !o.Final }) // R3
	case event.AssistantOutput:
		i := slices.IndexFunc(v.Outputs, func(o event.OutputView) bool { return o.Output == b.Output })
		if i < 0 {
			i = len(v.Outputs)
			v.Outputs = append(v.Outputs, event.OutputView{
				Output: b.Output, Purpose: b.Purpose, History: b.History, Disclosure: e.Disclosure,
			})
		}
		v.Outputs[i].Text += b.Delta
		v.Outputs[i].Final = b.Final
	case event.InputRequested:
		v.Status, v.Deadline, v.Waiting = event.RunWaiting, time.Time{}, &b
	case event.Completed, event.RunCanceled, event.DeadlineExceeded, event.RunFailed:
		delete(f.runs, x.Run)
		f.order = slices.DeleteFunc(f.order, func(id event.RunID) bool { return id == x.Run })
	}
}

// checkView asserts that a viewer's part of the view is what the entries he may
// see imply, and for a host that it is all of it.
func (w *world) checkView(a event.Access) {
	var mine []*event.Entry
	for _, e := range w.journal {
		ok := seen(a, e.Channel, e.Disclosure)
		if ok != a.Sees(e.Channel, e.Disclosure) {
			w.fail("entry %d is visible to %s: %v, by the rule %v", e.Seq, a.Subject, !ok, ok)
		}
		if ok {
			mine = append(mine, e)
		}
	}
	f := foldOf(mine)
	whole := w.state.View()
	if whole.Head != event.Seq(len(w.journal)) {
		w.fail("the view stands at %d of %d entries", whole.Head, len(w.journal))
	}
	v := viewFor(whole, a)
	for _, g := range v.Agents {
		if !slices.Contains(f.agents, g.ID) {
			w.fail("the view of %s has the agent %s, his entries do not", a.Subject, g.ID)
		}
	}
	for _, x := range v.Focus {
		if f.focus[x.Subject] != x.Agent {
			w.fail("the view of %s has a focus that his entries do not imply", a.Subject)
		}
	}
	var order []event.RunID
	for _, r := range v.Runs {
		order = append(order, r.Run)
		known := f.runs[r.Run]
		if known == nil {
			w.fail("the view of %s has run %s, his entries do not", a.Subject, r.Run)
		}
		w.sameRun(a, r, known.view)
	}
	if a.Host() && (!slices.Equal(order, f.order) || !maps.Equal(f.focus, focusOf(v))) {
		w.fail("the view has runs %v, the journal %v", order, f.order)
	}
}

func focusOf(v *event.View) map[event.ParticipantID]event.AgentID {
	out := map[event.ParticipantID]event.AgentID{}
	for _, x := range v.Focus {
		out[x.Subject] = x.Agent
	}
	return out
}

func (w *world) sameRun(a event.Access, got, want event.RunView) {
	if !a.Host() {
		got.Sequence, want.Sequence = 0, 0 // for host scope only, and events for others count in it
	}
	if want.Waiting != nil && !a.Host() && want.Speaker != event.Person(a.Subject) {
		asked := *want.Waiting
		asked.Token = "" // the gateway leaves it out of the entry, too
		want.Waiting = &asked
	}
	same := got.Run == want.Run && got.Channel == want.Channel && got.Agent == want.Agent && got.Speaker == want.Speaker &&
		got.Input == want.Input && got.Disclosure.Equal(want.Disclosure) && got.Status == want.Status && got.Attempt == want.Attempt &&
		got.Sequence == want.Sequence && got.Deadline.Equal(want.Deadline) && (got.Waiting == nil) == (want.Waiting == nil)
	if same && got.Waiting != nil {
		same = got.Waiting.Request == want.Waiting.Request && got.Waiting.Token == want.Waiting.Token &&
			got.Waiting.ExpiresAt.Equal(want.Waiting.ExpiresAt)
	}
	same = same && slices.EqualFunc(got.Outputs, want.Outputs, func(x, y event.OutputView) bool {
		return x.Output == y.Output && x.Purpose == y.Purpose && x.History == y.History && x.Disclosure.Equal(y.Disclosure) &&
			x.Final == y.Final && x.Text == y.Text
	})
	if !same {
		w.fail("the view of %s has\n%+v\nhis entries imply\n%+v", a.Subject, got, want)
	}
}
