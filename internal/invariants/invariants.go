// Package invariants holds what is true of every journal of a room, whatever
// happened to its process: checks over entries alone, for the tests of the core,
// the crash sweep and the load generator.
//
// It knows only package event. It is written from the rules and not from the
// code that makes the entries, and shares nothing with it, so that both are
// wrong together only by accident. A Checker is owned by one goroutine; Check
// and Rows are safe for concurrent use.
package invariants

import (
	"fmt"
	"time"

	"parley/event"
)

// Check reports the first entry that breaks a law, with its position and the
// law, or nil. The entries are a whole journal: the first is the room's creation.
// The error never holds text of people or agents.
//
// The laws: positions are dense from 1 and room time never falls; the sequence
// of a run is dense from 1 and its attempts rise by one (E1); a run has one
// terminal and nothing follows it (C1); a channel has at most one open run after
// every entry and at most eight queued (A4, A7); an input is admitted once and
// belongs to one run (A5); only the run that waits is continued, by its own
// speaker (W2); an output belongs to one attempt, keeps purpose and history, is
// closed once and is never merged with what an earlier attempt left open (E2,
// R3); what an earlier attempt at the same input closed is not said again (R2);
// disclosure of a run never widens, and none of its events is wider (E7).
func Check(entries []*event.Entry) error {
	c := NewChecker()
	for _, e := range entries {
		if err := c.Add(e); err != nil {
			return err
		}
	}
	return nil
}

// Checker checks a journal as it grows. It keeps what it needs of every run, so
// that its size grows with the number of runs. Make one with NewChecker.
type Checker struct {
	head   event.Seq
	at     time.Time
	runs   map[event.RunID]*run
	open   map[event.ChannelID]*run // active or waiting
	queued map[event.ChannelID][]*run
	inputs map[event.Key]event.RunID
}

// NewChecker returns a Checker at the beginning of a journal.
func NewChecker() *Checker {
	return &Checker{
		runs:   map[event.RunID]*run{},
		open:   map[event.ChannelID]*run{},
		queued: map[event.ChannelID][]*run{},
		inputs: map[event.Key]event.RunID{},
	}
}

// Open returns the runs that are active or waiting after the last entry, by
// channel. The map belongs to the caller.
func (c *Checker) Open() map[event.ChannelID]event.RunID {
	out := map[event.ChannelID]event.RunID{}
	for ch, r := range c.open {
		out[ch] = r.id
	}
	return out
}

// Status returns where a run stands after the last entry, 0 for an unknown one.
func (c *Checker) Status(id event.RunID) event.Status {
	if r := c.runs[id]; r != nil {
		return r.status
	}
	return 0
}

// run is what the laws need to know of one run.
type run struct {
	id         event.RunID
	channel    event.ChannelID
	agent      event.AgentID
	speaker    event.Endpoint
	input      event.InputID
	disclosure event.Disclosure
	status     event.Status
	attempt    uint32
	sequence   uint64
	n          uint64 // of the driver's last event in the attempt
	blocked    bool
	// mayStart: the next event of the run has to be its attempt_started or its terminal.
	mayStart bool
	outputs  map[event.OutputID]*output
	closed   map[said]uint32 // the attempt that closed it
}

// said is the identity by which an output is not said twice (R2).
type said struct {
	logical event.OutputID
	input   event.InputID
	runtime bool
}

type output struct {
	logical event.OutputID
	runtime bool
	attempt uint32
	purpose event.Purpose
	history event.History
	to      event.Disclosure
	final   bool
	visible bool // some delta is not blank
}

// Add checks the next entry of the journal.
func (c *Checker) Add(e *event.Entry) error {
	if err := c.add(e); err != nil {
		return fmt.Errorf("entry %d: %w", e.Seq, err)
	}
	c.head, c.at = e.Seq, e.At
	return nil
}

func (c *Checker) add(e *event.Entry) error {
	switch {
	case e.Seq != c.head+1:
		return fmt.Errorf("follows entry %d", c.head)
	case e.At.Before(c.at):
		return fmt.Errorf("is %v older than the entry before it", c.at.Sub(e.At))
	case e.At.Location() != time.UTC || !e.At.Equal(e.At.Truncate(time.Millisecond)):
		return fmt.Errorf("its time is not in whole milliseconds of UTC")
	case !e.Disclosure.Stated():
		return fmt.Errorf("has no disclosure")
	}
	switch x := e.Body.(type) {
	case *event.RoomConfigured:
		if (e.Seq == 1) != (x.Incarnation != 0) {
			return fmt.Errorf("the incarnation is set by the first entry and by no other")
		}
		return nil
	case *event.InputAdmitted:
		if e.Seq == 1 {
			return fmt.Errorf("precedes the room")
		}
		return c.input(e, x)
	case *event.RunEvent:
		if err := c.runEvent(e, x); err != nil {
			return fmt.Errorf("%s of run %s: %w", x.Event.RunKind(), x.Run, err)
		}
		return nil
	case *event.FocusSet, *event.Drained:
		if e.Seq == 1 {
			return fmt.Errorf("precedes the room")
		}
		return nil
	}
	return fmt.Errorf("has the unknown body %T", e.Body)
}

