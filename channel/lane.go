// Package channel holds the rules of one lane of a room: what an input does to
// the run that is open there, how a run goes from admission to its one terminal,
// and which rows of the transcript that leaves.
//
// It is pure: it reads no clock, draws no randomness and keeps nothing but the
// open and the queued runs. A Lane is owned by the room's state. It guarantees
// that a channel never has two open runs, that a run has one terminal, and that
// the events of a run are numbered densely from 1.
package channel

import (
	"fmt"
	"slices"
	"time"

	"parley/event"
)

// MaxQueued is how many inputs may wait behind the open run (A7).
const MaxQueued = 8

// Lane is one channel with its open work.
//
// Invariant: Open is active or waiting, Queued are queued; without Open there
// are no Queued.
type Lane struct {
	Channel event.ChannelID `json:"channel"`
	Open    *Run            `json:"open,omitempty"`
	Queued  []*Run          `json:"queued,omitempty"`
}

// Idle reports whether nothing is open or queued.
func (l *Lane) Idle() bool { return l.Open == nil && len(l.Queued) == 0 }

// Clone returns an independent copy.
func (l *Lane) Clone() *Lane {
	c := &Lane{Channel: l.Channel}
	if l.Open != nil {
		c.Open = l.Open.clone()
	}
	for _, r := range l.Queued {
		c.Queued = append(c.Queued, r.clone())
	}
	return c
}

// Run returns the open or queued run with that id, or nil.
func (l *Lane) Run(id event.RunID) *Run {
	if l.Open != nil && l.Open.ID == id {
		return l.Open
	}
	for _, r := range l.Queued {
		if r.ID == id {
			return r
		}
	}
	return nil
}

// Runs returns the open run and the queued ones, in the order of their start.
func (l *Lane) Runs() []*Run {
	if l.Open == nil {
		return l.Queued
	}
	return append([]*Run{l.Open}, l.Queued...)
}

// ApplyInput moves the lane on by an admitted input and returns its rows: the
// index (A5), the transcript row (M1) and, for a new run, the run's record.
func (l *Lane) ApplyInput(e *event.Entry, x *event.InputAdmitted) []event.KeyedRow {
	rows := make([]event.KeyedRow, 0, 3)
	rows = append(rows,
		event.KeyedRow{Key: event.InputKey(l.Channel, x.Speaker, x.Input), Row: &event.InputRow{
			Digest: x.Digest, Disclosure: e.Disclosure, Entry: e.Seq, At: e.At, Run: x.Run, State: x.State,
		}},
		event.KeyedRow{Key: event.TranscriptKey(l.Channel, e.Seq), Row: &event.TranscriptRow{
			Entry: e.Seq, At: e.At, Speaker: x.Speaker, Disclosure: e.Disclosure, Run: x.Run, Input: x.Input,
			Modality: x.Modality, Lang: x.Lang, Text: x.Text,
		}})
	switch x.State {
	case event.Started, event.Queued:
		r := &Run{
			ID: x.Run, Agent: x.Agent, AgentVersion: x.AgentVersion, Recovery: x.Recovery,
			Speaker: x.Speaker, Root: x.Input, First: e.Seq, Started: e.At, Status: event.RunQueued,
		}
		r.take(x)
		if x.State == event.Started {
			if l.Open != nil {
				panic(fmt.Sprintf("channel: entry %d starts run %s while %s is open", e.Seq, x.Run, l.Open.ID))
			}
			r.Status = event.RunActive
			l.Open = r
		} else {
			if l.Open == nil || len(l.Queued) >= MaxQueued {
				panic(fmt.Sprintf("channel: entry %d queues run %s on a lane that cannot", e.Seq, x.Run))
			}
			l.Queued = append(l.Queued, r)
		}
		rows = append(rows, event.KeyedRow{Key: event.RunKey(r.ID), Row: l.record(r)})
	case event.Continued:
		r := l.Open
		if r == nil || r.ID != x.Run || r.Status != event.RunWaiting {
			panic(fmt.Sprintf("channel: entry %d continues run %s, which does not wait", e.Seq, x.Run))
		}
		r.take(x)
		r.Continues, r.Waiting, r.Status = r.Waiting.Request, nil, event.RunActive
	case event.Merged:
		panic(fmt.Sprintf("channel: entry %d: merged inputs are not known to this version", e.Seq))
	default:
		panic(fmt.Sprintf("channel: entry %d has the unknown admission %d", e.Seq, x.State))
	}
	return rows
}

func (r *Run) take(x *event.InputAdmitted) {
	r.Input, r.Text, r.Modality, r.Lang = x.Input, x.Text, x.Modality, x.Lang
	r.Disclosure, r.Budget = x.RunDisclosure, x.Budget
}

