package room

import (
	"time"
	"unicode/utf8"

	"parley/channel"
	"parley/event"
)

// maxAgents is how many agents an input may address.
const maxAgents = 16

func speaker(m event.Submit) event.Endpoint {
	if m.As != (event.Endpoint{}) {
		return m.As
	}
	return event.Person(m.Access.Subject)
}

// submit admits a final input: A1 to A7 and, for an input that answers a
// question, W2. Everything is decided before anything is written.
func (d *draft) submit(m event.Submit) (Decision, error) {
	to, err := d.authorize(m)
	if err != nil {
		return Decision{}, err
	}
	who := speaker(m)
	if row, ok := d.f.Rows[event.InputKey(m.Channel, who, m.Input.ID)].(*event.InputRow); ok && row != nil {
		// A5: an exact retry touches nothing, in whatever state its run is by now.
		if row.Digest != m.Digest || !row.Disclosure.Equal(to) {
			return Decision{}, event.Refuse(event.InputConflict, "this input id was used for something else; give a new input a new id")
		}
		return Decision{Reply: event.Receipt{
			Input: m.Input.ID, Entry: row.Entry, Incarnation: d.s.incarnation, Run: row.Run, At: row.At, State: row.State, Duplicate: true,
		}}, nil
	}
	budget, fixed, err := d.budget(m)
	if err != nil {
		return Decision{}, err
	}
	agent, err := d.route(m, who)
	if err != nil {
		return Decision{}, err
	}
	own := d.s.lanes[m.Channel]
	if own == nil && len(d.s.lanes) >= MaxLanes {
		return Decision{}, event.Refuse(event.Unavailable, "too many channels of this room are at work; try again when some have ended")
	}
	runTo := to.Intersect(agent.Visible())
	if runTo.Empty() {
		return Decision{}, event.Refuse(event.DisclosureEmpty, "nobody of those the input is for may see the agent")
	}
	x := &event.InputAdmitted{
		Input: m.Input.ID, Speaker: who, Text: m.Input.Text, Modality: m.Input.Modality, Lang: m.Input.Lang,
		EndedAt: event.Millis(m.Input.EndedAt), Agent: agent.ID, Digest: m.Digest, Budget: budget,
		RunDisclosure: runTo, AgentVersion: agent.Version, Recovery: agent.Recovery,
	}
	if m.Input.EndedAt.IsZero() {
		x.EndedAt = time.Time{}
	}
	if m.As != (event.Endpoint{}) {
		x.By = m.Access.Subject
	}
	var open *channel.Run
	if own != nil {
		open = own.Open
	}
	if open != nil && !fixed {
		x.Budget = open.Budget // C3: else the open run's
	}
	if c, err := d.continues(m, who, agent, open, runTo); err != nil {
		return Decision{}, err
	} else if c {
		x.Run, x.State, x.RunDisclosure = open.ID, event.Continued, open.Disclosure.Intersect(runTo)
		return d.admit(m, to, x)
	}
	x.Run, x.State = channel.NewRunID(d.in.Rand), event.Started
	if open == nil {
		return d.admit(m, to, x)
	}
	policy, err := d.busy(m, who, open)
	if err != nil {
		return Decision{}, err
	}
	switch policy {
	case event.BusySupersede:
		l := d.lane(m.Channel)
		d.stop(l.Open, Canceled)
		d.run(l, l.Open, event.RunCanceled{Reason: event.ReasonSuperseded, By: m.Access.Subject})
	case event.BusyQueue:
		if len(own.Queued) >= channel.MaxQueued {
			return Decision{}, event.Refuse(event.QueueFull, "%d inputs already wait on this channel; try again when one has been answered", channel.MaxQueued)
		}
		x.State = event.Queued
		if !fixed {
			x.Budget = d.s.config.Deadline() // it inherits nothing of a run that it does not replace
		}
	case event.BusyReject:
		refusal := event.Refuse(event.RunConflict, "the agent is still answering on this channel; wait for the end of its answer or cancel it")
		if m.Access.Sees(m.Channel, open.Disclosure) {
			refusal.Run = open.ID
		}
		return Decision{}, refusal
	default:
		return Decision{}, event.Refuse(event.BadRequest, "this server does not offer the busy policy %s; use supersede, queue or reject", policy)
	}
	return d.admit(m, to, x)
}

