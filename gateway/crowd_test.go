package gateway

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"parley/gateway/wire"
)

// crowd is how many come at once. Each takes two file descriptors of the test.
var crowd = flag.Int("crowd", 400, "connections at once")

// arrival is what became of one of a crowd.
type arrival struct {
	p      *raw // nil: refused
	status int
	retry  string
	err    error
}

// arrive has a crowd connect, all at once, and do more on what they get.
func arrive(t *testing.T, s *server, n int, more func(i int, p *raw) error) []arrival {
	t.Helper()
	out := make([]arrival, n)
	var all sync.WaitGroup
	gate := make(chan struct{})
	for i := range n {
		all.Go(func() {
			<-gate
			a := &out[i]
			c, err := net.Dial("tcp", strings.TrimPrefix(s.http.URL, "http://"))
			if err != nil {
				a.err = err
				return
			}
			_ = c.SetDeadline(time.Now().Add(3 * patience))
			if _, a.err = io.WriteString(c, handshake(fmt.Sprintf("/v1/rooms/room-%d/ws", i%7))); a.err != nil {
				return
			}
			r := bufio.NewReaderSize(c, 512)
			resp, err := http.ReadResponse(r, nil) //nolint:bodyclose // it reads from the socket, which is closed
			if err != nil {
				a.err = err
				c.Close()
				return
			}
			if a.status, a.retry = resp.StatusCode, resp.Header.Get("Retry-After"); a.status != http.StatusSwitchingProtocols {
				c.Close()
				return
			}
			a.p = &raw{t: t, c: c, r: r}
			a.err = more(i, a.p)
		})
	}
	close(gate)
	all.Wait()
	return out
}

// greet says hello and reads up to caught_up.
func greet(t *testing.T) func(i int, p *raw) error {
	token := make([]string, 32)
	for i := range token {
		token[i] = helloText(t, fmt.Sprint("p", i))
	}
	return func(i int, p *raw) error {
		p.write(text(token[i%len(token)]))
		for {
			op, payload, err := p.read()
			switch {
			case err != nil:
				return err
			case op == opClose:
				return fmt.Errorf("closed with %x", payload)
			case strings.Contains(payload, `"type":"caught_up"`):
				return nil
			}
		}
	}
}

func crowded(t *testing.T, limit int) *server {
	return serve(t, newCoreRooms(), func(c *Config) {
		l := &c.Limits
		l.Connections, l.PerAddress, l.PerSubject, l.PerSubjectRoom, l.CreatesPerMin = limit, noLimit, noLimit, noLimit, noLimit
		l.HelloTimeout, l.RoomTimeout = patience, patience
	})
}

// settled waits until the server has let go of all, and checks that so has the
// memory. What the runtime keeps of a goroutine that has ended, 400 bytes, is
// never given back; a crowd has three a connection for a moment.
func settled(t *testing.T, s *server, heap int64, goroutines int) {
	t.Helper()
	goroutines += 20 + 32*runtime.GOMAXPROCS(0) // which internal/workerpool keeps
	waitUntil(t, func() bool { return s.Stats().Connections == 0 && runtime.NumGoroutine() <= goroutines })
	if grown := heapBytes() - heap; grown > 2<<20+int64(*crowd)*2048 {
		t.Errorf("%d bytes are kept of %d connections", grown, *crowd)
	}
}

// All of a crowd are served, and when they leave nothing of them is kept: a
// second crowd of the same size costs no more.
func TestACrowdAtOnceIsServed(t *testing.T) {
	s := crowded(t, noLimit)
	heap, goroutines := heapBytes(), runtime.NumGoroutine()
	var first int64
	for round := range 2 {
		list := arrive(t, s, *crowd, greet(t))
		for i, a := range list {
			if a.p == nil || a.err != nil {
				t.Fatalf("number %d: status %d, %v", i, a.status, a.err)
			}
		}
		if got := s.Stats(); got.Connections != *crowd || got.Rooms != 7 {
			t.Errorf("%d connections in %d rooms", got.Connections, got.Rooms)
		}
		list[0].p.goesOn("first")
		list[len(list)-1].p.goesOn("last")
		for _, a := range list {
			a.p.c.Close()
		}
		clear(list)
		settled(t, s, heap, goroutines)
		if round == 0 {
			first = heapBytes()
		} else if grown := heapBytes() - first; grown > 512<<10+int64(*crowd)*128 {
			t.Errorf("a second crowd leaves %d bytes", grown)
		}
	}
}