// ApplyRun moves the lane on by an event of one of its runs and returns its rows.
func (l *Lane) ApplyRun(e *event.Entry, x *event.RunEvent) []event.KeyedRow {
	r := l.Run(x.Run)
	if r == nil {
		panic(fmt.Sprintf("channel: entry %d is an event %s of run %s, which is not open", e.Seq, x.Event.RunKind(), x.Run))
	}
	if x.Sequence != r.Sequence+1 {
		panic(fmt.Sprintf("channel: entry %d has sequence %d of run %s after %d", e.Seq, x.Sequence, x.Run, r.Sequence))
	}
	r.Sequence = x.Sequence
	if x.N > 0 {
		r.N, r.Recoveries = x.N, 0
		r.Events++
		r.Bytes += Size(x.Event)
	}
	switch b := x.Event.(type) {
	case event.AttemptStarted:
		l.applyStart(e, r, x.Attempt, b)
	case event.Progress, event.Decision:
	case event.AssistantOutput:
		return l.applyOutput(e, r, x, b)
	case event.Checkpoint:
		r.CheckpointAt = e.Seq
	case event.InputRequested:
		r.Status = event.RunWaiting
		r.Waiting = &Waiting{Request: b.Request, Token: b.Token, ExpiresAt: b.ExpiresAt}
		r.Deadline = time.Time{}
		return []event.KeyedRow{{Key: event.RunKey(r.ID), Row: l.record(r)}}
	case event.RunBlocked:
		r.Blocked = b.Reason
	case event.Completed:
		return l.end(e, r, event.RunRow{Status: event.RunCompleted})
	case event.RunCanceled:
		return l.end(e, r, event.RunRow{Status: event.RunCanceledStatus, Reason: b.Reason})
	case event.DeadlineExceeded:
		return l.end(e, r, event.RunRow{Status: event.RunDeadlineExceeded})
	case event.RunFailed:
		return l.end(e, r, event.RunRow{Status: event.RunFailedStatus, Code: b.Code, Message: b.Message})
	default:
		panic(fmt.Sprintf("channel: entry %d is of the unknown kind %s", e.Seq, x.Event.RunKind()))
	}
	return nil
}

func (l *Lane) applyStart(e *event.Entry, r *Run, attempt uint32, b event.AttemptStarted) {
	if r != l.Open {
		if l.Open != nil || r != l.Queued[0] {
			panic(fmt.Sprintf("channel: entry %d starts run %s out of turn", e.Seq, r.ID))
		}
		l.Open, l.Queued = r, l.Queued[1:]
	}
	r.Status = event.RunActive
	if !b.Resumed && r.Budget > 0 {
		r.Deadline = e.At.Add(r.Budget) // C3: an instant, which recovery keeps
	}
	if b.Resumed && !r.Drained {
		r.Recoveries++
	}
	r.Attempt, r.Resumed, r.Drained, r.Blocked = attempt, b.Resumed, false, ""
	r.N, r.Events, r.Bytes = 0, 0, 0
	// R3: what an earlier attempt left open is abandoned and never merges.
	r.Outputs = slices.DeleteFunc(r.Outputs, func(o Output) bool { return !o.Final })
}

func (l *Lane) applyOutput(e *event.Entry, r *Run, x *event.RunEvent, b event.AssistantOutput) []event.KeyedRow {
	o := r.delivery(b.Output)
	if o == nil {
		r.Outputs = append(r.Outputs, Output{
			ID: b.Output, Logical: x.Logical, Runtime: x.Runtime, Purpose: b.Purpose, History: b.History,
			Disclosure: e.Disclosure, Lang: b.Lang, Attempt: x.Attempt, Input: r.Input,
		})
		o = &r.Outputs[len(r.Outputs)-1]
	}
	if o.Final {
		panic(fmt.Sprintf("channel: entry %d adds to the closed output %s", e.Seq, o.ID))
	}
	o.Deltas = append(o.Deltas, b.Delta)
	o.Size += len(b.Delta)
	o.Final = b.Final
	if !o.Final {
		return nil
	}
	defer r.forget() // after the row has its text
	if o.History != event.Record {
		return nil
	}
	// R4: the closing event and its transcript row are one batch.
	return []event.KeyedRow{{Key: event.TranscriptKey(l.Channel, e.Seq), Row: &event.TranscriptRow{
		Entry: e.Seq, At: e.At, Speaker: event.Endpoint{Kind: event.AgentEndpoint, ID: string(r.Agent)},
		Disclosure: o.Disclosure, Run: r.ID, Input: r.Input, Output: o.ID, Lang: o.Lang, Text: o.Text(),
	}}}
}

func (l *Lane) end(e *event.Entry, r *Run, row event.RunRow) []event.KeyedRow {
	if l.Open == r {
		l.Open = nil
	} else {
		l.Queued = slices.DeleteFunc(l.Queued, func(q *Run) bool { return q == r })
	}
	full := l.record(r)
	full.Status, full.Reason, full.Code, full.Message = row.Status, row.Reason, row.Code, row.Message
	full.Last, full.Ended = e.Seq, e.At
	return []event.KeyedRow{{Key: event.RunKey(r.ID), Row: full}}
}

func (l *Lane) record(r *Run) *event.RunRow {
	return &event.RunRow{
		Run: r.ID, Channel: l.Channel, Agent: r.Agent, Speaker: r.Speaker, Disclosure: r.Disclosure,
		Status: r.Status, Attempt: r.Attempt, Sequence: r.Sequence, First: r.First, Started: r.Started,
	}
}
