package client

import (
	"errors"
	"fmt"

	"parley/gateway/wire"
)

var (
	// ErrTokenRefused is wrapped by a token source when asking again is useless.
	// The client then stops; other errors of the source are tried again.
	ErrTokenRefused = errors.New("client: no token is to be had")
	// ErrBudget says that too many tries brought no progress (K5).
	ErrBudget = errors.New("client: the tries without progress are used up")
	// ErrOutboxFull says that an input was given up because as many newer ones
	// wait as the outbox holds (K7). It may have become durable nevertheless.
	ErrOutboxFull = errors.New("client: the outbox is full; the oldest input was given up")
	// ErrPending says that an input with that id is in the outbox already.
	ErrPending = errors.New("client: an input with this id is waiting already")
	// ErrDisconnected says that a request was not sent, or that its connection
	// ended before the answer; whether it was carried out is then unknown.
	ErrDisconnected = errors.New("client: the connection ended before the answer")
	// ErrStopped says that Run returned. An input stays in the outbox for the next Run.
	ErrStopped = errors.New("client: stopped")
	// ErrRunning says that Run was called while another Run of the client lasts.
	ErrRunning = errors.New("client: runs already")
)

// ClosedError says how a connection ended.
type ClosedError struct {
	Code   wire.Close // 1006 when the network or the other end just went away
	Reason string
}

// Error implements error.
func (e *ClosedError) Error() string {
	if e.Reason == "" {
		return fmt.Sprintf("client: closed with %d", int(e.Code))
	}
	return fmt.Sprintf("client: closed with %d: %s", int(e.Code), e.Reason)
}

// FrameError is a frame of the server that breaks the protocol. It names the
// member and what was expected, never a value (K2).
type FrameError struct {
	Member   string // path such as items[2].id; empty for the frame itself
	Expected string
}

// Error implements error.
func (e *FrameError) Error() string {
	if e.Member == "" {
		return "client: frame: " + e.Expected
	}
	return "client: frame: " + e.Member + ": " + e.Expected
}

// GapError says that the numbers of the items jumped: the server is at fault,
// and the client resumes (K3).
type GapError struct{ Want, Got uint64 }

// Error implements error.
func (e *GapError) Error() string {
	return fmt.Sprintf("client: expected item %d, got %d", e.Want, e.Got)
}

// AfterTerminalError says that an event of a run came after the run's end. It
// changed nothing (K4).
type AfterTerminalError struct{ Run string }

// Error implements error.
func (e *AfterTerminalError) Error() string {
	return "client: an event of run " + e.Run + " came after its end"
}

// PayloadError says that the product's validator refused an item. The cursor
// stays before the frame that held it (K2).
type PayloadError struct {
	Item string // entry id
	Err  error
}

// Error implements error.
func (e *PayloadError) Error() string { return "client: item " + e.Item + ": " + e.Err.Error() }

// Unwrap returns what the validator said.
func (e *PayloadError) Unwrap() error { return e.Err }

// HandlerError says that the product's handler failed. The cursor stays before
// what it was given (K3).
type HandlerError struct {
	Item string // entry id; empty when it was a reset
	Err  error
}

// Error implements error.
func (e *HandlerError) Error() string {
	if e.Item == "" {
		return "client: reset not handled: " + e.Err.Error()
	}
	return "client: item " + e.Item + " not handled: " + e.Err.Error()
}

// Unwrap returns what the handler said.
func (e *HandlerError) Unwrap() error { return e.Err }

// RefusedError is the server's refusal of an input or a request.
type RefusedError struct {
	Ref     string // input id, or the ref of the request
	Code    wire.Code
	Message string // public text
	Run     string // the run in the way, when the caller may see it
}

// Error implements error.
func (e *RefusedError) Error() string {
	if e.Message == "" {
		return "client: refused: " + string(e.Code)
	}
	return "client: refused: " + string(e.Code) + ": " + e.Message
}
