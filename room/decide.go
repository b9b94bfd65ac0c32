package room

import (
	"slices"
	"time"

	"parley/channel"
	"parley/event"
)

// draft collects what a decision writes. It applies each entry to copies of the
// lanes it touches, so that a later entry of the same decision builds on the
// earlier ones and the state itself stays as it is. Owned by one Decide.
type draft struct {
	s      *State
	in     Input
	f      Facts
	now    time.Time         // the room's
	config *event.RoomConfig // the room's, or the one that this decision has written
	lanes  map[event.ChannelID]*channel.Lane
	d      Decision
}

func (s *State) draft(in Input, f Facts) draft {
	now := event.Millis(in.Now)
	if now.Before(s.at) {
		now = s.at
	}
	return draft{s: s, in: in, f: f, now: now, config: &s.config}
}

// lane returns the draft's copy of a lane.
func (d *draft) lane(ch event.ChannelID) *channel.Lane {
	l := d.lanes[ch]
	if l == nil {
		if own := d.s.lanes[ch]; own != nil {
			l = own.Clone()
		} else {
			l = &channel.Lane{Channel: ch}
		}
		if d.lanes == nil {
			d.lanes = map[event.ChannelID]*channel.Lane{}
		}
		d.lanes[ch] = l
	}
	return l
}

func (d *draft) entry(ch event.ChannelID, to event.Disclosure, body event.Body) *event.Entry {
	e := &event.Entry{
		Seq: d.s.head + event.Seq(len(d.d.Entries)) + 1, At: d.now, Channel: ch, Disclosure: to, Body: body,
	}
	d.d.Entries = append(d.d.Entries, e)
	return e
}

// runEntry appends the entry of a run's event. The two are one allocation: a run
// that speaks makes thousands of them, and they are kept and dropped together.
func (d *draft) runEntry(ch event.ChannelID, to event.Disclosure, x event.RunEvent) (*event.Entry, *event.RunEvent) {
	both := &struct {
		e event.Entry
		x event.RunEvent
	}{x: x}
	both.e = event.Entry{
		Seq: d.s.head + event.Seq(len(d.d.Entries)) + 1, At: d.now, Channel: ch, Disclosure: to, Body: &both.x,
	}
	d.d.Entries = append(d.d.Entries, &both.e)
	return &both.e, &both.x
}

// run appends an event of the runtime to a run of the lane.
func (d *draft) run(l *channel.Lane, r *channel.Run, body event.RunBody) {
	d.runEvent(l, r, channel.Event{Body: body, Disclosure: r.Disclosure}, 0)
}

// runEvent appends an event to a run of the lane; n is the driver's number for it, 0 for the runtime's.
func (d *draft) runEvent(l *channel.Lane, r *channel.Run, ev channel.Event, n uint64) {
	attempt := r.Attempt
	if _, ok := ev.Body.(event.AttemptStarted); ok {
		attempt++
	}
	e, x := d.runEntry(l.Channel, ev.Disclosure, event.RunEvent{
		Run: r.ID, Agent: r.Agent, Input: r.Input, Attempt: attempt, Sequence: r.Sequence + 1, N: n,
		Logical: ev.Logical, Event: ev.Body,
	})
	l.ApplyRun(e, x)
}

func (d *draft) after(e Effect) { d.d.After = append(d.d.After, e) }

// stop tells the driver of the lane's open run to stop, if one is at work.
func (d *draft) stop(r *channel.Run, why StopCause) {
	if working(r) && r.Attempt > 0 {
		d.after(StopAttempt{Run: r.ID, Attempt: r.Attempt, Cause: why})
	}
}

// begin starts the next attempt of a run that stands at the head of its lane:
// the open one, or the first queued one of a lane without an open run.
func (d *draft) begin(l *channel.Lane, r *channel.Run, resumed bool) {
	a, ok := d.config.Agent(r.Agent)
	switch {
	case !ok || d.f.Ambient.Missing[r.Agent]:
		// R1: nobody is there to answer; the run waits for its agent.
		if r.Attempt == 0 {
			d.run(l, r, event.AttemptStarted{})
		}
		if r = l.Run(r.ID); r.Blocked == "" {
			d.run(l, r, event.RunBlocked{Reason: event.BlockedAgentVersion})
		}
	case d.f.Ambient.Unresponsive[r.Agent]:
		d.run(l, r, event.RunFailed{
			Code: event.CodeDriverUnresponsive, Message: "The agent does not respond at the moment. Try again later.",
		}) // C5
		d.next(l)
	default:
		d.run(l, r, event.AttemptStarted{Resumed: resumed})
		d.after(start(l.Channel, l.Open, a, d.s.head+event.Seq(len(d.d.Entries))))
	}
}

// next starts the first queued run of a lane whose open run has ended (A7).
func (d *draft) next(l *channel.Lane) {
	if l.Open == nil && len(l.Queued) > 0 {
		d.begin(l, l.Queued[0], false)
	}
}

