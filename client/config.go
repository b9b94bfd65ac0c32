package client

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"

	"github.com/gorilla/websocket"

	"parley/event"
	"parley/gateway/wire"
)

// Config is what a product sets of a client. URL, Room and Token are required;
// every other zero member means its default.
type Config struct {
	// URL is the address of the server, such as wss://rooms.example.org. The
	// schemes are ws and wss, or http and https for the same.
	URL  string
	Room event.RoomID
	// Token returns a token. It is asked before each try and before the token in
	// use expires, so it should return a fresh one (K5). An error that wraps
	// ErrTokenRefused stops the client.
	Token func(context.Context) (string, error)
	// Channels to read; nil for all, which takes host scope.
	Channels []event.ChannelID
	// From is where a stream without a valid cursor begins; wire.FromTail when it is empty.
	From wire.From
	// Session is 128 random bits that stay the same while this client stands for
	// the same seat, also over restarts; empty: random ones for the life of the client.
	Session string
	// Storage keeps cursor and outbox over lives of the client; nil: nothing is kept.
	Storage Storage
	// Kinds narrows the kinds of item; nil for all.
	Kinds []string
	// Render lists what the client renders.
	Render []string
	// Client is name and version, for the server's metrics.
	Client string
	// MaxFrame bounds the frames of the server, in bytes, from wire.MinMaxFrame
	// to wire.LargestMaxFrame; 0: wire.DefaultMaxFrame.
	MaxFrame int
	// Budget is the number of tries without progress before Run gives up; 0: DefaultBudget.
	Budget int
	// Check checks the product payload of an item; see Options.
	Check func(Item) (Item, error)
	// Dialer opens sockets; nil: websocket.DefaultDialer. Its subprotocols are replaced.
	Dialer *websocket.Dialer
	// Observer is told what happens beside the stream. Its functions are called
	// one at a time, must not block, and may be nil.
	Observer Observer
}

// Observer is told what happens beside the stream.
type Observer struct {
	Status   func(Status)
	Accepted func(Accepted)
	Deferred func(event.InputID, wire.Code) // the server wants the input later; it is sent again by itself
	Refused  func(event.InputID, error)     // the input is not sent again
	Fault    func(error)                    // the client has dealt with it
	Other    func(Other)                    // a frame that the client does not interpret
}

// Storage keeps what a client needs over a restart. Its methods are called one
// at a time and hold up the connection while they last. An error ends Run.
type Storage interface {
	// Load returns the last saved cursor and outbox; zero values when there are none.
	Load(context.Context) (cursor string, outbox []Input, err error)
	// SaveCursor is called after everything up to the cursor was handled.
	SaveCursor(ctx context.Context, cursor string) error
	// SaveOutbox is called before a new input is sent, and after one was answered.
	SaveOutbox(ctx context.Context, outbox []Input) error
}

// Handler is the product's side of the stream. Its methods are called one at a
// time. An error ends Run with a *HandlerError and leaves the cursor before
// what was given, so that another Run begins with it again.
type Handler interface {
	// Reset begins a stream that does not continue: what was known before is
	// void. why is empty when there was no cursor.
	Reset(ctx context.Context, s *State, why wire.Reset) error
	// Item takes the next item.
	Item(ctx context.Context, i *Item) error
}

// Validate reports all that is wrong at once, each with its key and what is allowed.
func (c *Config) Validate() error {
	var errs []error
	bad := func(key, format string, args ...any) {
		errs = append(errs, fmt.Errorf("client: %s: "+format, append([]any{key}, args...)...))
	}
	if _, err := c.address(); err != nil {
		bad("URL", "%v", err)
	}
	if err := event.CheckName(string(c.Room)); err != nil {
		bad("Room", "%w", err)
	}
	if c.Token == nil {
		bad("Token", "is required")
	}
	for i, ch := range c.Channels {
		if err := event.CheckName(string(ch)); err != nil {
			bad(fmt.Sprintf("Channels[%d]", i), "%w", err)
		}
	}
	if len(c.Channels) > wire.MaxChannels {
		bad("Channels", "must have at most %d elements", wire.MaxChannels)
	}
	if c.From != "" && c.From != wire.FromTail && c.From != wire.FromStart {
		bad("From", "must be tail or start")
	}
	if len(c.Session) > wire.MaxRef {
		bad("Session", "must have at most %d bytes", wire.MaxRef)
	}
	if c.MaxFrame != 0 && (c.MaxFrame < wire.MinMaxFrame || c.MaxFrame > wire.LargestMaxFrame) {
		bad("MaxFrame", "must be from %d to %d", wire.MinMaxFrame, wire.LargestMaxFrame)
	}
	if c.Budget < 0 {
		bad("Budget", "must not be negative")
	}
	return errors.Join(errs...)
}

// address returns the URL of the room's socket.
func (c *Config) address() (string, error) {
	u, err := url.Parse(c.URL)
	if err != nil {
		return "", errors.New("must be a URL") // what url.Parse says would repeat it, with what it may hold
	}
	switch u.Scheme {
	case "ws", "wss":
	case "http":
		u.Scheme = "ws"
	case "https":
		u.Scheme = "wss"
	default:
		return "", errors.New("must have the scheme ws, wss, http or https")
	}
	if u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", errors.New("must be a scheme and a host, and may have a path")
	}
	return u.JoinPath("v1", "rooms", string(c.Room), "ws").String(), nil
}

func random128() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return base64.RawURLEncoding.EncodeToString(b[:])
}
