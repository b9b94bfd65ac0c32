package channel

import (
	"slices"
	"strings"
	"time"

	"parley/event"
)

// MaxClosedText is how much text of its closed outputs an open run keeps in
// memory and in snapshots, in bytes. The journal and the transcript have all of it.
const MaxClosedText = 128 << 10

// MaxRecoveries is how many recoveries in a row a run survives in which its
// driver journaled nothing (R1).
const MaxRecoveries = 5

// Run is one open run: queued, active or waiting. Owned by its Lane.
type Run struct {
	ID           event.RunID      `json:"id"`
	Agent        event.AgentID    `json:"agent"`
	AgentVersion string           `json:"agentVersion,omitempty"`
	Recovery     event.Recovery   `json:"recovery,omitempty"`
	Speaker      event.Endpoint   `json:"speaker"`
	Root         event.InputID    `json:"root"`
	Input        event.InputID    `json:"input"` // the input being worked on
	Text         string           `json:"text"`
	Modality     event.Modality   `json:"modality"`
	Lang         string           `json:"lang,omitempty"`
	Disclosure   event.Disclosure `json:"disclosure"` // what the run may show at most
	Status       event.Status     `json:"status"`     // queued, active or waiting
	Attempt      uint32           `json:"attempt"`    // 0 until it starts
	Sequence     uint64           `json:"sequence"`   // of its last event, dense from 1 (E1)
	First        event.Seq        `json:"first"`
	Started      time.Time        `json:"started"`
	Budget       time.Duration    `json:"budget,omitempty"`  // of an attempt; 0: no deadline
	Deadline     time.Time        `json:"deadline,omitzero"` // of the attempt; kept by recoveries (C3)
	CheckpointAt event.Seq        `json:"checkpoint,omitempty"`
	Continues    event.RequestID  `json:"continues,omitempty"` // the request that Input answers
	Waiting      *Waiting         `json:"waiting,omitempty"`
	Blocked      string           `json:"blocked,omitempty"`
	Resumed      bool             `json:"resumed,omitempty"`
	Drained      bool             `json:"drained,omitempty"`    // the attempt was let go in good order
	Recoveries   int              `json:"recoveries,omitempty"` // in a row without a driver's event

	// Of the current attempt.
	N      uint64 `json:"n,omitempty"` // number of the driver's last event taken (R5)
	Events int    `json:"events,omitempty"`
	Bytes  int    `json:"bytes,omitempty"`

	// Outputs are those of the run that still count: closed ones, and the open
	// ones of the current attempt. Invariant: at most one open output per logical
	// id; the closed ones hold at most MaxClosedText bytes of text.
	Outputs []Output `json:"outputs,omitempty"`
}

// Waiting is the question a run waits on (W1).
type Waiting struct {
	Request   event.RequestID `json:"request"`
	Token     string          `json:"token"`
	ExpiresAt time.Time       `json:"expiresAt"`
}

// Output is one message of a run.
type Output struct {
	ID         event.OutputID   `json:"id"`
	Logical    event.OutputID   `json:"logical"`
	Runtime    bool             `json:"runtime,omitempty"`
	Purpose    event.Purpose    `json:"purpose"`
	History    event.History    `json:"history"`
	Disclosure event.Disclosure `json:"disclosure"`
	Lang       string           `json:"lang,omitempty"`
	Attempt    uint32           `json:"attempt"`
	Input      event.InputID    `json:"input"`
	Final      bool             `json:"final,omitempty"`
	Size       int              `json:"size"` // of the text, in bytes
	Deltas     []string         `json:"deltas"`
}

// Text returns the text so far.
func (o *Output) Text() string { return strings.Join(o.Deltas, "") }

func (r *Run) clone() *Run {
	c := *r
	c.Outputs = slices.Clone(r.Outputs)
	for i := range c.Outputs {
		c.Outputs[i].Deltas = slices.Clip(c.Outputs[i].Deltas)
	}
	if r.Waiting != nil {
		w := *r.Waiting
		c.Waiting = &w
	}
	return &c
}

// HasOpenOutput reports whether a message of the current attempt is not closed yet.
func (r *Run) HasOpenOutput() bool {
	return slices.ContainsFunc(r.Outputs, func(o Output) bool { return !o.Final })
}

// current returns the output that a logical id names in the current attempt.
func (r *Run) current(logical event.OutputID) *Output {
	for i := range r.Outputs {
		if o := &r.Outputs[i]; o.Logical == logical && o.Attempt == r.Attempt && !o.Runtime {
			return o
		}
	}
	return nil
}

// forget drops the texts of the oldest closed outputs beyond MaxClosedText. What
// R2 needs of them stays.
func (r *Run) forget() {
	n := 0
	for i := len(r.Outputs) - 1; i >= 0; i-- {
		if o := &r.Outputs[i]; o.Final {
			if n += o.Size; n > MaxClosedText {
				o.Deltas = nil
			}
		}
	}
}

// closedBefore reports whether an earlier attempt at the same input closed the
// logical id, so that what is yielded again was shown already (R2).
func (r *Run) closedBefore(logical event.OutputID) bool {
	return slices.ContainsFunc(r.Outputs, func(o Output) bool {
		return o.Logical == logical && !o.Runtime && o.Final && o.Attempt < r.Attempt && o.Input == r.Input
	})
}

func (r *Run) delivery(id event.OutputID) *Output {
	for i := range r.Outputs {
		if r.Outputs[i].ID == id {
			return &r.Outputs[i]
		}
	}
	return nil
}

// View returns what there is to see of the run.
func (r *Run) View(ch event.ChannelID) event.RunView {
	v := event.RunView{
		Run: r.ID, Channel: ch, Agent: r.Agent, Speaker: r.Speaker, Input: r.Input, Disclosure: r.Disclosure,
		Status: r.Status, Attempt: r.Attempt, Sequence: r.Sequence, Deadline: r.Deadline,
	}
	for i := range r.Outputs {
		o := &r.Outputs[i]
		if o.Final && o.Deltas == nil {
			continue // its text is in the journal
		}
		v.Outputs = append(v.Outputs, event.OutputView{
			Output: o.ID, Purpose: o.Purpose, History: o.History, Disclosure: o.Disclosure, Text: o.Text(), Final: o.Final,
		})
	}
	if w := r.Waiting; w != nil {
		v.Waiting = &event.InputRequested{Request: w.Request, Token: w.Token, ExpiresAt: w.ExpiresAt}
	}
	return v
}

// NextTick is when time alone changes the run: its deadline, or the end of its
// wait. The zero time is never.
func (r *Run) NextTick() time.Time {
	if r.Waiting != nil {
		return r.Waiting.ExpiresAt
	}
	return r.Deadline
}