// end writes the terminal of a run and starts the next of its lane in the same batch.
func (d *draft) end(l *channel.Lane, r *channel.Run, why StopCause, terminal event.RunBody) {
	d.stop(r, why)
	d.run(l, r, terminal)
	d.next(l)
}

func start(ch event.ChannelID, r *channel.Run, a event.Agent, at event.Seq) StartAttempt {
	return StartAttempt{
		Run: r.ID, Attempt: r.Attempt, Channel: ch, Agent: a, Resumed: r.Resumed, Speaker: r.Speaker,
		Input: r.Input, Root: r.Root, Text: r.Text, Modality: r.Modality, Lang: r.Lang,
		Disclosure: r.Disclosure, Deadline: r.Deadline, Continues: r.Continues,
		CheckpointAt: r.CheckpointAt, ContextTo: at,
	}
}

// Needs names the history rows that Decide must see for this input; at most 16.
func (s *State) Needs(in Input) []event.Key {
	switch m := in.Msg.(type) {
	case event.Submit:
		return []event.Key{event.InputKey(m.Channel, speaker(m), m.Input.ID)}
	case event.CancelRun:
		if _, open := s.byRun[m.Run]; !open {
			return []event.Key{event.RunKey(m.Run)}
		}
	case event.GetRun:
		return []event.Key{event.RunKey(m.Run)}
	}
	return nil
}

// Decide says what follows from an input. It does not change s. An error is an
// *event.Refusal, or ErrStale.
func (s *State) Decide(in Input, f Facts) (Decision, error) {
	d := s.draft(in, f)
	if open, ok := in.Msg.(event.Open); ok {
		return d.open(open)
	}
	if c, ok := in.Msg.(event.Configure); ok {
		return d.configure(c)
	}
	if !s.created {
		return Decision{}, event.Refuse(event.NotFound, "there is no such room")
	}
	switch m := in.Msg.(type) {
	case event.Submit:
		return d.submit(m)
	case event.CancelRun:
		return d.cancel(m)
	case event.SetFocus:
		return d.setFocus(m)
	case event.ReadView:
		return Decision{Reply: s.View()}, nil
	case event.GetRun:
		return d.getRun(m)
	case Emit:
		return d.emit(m)
	case Ended:
		return d.ended(m)
	case Tick:
		d.tick()
		return d.d, nil
	case Recover:
		d.recover()
		return d.d, nil
	case Drain:
		d.drain()
		return d.d, nil
	}
	return Decision{}, event.Refuse(event.Internal, "a room does not know messages of type %T", in.Msg)
}

func (d *draft) done() (Decision, error) {
	inc := d.s.incarnation
	if inc == 0 && len(d.d.Entries) > 0 {
		inc = d.d.Entries[0].Body.(*event.RoomConfigured).Incarnation
	}
	d.d.Reply = event.Done{Head: d.s.head + event.Seq(len(d.d.Entries)), Incarnation: inc}
	return d.d, nil
}

func (d *draft) open(m event.Open) (Decision, error) {
	if d.s.created {
		return d.done()
	}
	if m.Template == nil {
		return Decision{}, event.Refuse(event.NotFound, "there is no such room")
	}
	return d.create(*m.Template, m.By)
}

func (d *draft) create(c event.RoomConfig, by event.ParticipantID) (Decision, error) {
	if err := c.Validate(); err != nil {
		return Decision{}, event.Refuse(event.BadRequest, "the configuration of the room is not usable: %v", err)
	}
	r := d.in.Rand
	inc := event.Incarnation(r[0])<<40 | event.Incarnation(r[1])<<32 | event.Incarnation(r[2])<<24 |
		event.Incarnation(r[3])<<16 | event.Incarnation(r[4])<<8 | event.Incarnation(r[5])
	if inc == 0 {
		inc = 1
	}
	d.entry("", event.ToRoom(), &event.RoomConfigured{Config: c, By: by, Incarnation: inc})
	return d.done()
}

// configure creates the room or replaces its configuration. The open runs of an
// agent that is replaced or removed are canceled with it (N1).
func (d *draft) configure(m event.Configure) (Decision, error) {
	if !m.Access.Host() {
		return Decision{}, event.Refuse(event.Forbidden, "only a host configures a room")
	}
	if !d.s.created {
		return d.create(m.Config, m.Access.Subject)
	}
	if err := m.Config.Validate(); err != nil {
		return Decision{}, event.Refuse(event.BadRequest, "the configuration of the room is not usable: %v", err)
	}
	for _, own := range d.s.sorted() {
		l := d.lane(own.Channel)
		for _, r := range l.Runs() {
			was, _ := d.s.config.Agent(r.Agent)
			now, ok := m.Config.Agent(r.Agent)
			// An agent that may now be seen by fewer than its run says nothing more in it (E7).
			if !ok || now.Driver != was.Driver || now.Version != was.Version || !now.Visible().Covers(r.Disclosure) {
				d.stop(r, Canceled)
				d.run(l, r, event.RunCanceled{Reason: event.ReasonAgentReplaced, By: m.Access.Subject})
			}
		}
	}
	d.entry("", event.ToRoom(), &event.RoomConfigured{Config: m.Config, By: m.Access.Subject})
	d.config = &m.Config
	for _, own := range d.s.sorted() {
		d.next(d.lane(own.Channel))
	}
	return d.done()
}

