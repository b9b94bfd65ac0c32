package gateway

import (
	"time"

	"github.com/gorilla/websocket"
	"go.uber.org/zap"

	"parley/event"
	"parley/gateway/wire"
)

// maxScan is how many entries a writer looks at for a viewer who sees none of
// them before it looks after everything else again.
const maxScan = 4096

// write is the writer: it lives while there is something to write. Whether it
// runs is c.writing, which it clears under the lock in which it saw that there
// is nothing left.
func (c *conn) write() {
	defer c.g.work.Done()
	defer c.contain(true)
	p := c.g.pens.Get().(*pen)
	defer func() {
		p.rest()
		c.g.pens.Put(p)
	}()
	var s scan
	for {
		todo, more := c.next()
		if !more {
			return
		}
		for _, f := range todo.control {
			if !c.send(f, time.Now()) {
				return
			}
		}
		if todo.close != 0 {
			c.sayClose(todo.close)
			return
		}
		if todo.scan && !c.writeItems(todo.items, p, &s) {
			return
		}
		if todo.ping != 0 && !c.writePing(todo.ping, p) {
			return
		}
	}
}

type todo struct {
	control [][]byte
	scan    bool  // whether there are entries to look at
	items   int   // how many may be sent of them; 0 looks for the first that would be
	ping    int64 // T of a ping to be sent; 0: none
	close   wire.Close
}

// next takes what there is to write. more is false when the writer has to end.
func (c *conn) next() (t todo, more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t.control, c.control, c.owed = c.control, nil, 0
	if c.closing != 0 {
		t.close = c.closing
		return t, true // writing stays set: nothing is written after the close
	}
	if c.pingDue {
		t.ping, c.pingDue = c.pings[len(c.pings)-1].t, false
	}
	if c.phase == phaseLive && c.heldFrom.IsZero() {
		t.scan = c.pos < event.Seq(c.feed.head.Load()) || !c.caughtUp
		t.items = c.roomLocked()
	}
	if !t.scan && t.ping == 0 && len(t.control) == 0 {
		c.writing = false
		return t, false
	}
	return t, true
}

// roomLocked returns how many items may be sent before the client acknowledges.
func (c *conn) roomLocked() int {
	if c.inFlight >= c.g.cfg.Limits.WindowBytes {
		return 0
	}
	return max(0, c.g.cfg.Limits.Window-int(c.n-c.acked))
}

// send writes one frame. On failure the connection is over.
func (c *conn) send(frame []byte, now time.Time) bool {
	_ = c.ws.SetWriteDeadline(now.Add(c.g.cfg.Limits.WriteTimeout))
	if err := c.ws.WriteMessage(websocket.TextMessage, frame); err != nil {
		if isTimeout(err) {
			c.giveUp(wire.CloseSlowConsumer)
		}
		c.raw.Close()
		return false
	}
	c.g.stats.bytesOut.Add(uint64(len(frame)))
	return true
}

// giveUp notes the end of a connection that cannot be told any more.
func (c *conn) giveUp(code wire.Close) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing == 0 {
		c.closing = code
		c.g.stats.closed(code)
	}
}

// sayClose writes the close frame and gives the peer a moment to read it; the
// reader ends with that.
func (c *conn) sayClose(code wire.Close) {
	if code != wire.CloseNormal {
		deadline := time.Now().Add(closeGrace)
		message := websocket.FormatCloseMessage(int(code), code.Word())
		if err := c.ws.WriteControl(websocket.CloseMessage, message, deadline); err != nil {
			c.raw.Close()
			return
		}
		if half, ok := c.raw.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	}
	_ = c.raw.SetReadDeadline(time.Now().Add(linger))
}

// scan is a frame of items that is being collected. Owned by one run of a writer.
type scan struct {
	lens   *lens // under which all of it was looked at; nil: it has not begun
	batch  wire.Batch
	pos    event.Seq // all up to here has been looked at
	at     time.Time // of the last item, or of what was sent before
	oldest time.Time // of the items
}

