package gateway

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"time"

	"go.uber.org/zap"

	"parley/event"
	"parley/gateway/wire"
)

// Rooms is what the gateway needs of the rooms.
type Rooms interface {
	// Do hands a command to a room. done is called once, from the room's
	// goroutine, in the order of the calls, when the answer may be shown
	// (everything it was computed from is durable); it must not block.
	Do(room event.RoomID, cmd event.Command, done func(event.Reply, error))
	// Follow calls moved whenever the durable head of the room rises; moved must
	// not block. A hibernated room keeps its followers.
	Follow(room event.RoomID, moved func(head event.Seq)) (stop func())
	// View returns what there is to see of a room at its durable head, when it is at
	// hand: nil says nothing, and event.Open and event.ReadView have to be asked. So
	// thousands who come at once are not thousands of messages to the room.
	View(room event.RoomID) *event.View
	// Read returns durable entries after a position, at most max, and the durable head.
	Read(room event.RoomID, after event.Seq, max int) ([]*event.Entry, event.Seq, error)
}

// Config is what a Gateway is made of. Rooms, Auth and Secret are required.
type Config struct {
	Rooms Rooms
	Auth  Auth
	// Secret is the cluster secret from which cursors and entry ids are keyed: at
	// least wire.MinSecret bytes, the same on all nodes and after a restart.
	Secret []byte
	// Origins are the web origins from which browsers may connect, compared whole,
	// such as https://game.example. Empty: no browser may.
	Origins []string
	// TrustedProxies are the addresses whose X-Forwarded-For is believed when
	// connections are counted by address. Empty: the header is ignored.
	TrustedProxies []netip.Prefix
	// Templates returns the configuration for a room that does not exist, and
	// whether participants may create it; a host always may. nil, or a nil
	// configuration: the room is not created by connecting to it.
	Templates func(room event.RoomID) (config *event.RoomConfig, participants bool)
	// Clock tells the time. Nil: the wall clock read once, advanced by the machine's
	// monotonic clock, so that a step of the wall clock while the node runs neither
	// ends connections nor stops their rates.
	Clock func() time.Time
	// Rand is the source of nonces and ids; nil is crypto/rand. Safe for concurrent use.
	Rand io.Reader
	// Logger gets static messages with ids and codes, never a text or a token; nil discards.
	Logger *zap.Logger
	Limits Limits
	// Observer is told, for each frame of items that goes to a connection that had
	// caught up, how old the oldest of them is: from its commit to the socket. It
	// is called from many goroutines and must not block. Nil: nobody is.
	Observer func(lag time.Duration)
}

// Limits bound what the outside can ask of a node. Zero is the default; a
// negative count is no limit.
type Limits struct {
	Connections    int           // open connections of the node; 50,000
	PerAddress     int           // open connections from one address (IPv6: one /64); 1,024
	PerSubject     int           // open connections of one subject on this node; 64
	PerSubjectRoom int           // open connections of one subject in one room; 8
	ClientFrame    int           // bytes of a client's frame; 65,536
	HelloFrame     int           // bytes of a client's frame before ready; 8,192
	HelloTimeout   time.Duration // from the upgrade to hello; 5 s
	RoomTimeout    time.Duration // that a room may take to answer hello; 10 s
	InputsPerSec   int           // inputs of a subject in a room, on average; 5
	InputBurst     int           // and at once; 10
	FramesPerSec   int           // frames of a connection, on average; 50
	FrameBurst     int           // and at once; 100
	CreatesPerMin  int           // rooms that a participant creates by connecting; 10
	Requests       int           // requests of a connection that are not yet answered; 64
	Window         int           // items sent and not acknowledged; 512
	WindowBytes    int           // bytes sent and not acknowledged, before the frame that passes it; 98,304
	SendBuffer     int           // bytes of a socket's send buffer; 65,536
	Ping           time.Duration // between pings; 25 s
	AnswerAge      time.Duration // of the oldest item without ack or pong; 20 s
	UnsentAge      time.Duration // of the oldest item held back by the window; 30 s
	WriteTimeout   time.Duration // for one write to a socket; 10 s
	ExpiryGrace    time.Duration // beyond the token's exp; 25 s
	DrainSpread    time.Duration // over which Drain closes connections; 5 s
	Retention      time.Duration // beyond which a cursor is expired; 30 days, negative: never
}