func (d *draft) setFocus(m event.SetFocus) (Decision, error) {
	if !m.Access.Has(event.ScopeInput) && !m.Access.Host() {
		return Decision{}, event.Refuse(event.Forbidden, "setting a focus needs the scope input")
	}
	if m.Agent != "" && !d.visible(m.Agent, event.Person(m.Access.Subject)) {
		return Decision{}, event.Refuse(event.AgentUnknown, "there is no such agent in this room")
	}
	if d.s.focus[m.Access.Subject] == m.Agent {
		return d.done()
	}
	if _, known := d.s.focus[m.Access.Subject]; !known && len(d.s.focus) >= MaxFocus {
		return Decision{}, event.Refuse(event.Unavailable, "too many people of this room have chosen an agent; address the agent in the input instead")
	}
	d.entry("", event.ToParticipants(m.Access.Subject), &event.FocusSet{Subject: m.Access.Subject, Agent: m.Agent})
	return d.done()
}

// find returns the lane and the run with that id, if the caller may see it.
func (d *draft) find(id event.RunID, a event.Access) (*channel.Lane, *channel.Run) {
	ch, ok := d.s.byRun[id]
	if !ok {
		return nil, nil
	}
	l := d.s.lanes[ch]
	if r := l.Run(id); r != nil && a.Sees(ch, r.Disclosure) {
		return l, r
	}
	return nil, nil
}

func (d *draft) record(id event.RunID, a event.Access) *event.RunRow {
	row, _ := d.f.Rows[event.RunKey(id)].(*event.RunRow)
	if row == nil || !a.Sees(row.Channel, row.Disclosure) {
		return nil
	}
	return row
}

// cancel holds C1: the terminal is committed at once; what has ended, is unknown
// or not visible answers false.
func (d *draft) cancel(m event.CancelRun) (Decision, error) {
	_, r := d.find(m.Run, m.Access)
	if r == nil {
		var status event.Status
		if row := d.record(m.Run, m.Access); row != nil && row.Status.Terminal() {
			status = row.Status
		}
		return Decision{Reply: event.CancelResult{Status: status}}, nil
	}
	ch := d.s.byRun[m.Run]
	grant := m.Access.On(ch)
	own := r.Speaker == event.Person(m.Access.Subject)
	if !m.Access.Host() && !grant.May(event.ScopeModerate) && !(own && grant.May(event.ScopeCancel)) {
		return Decision{}, event.Refuse(event.Forbidden, "canceling this run needs the scope cancel for your own inputs, or moderate")
	}
	reason := event.ReasonCanceled
	if m.Access.Host() {
		reason = event.ReasonCanceledByHost
		if m.Reason != "" {
			reason = m.Reason
		}
	} else if m.Reason != "" {
		return Decision{}, event.Refuse(event.Forbidden, "only a host gives a reason")
	}
	if len(reason) > 64 || event.CheckText(reason) != nil {
		return Decision{}, event.Refuse(event.BadRequest, "a reason is a word of at most 64 bytes")
	}
	l := d.lane(ch)
	d.end(l, l.Run(m.Run), Canceled, event.RunCanceled{Reason: reason, By: m.Access.Subject})
	d.d.Reply = event.CancelResult{Canceled: true, Status: event.RunCanceledStatus}
	return d.d, nil
}

// getRun holds R6 for one run: its record and, while it is open, what there is
// for the caller to see of it. An open run is seen by its present disclosure
// only: its record is older and may be wider.
func (d *draft) getRun(m event.GetRun) (Decision, error) {
	out := event.RunResult{Head: d.s.head}
	unknown := event.Refuse(event.NotFound, "there is no such run in this room")
	if _, open := d.s.byRun[m.Run]; open {
		l, r := d.find(m.Run, m.Access)
		if r == nil {
			return Decision{}, unknown
		}
		v := r.View(l.Channel)
		v.Outputs = slices.DeleteFunc(v.Outputs, func(o event.OutputView) bool { return !m.Access.Sees(l.Channel, o.Disclosure) })
		if v.Waiting != nil && !m.Access.Host() && r.Speaker != event.Person(m.Access.Subject) {
			v.Waiting.Token = "" // E9: for the speaker asked
		}
		out.Open = &v
	}
	if row := d.record(m.Run, m.Access); row != nil {
		out.Record = *row
	} else if out.Open == nil {
		return Decision{}, unknown
	}
	return Decision{Reply: out}, nil
}