func (c *Checker) input(e *event.Entry, x *event.InputAdmitted) error {
	key := event.InputKey(e.Channel, x.Speaker, x.Input)
	if was, ok := c.inputs[key]; ok {
		return fmt.Errorf("admits an input of run %s a second time, now to run %s", was, x.Run)
	}
	c.inputs[key] = x.Run
	switch {
	case e.Channel == "":
		return fmt.Errorf("an input without a channel")
	case e.Disclosure.Empty() || x.RunDisclosure.Empty():
		return fmt.Errorf("an input that nobody may see")
	case !e.Disclosure.Covers(x.RunDisclosure):
		return fmt.Errorf("run %s may show more than its input", x.Run)
	}
	r := c.runs[x.Run]
	switch x.State {
	case event.Started, event.Queued:
		if r != nil {
			return fmt.Errorf("makes run %s a second time", x.Run)
		}
		r = &run{
			id: x.Run, channel: e.Channel, agent: x.Agent, speaker: x.Speaker, input: x.Input, disclosure: x.RunDisclosure,
			status: event.RunQueued, mayStart: true, outputs: map[event.OutputID]*output{}, closed: map[said]uint32{},
		}
		c.runs[r.id] = r
		open := c.open[e.Channel]
		if x.State == event.Queued {
			if open == nil {
				return fmt.Errorf("queues run %s behind nothing", r.id)
			}
			if len(c.queued[e.Channel]) >= 8 {
				return fmt.Errorf("queues run %s behind eight others", r.id)
			}
			c.queued[e.Channel] = append(c.queued[e.Channel], r)
			return nil
		}
		if open != nil {
			return fmt.Errorf("starts run %s while %s is open on the channel", r.id, open.id)
		}
		r.status = event.RunActive
		c.open[e.Channel] = r
	case event.Continued:
		switch {
		case r == nil || r.status != event.RunWaiting || r.channel != e.Channel:
			return fmt.Errorf("continues run %s, which does not wait on the channel", x.Run)
		case r.speaker != x.Speaker || r.agent != x.Agent:
			return fmt.Errorf("continues run %s for another speaker or agent", x.Run)
		case !r.disclosure.Covers(x.RunDisclosure):
			return fmt.Errorf("widens run %s", x.Run)
		}
		r.status, r.input, r.disclosure, r.mayStart = event.RunActive, x.Input, x.RunDisclosure, true
	default:
		return fmt.Errorf("run %s has the unknown admission %s", x.Run, x.State)
	}
	return nil
}

func (c *Checker) runEvent(e *event.Entry, x *event.RunEvent) error {
	r := c.runs[x.Run]
	switch {
	case r == nil:
		return fmt.Errorf("the run was never admitted")
	case r.status.Terminal():
		return fmt.Errorf("follows its terminal %s", r.status)
	case e.Channel != r.channel || x.Agent != r.agent:
		return fmt.Errorf("carries another channel or agent")
	case x.Input != r.input:
		return fmt.Errorf("carries another input than the one worked on")
	case x.Sequence != r.sequence+1:
		return fmt.Errorf("has sequence %d after %d", x.Sequence, r.sequence)
	case !r.disclosure.Covers(e.Disclosure):
		return fmt.Errorf("is disclosed wider than its run")
	}
	r.sequence = x.Sequence
	if s, ok := x.Event.(event.AttemptStarted); ok {
		return c.start(r, x, s)
	}
	if x.Attempt != r.attempt {
		return fmt.Errorf("carries attempt %d in attempt %d", x.Attempt, r.attempt)
	}
	if status := terminal(x.Event); status != 0 {
		return c.end(r, x, status)
	}
	if r.attempt == 0 || r.status != event.RunActive || r.mayStart && x.Event.RunKind() != event.KindRunBlocked {
		return fmt.Errorf("comes before its attempt started")
	}
	if x.Event.RunKind() == event.KindRunBlocked {
		r.blocked = true
		return nil
	}
	if err := r.numbered(x); err != nil {
		return err
	}
	switch b := x.Event.(type) {
	case event.AssistantOutput:
		return r.output(e, x, b)
	case event.InputRequested:
		if b.Request == "" || b.Token == "" || b.ExpiresAt.IsZero() {
			return fmt.Errorf("a wait lacks its request, token or expiry")
		}
		if b.Speaker != r.speaker {
			return fmt.Errorf("asks somebody else than the speaker")
		}
		if r.openOutput() {
			return fmt.Errorf("waits with an open output")
		}
		r.status = event.RunWaiting
	case event.Checkpoint, event.Decision:
		if !e.Disclosure.Empty() {
			return fmt.Errorf("is for host scope only")
		}
	}
	return nil
}