// noLimit is no limit in practice, and far from overflow.
const noLimit = 1 << 30

func (l *Limits) fill() {
	count := func(v *int, def int) {
		switch {
		case *v == 0:
			*v = def
		case *v < 0 || *v > noLimit:
			*v = noLimit
		}
	}
	span := func(v *time.Duration, def time.Duration) {
		if *v == 0 {
			*v = def
		}
	}
	count(&l.Connections, 50_000)
	count(&l.PerAddress, 1024)
	count(&l.PerSubject, 64)
	count(&l.PerSubjectRoom, 8)
	count(&l.ClientFrame, wire.MaxClientFrame)
	count(&l.HelloFrame, wire.MaxHelloFrame)
	count(&l.InputsPerSec, 5)
	count(&l.InputBurst, 10)
	count(&l.FramesPerSec, 50)
	count(&l.FrameBurst, 100)
	count(&l.CreatesPerMin, 10)
	count(&l.Requests, 64)
	count(&l.Window, 512)
	// With a frame of 32 KiB it stays below the 133 KB that a send buffer of 64 KiB
	// takes on Linux for a peer that takes next to nothing: a slow reader is held,
	// and its close frame gets out, before the socket blocks.
	count(&l.WindowBytes, 96<<10)
	count(&l.SendBuffer, 64<<10)
	span(&l.HelloTimeout, 5*time.Second)
	span(&l.RoomTimeout, 10*time.Second)
	span(&l.Ping, 25*time.Second)
	span(&l.AnswerAge, 20*time.Second)
	span(&l.UnsentAge, 30*time.Second)
	span(&l.WriteTimeout, 10*time.Second)
	span(&l.ExpiryGrace, 25*time.Second)
	span(&l.DrainSpread, 5*time.Second)
	span(&l.Retention, 30*24*time.Hour)
}

// Validate reports all that is wrong at once.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Rooms == nil {
		bad("rooms: is missing")
	}
	if err := c.Auth.Validate(); err != nil {
		errs = append(errs, err)
	}
	if len(c.Secret) < wire.MinSecret {
		bad("secret: has %d bytes; at least %d are needed", len(c.Secret), wire.MinSecret)
	}
	for i, o := range c.Origins {
		u, err := url.Parse(o)
		if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") || u.Scheme+"://"+u.Host != o {
			bad("origins[%d]: %q: must be a web origin such as https://game.example, without a path", i, o)
		}
	}
	spans := []struct {
		key string
		v   time.Duration
	}{
		{"helloTimeout", c.Limits.HelloTimeout},
		{"roomTimeout", c.Limits.RoomTimeout},
		{"ping", c.Limits.Ping},
		{"answerAge", c.Limits.AnswerAge},
		{"unsentAge", c.Limits.UnsentAge},
		{"writeTimeout", c.Limits.WriteTimeout},
		{"expiryGrace", c.Limits.ExpiryGrace},
		{"drainSpread", c.Limits.DrainSpread},
	}
	for _, s := range spans {
		if s.v < 0 {
			bad("limits.%s: %v: must be 0 (the default) or more", s.key, s.v)
		}
	}
	return errors.Join(errs...)
}

// steady returns a clock that reads the time once and advances it by what has
// passed since on the machine's monotonic clock.
func steady(read func() time.Time) func() time.Time {
	start := read()
	return func() time.Time { return start.Add(read().Sub(start)) }
}

func (c *Config) fill() {
	if c.Clock == nil {
		c.Clock = steady(time.Now)
	}
	if c.Rand == nil {
		c.Rand = rand.Reader
	}
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	if c.Templates == nil {
		c.Templates = func(event.RoomID) (*event.RoomConfig, bool) { return nil, false }
	}
	if c.Observer == nil {
		c.Observer = func(time.Duration) {}
	}
	c.Limits.fill()
}
