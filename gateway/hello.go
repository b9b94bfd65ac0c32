package gateway

import (
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"parley/event"
	"parley/gateway/wire"
)

// hello takes the first frame of the connection: who it is, which room, where
// the stream begins. It runs in the reader and may wait for the room. Nothing
// is changed before all that is known of the caller has been checked.
func (c *conn) hello(h *wire.Hello) {
	c.mu.Lock()
	c.phase = phaseOpening
	c.mu.Unlock()
	token, code := c.authenticate(h)
	if code != 0 {
		c.shut(code)
		return
	}
	l, code := c.firstLens(h, token)
	if code != 0 {
		c.shut(code)
		return
	}
	done, err := c.g.open(c.room, token.Access)
	if err != nil {
		c.refuseRoom(err)
		return
	}
	c.session = h.Session
	replaced, ok := c.g.take(c, token.Access.Subject)
	if !ok {
		c.shut(wire.CloseRateLimited)
		return
	}
	if replaced != nil {
		replaced.shut(wire.CloseReplaced)
	}
	if err := c.start(h, l, done); err != nil {
		c.refuseRoom(err)
	}
}

// authenticate returns the connection's token, or the code to close it with.
func (c *conn) authenticate(h *wire.Hello) (*Token, wire.Close) {
	token := c.header
	if h.Token != "" {
		t, err := c.g.verify(h.Token, c.browser)
		switch {
		case errors.Is(err, ErrTokenExpired):
			return nil, wire.CloseTokenExpired
		case errors.Is(err, errHostBrowser):
			return nil, wire.CloseForbidden
		case err != nil:
			c.g.cfg.Logger.Debug("token refused", zap.String("room", string(c.room)), zap.String("conn", c.id), zap.Error(err))
			return nil, wire.CloseUnauthenticated
		case token != nil && token.Access.Subject != t.Access.Subject:
			return nil, wire.CloseUnauthenticated
		}
		token = t
	}
	switch {
	case token == nil:
		return nil, wire.CloseUnauthenticated
	case !token.Access.Covers(c.room):
		return nil, wire.CloseRoomNotFound
	}
	return token, 0
}

func (c *conn) firstLens(h *wire.Hello, token *Token) (*lens, wire.Close) {
	if h.All && !token.Access.Host() {
		c.fail(wire.Error{Code: wire.CodeBadRequest, Message: "channels: is missing; only a host may leave it out"}, wire.CloseBadRequest)
		return nil, wire.CloseBadRequest
	}
	list := make([]asked, len(h.Channels))
	for i, ch := range h.Channels {
		list[i] = asked{channel: ch}
	}
	var kinds map[string]bool
	if h.Kinds != nil {
		kinds = make(map[string]bool, len(h.Kinds))
		for _, k := range h.Kinds {
			kinds[k] = true
		}
	}
	l := newLens(token, list, h.All, kinds)
	if l.empty() {
		return nil, wire.CloseForbidden
	}
	return l, 0
}

// refuseRoom ends the connection because the room cannot be had.
func (c *conn) refuseRoom(err error) {
	e := wire.ErrorOf("", err)
	code := wire.CloseInternal
	switch e.Code {
	case wire.CodeNotFound:
		code = wire.CloseRoomNotFound
	case wire.CodeRateLimited:
		code = wire.CloseRateLimited
	case wire.CodeUnavailable:
		code = wire.CloseOverloaded
	case wire.CodeForbidden:
		code = wire.CloseForbidden
	case wire.CodeInternal:
		c.g.cfg.Logger.Error("room could not be opened", zap.String("room", string(c.room)), zap.String("conn", c.id), zap.Error(err))
	}
	c.end(e, code)
}

// start puts the connection at its position and lets the stream run.
func (c *conn) start(h *wire.Hello, l *lens, done event.Done) error {
	f := c.g.join(c.room)
	c.feed = f
	f.setIncarnation(done.Incarnation)
	f.raise(done.Head)
	now := c.g.cfg.Clock()
	ready := wire.Ready{
		Conn: c.id, Sub: l.viewer.Subject, Can: l.can, ExpiresIn: seconds(l.token, now),
		PingMs: c.g.cfg.Limits.Ping.Milliseconds(), MaxFrame: wire.DefaultMaxFrame, Window: c.g.cfg.Limits.Window,
	}
	if h.MaxFrame != 0 {
		ready.MaxFrame = h.MaxFrame
	}
	c.maxFrame = ready.MaxFrame
	var state [][]byte
	if h.Cursor != "" {
		c.pos, c.posAt, ready.Reason = c.resume(h.Cursor, l, done, now)
		ready.Resumed = ready.Reason == ""
		c.g.stats.resumes(ready.Reason)
	}
	switch {
	case ready.Resumed:
	case h.From == wire.FromStart:
		c.pos, c.posAt = 0, now
		// The position is as old as what follows it: its cursor expires with that.
		first, _, err := c.g.cfg.Rooms.Read(c.room, 0, 1)
		if err != nil {
			return fmt.Errorf("gateway: read the first entry: %w", err)
		}
		if len(first) > 0 {
			c.posAt = first[0].At
		}
		state = wire.State(nil, l.viewer, l.shows, c.maxFrame)
	default:
		view, err := c.g.view(c.room)
		if err != nil {
			return err
		}
		f.raise(view.Head)
		c.pos, c.posAt = view.Head, now
		state = wire.State(view, l.viewer, l.shows, c.maxFrame)
	}
	var nonce [wire.NonceSize]byte
	c.g.random(nonce[:])
	ready.Cursor = string(c.seal(nil, l, c.pos, c.posAt, nonce))
	c.ws.SetReadLimit(int64(c.g.cfg.Limits.ClientFrame))
	c.lens.Store(l)
	c.anew = true
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing != 0 {
		return nil
	}
	c.control = append(append(c.control, ready.Append(nil)), state...)
	c.phase = phaseLive
	start := time.Now()
	c.pingAt = start.Add(c.g.cfg.Limits.Ping)
	c.g.wheel.set(&c.timer, earliest(c.pingAt, c.expiresLocked(start)))
	c.feed.add(c)
	c.startLocked()
	return nil
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// resume reads a cursor. It is a hint where to go on and never a permission:
// what may be seen is decided entry by entry.
func (c *conn) resume(text string, l *lens, done event.Done, now time.Time) (event.Seq, time.Time, wire.Reset) {
	cur, err := c.feed.sealer().OpenCursor(text, []byte(l.viewer.Subject))
	switch {
	case err != nil:
		return 0, now, wire.ResetCursorInvalid
	case cur.Incarnation != done.Incarnation:
		return 0, now, wire.ResetIncarnationChanged
	case cur.Channels != l.hash:
		return 0, now, wire.ResetChannelsChanged
	case cur.Expired(now, max(0, c.g.cfg.Limits.Retention)):
		return 0, now, wire.ResetCursorExpired
	case cur.Seq > done.Head:
		return 0, now, wire.ResetCursorInvalid // nothing that this journal ever gave out
	}
	return cur.Seq, time.Unix(int64(cur.Minutes)*60, 0), ""
}
