// Package driver is the contract between a room and the code that answers for
// an agent, and nothing else: the implementations live in the packages below it
// (guide, script) and in products.
//
// A driver is invoked once per attempt, on its own goroutine, with a Turn that
// is its own copy. It streams what it has to say through the Emitter; the
// room's journal decides. A driver cannot block a room, widen a disclosure or
// repeat what was already heard: all that it sends is checked, bounded and,
// once its run ended, refused.
package driver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"parley/event"
)

// Runner streams the events of one attempt (D1). It returns when it has nothing
// more to say: a nil return completes the run, unless it asked for input; an
// error fails it with a fixed public message (E4). It must return soon after
// ctx is done, whose cause is one of the errors below.
type Runner interface {
	Run(ctx context.Context, turn *Turn, out Emitter) error
}

// Responder answers a turn at once (E5). A nil Decision completes the run without output.
type Responder interface {
	Respond(ctx context.Context, turn *Turn) (*event.Decision, error)
}

// Driver is a Runner, a Responder or both; as both it is used as a Runner (E5).
// See Check.
type Driver any

// RunFunc makes a Runner of a function.
type RunFunc func(ctx context.Context, turn *Turn, out Emitter) error

// Run implements Runner.
func (f RunFunc) Run(ctx context.Context, turn *Turn, out Emitter) error { return f(ctx, turn, out) }

// RespondFunc makes a Responder of a function.
type RespondFunc func(ctx context.Context, turn *Turn) (*event.Decision, error)

// Respond implements Responder.
func (f RespondFunc) Respond(ctx context.Context, turn *Turn) (*event.Decision, error) {
	return f(ctx, turn)
}

// Check refuses a value that is neither a Runner nor a Responder.
func Check(name string, d Driver) error {
	switch d.(type) {
	case Runner, Responder:
		return nil
	}
	return fmt.Errorf("driver %q: a %T has neither Run nor Respond; give it one of the two methods of package driver", name, d)
}

// Emitter takes the events of one attempt, in order. It is for the goroutine
// that runs the driver and must not be kept.
type Emitter interface {
	// Emit queues an event of a driver (progress, assistant_output, checkpoint,
	// input_requested, decision or completed) for the room. It returns once the
	// event is queued, and waits while 64 events or 256 KiB are not yet durable.
	// An error of an earlier event comes back from the next call; after the end
	// of the attempt every call returns ErrEnded and does nothing.
	Emit(body event.RunBody) error
}

// Say emits one whole recorded answer under a logical output id.
func Say(out Emitter, id event.OutputID, text string) error {
	return out.Emit(event.AssistantOutput{Output: id, Delta: text, Final: true})
}

// Turn is what a driver is asked to answer. The driver owns its copy.
type Turn struct {
	Room    event.RoomID
	Channel event.ChannelID
	Run     event.RunID
	Attempt uint32
	Agent   event.Agent
	// Resumed is true when an earlier attempt was lost to a crash or a restart (R1).
	Resumed bool

	Speaker    event.Endpoint
	Input      event.InputID // the input to answer; Root of the first attempt
	Root       event.InputID
	Text       string
	Modality   event.Modality
	Lang       string
	Disclosure event.Disclosure // who may see what the run says, at most
	Deadline   time.Time        // zero: none

	// Checkpoint is the last one of the run, nil when there is none.
	Checkpoint json.RawMessage
	// Continues is the request that this input answers, "" for a new run (W2).
	Continues event.RequestID
	// Transcript reads what Context returns; nil when there is nothing. It is
	// asked for rather than handed over, because most short answers do not need
	// it: reading it for each turn took a quarter of a busy server's time.
	Transcript func(context.Context) ([]event.TranscriptRow, error)
}

// Context returns what was said on the channel before, oldest first, as far as
// everyone who may see the run's output may see it too (M2). The rows are the
// caller's own.
func (t *Turn) Context(ctx context.Context) ([]event.TranscriptRow, error) {
	if t.Transcript == nil {
		return nil, nil
	}
	return t.Transcript(ctx)
}

// Said makes the Transcript of a turn that follows these rows, for tests.
func Said(rows ...event.TranscriptRow) func(context.Context) ([]event.TranscriptRow, error) {
	return func(context.Context) ([]event.TranscriptRow, error) { return slices.Clone(rows), nil }
}

// The causes of a done context, and the errors of an Emitter.
var (
	// ErrEnded says that the attempt is over: nothing more is taken from it.
	ErrEnded = errors.New("the attempt has ended")
	// ErrCanceled is the cause when the run was canceled or superseded.
	ErrCanceled = errors.New("the run was canceled")
	// ErrDeadline is the cause when the run's deadline passed.
	ErrDeadline = errors.New("the run's deadline passed")
	// ErrShutdown is the cause when the server drains; the run goes on after the restart.
	ErrShutdown = errors.New("the server is shutting down")
	// ErrFault is the cause, and in the chain of Emit's error, when the driver
	// sent something that is not allowed. Its run failed.
	ErrFault = errors.New("the driver broke its contract")
)