// writeItems sends at most one frame of items, and caught_up when the stream
// has reached the present. Where a frame ends, and the time in its cursor, follow
// from what is in it and never from how much the viewer may not see between: a
// frame that is not full after maxScan entries is gone on with in the next round.
func (c *conn) writeItems(most int, p *pen, s *scan) bool {
	l := c.lens.Load()
	if s.lens != l { // what was collected under other claims is looked at again
		*s = scan{lens: l, pos: c.pos, at: c.posAt}
		s.batch.Reset(p.batch)
	}
	batch := &s.batch
	ids := c.feed.seal()
	caught, full := false, false
	for scanned := 0; !full && !caught && scanned < maxScan; {
		entries, head, err := c.feed.read(s.pos, p)
		// What the room has not announced yet is not shown: the answers that leave
		// before it may still be on their way here.
		announced := event.Seq(c.feed.head.Load())
		if err != nil || len(entries) == 0 && s.pos < head {
			c.g.cfg.Logger.Error("entries could not be read", zap.String("room", string(c.room)), zap.String("conn", c.id),
				zap.Uint64("after", uint64(s.pos)), zap.Error(err))
			c.shut(wire.CloseOverloaded)
			return true // the close is written by the next round
		}
		for _, e := range entries {
			if e.Seq > announced {
				break
			}
			if l.sees(e.Entry) {
				if item := p.item(e, l.viewer, ids); item != nil {
					if batch.Len() == most || !batch.Fits(len(item), c.maxFrame) {
						full = true
						break
					}
					if batch.Len() == 0 {
						s.oldest = e.At
					}
					batch.Add(item)
					s.at = e.At
				}
			}
			s.pos = e.Seq
		}
		scanned += len(entries)
		caught = !full && s.pos >= announced
	}
	if batch.Len() > 0 && c.owes() {
		return true // an answer that was given before these entries goes before them
	}
	if !full && !caught && batch.Len() > 0 {
		return true // the position stays before what was not sent
	}
	if caught {
		s.at = c.g.cfg.Clock() // nothing newer exists: the position is as good as now
	}
	c.pos, c.posAt, s.lens = s.pos, s.at, nil
	ok := true
	if full && batch.Len() == 0 {
		c.hold()
	}
	if n := batch.Len(); n > 0 {
		var text [80]byte
		frame := batch.Frame(c.n+1, p.cursor(text[:0], c, l))
		now := time.Now()
		// Counted before it is written: its ack may overtake our return from the socket.
		c.mu.Lock()
		c.n += uint64(n)
		c.sentLocked(len(frame), now)
		live := c.caughtUp
		c.mu.Unlock()
		if live { // of a replay the age says nothing
			c.g.cfg.Observer(c.g.cfg.Clock().Sub(s.oldest))
		}
		ok = c.send(frame, now)
		p.batch = batch.Buffer()
	}
	if caught && ok {
		c.mu.Lock()
		first := !c.caughtUp
		c.caughtUp = true
		c.mu.Unlock()
		if first {
			ok = c.send(wire.CaughtUp{Cursor: string(p.cursor(nil, c, l))}.Append(nil), time.Now())
		}
	}
	return ok
}

// owes reports whether frames wait that go before items.
func (c *conn) owes() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.control) > 0
}

// hold notes that an item waits for the client to acknowledge earlier ones.
func (c *conn) hold() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.roomLocked() == 0 {
		c.heldFrom = time.Now()
		c.g.wheel.earlier(&c.timer, c.heldFrom.Add(c.g.cfg.Limits.UnsentAge))
	}
}

// pays reports whether an ack is for as many items as one is asked for. Such an
// ack costs nothing of the rate of frames: the stream itself bounds how many
// there are, and a long replay would otherwise be slowed down by it.
func (c *conn) pays(n uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return n <= c.n && n >= c.acked+wire.MaxBatch
}

// ack takes a client's word that it has handled all up to item n. It returns
// false for items that were never sent.
func (c *conn) ack(n uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n > c.n {
		return false
	}
	c.acked = max(c.acked, n)
	gone := 0
	for gone < len(c.unacked) && c.unacked[gone].last <= n {
		c.inFlight -= c.unacked[gone].bytes
		gone++
	}
	if c.unacked = c.unacked[gone:]; len(c.unacked) == 0 {
		c.unacked = nil // an idle connection holds no memory for it
	}
	if !c.heldFrom.IsZero() && c.roomLocked() > 0 && c.closing == 0 {
		c.heldFrom = time.Time{}
		c.startLocked()
	}
	return true
}

