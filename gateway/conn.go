package gateway

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"
	"go.uber.org/zap"

	"parley/event"
	"parley/gateway/wire"
)

// conn is one connection. Its reader owns the fields of the first block and
// what it reads; its writer, of which there is at most one, owns the second
// block while it runs; mu guards the third.
type conn struct {
	g       *Gateway
	ws      *websocket.Conn
	raw     net.Conn
	id      string
	room    event.RoomID
	header  *Token // from the Authorization header
	browser bool
	address netip.Addr
	session string
	subject event.ParticipantID
	seat    *seat
	feed    *feed
	anew    bool // another goroutine is to read on
	frames  bucket
	excess  bucket // frames beyond the limit, of which only so many are borne

	pos      event.Seq // all up to here has been sent or is not for the viewer
	posAt    time.Time // when pos was the newest there is
	n        uint64    // items sent
	maxFrame int

	lens atomic.Pointer[lens] // set by the reader; nil before ready

	mu       sync.Mutex
	timer    timer
	phase    phase
	closing  wire.Close // 0: open
	closeBy  time.Time  // when the socket is closed without further words
	writing  bool       // a writer runs
	control  [][]byte   // frames to be written before further items
	owed     int        // bytes of control, but for what ready brought
	pending  int        // requests handed to the room and not yet answered
	caughtUp bool
	helloBy  time.Time
	goAt     time.Time // when a drain ends the connection; zero: no drain
	pingAt   time.Time
	pingDue  bool
	pings    []ping    // not answered
	heard    time.Time // when the last ping that was answered was sent
	acked    uint64
	unacked  []sent
	inFlight int // bytes of unacked
	heldFrom time.Time
}

// sent is an events frame that was not yet acknowledged.
type sent struct {
	last  uint64 // number of its last item
	bytes int
	at    time.Time
}

// ping is one that was not yet answered.
type ping struct {
	at time.Time
	t  int64 // by which its pong is known
}

type phase uint8

const (
	phaseHello phase = iota // waits for hello
	phaseOpening
	phaseLive
	phaseGone // nothing is read any more; its timer is dead
)

const (
	closeGrace = 2 * time.Second // for the close frame to get out
	linger     = time.Second     // for the peer to read it, lest a reset destroys it
	lingerMax  = 1 << 20
)

// begin takes the upgraded socket over.
func (c *conn) begin(ws *websocket.Conn) {
	raw := ws.NetConn()
	if t, ok := raw.(interface{ SetWriteBuffer(int) error }); ok {
		// Without it the kernel takes megabytes for a peer that reads nothing, and
		// not even the close frame would get through.
		_ = t.SetWriteBuffer(c.g.cfg.Limits.SendBuffer)
	}
	ws.SetReadLimit(int64(c.g.cfg.Limits.HelloFrame))
	ws.SetPingHandler(c.protocolPing)
	ws.SetPongHandler(c.protocolPong)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ws, c.raw = ws, raw
	c.g.stats.connects.Add(1)
	if code := c.closing; code != 0 { // the gateway closed meanwhile
		c.closing = 0
		c.shutLocked(code)
		return
	}
	c.helloBy = time.Now().Add(c.g.cfg.Limits.HelloTimeout)
	c.g.wheel.set(&c.timer, c.helloBy)
}

// protocolPing answers the pings of WebSocket itself, at the rate of frames.
func (c *conn) protocolPing(data string) error {
	if c.isClosing() {
		return nil
	}
	if over, _ := c.counts(); over > 0 {
		return nil
	}
	err := c.ws.WriteControl(websocket.PongMessage, []byte(data), time.Now().Add(closeGrace))
	if isTimeout(err) || errors.Is(err, websocket.ErrCloseSent) {
		return nil
	}
	return err
}

// protocolPong counts a pong of WebSocket itself. None was asked for, which is
// no fault (RFC 6455, 5.5.3); a flood of them is one.
func (c *conn) protocolPong(string) error {
	if !c.isClosing() {
		c.counts()
	}
	return nil
}

func isTimeout(err error) bool {
	ne, ok := errors.AsType[net.Error](err)
	return ok && ne.Timeout()
}

// serve reads until the end.
func (c *conn) serve() {
	err := c.read()
	if errors.Is(err, errAnew) {
		go c.serve()
		return
	}
	defer c.g.leave(c)
	c.mu.Lock()
	if c.closing == 0 {
		c.closing = wire.CloseNormal // the peer went; there is nobody to tell
		switch {
		case errors.Is(err, websocket.ErrReadLimit):
			c.closing = wire.CloseTooLarge
			c.g.stats.closed(c.closing)
		case brokeProtocol(err):
			c.closing = wire.CloseProtocolError // the library has said it
			c.g.stats.closed(c.closing)
		default:
			c.g.stats.leaves(err)
		}
	}
	code := c.closing
	c.phase = phaseGone
	c.mu.Unlock()
	if code == wire.CloseTooLarge {
		// The library says it, except of a length beyond all numbers. Said twice, the second is not sent.
		message := websocket.FormatCloseMessage(int(code), code.Word())
		_ = c.ws.WriteControl(websocket.CloseMessage, message, time.Now().Add(closeGrace))
	}
	if _, closed := errors.AsType[*websocket.CloseError](err); !closed && !isTimeout(err) {
		// Reading to the end lets the peer see a close frame that is on its way:
		// closing with bytes unread resets the connection.
		_ = c.raw.SetReadDeadline(time.Now().Add(linger))
		_, _ = io.CopyN(io.Discard, c.raw, lingerMax)
	}
	c.ws.Close()
	c.g.cfg.Logger.Debug("connection ended", zap.String("room", string(c.room)), zap.String("conn", c.id), zap.Int("code", int(code)))
}