// Over the limit of the node a crowd is told to come later, before anything is
// spent on it; those within it are served, and room that is left can be had.
func TestACrowdBeyondTheLimitIsToldToComeLater(t *testing.T) {
	limit := *crowd / 2
	s := crowded(t, limit)
	heap, goroutines := heapBytes(), runtime.NumGoroutine()
	list := arrive(t, s, *crowd, greet(t))
	served := 0
	for i, a := range list {
		switch {
		case a.p != nil && a.err == nil:
			served++
		case a.err != nil || a.status != http.StatusServiceUnavailable || a.retry == "":
			t.Errorf("number %d: status %d, Retry-After %q, %v", i, a.status, a.retry, a.err)
		}
	}
	if got := s.Stats(); served != limit || got.Connections != limit || got.TurnedAway[wire.CodeUnavailable] != uint64(*crowd-limit) {
		t.Errorf("%d are served and %d told, of %d with room for %d", served, got.TurnedAway[wire.CodeUnavailable], *crowd, limit)
	}
	for _, a := range list {
		if a.p != nil {
			a.p.c.Close()
		}
	}
	clear(list)
	settled(t, s, heap, goroutines)
	s.rawLive(t, "room-1", "ann").goesOn("later")
}

// A crowd that never says hello is gone when its time is over, each told why.
func TestACrowdThatSaysNothing(t *testing.T) {
	s := crowded(t, noLimit)
	s.cfg.Limits.HelloTimeout = 500 * time.Millisecond // before anybody is served
	heap, goroutines := heapBytes(), runtime.NumGoroutine()
	list := arrive(t, s, *crowd, func(_ int, p *raw) error {
		defer p.c.Close()
		if code, _, _ := p.end(); code != int(wire.CloseHelloTimeout) {
			return fmt.Errorf("closed with %d", code)
		}
		return nil
	})
	for i, a := range list {
		if a.p == nil || a.err != nil {
			t.Fatalf("number %d: status %d, %v", i, a.status, a.err)
		}
	}
	if got := s.Stats().Closed[wire.CloseHelloTimeout]; got != uint64(*crowd) {
		t.Errorf("%d are counted", got)
	}
	clear(list)
	settled(t, s, heap, goroutines)
}

// A crowd that connects and leaves at any moment of its greeting leaves nothing behind.
func TestACrowdThatLeavesInMidGreeting(t *testing.T) {
	s := crowded(t, noLimit)
	heap, goroutines := heapBytes(), runtime.NumGoroutine()
	hello := text(helloText(t, "ann"))
	errLeft := errors.New("left")
	list := arrive(t, s, *crowd, func(i int, p *raw) error {
		if tcp, ok := p.c.(*net.TCPConn); ok && i%2 == 0 {
			_ = tcp.SetLinger(0) // with a reset
		}
		p.write(hello[:i*len(hello) / *crowd])
		if i%3 == 0 {
			p.write(hello[i*len(hello) / *crowd:])
		}
		p.c.Close()
		return errLeft
	})
	for i, a := range list {
		if a.status != http.StatusSwitchingProtocols || !errors.Is(a.err, errLeft) {
			t.Fatalf("number %d: status %d, %v", i, a.status, a.err)
		}
	}
	clear(list)
	settled(t, s, heap, goroutines)
	s.rawLive(t, "room-1", "ann").goesOn("after")
}