// admit writes the input and what it starts, as one (A4).
func (d *draft) admit(m event.Submit, to event.Disclosure, x *event.InputAdmitted) (Decision, error) {
	l := d.lane(m.Channel)
	e := d.entry(m.Channel, to, x)
	l.ApplyInput(e, x)
	if x.State != event.Queued {
		d.begin(l, l.Open, false)
	}
	d.d.Reply = event.Receipt{
		Input: x.Input, Entry: e.Seq, Incarnation: d.s.incarnation, Run: x.Run, At: e.At, State: x.State,
	}
	return d.d, nil
}

// authorize holds A1 and A2: who may say this here, and who may see it.
func (d *draft) authorize(m event.Submit) (event.Disclosure, error) {
	var none event.Disclosure
	if err := event.CheckName(string(m.Channel)); err != nil {
		return none, event.Refuse(event.BadRequest, "channel: %v", err)
	}
	grant := m.Access.On(m.Channel)
	if !grant.May(event.ScopeInput) {
		return none, event.Refuse(event.ChannelForbidden, "your token does not let you speak on this channel")
	}
	in := m.Input
	if m.As != (event.Endpoint{}) {
		if !m.Access.Host() {
			return none, event.Refuse(event.Forbidden, "only a host names another speaker")
		}
		if m.As.Kind < event.Participant || m.As.Kind > event.Watcher || !word(m.As.ID, event.MaxName) {
			return none, event.Refuse(event.BadRequest, "a speaker has a known kind and an id of 1 to %d bytes", event.MaxName)
		}
	}
	if !word(string(in.ID), event.MaxInputID) {
		return none, event.Refuse(event.BadRequest, "an input has an id of 1 to %d bytes of UTF-8", event.MaxInputID)
	}
	if err := event.CheckText(in.Text); err != nil {
		return none, err
	}
	if in.Modality != event.Speech && in.Modality != event.Text {
		return none, event.Refuse(event.BadRequest, "modality is speech or text")
	}
	if in.Lang != "" && !word(in.Lang, 64) {
		return none, event.Refuse(event.BadRequest, "a language tag has at most 64 bytes of UTF-8")
	}
	if c := in.Continuation; c != nil && c.Token == "" && c.Request == "" {
		return none, event.Refuse(event.BadRequest, "a continuation names its run and the request or the token")
	}
	if len(in.Agents) > maxAgents {
		return none, event.Refuse(event.BadRequest, "an input addresses at most %d agents", maxAgents)
	}
	if m.As != (event.Endpoint{}) && !in.Disclosure.Stated() || !grant.Disclosure.Stated() {
		return none, event.Refuse(event.DisclosureRequired, "state who may see this input: the token gives no disclosure for it")
	}
	to := grant.Disclosure
	if in.Disclosure.Stated() {
		to = to.Intersect(in.Disclosure)
	}
	if to.Empty() {
		return none, event.Refuse(event.DisclosureEmpty, "nobody may see this input: the token allows none of those it is for")
	}
	return to, nil
}

// word reports whether an id or a tag has 1 to size bytes of valid UTF-8: what
// is not would not come back from a snapshot as it went in.
func word(s string, size int) bool { return s != "" && len(s) <= size && utf8.ValidString(s) }

// budget holds C3 and A1 for the deadline of an input. Fixed reports that the
// input itself gave it.
func (d *draft) budget(m event.Submit) (budget time.Duration, fixed bool, err error) {
	room := d.s.config.Deadline()
	if m.Input.Deadline == nil {
		return room, false, nil
	}
	given := *m.Input.Deadline
	switch {
	case given < 0 || given > 7*24*time.Hour || given%time.Millisecond != 0:
		// A part of a millisecond would be lost in the journal, and a replay would differ.
		return 0, false, event.Refuse(event.BadRequest, "deadlineMs is a whole number within 0 and 604800000")
	case (given == 0 || given > room) && !m.Access.Host():
		return 0, false, event.Refuse(event.Forbidden, "only a host gives a deadline of 0 or one beyond the room's")
	}
	return given, true, nil
}