// brokeProtocol reports whether reading ended because of a frame that breaks
// WebSocket. The library has no type for that, but says so in its own name.
func brokeProtocol(err error) bool {
	_, said := errors.AsType[*websocket.CloseError](err)
	return !said && strings.HasPrefix(err.Error(), "websocket: ")
}

// errAnew lets another goroutine go on reading. Taking a frame grows the stack
// to 8 KB and more, which a goroutine keeps; one that has only waited has 4 KB.
// So an idle connection gets a new one after hello and after each pong.
var errAnew = errors.New("gateway: another goroutine reads on")

// read returns why there is no more to read: a close frame or the end of the
// socket, the deadline that the writer sets after its close frame, or a frame
// that breaks WebSocket, which the library has answered.
func (c *conn) read() (err error) {
	defer c.contain(false)
	if c.ws.Subprotocol() != wire.Subprotocol {
		c.shut(wire.CloseVersionUnsupported)
	}
	for {
		kind, data, err := c.ws.ReadMessage()
		c.g.stats.bytesIn.Add(uint64(len(data)))
		switch {
		case err != nil:
			return err
		case c.isClosing():
			// What comes after the end is not looked at.
		case kind == websocket.BinaryMessage:
			c.shut(wire.CloseUnsupported)
		default:
			c.frame(data)
			if c.anew {
				c.anew = false
				return errAnew
			}
		}
	}
}

func (c *conn) isClosing() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closing != 0
}

// shut ends the connection with a close code. The first code stands. It never
// blocks: a writer says it, within closeGrace.
func (c *conn) shut(code wire.Close) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shutLocked(code)
}

func (c *conn) shutLocked(code wire.Close) {
	if c.closing != 0 {
		return
	}
	c.closing, c.closeBy = code, time.Now().Add(closeGrace)
	if c.ws == nil {
		return // begin will say it
	}
	c.g.stats.closed(code)
	if code == wire.CloseSlowConsumer {
		c.control = nil // there is no hope that it would read them
	}
	c.g.wheel.set(&c.timer, c.closeBy)
	c.startLocked()
}

// refuse answers a request that the gateway itself does not take.
func (c *conn) refuse(e wire.Error) {
	c.g.stats.refuses(e.Code)
	c.push(e)
}

// fail tells why, and ends the connection.
func (c *conn) fail(e wire.Error, code wire.Close) {
	c.g.stats.refuses(e.Code)
	c.end(e, code)
}

// end is fail for what the room refused, which has counted it.
func (c *conn) end(e wire.Error, code wire.Close) {
	e.Fatal = true
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing == 0 {
		c.control = append(c.control, e.Append(nil))
		c.shutLocked(code)
	}
}

// push queues a frame to be written before further items. A client that does
// not read the answers to its own requests is closed.
func (c *conn) push(f wire.Server) {
	b := f.Append(make([]byte, 0, 192))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pushLocked(b)
}

func (c *conn) pushLocked(frames ...[]byte) {
	if c.closing != 0 {
		return
	}
	for _, f := range frames {
		c.owed += len(f)
	}
	if len(c.control) >= c.g.owed || c.owed > maxOwedBytes {
		c.shutLocked(wire.CloseSlowConsumer)
		return
	}
	c.control = append(c.control, frames...)
	c.startLocked()
}

// answer queues the answer to a request that the room was asked for.
func (c *conn) answer(f wire.Server) {
	b := f.Append(make([]byte, 0, 192))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending--
	c.pushLocked(b)
}

// kick says that there may be something to write.
func (c *conn) kick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase == phaseLive && c.closing == 0 {
		c.startLocked()
	}
}

// startLocked starts a writer unless one runs. A running writer looks again
// before it ends, under the same lock.
func (c *conn) startLocked() {
	if !c.writing {
		c.writing = true
		c.g.work.Add(1)
		c.g.writers.Go(c.write)
	}
}

// goaway announces the end and ends the connection after a while.
func (c *conn) goaway(after time.Duration) {
	f := wire.Goaway{Reason: wire.GoawayRestarting, AfterMs: after.Milliseconds()}.Append(nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase != phaseLive {
		c.shutLocked(wire.CloseRestarting)
		return
	}
	c.goAt = time.Now().Add(after)
	c.pushLocked(f)
	c.g.wheel.earlier(&c.timer, c.goAt)
}
