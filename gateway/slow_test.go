package gateway

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"parley/event"
	"parley/gateway/wire"
)

// slowMB is how much a room says while one of its viewers reads nothing.
var slowMB = flag.Int("slowmb", 16, "megabytes that are journaled beside a viewer who reads nothing")

// spool is Rooms with a journal of any length that takes no memory: entry n is
// made when it is read, and says n in a kilobyte of text.
type spool struct {
	head  atomic.Uint64
	mu    sync.Mutex
	next  int
	moved map[int]func(event.Seq)
}

var spoolPad = strings.Repeat("x", 1000)

func (f *spool) Do(_ event.RoomID, cmd event.Command, done func(event.Reply, error)) {
	switch cmd.(type) {
	case event.Open, event.SetFocus:
		done(event.Done{Head: event.Seq(f.head.Load()), Incarnation: 7}, nil)
	case event.ReadView:
		done(&event.View{Room: "r", Incarnation: 7, Head: event.Seq(f.head.Load())}, nil)
	default:
		done(event.CancelResult{}, nil)
	}
}

func (f *spool) View(event.RoomID) *event.View { return nil }

func (f *spool) Follow(_ event.RoomID, moved func(event.Seq)) (stop func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.moved == nil {
		f.moved = map[int]func(event.Seq){}
	}
	f.next++
	n := f.next
	f.moved[n] = moved
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.moved, n)
	}
}

func (f *spool) Read(_ event.RoomID, after event.Seq, most int) ([]*event.Entry, event.Seq, error) {
	head := event.Seq(f.head.Load())
	var out []*event.Entry
	for seq := after + 1; seq <= head && len(out) < most; seq++ {
		e := delta("public", event.ToRoom(), fmt.Sprintf("%d %s", seq, spoolPad))
		e.Seq, e.At = seq, time.Now()
		out = append(out, e)
	}
	return out, head, nil
}

// say makes n more entries durable, in steps of a commit's size.
func (f *spool) say(n int) {
	for n > 0 {
		step := min(n, 100)
		n -= step
		head := event.Seq(f.head.Add(uint64(step)))
		f.mu.Lock()
		for _, m := range f.moved {
			m(head)
		}
		f.mu.Unlock()
	}
}

// viewer reads a spool: each entry once, in order. Owned by its goroutine.
type viewer struct {
	p      *peer
	last   int // number of the last entry that was seen
	n      int
	acked  int
	cursor any
}

var errDone = errors.New("all was read")

// read reads up to an entry, or to the end of the connection.
func (v *viewer) read(upTo int, acks bool) error {
	for v.last < upTo {
		_ = v.p.ws.SetReadDeadline(time.Now().Add(patience))
		_, raw, err := v.p.ws.ReadMessage()
		if err != nil {
			return err
		}
		var f struct {
			Type   string
			N      int
			Cursor any
			T      int64
			Items  []struct{ Body struct{ Delta string } }
		}
		if err := json.Unmarshal(raw, &f); err != nil {
			return err
		}
		if f.Type == "ping" {
			_ = v.p.ws.WriteJSON(frame{"type": "pong", "t": f.T})
		}
		if f.Type != "events" {
			continue
		}
		if f.N != v.n+1 {
			return fmt.Errorf("n is %d after %d", f.N, v.n)
		}
		for _, i := range f.Items {
			number, _, _ := strings.Cut(i.Body.Delta, " ")
			if got, err := strconv.Atoi(number); err != nil || got != v.last+1 {
				return fmt.Errorf("entry %q after %d", number, v.last)
			}
			v.last++
		}
		v.n += len(f.Items)
		v.cursor = f.Cursor
		if acks && v.n >= v.acked+wire.MaxBatch {
			v.acked = v.n
			_ = v.p.ws.WriteJSON(frame{"type": "ack", "n": v.n})
		}
	}
	return errDone
}

// resume opens a new connection where an earlier one ended.
func (v *viewer) resume(t *testing.T, s *server, sub string) {
	t.Helper()
	v.n, v.acked = 0, 0
	v.p = s.dial(t, "r").hello(mint(t, player(sub)), []string{"public"}, "cursor", v.cursor, "from", "start")
	if r := v.p.expect("ready"); v.cursor != nil && r["resumed"] != true {
		t.Fatalf("not resumed: %v", r)
	}
}

func heapBytes() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A viewer who reads nothing costs no memory that grows with what is said, is
// closed with 4421 while the close frame still gets through, and has lost
// nothing when it comes back. A viewer beside it gets everything meanwhile.
func TestAViewerWhoReadsNothing(t *testing.T) {
	f := &spool{}
	s := serve(t, f, func(c *Config) { c.Limits.AnswerAge, c.Limits.UnsentAge = time.Hour, time.Hour })
	total := *slowMB << 10 // entries of a kilobyte
	slow := &viewer{}
	slow.resume(t, s, "ann")
	slow.p.until("caught_up")
	good := &viewer{}
	good.resume(t, s, "bob")
	before := heapBytes()
	done := make(chan error, 1)
	go func() { done <- good.read(total, true) }()
	f.say(total)
	if err := <-done; !errors.Is(err, errDone) {
		t.Fatalf("the viewer beside it: %v", err)
	}
	if grown := heapBytes() - before; grown > 2<<20 {
		t.Errorf("%d bytes are held for a viewer who reads nothing, of %d MB said", grown, *slowMB)
	}
	c := connOf(t, s, "ann")
	c.mu.Lock()
	held, inFlight, owed := !c.heldFrom.IsZero(), c.inFlight, len(c.control)
	c.mu.Unlock()
	if limit := s.cfg.Limits.WindowBytes + wire.DefaultMaxFrame; !held || inFlight > limit || owed != 0 {
		t.Errorf("held: %t, %d bytes in flight of at most %d, %d frames wait", held, inFlight, limit, owed)
	}
	// Its time is up, as if the clock had moved.
	c.mu.Lock()
	c.heldFrom = c.heldFrom.Add(-2 * time.Hour)
	c.mu.Unlock()
	s.wheel.set(&c.timer, time.Now())
	// What was sent before is whole, and so is the close.
	if err := slow.read(total, false); closeCode(err) != wire.CloseSlowConsumer {
		t.Fatalf("the slow viewer ended with %v at entry %d", err, slow.last)
	}
	if slow.last == 0 || slow.last > s.cfg.Limits.Window {
		t.Errorf("%d entries were sent to it", slow.last)
	}
	slow.resume(t, s, "ann")
	if err := slow.read(total, true); !errors.Is(err, errDone) {
		t.Errorf("after the resume: %v at entry %d of %d", err, slow.last, total)
	}
	if got := s.Stats(); got.Closed[wire.CloseSlowConsumer] != 1 || got.Held != 0 {
		t.Errorf("%d closed as slow, %d held", got.Closed[wire.CloseSlowConsumer], got.Held)
	}
}

