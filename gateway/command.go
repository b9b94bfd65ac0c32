package gateway

import (
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"

	"parley/event"
	"parley/gateway/wire"
)

// maxExcess is how many frames beyond the limit a connection may send at once;
// each is answered, so that a client with a fault in it can be told.
const maxExcess = 100

// maxOwed bounds the answers that wait for a writer where the limits are lifted.
const maxOwed = 1024

// maxOwedBytes bounds their memory: the answer to a subscribe of a few bytes
// lists what a connection may do on all of its channels.
const maxOwedBytes = 1 << 20

// endedAtLeeway is how far the clock of a client may be ahead of the node's.
const endedAtLeeway = 5 * time.Minute

// frame takes one frame. It runs in the reader.
func (c *conn) frame(raw []byte) {
	f, err := wire.DecodeClient(raw)
	if a, ok := f.(*wire.Ack); ok && c.lens.Load() != nil && c.pays(a.N) {
		c.acknowledge(a)
		return
	}
	over, borne := c.counts()
	if !borne {
		return
	}
	if fault, ok := errors.AsType[*wire.Fault](err); ok {
		c.fault(fault)
		return
	}
	if ref := refOf(f); over > 0 && ref != "" {
		c.refuse(wire.Error{Ref: ref, Code: wire.CodeRateLimited, Message: "too many frames; send fewer", RetryMs: retryMs(over)})
		return
	}
	h, first := f.(*wire.Hello)
	if live := c.lens.Load() != nil; first == live {
		message := "a connection begins with hello"
		if live {
			message = "hello was sent before"
		}
		c.fail(wire.Error{Code: wire.CodeBadRequest, Message: message}, wire.CloseBadRequest)
		return
	}
	switch f := f.(type) {
	case *wire.Hello:
		c.hello(h)
	case *wire.Auth:
		c.refresh(f)
	case *wire.Subscribe:
		c.subscribe(f)
	case *wire.Input:
		c.input(f)
	case *wire.Focus:
		c.request(f.Ref, event.SetFocus{Access: c.access(), Agent: f.Agent}, func(event.Reply) wire.Server {
			return wire.Done{Ref: f.Ref}
		})
	case *wire.Cancel:
		c.request(f.Ref, event.CancelRun{Access: c.access(), Run: f.Run, Reason: f.Reason}, func(r event.Reply) wire.Server {
			if result, ok := r.(event.CancelResult); ok {
				return wire.Done{Ref: f.Ref, Cancel: &result}
			}
			return nil
		})
	case *wire.Ack:
		c.acknowledge(f)
	case *wire.Pong:
		c.pong(f.T)
		c.anew = true
	}
}

// counts takes a frame of any kind from the connection's allowance. over is how
// long it came too early. What is too much even to be answered ends the
// connection, and is not borne.
func (c *conn) counts() (over time.Duration, borne bool) {
	now := c.g.cfg.Clock()
	over = c.frames.take(now, c.g.frames)
	if over > 0 && c.excess.take(now, perSecond(1, maxExcess)) > 0 {
		c.fail(wire.Error{Code: wire.CodeRateLimited, Message: "too many frames"}, wire.CloseRateLimited)
		return over, false
	}
	return over, true
}

func (c *conn) acknowledge(f *wire.Ack) {
	if !c.ack(f.N) {
		c.fail(wire.Error{Code: wire.CodeBadRequest, Message: "ack: n names an item that was not sent"}, wire.CloseBadRequest)
	}
}

func (c *conn) access() event.Access { return c.lens.Load().token.Access }

// fault answers a frame that could not be read.
func (c *conn) fault(f *wire.Fault) {
	e := wire.Error{Ref: f.Ref, Code: f.Code, Message: f.Message}
	switch {
	case f.Close == wire.CloseInvalidUTF8:
		c.shut(f.Close)
	case f.Close != 0:
		c.fail(e, f.Close)
	case c.lens.Load() == nil:
		c.fail(e, wire.CloseBadRequest) // nothing goes on without hello
	default:
		c.refuse(e)
	}
}

func refOf(f wire.Client) string {
	switch f := f.(type) {
	case *wire.Auth:
		return f.Ref
	case *wire.Subscribe:
		return f.Ref
	case *wire.Input:
		return string(f.Final.ID)
	case *wire.Focus:
		return f.Ref
	case *wire.Cancel:
		return f.Ref
	}
	return ""
}

// request hands a command to the room. The answer comes from the room's
// goroutine, once all that it was computed from is durable.
func (c *conn) request(ref string, cmd event.Command, frame func(event.Reply) wire.Server) {
	if !c.reserve(ref) {
		return
	}
	c.g.cfg.Rooms.Do(c.room, cmd, func(r event.Reply, err error) {
		if err != nil {
			c.answer(c.refused(ref, err))
			return
		}
		f := frame(r)
		if f == nil {
			c.g.cfg.Logger.Error("request was answered by something else", zap.String("room", string(c.room)), zap.String("conn", c.id))
			f = wire.ErrorOf(ref, errUnexpected)
		}
		c.answer(f)
	})
}

var errUnexpected = errors.New("gateway: an answer of another kind")

// refused makes the answer to a request that failed. What is no refusal is a
// fault of the server and is logged here, once.
func (c *conn) refused(ref string, err error) wire.Error {
	if _, ok := event.AsRefusal(err); !ok {
		c.g.cfg.Logger.Error("request failed", zap.String("room", string(c.room)), zap.String("conn", c.id), zap.Error(err))
	}
	return wire.ErrorOf(ref, err)
}

// reserve counts a request that the room is about to be asked.
func (c *conn) reserve(ref string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pending >= c.g.cfg.Limits.Requests {
		c.g.stats.refuses(wire.CodeRateLimited)
		c.pushLocked(wire.Error{
			Ref: ref, Code: wire.CodeRateLimited, Message: "too many requests wait for their answers", RetryMs: 1000,
		}.Append(nil))
		return false
	}
	c.pending++
	return true
}