// pong takes the answer to a ping; one that was not asked for changes nothing.
func (c *conn) pong(t int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, p := range c.pings {
		if p.t == t {
			c.heard = p.at
			if c.pings = c.pings[i+1:]; len(c.pings) == 0 {
				c.pings = nil
			}
			return
		}
	}
}

// sentLocked notes a frame of items that is on its way.
func (c *conn) sentLocked(bytes int, now time.Time) {
	if len(c.unacked) == 0 {
		c.g.wheel.earlier(&c.timer, now.Add(c.g.cfg.Limits.AnswerAge/2))
	}
	c.unacked = append(c.unacked, sent{c.n, bytes, now})
	c.inFlight += bytes
}

// writePing carries a fresh cursor, so that a viewer who sees nothing for weeks
// still has one that is not expired.
func (c *conn) writePing(t int64, p *pen) bool {
	l := c.lens.Load()
	if c.pos >= event.Seq(c.feed.head.Load()) {
		c.posAt = c.g.cfg.Clock()
	}
	return c.send(wire.Ping{Cursor: string(p.cursor(nil, c, l)), T: t}.Append(nil), time.Now())
}

// seal appends the cursor of a position.
func (c *conn) seal(b []byte, l *lens, pos event.Seq, at time.Time, nonce [wire.NonceSize]byte) []byte {
	return c.feed.sealer().AppendCursor(b, nonce, []byte(l.viewer.Subject), wire.Cursor{
		Incarnation: c.feed.incarnation(), Seq: pos, Minutes: wire.Minutes(at), Channels: l.hash,
	})
}

// check is the connection's timer. It runs on the wheel and does not block.
func (c *conn) check() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, lim := time.Now(), &c.g.cfg.Limits
	next := now.Add(time.Hour)
	due := func(at time.Time) bool {
		if at.IsZero() {
			return false
		}
		if now.Before(at) {
			if at.Before(next) {
				next = at
			}
			return false
		}
		return true
	}
	if c.phase == phaseGone {
		return
	}
	if c.closing != 0 {
		if due(c.closeBy) {
			c.raw.Close() // the close frame did not get out
			return
		}
		c.g.wheel.set(&c.timer, next)
		return
	}
	switch {
	case c.phase == phaseHello && due(c.helloBy):
		c.shutLocked(wire.CloseHelloTimeout)
		return
	case due(c.goAt):
		c.shutLocked(wire.CloseRestarting)
		return
	case c.phase == phaseLive && due(c.expiresLocked(now)):
		c.shutLocked(wire.CloseTokenExpired)
		return
	case !c.heldFrom.IsZero() && due(c.heldFrom.Add(lim.UnsentAge)):
		c.shutLocked(wire.CloseSlowConsumer)
		return
	}
	if len(c.unacked) > 0 {
		// A pong proves that all before its ping was read, so it counts like an ack.
		since := c.unacked[0].at
		if c.heard.After(since) {
			since = c.heard
		}
		if due(since.Add(lim.AnswerAge)) {
			c.shutLocked(wire.CloseSlowConsumer)
			return
		}
		if asked := len(c.pings) > 0 && !c.pings[len(c.pings)-1].at.Before(since); !asked && due(since.Add(lim.AnswerAge/2)) {
			c.pingLocked(now)
		}
	}
	if c.phase == phaseLive && due(c.pingAt) {
		if len(c.pings) >= 2 {
			c.shutLocked(wire.CloseHelloTimeout)
			return
		}
		c.pingAt = c.pingAt.Add(lim.Ping)
		if c.pingAt.Before(now) { // the machine slept
			c.pingAt = now.Add(lim.Ping)
		}
		due(c.pingAt)
		c.pingLocked(now)
	}
	c.g.wheel.set(&c.timer, next)
}

func (c *conn) pingLocked(now time.Time) {
	c.pingDue = true
	c.pings = append(c.pings, ping{now, c.g.cfg.Clock().UnixMilli()})
	c.startLocked()
}

// expiresLocked returns when the token's grace ends, on the clock of the wheel.
func (c *conn) expiresLocked(now time.Time) time.Time {
	l := c.lens.Load()
	return now.Add(l.token.Expires.Add(c.g.cfg.Limits.ExpiryGrace).Sub(c.g.cfg.Clock()))
}