// visible reports whether an agent is registered, has its driver here, and may
// be seen by the speaker. Speakers that are not participants see every agent.
func (d *draft) visible(id event.AgentID, who event.Endpoint) bool {
	a, ok := d.s.config.Agent(id)
	if !ok || d.f.Ambient.Missing[id] {
		return false
	}
	return who.Kind != event.Participant || a.Visible().Includes(event.ParticipantID(who.ID))
}

// route holds A3: explicit addressing, else the speaker's focus, else the
// phase's agent, else the fallback. Explicit addressing never falls through.
func (d *draft) route(m event.Submit, who event.Endpoint) (event.Agent, error) {
	if len(m.Input.Agents) > 0 {
		for _, id := range m.Input.Agents {
			if d.visible(id, who) {
				a, _ := d.s.config.Agent(id)
				return a, nil
			}
		}
		return event.Agent{}, event.Refuse(event.AgentUnknown, "none of the agents that the input addresses is in this room")
	}
	// An answer to a question goes to the agent that asked, if it names its run.
	if c := m.Input.Continuation; c != nil {
		if l := d.s.lanes[m.Channel]; l != nil && l.Open.ID == c.Run && l.Open.Speaker == who {
			if !d.visible(l.Open.Agent, who) {
				return event.Agent{}, event.Refuse(event.NoAgent, "the agent that asked cannot answer here at the moment; try again later")
			}
			a, _ := d.s.config.Agent(l.Open.Agent)
			return a, nil
		}
	}
	var focus event.AgentID
	if who.Kind == event.Participant {
		focus = d.s.focus[event.ParticipantID(who.ID)]
	}
	for _, id := range []event.AgentID{focus, d.s.config.PhaseAgents[d.s.config.Phase], d.s.config.FallbackAgent} {
		if id != "" && d.visible(id, who) {
			a, _ := d.s.config.Agent(id)
			return a, nil
		}
	}
	return event.Agent{}, event.Refuse(event.NoAgent, "no agent of this room answers here; address one")
}

// continues holds W2: whether the input answers the question that the open run
// waits on. A strict continuation that does not fit is refused.
func (d *draft) continues(m event.Submit, who event.Endpoint, a event.Agent, open *channel.Run, to event.Disclosure) (bool, error) {
	fits := open != nil && open.Status == event.RunWaiting && open.Speaker == who && open.Agent == a.ID &&
		!open.Disclosure.Intersect(to).Empty()
	c := m.Input.Continuation
	if c == nil {
		return fits, nil
	}
	mismatch := event.Refuse(event.ContinuationMismatch, "this input does not answer a question that waits for you; send it without continuation to ask anew")
	switch {
	case open == nil || open.ID != c.Run || open.Speaker != who:
		return false, mismatch
	case open.Status != event.RunWaiting:
		return false, event.Refuse(event.NotWaiting, "that run does not wait for an answer at the moment")
	case c.Token != "" && c.Token != open.Waiting.Token, c.Request != "" && c.Request != open.Waiting.Request, !fits:
		return false, mismatch
	}
	return true, nil
}

// busy holds A7: the policy that the channel fixes, else the input's, else the
// channel's, else supersede for the same speaker and queue for another. Asking to
// supersede an answer that another speaker is being given is canceling it, so it
// needs the right to (C1), unless the channel is made for it; a question that
// another speaker leaves unanswered holds nobody up.
func (d *draft) busy(m event.Submit, who event.Endpoint, open *channel.Run) (event.BusyPolicy, error) {
	var set event.ChannelPolicy
	for _, c := range d.s.config.Channels {
		if event.Match(c.Match, string(m.Channel), "") {
			set = c
			break
		}
	}
	asked := m.Input.OnBusy
	switch {
	case set.Fixed || asked == event.BusyDefault && set.OnBusy != event.BusyDefault:
		return set.OnBusy, nil
	case asked == event.BusyDefault && open.Speaker == who:
		return event.BusySupersede, nil
	case asked == event.BusyDefault:
		return event.BusyQueue, nil
	case asked == event.BusySupersede && set.OnBusy != event.BusySupersede && open.Speaker != who &&
		open.Status == event.RunActive && !m.Access.Host() && !m.Access.On(m.Channel).May(event.ScopeModerate):
		return 0, event.Refuse(event.Forbidden, "superseding another person's answer needs the scope moderate; send the input with onBusy queue instead")
	}
	return asked, nil
}
