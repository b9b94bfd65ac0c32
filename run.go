package parley

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/google/uuid"

	"parley/event"
)

// Input is a final input that a product submits for one of its people (A1). The
// product has authenticated the speaker; the runtime holds the rest.
type Input struct {
	Room    event.RoomID
	Channel event.ChannelID
	Speaker event.ParticipantID
	// ID is the idempotency key; empty: a new one is made, and a retry is a new input.
	ID   event.InputID
	Text string
	// Modality is event.Text when it is zero.
	Modality event.Modality
	Lang     string
	Agents   []event.AgentID
	// Disclosure says who may see the input and its answer at most. It is
	// required: a runtime never infers it from the name of a channel (A2).
	Disclosure   event.Disclosure
	OnBusy       event.BusyPolicy
	Continuation *event.ContinuationRef
	// Deadline bounds the attempt; nil: the room's; 0: none (C3).
	Deadline *time.Duration
}

// Run is a handle on one run. Safe for concurrent use.
type Run struct {
	rt   *Runtime
	Room event.RoomID
	ID   event.RunID
	// Accepted is when the input was durable, and Duplicate that it had been before (A5).
	Accepted  time.Time
	State     event.Admission
	Duplicate bool
}

// Event is an entry of a run's journal as a product sees it.
type Event struct {
	Sequence   uint64 // dense from 1 (E1)
	At         time.Time
	Attempt    uint32
	Logical    event.OutputID // of an output: the id its driver gave it
	Disclosure event.Disclosure
	Body       event.RunBody
}

// Result is what a run came to, derived from its journal (R7).
type Result struct {
	Run     event.RunID
	Status  event.Status // terminal, or event.RunWaiting
	Attempt uint32
	Outputs []Output
	// Continuation is set while the run waits for an answer.
	Continuation *event.InputRequested
	Reason       string // of a canceled run
	Code         string // of a failed run, with its public message
	Message      string
}

// Output is one message of a run. One that its attempt did not close is left out.
type Output struct {
	ID      event.OutputID
	Text    string
	Purpose event.Purpose
	History event.History
}

// Text joins the texts of the outputs that are no progress, in their order.
func (r *Result) Text() string {
	var b strings.Builder
	for _, o := range r.Outputs {
		if o.Purpose == event.ProgressText {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(o.Text)
	}
	return b.String()
}

// host is what the embedding product may do: everything in its rooms.
func host() event.Access {
	return event.Access{Subject: "host", Rooms: []string{"**"}, Scopes: []event.Scope{event.ScopeHost}}
}

// Begin admits an input and returns as soon as it is durable. An error that is
// an *event.Refusal says what to do.
func (rt *Runtime) Begin(ctx context.Context, in Input) (*Run, error) {
	if err := event.CheckName(string(in.Room)); err != nil {
		return nil, event.Refuse(event.BadRequest, "room: %v", err)
	}
	if in.Speaker == "" {
		return nil, event.Refuse(event.BadRequest, "an input has a speaker")
	}
	if in.ID == "" {
		in.ID = event.InputID(uuid.NewString())
	}
	if in.Modality == 0 {
		in.Modality = event.Text
	}
	if err := rt.ensure(ctx, in.Room); err != nil {
		return nil, err
	}
	reply, err := rt.rooms.Ask(ctx, in.Room, event.Submit{
		Access: host(), Channel: in.Channel, As: event.Person(in.Speaker), Digest: in.digest(),
		Input: event.FinalInput{
			ID: in.ID, Text: in.Text, Modality: in.Modality, Lang: in.Lang, Agents: in.Agents,
			Disclosure: in.Disclosure, OnBusy: in.OnBusy, Continuation: in.Continuation, Deadline: in.Deadline,
		},
	})
	if err != nil {
		return nil, err
	}
	r := reply.(event.Receipt)
	return &Run{rt: rt, Room: in.Room, ID: r.Run, Accepted: r.At, State: r.State, Duplicate: r.Duplicate}, nil
}

// digest is what an exact retry must repeat (A5).
func (in Input) digest() [32]byte {
	raw, err := json.Marshal(in)
	if err != nil {
		return [32]byte{} // cannot happen: the members are plain
	}
	return sha256.Sum256(raw)
}

// ensure creates the room from its template when it does not exist yet.
func (rt *Runtime) ensure(ctx context.Context, room event.RoomID) error {
	open := event.Open{By: host().Subject}
	if t, ok := rt.template(room); ok {
		open.Template = &t.Room
	}
	_, err := rt.rooms.Ask(ctx, room, open)
	return err
}

// Submit admits an input and waits until its run ends or asks for more. When
// ctx ends first the run goes on (C2).
func (rt *Runtime) Submit(ctx context.Context, in Input) (*Result, error) {
	run, err := rt.Begin(ctx, in)
	if err != nil {
		return nil, err
	}
	return run.Result(ctx)
}

// Configure creates a room or replaces its configuration (N0).
func (rt *Runtime) Configure(ctx context.Context, room event.RoomID, c event.RoomConfig) error {
	if err := event.CheckName(string(room)); err != nil {
		return event.Refuse(event.BadRequest, "room: %v", err)
	}
	_, err := rt.rooms.Ask(ctx, room, event.Configure{Access: host(), Config: c})
	return err
}

// Find returns a handle on a run that was started before, also before a restart.
func (rt *Runtime) Find(ctx context.Context, room event.RoomID, id event.RunID) (*Run, error) {
	reply, err := rt.rooms.Ask(ctx, room, event.GetRun{Access: host(), Run: id})
	if err != nil {
		return nil, err
	}
	return &Run{rt: rt, Room: room, ID: id, Accepted: reply.(event.RunResult).Record.Started}, nil
}

// Cancel ends the run. It reports false when the run had ended before (C1).
func (r *Run) Cancel(ctx context.Context) (bool, error) {
	reply, err := r.rt.rooms.Ask(ctx, r.Room, event.CancelRun{Access: host(), Run: r.ID})
	if err != nil {
		return false, err
	}
	return reply.(event.CancelResult).Canceled, nil
}

// ErrCursorAhead says that a replay was asked to start after an event that does not exist (R6).
var ErrCursorAhead = errors.New("parley: the run has no such event yet")

// Events yields the run's events after a sequence number, 0 for all: first what
// the journal has, then what comes, without a gap. It ends after the terminal,
// stays open through waits, and causes nothing (R6). It is bounded by ctx.
func (r *Run) Events(ctx context.Context, after uint64) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		reply, err := r.rt.rooms.Ask(ctx, r.Room, event.GetRun{Access: host(), Run: r.ID})
		if err != nil {
			yield(Event{}, err)
			return
		}
		found := reply.(event.RunResult)
		last := found.Record.Sequence
		if found.Open != nil {
			last = found.Open.Sequence
		}
		if after > last {
			yield(Event{}, fmt.Errorf("%w: asked for events after %d, the last one is %d", ErrCursorAhead, after, last))
			return
		}
		moved := make(chan struct{}, 1) // one pending wake-up says all
		stop := r.rt.rooms.Follow(r.Room, func(event.Seq) {
			select {
			case moved <- struct{}{}:
			default:
			}
		})
		defer stop()
		pos := found.Record.First - 1
		for {
			entries, head, err := r.rt.rooms.Read(r.Room, pos, 256)
			if err != nil {
				yield(Event{}, err)
				return
			}
			for _, e := range entries {
				pos = e.Seq
				x, ok := e.Body.(*event.RunEvent)
				if !ok || x.Run != r.ID || x.Sequence <= after {
					continue
				}
				if !yield(Event{
					Sequence: x.Sequence, At: e.At, Attempt: x.Attempt, Logical: x.Logical, Disclosure: e.Disclosure, Body: x.Event,
				}, nil) {
					return
				}
				if terminal(x.Event) {
					return
				}
			}
			if pos < head {
				continue
			}
			if found.Record.Status.Terminal() && pos >= found.Record.Last {
				return
			}
			select {
			case <-moved:
			case <-ctx.Done():
				yield(Event{}, context.Cause(ctx))
				return
			}
		}
	}
}

