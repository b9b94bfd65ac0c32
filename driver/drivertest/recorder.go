package drivertest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"parley/driver"
	"parley/event"
)

// Event is one event that a driver sent and that was taken.
type Event struct {
	At   time.Duration // since the attempt began
	Body event.RunBody
}

// Recorder is an Emitter that keeps what it is given and refuses what a room
// refuses. As in a room, the first fault ends the attempt: its context is
// canceled with ErrFault, and every later call returns ErrEnded.
//
// Safe for concurrent use; mu guards all that changes.
type Recorder struct {
	start  time.Time
	cancel context.CancelCauseFunc

	mu       sync.Mutex
	contract *contract
	events   []Event
	stopAt   int   // the attempt ends instead of taking this event; 0: never
	stopWith error // and why
	ended    error // why the attempt is over, nil while it goes on
	told     bool  // the driver knows that it is over
	wrong    []error
}

// Record returns a Recorder for one attempt at the turn, and the context to
// invoke the driver with. The context is done when End was called or the driver
// broke the contract.
func Record(ctx context.Context, turn *driver.Turn) (context.Context, *Recorder) {
	ctx, cancel := context.WithCancelCause(ctx)
	return ctx, &Recorder{start: time.Now(), cancel: cancel, contract: newContract(turn)}
}

// Emit implements driver.Emitter.
func (r *Recorder) Emit(body event.RunBody) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended == nil && r.stopAt == len(r.events)+1 {
		r.end(r.stopWith)
	}
	if r.ended != nil {
		if r.told {
			r.wrong = append(r.wrong, fmt.Errorf("sent a %T after it was told that the attempt had ended", body))
		}
		r.told = true
		return fmt.Errorf("%w: %w", driver.ErrEnded, r.ended)
	}
	if err := r.contract.take(body); err != nil {
		r.wrong = append(r.wrong, err)
		r.end(err)
		r.told = true
		return err
	}
	r.events = append(r.events, Event{At: time.Since(r.start), Body: body})
	return nil
}

// End ends the attempt from outside, as a cancel, a deadline or a shutdown
// does. The driver is taken to have learned of it: call it only while the
// driver waits.
func (r *Recorder) End(cause error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end(cause)
	r.told = true
}

func (r *Recorder) end(cause error) {
	if r.ended == nil {
		r.ended = cause
		r.cancel(cause)
	}
}

// returned takes note of how the driver returned and releases the context.
func (r *Recorder) returned(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended == nil && err == nil {
		if err := r.contract.finish(); err != nil {
			r.wrong = append(r.wrong, err)
		}
	}
	r.end(driver.ErrEnded)
	r.told = true
}

// Wrong returns every way in which the driver broke its contract so far.
func (r *Recorder) Wrong() []error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.wrong)
}

// Events returns what was taken, in order.
func (r *Recorder) Events() []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// Outputs returns the messages so far, in the order of their first deltas.
func (r *Recorder) Outputs() []Output {
	r.mu.Lock()
	defer r.mu.Unlock()
	outputs := make([]Output, 0, len(r.contract.outputs))
	for _, o := range r.contract.outputs {
		outputs = append(outputs, o.output())
	}
	return outputs
}

// Text returns the texts of all messages that belong into the transcript,
// joined by newlines.
func (r *Recorder) Text() string {
	var texts []string
	for _, o := range r.Outputs() {
		if o.History == event.Record {
			texts = append(texts, o.Text)
		}
	}
	return strings.Join(texts, "\n")
}

// Checkpoint returns the last checkpoint, nil when there was none.
func (r *Recorder) Checkpoint() json.RawMessage {
	var last json.RawMessage
	for _, e := range r.Events() {
		if c, ok := e.Body.(event.Checkpoint); ok {
			last = c.Value
		}
	}
	return last
}

// Request returns the request that the attempt ended with, "" when it asked for nothing.
func (r *Recorder) Request() event.RequestID {
	for _, e := range r.Events() {
		if q, ok := e.Body.(event.InputRequested); ok {
			return q.Request
		}
	}
	return ""
}