// numbered holds R5: in an attempt the numbers of the driver's events rise; only
// the outputs of a decision share its number.
func (r *run) numbered(x *event.RunEvent) error {
	switch {
	case r.blocked:
		return fmt.Errorf("comes from a driver while the run is blocked")
	case x.N == 0 && !x.Runtime:
		return fmt.Errorf("an event of a driver has no number")
	case x.N == r.n && x.N != 0 && x.Event.RunKind() == event.KindAssistantOutput:
	case x.N <= r.n && x.N != 0:
		return fmt.Errorf("has number %d after %d", x.N, r.n)
	}
	r.n = max(r.n, x.N)
	return nil
}

func (c *Checker) start(r *run, x *event.RunEvent, s event.AttemptStarted) error {
	switch {
	case x.Attempt != r.attempt+1:
		return fmt.Errorf("attempt %d follows %d", x.Attempt, r.attempt)
	case r.status == event.RunWaiting:
		return fmt.Errorf("starts while the run waits")
	case !r.mayStart && !s.Resumed:
		return fmt.Errorf("starts again without an input and without a recovery")
	}
	if r.status == event.RunQueued {
		q := c.queued[r.channel]
		if len(q) == 0 || q[0] != r {
			return fmt.Errorf("starts out of turn")
		}
		if open := c.open[r.channel]; open != nil {
			return fmt.Errorf("starts while %s is open on the channel", open.id)
		}
		c.queued[r.channel] = q[1:]
		c.open[r.channel], r.status = r, event.RunActive
	}
	r.attempt, r.n, r.blocked, r.mayStart = x.Attempt, 0, false, false
	return nil
}

func (c *Checker) end(r *run, x *event.RunEvent, status event.Status) error {
	if status == event.RunCompleted {
		switch {
		case r.status != event.RunActive || r.attempt == 0 || r.blocked:
			return fmt.Errorf("completes without a driver at work")
		case r.openOutput():
			return fmt.Errorf("completes with an open output")
		case x.N != 0 && x.N <= r.n:
			return fmt.Errorf("has number %d after %d", x.N, r.n)
		}
	}
	if r.status == event.RunQueued {
		if status == event.RunDeadlineExceeded {
			return fmt.Errorf("a queued run has no deadline")
		}
		q := c.queued[r.channel]
		for i := range q {
			if q[i] == r {
				c.queued[r.channel] = append(q[:i:i], q[i+1:]...)
				break
			}
		}
	} else {
		delete(c.open, r.channel)
	}
	r.status, r.outputs, r.closed = status, nil, nil
	return nil
}

func (r *run) openOutput() bool {
	for _, o := range r.outputs {
		if o.attempt == r.attempt && !o.final {
			return true
		}
	}
	return false
}

func (r *run) output(e *event.Entry, x *event.RunEvent, b event.AssistantOutput) error {
	o := r.outputs[b.Output]
	if o == nil {
		if b.Output == "" || x.Logical == "" || b.Purpose == 0 || b.History == 0 {
			return fmt.Errorf("an output lacks its ids, purpose or history")
		}
		for _, other := range r.outputs {
			if other.attempt == r.attempt && other.logical == x.Logical && other.runtime == x.Runtime {
				return fmt.Errorf("gives a second id to an output of the attempt")
			}
		}
		o = &output{
			logical: x.Logical, runtime: x.Runtime, attempt: r.attempt, purpose: b.Purpose, history: b.History, to: e.Disclosure,
		}
		r.outputs[b.Output] = o
	}
	switch {
	case o.attempt != r.attempt:
		return fmt.Errorf("goes on with an output of attempt %d in attempt %d", o.attempt, r.attempt)
	case o.logical != x.Logical || o.runtime != x.Runtime:
		return fmt.Errorf("an output changes its logical id")
	case o.purpose != b.Purpose || o.history != b.History:
		return fmt.Errorf("an output changes its purpose or history")
	case !o.to.Equal(e.Disclosure):
		return fmt.Errorf("an output changes its disclosure")
	case o.final:
		return fmt.Errorf("a delta follows the one that closed its output")
	case len(b.Delta) > event.MaxDelta:
		return fmt.Errorf("a delta of %d bytes", len(b.Delta))
	}
	o.final = b.Final
	o.visible = o.visible || !event.Blank(b.Delta)
	id := said{x.Logical, r.input, x.Runtime}
	if was, ok := r.closed[id]; ok {
		return fmt.Errorf("says again what attempt %d closed", was)
	}
	if b.Final {
		if !o.visible {
			return fmt.Errorf("a finished output is blank")
		}
		r.closed[id] = r.attempt
	}
	return nil
}

// terminal returns the status in which an event leaves its run, 0 when it stays open.
func terminal(b event.RunBody) event.Status {
	switch b.(type) {
	case event.Completed:
		return event.RunCompleted
	case event.RunCanceled:
		return event.RunCanceledStatus
	case event.DeadlineExceeded:
		return event.RunDeadlineExceeded
	case event.RunFailed:
		return event.RunFailedStatus
	}
	return 0
}
