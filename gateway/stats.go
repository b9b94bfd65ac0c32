package gateway

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"
	"go.uber.org/zap"

	"parley/gateway/wire"
)

// Stats is what a Gateway has now and what it counted since New. It tells
// numbers and words of the wire, nothing of anybody.
type Stats struct {
	Connections int
	Rooms       int // with connections
	// Held is how many connections have items to come and do not get them before
	// they acknowledge earlier ones, and HeldFor how long the one that waits
	// longest has waited: the age of the oldest unsent item.
	Held    int
	HeldFor time.Duration

	Connects uint64                // requests that became connections
	Closed   map[wire.Close]uint64 // connections closed by this side, by code
	// Left is connections that their clients ended, by the code that these gave, or
	// by LeftSilent or LeftOther.
	Left       map[wire.Close]uint64
	TurnedAway map[wire.Code]uint64  // requests refused before the upgrade
	Refused    map[wire.Code]uint64  // frames that the gateway itself refused
	Resumed    uint64                // cursors that were taken
	Reset      map[wire.Reset]uint64 // cursors that were not, by reason
	BytesIn    uint64                // of frames, without the framing of WebSocket
	BytesOut   uint64
	Panics     uint64 // contained in the goroutine of one connection, which ended
}

// What stands for a close code in Stats.Left.
const (
	LeftSilent wire.Close = 0 // none was given; most often the network has gone
	LeftOther  wire.Close = 1 // one that is not in wire.Closes, such as 1001 of a browser that goes
)

// stats counts. Safe for concurrent use.
type stats struct {
	connects, resumed, bytesIn, bytesOut, panics atomic.Uint64

	closes     [32]atomic.Uint64 // by the row of wire.Closes
	left       [32]atomic.Uint64 // as closes, after LeftSilent and LeftOther
	refused    [64]atomic.Uint64 // by the row of wire.Codes
	turnedAway [64]atomic.Uint64 // as refused, after turnedAwayCodes
	reset      [8]atomic.Uint64  // by the row of wire.Resets
}

// turnedAwayCodes are the words of HTTP that frames do not have.
var turnedAwayCodes = []wire.Code{problemUnauthenticated, problemTokenExpired}

// Stats returns what there is now.
func (g *Gateway) Stats() Stats {
	g.mu.Lock()
	list := g.list()
	s := Stats{Connections: len(list), Rooms: len(g.feeds)}
	g.mu.Unlock()
	now := time.Now()
	for _, c := range list {
		c.mu.Lock()
		from := c.heldFrom
		c.mu.Unlock()
		if !from.IsZero() {
			s.Held++
			s.HeldFor = max(s.HeldFor, now.Sub(from))
		}
	}
	c := &g.stats
	s.Connects, s.Resumed, s.Panics = c.connects.Load(), c.resumed.Load(), c.panics.Load()
	s.BytesIn, s.BytesOut = c.bytesIn.Load(), c.bytesOut.Load()
	s.Closed = make(map[wire.Close]uint64, len(wire.Closes))
	s.Left = map[wire.Close]uint64{LeftSilent: c.left[0].Load(), LeftOther: c.left[1].Load()}
	for i, info := range wire.Closes {
		s.Closed[info.Close] = c.closes[i].Load()
		s.Left[info.Close] = c.left[2+i].Load()
	}
	s.Refused, s.TurnedAway = make(map[wire.Code]uint64, len(wire.Codes)), make(map[wire.Code]uint64, len(wire.Codes))
	for i, code := range turnedAwayCodes {
		s.TurnedAway[code] = c.turnedAway[i].Load()
	}
	for i, info := range wire.Codes {
		s.Refused[info.Code] = c.refused[i].Load()
		s.TurnedAway[info.Code] = c.turnedAway[len(turnedAwayCodes)+i].Load()
	}
	s.Reset = make(map[wire.Reset]uint64, len(wire.Resets))
	for i, why := range wire.Resets {
		s.Reset[why] = c.reset[i].Load()
	}
	return s
}

func closeRow(code wire.Close) int {
	return slices.IndexFunc(wire.Closes, func(c wire.CloseInfo) bool { return c.Close == code })
}

func codeRow(code wire.Code) int {
	return slices.IndexFunc(wire.Codes, func(c wire.CodeInfo) bool { return c.Code == code })
}

// closed counts a connection that this side closes.
func (s *stats) closed(code wire.Close) {
	if i := closeRow(code); i >= 0 {
		s.closes[i].Add(1)
	}
}

// leaves counts a connection that its client ended, by the error of its last read.
func (s *stats) leaves(err error) {
	row := 0
	if said, ok := errors.AsType[*websocket.CloseError](err); ok && said.Code != websocket.CloseAbnormalClosure && said.Code != websocket.CloseNoStatusReceived {
		row = 2 + closeRow(wire.Close(said.Code))
	}
	s.left[row].Add(1)
}

// refuses counts a frame that the gateway refuses.
func (s *stats) refuses(code wire.Code) {
	if i := codeRow(code); i >= 0 {
		s.refused[i].Add(1)
	}
}

// turnsAway counts a request that is refused before the upgrade.
func (s *stats) turnsAway(code wire.Code) {
	if i := slices.Index(turnedAwayCodes, code); i >= 0 {
		s.turnedAway[i].Add(1)
	} else if i := codeRow(code); i >= 0 {
		s.turnedAway[len(turnedAwayCodes)+i].Add(1)
	}
}

// resumes counts what became of a cursor.
func (s *stats) resumes(why wire.Reset) {
	if why == "" {
		s.resumed.Add(1)
	} else if i := slices.Index(wire.Resets, why); i >= 0 {
		s.reset[i].Add(1)
	}
}

// contain keeps a panic in the goroutine of a connection from ending the
// process and with it all rooms. The connection ends; a writer's without a word,
// since half a frame may be out. The value of a panic may hold what people say;
// its type and the stack do not.
func (c *conn) contain(writer bool) {
	v := recover()
	if v == nil {
		return
	}
	c.g.stats.panics.Add(1)
	c.g.cfg.Logger.Error("panic in a connection, which ends", zap.String("room", string(c.room)), zap.String("conn", c.id),
		zap.String("type", fmt.Sprintf("%T", v)), zap.ByteString("stack", debug.Stack()))
	c.shut(wire.CloseInternal)
	if writer {
		c.raw.Close()
	}
}
