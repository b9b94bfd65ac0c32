package wire

import (
	"time"

	"parley/event"
)

// Client is a frame of a client: *Hello, *Auth, *Subscribe, *Input, *Focus,
// *Cancel, *Ack or *Pong.
type Client interface{ client() }

// Hello is the first frame of a connection.
type Hello struct {
	Token    string            // "" when the token came in the Authorization header
	Session  string            // 128 random bits of the tab; "" takes no earlier connection's place
	Cursor   string            // "" for none
	From     From              // where to begin without a cursor; FromTail by default
	Channels []event.ChannelID // in the order given, without repeats
	All      bool              // no channels were named: all of them, for a host only
	Kinds    []string          // kinds of item to send; nil for all
	Render   []string
	Stages   map[string]uint64
	Client   string
	MaxFrame int // bytes; 0 for the default
}

// Auth brings a fresh token of the same subject.
type Auth struct{ Ref, Token string }

// Subscribe adds channels, from now on.
type Subscribe struct {
	Ref      string
	Channels []event.ChannelID
}

// Input is a final input (A1) with the digest by which an exact retry is known (A5).
type Input struct {
	Channel event.ChannelID
	As      event.Endpoint // zero: the subject itself
	Final   event.FinalInput
	Digest  [32]byte
}

// Focus chooses the agent that the subject speaks to by default; "" removes the choice.
type Focus struct {
	Ref   string
	Agent event.AgentID
}

// Cancel ends a run.
type Cancel struct {
	Ref    string
	Run    event.RunID
	Reason string
}

// Ack says that the client has handled all items up to number N.
type Ack struct{ N uint64 }

// Pong answers a ping with its T.
type Pong struct{ T int64 }

func (*Hello) client()     {}
func (*Auth) client()      {}
func (*Subscribe) client() {}
func (*Input) client()     {}
func (*Focus) client()     {}
func (*Cancel) client()    {}
func (*Ack) client()       {}
func (*Pong) client()      {}

// Fault is a client frame that is not taken. It is answered by an error frame;
// when Close is set the connection ends after it.
type Fault struct {
	Code    Code
	Ref     string // the frame's id or ref, as far as it could be read
	Message string // names the member and what is allowed, never its value
	Close   Close  // 0: the connection goes on
}

// Error implements error.
func (f *Fault) Error() string { return f.Message }

const maxInt = 1 << 53

// millis reads a whole number of milliseconds as a duration.
func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