// input admits a final input, within the subject's rate in this room.
func (c *conn) input(f *wire.Input) {
	ref := string(f.Final.ID)
	if f.Final.EndedAt.After(c.g.cfg.Clock().Add(endedAtLeeway)) {
		c.refuse(wire.Error{Ref: ref, Code: wire.CodeBadRequest, Message: "endedAt: is in the future"})
		return
	}
	wait, paid := c.seat.take(f, c.g.cfg.Clock(), c.g.inputs)
	if wait > 0 {
		c.refuse(wire.Error{Ref: ref, Code: wire.CodeRateLimited, Message: "too many inputs; wait a moment", RetryMs: retryMs(wait)})
		return
	}
	if !c.reserve(ref) {
		if paid {
			c.seat.give(c.g.inputs)
		}
		return
	}
	cmd := event.Submit{Access: c.access(), Channel: f.Channel, As: f.As, Input: f.Final, Digest: f.Digest}
	c.g.cfg.Rooms.Do(c.room, cmd, func(r event.Reply, err error) {
		if err != nil {
			c.seat.forget(f)
			c.answer(c.refused(ref, err))
			return
		}
		receipt, ok := r.(event.Receipt)
		if !ok {
			c.answer(c.refused(ref, errUnexpected))
			return
		}
		if receipt.Duplicate && paid {
			c.seat.give(c.g.inputs)
		}
		c.answer(wire.Accepted{
			ID: receipt.Input, Entry: c.feed.sealer().EntryID(receipt.Incarnation, receipt.Entry), Run: receipt.Run,
			At: receipt.At, State: receipt.State, Duplicate: receipt.Duplicate,
		})
	})
}

// take takes an input from the subject's allowance. An exact repetition of one
// of the latest is free at once; of an older one the room says so later, and it
// is given back.
func (s *seat) take(f *wire.Input, now time.Time, p pace) (wait time.Duration, paid bool) {
	h := digestHash(f)
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Contains(s.recent, h) {
		return 0, false
	}
	if wait := s.inputs.take(now, p); wait > 0 {
		return wait, false
	}
	if len(s.recent) < recentInputs {
		s.recent = append(s.recent, h)
	} else {
		s.recent[s.next] = h
		s.next = (s.next + 1) % recentInputs
	}
	return 0, true
}

// forget makes an input that was refused cost like any other when it comes again.
func (s *seat) forget(f *wire.Input) {
	h := digestHash(f)
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.recent, h); i >= 0 {
		s.recent[i] = 0
	}
}

// digestHash is short for the digest. Zero marks a forgotten place in the ring.
func digestHash(f *wire.Input) uint64 { return binary.LittleEndian.Uint64(f.Digest[:8]) | 1 }

func (s *seat) give(p pace) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inputs.give(p)
}

// subscribe adds channels, from now on.
func (c *conn) subscribe(f *wire.Subscribe) {
	l := c.lens.Load()
	list := slices.Clone(l.asked)
	since := event.Seq(c.feed.head.Load())
	added := make([]event.ChannelID, 0, len(f.Channels))
	for _, ch := range f.Channels {
		if len(l.token.Access.On(ch).Can) == 0 {
			continue // left out of the answer, as in hello
		}
		added = append(added, ch)
		if !l.all && l.find(ch) == nil {
			list = append(list, asked{channel: ch, since: since})
		}
	}
	if len(list) > wire.MaxChannels {
		c.refuse(wire.Error{Ref: f.Ref, Code: wire.CodeBadRequest, Message: "too many channels for one connection"})
		return
	}
	next := newLens(l.token, list, l.all, l.kinds)
	c.lens.Store(next)
	c.push(wire.Subscribed{Ref: f.Ref, Channels: added, Can: next.can})
}

// refresh takes a fresh token of the same subject. A token that is not taken
// changes nothing: the present one goes on until it expires.
func (c *conn) refresh(f *wire.Auth) {
	l := c.lens.Load()
	t, err := c.g.verify(f.Token, c.browser)
	refuse := func(message string) {
		c.refuse(wire.Error{Ref: f.Ref, Code: wire.CodeForbidden, Message: message})
	}
	switch {
	case errors.Is(err, ErrTokenExpired):
		refuse("the token has expired")
		return
	case err != nil:
		refuse("the token is not valid here")
		return
	case t.Access.Subject != l.viewer.Subject:
		refuse("the token is another subject's")
		return
	case !t.Access.Covers(c.room):
		refuse("the token is not for this room")
		return
	}
	// What a wider token opens starts now; what it has always opened goes on.
	since := event.Seq(c.feed.head.Load())
	list := slices.Clone(l.asked)
	var opened []event.ChannelID
	for i, a := range list {
		if !a.read && t.Access.On(a.channel).May(event.ScopeRead) {
			list[i].since = since
			opened = append(opened, a.channel)
		}
	}
	next := newLens(t, list, l.all && t.Access.Host(), l.kinds)
	if next.empty() {
		c.shut(wire.CloseForbidden)
		return
	}
	c.lens.Store(next)
	c.push(wire.Done{Ref: f.Ref, Refresh: true, ExpiresIn: seconds(t, c.g.cfg.Clock()), Can: next.can})
	if len(opened) > 0 {
		c.push(wire.Subscribed{Ref: f.Ref, Channels: opened, Can: next.can})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing == 0 {
		c.g.wheel.earlier(&c.timer, c.expiresLocked(time.Now()))
	}
}

func retryMs(wait time.Duration) int64 {
	return int64((wait + time.Millisecond - 1) / time.Millisecond)
}