func connOf(t *testing.T, s *server, sub event.ParticipantID) *conn {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if l := c.lens.Load(); l != nil && l.viewer.Subject == sub {
			return c
		}
	}
	t.Fatalf("%s has no connection", sub)
	return nil
}

// narrow is a dialer whose sockets take little that is not read.
func narrow(t *testing.T) websocket.Dialer {
	t.Helper()
	return websocket.Dialer{Subprotocols: []string{wire.Subprotocol}, ReadBufferSize: 16, NetDial: func(network, address string) (net.Conn, error) {
		c, err := net.Dial(network, address)
		if err == nil {
			err = c.(*net.TCPConn).SetReadBuffer(2048)
		}
		return c, err
	}}
}

// With the limits as they are, the window is reached before the socket blocks,
// however little the other machine takes.
func TestTheWindowIsReachedBeforeTheSocketBlocks(t *testing.T) {
	f := &spool{}
	s := serve(t, f)
	p, refused := dialWith(t, narrow(t), s.url("r"), http.Header{"Origin": {testOrigin}})
	if refused != nil {
		t.Fatal(refused.err)
	}
	p.hello(mint(t, player("ann")), []string{"public"}, "from", "start").expect("ready")
	f.say(1000)
	c := connOf(t, s, "ann")
	waitUntil(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return !c.heldFrom.IsZero() && !c.writing
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	if most := s.cfg.Limits.WindowBytes + wire.DefaultMaxFrame; c.inFlight > most || c.inFlight < s.cfg.Limits.WindowBytes {
		t.Errorf("%d bytes are in flight, want at most %d", c.inFlight, most)
	}
}

// A viewer whose machine takes next to nothing for it does not get as far as a
// wider window. The socket blocks, in a goroutine of its own, for as long as one write
// may; then the connection is over, as slow. Nothing is lost, and nobody waits.
func TestAViewerWhoseSocketBlocks(t *testing.T) {
	f := &spool{}
	s := serve(t, f, func(c *Config) {
		c.Limits.AnswerAge, c.Limits.WriteTimeout = time.Hour, 300*time.Millisecond
		c.Limits.Window, c.Limits.WindowBytes = noLimit, noLimit // whatever the buffers of this system hold
	})
	p, refused := dialWith(t, narrow(t), s.url("r"), http.Header{"Origin": {testOrigin}})
	if refused != nil {
		t.Fatal(refused.err)
	}
	p.hello(mint(t, player("ann")), []string{"public"}, "from", "start")
	slow := &viewer{p: p, cursor: p.expect("ready")["cursor"]}
	const total = 8 << 10
	f.say(total)
	waitUntil(t, func() bool { return s.Stats().Closed[wire.CloseSlowConsumer] == 1 && s.Stats().Connections == 0 })
	if err := slow.read(5, false); !errors.Is(err, errDone) { // of what its machine has taken
		t.Fatalf("the slow viewer: %v", err)
	}
	slow.p.ws.Close()
	// A machine that is busy may be found slow again, and goes on again.
	for err := error(nil); !errors.Is(err, errDone); {
		before := slow.last
		slow.resume(t, s, "ann")
		if err = slow.read(total, true); slow.last == before {
			t.Fatalf("after the resume: %v at entry %d of %d", err, slow.last, total)
		}
	}
}

// A viewer who takes a byte at a time gets everything, if it says so.
func TestAViewerWhoReadsAByteAtATime(t *testing.T) {
	f := &spool{}
	s := serve(t, f)
	const total = 200
	f.say(total)
	d := narrow(t)
	d.NetDial = func(network, address string) (net.Conn, error) {
		c, err := net.Dial(network, address)
		return byteReader{c}, err
	}
	p, refused := dialWith(t, d, s.url("r"), http.Header{"Origin": {testOrigin}})
	if refused != nil {
		t.Fatal(refused.err)
	}
	p.hello(mint(t, player("ann")), []string{"public"}, "from", "start").expect("ready")
	v := &viewer{p: p}
	if err := v.read(total, true); !errors.Is(err, errDone) {
		t.Errorf("%v at entry %d", err, v.last)
	}
}

// byteReader is a socket from which one byte is read at a time.
type byteReader struct{ net.Conn }

func (c byteReader) Read(p []byte) (int, error) { return c.Conn.Read(p[:min(1, len(p))]) }
