package client

import (
	"encoding/json"
	"time"

	"parley/event"
	"parley/gateway/wire"
)

// Phase is where a connection stands.
type Phase uint8

// The phases. A machine begins Idle and ends Stopped, from where Start leads on.
const (
	Idle        Phase = iota
	Authorizing       // waits for a token
	Connecting        // waits for the transport
	Greeting          // waits for ready
	Replaying         // reads what it missed
	Live              // has caught up
	Waiting           // for the next try
	Stopped
)

var phaseNames = [...]string{"idle", "authorizing", "connecting", "greeting", "replaying", "live", "waiting", "stopped"}

// String returns the phase in words.
func (p Phase) String() string { return phaseNames[p] }

// Status is what a machine says of itself.
type Status struct {
	Phase   Phase
	Err     error     // while Waiting or Stopped: why; nil when it was asked to stop
	RetryAt time.Time // while Waiting
	Sub     event.ParticipantID
	Can     Rights
}

// Effect is what the shell does for a machine, in the order of Machine.Next.
type Effect interface{ effect() }

// The effects of a machine.
type (
	// FetchToken asks for a token, answered by Token or TokenFailed.
	FetchToken struct{}
	// Open asks for a connection, answered by Opened or Closed with its number.
	Open struct {
		Conn  int
		Token string
	}
	// Send sends a text frame.
	Send struct {
		Conn  int
		Frame []byte
	}
	// Close ends a connection, of which nothing more is to be reported.
	Close struct {
		Conn int
		Code wire.Close
	}
	// SaveCursor says that everything up to the cursor was handled.
	SaveCursor struct{ Cursor string }
	// SaveOutbox says which inputs are not yet durable, oldest first.
	SaveOutbox struct{ Inputs []Input }
	// InputAccepted says that an input is durable.
	InputAccepted struct{ Accepted }
	// InputDeferred says that the server wants an input later; it is sent again by itself.
	InputDeferred struct {
		ID   event.InputID
		Code wire.Code
	}
	// InputRefused says that an input is not sent again: a *RefusedError or ErrOutboxFull.
	InputRefused struct {
		ID  event.InputID
		Err error
	}
	// RequestDone says that a request was carried out; Result is the answering frame.
	RequestDone struct {
		Ref    string
		Result json.RawMessage
	}
	// RequestFailed says that a request was not: a *RefusedError or ErrDisconnected.
	RequestFailed struct {
		Ref string
		Err error
	}
	// StatusChanged says that the status is another.
	StatusChanged struct{ Status }
	// Faulted tells of a fault that the machine has dealt with.
	Faulted struct{ Err error }
	// Received hands on a frame that the machine does not interpret.
	Received struct{ Other }
)

func (FetchToken) effect()    {}
func (Open) effect()          {}
func (Send) effect()          {}
func (Close) effect()         {}
func (SaveCursor) effect()    {}
func (SaveOutbox) effect()    {}
func (InputAccepted) effect() {}
func (InputDeferred) effect() {}
func (InputRefused) effect()  {}
func (RequestDone) effect()   {}
func (RequestFailed) effect() {}
func (StatusChanged) effect() {}
func (Faulted) effect()       {}
func (Received) effect()      {}

// Delivery is what the product's handler gets next: an item or a reset.
type Delivery struct {
	Item  *Item      // nil: a reset
	State *State     // of a reset
	Why   wire.Reset // of a reset: why the cursor was not resumed; empty when there was none
}