// Result waits until the run ends or asks for more, and tells what it came to.
func (r *Run) Result(ctx context.Context) (*Result, error) {
	f := fold{res: Result{Run: r.ID}}
	for e, err := range r.Events(ctx, 0) {
		if err != nil {
			return nil, err
		}
		f.take(e)
		if f.res.Status.Terminal() {
			break
		}
		if f.res.Status == event.RunWaiting {
			open, err := r.waits(ctx, e.Sequence)
			if err != nil {
				return nil, err
			}
			if open {
				break
			}
		}
	}
	return &f.res, nil
}

// waits reports whether the run still waits at that event.
func (r *Run) waits(ctx context.Context, seq uint64) (bool, error) {
	reply, err := r.rt.rooms.Ask(ctx, r.Room, event.GetRun{Access: host(), Run: r.ID})
	if err != nil {
		return false, err
	}
	open := reply.(event.RunResult).Open
	return open != nil && open.Status == event.RunWaiting && open.Sequence == seq, nil
}

func terminal(b event.RunBody) bool {
	switch b.(type) {
	case event.Completed, event.RunCanceled, event.DeadlineExceeded, event.RunFailed:
		return true
	}
	return false
}

// fold derives a result from a run's events (R7). Owned by one Result call.
type fold struct {
	res  Result
	open []Output
}

func (f *fold) take(e Event) {
	f.res.Attempt = e.Attempt
	f.res.Continuation = nil
	switch b := e.Body.(type) {
	case event.AttemptStarted:
		f.res.Status, f.open = event.RunActive, nil // R3
	case event.AssistantOutput:
		f.output(b)
	case event.InputRequested:
		f.res.Status, f.res.Continuation = event.RunWaiting, &b
	case event.Completed:
		f.res.Status = event.RunCompleted
	case event.RunCanceled:
		f.res.Status, f.res.Reason = event.RunCanceledStatus, b.Reason
	case event.DeadlineExceeded:
		f.res.Status = event.RunDeadlineExceeded
	case event.RunFailed:
		f.res.Status, f.res.Code, f.res.Message = event.RunFailedStatus, b.Code, b.Message
	}
}

func (f *fold) output(b event.AssistantOutput) {
	at := -1
	for i := range f.open {
		if f.open[i].ID == b.Output {
			at = i
		}
	}
	if at < 0 {
		f.open = append(f.open, Output{ID: b.Output, Purpose: b.Purpose, History: b.History})
		at = len(f.open) - 1
	}
	f.open[at].Text += b.Delta
	if b.Final {
		f.res.Outputs = append(f.res.Outputs, f.open[at])
		f.open = append(f.open[:at], f.open[at+1:]...)
	}
}
