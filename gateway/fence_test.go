package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"parley/event"
	"parley/gateway/wire"
)

// gatedRooms holds back the answers to inputs until they are let go.
type gatedRooms struct {
	*coreRooms
	mu   sync.Mutex
	held []func()
	hold bool
}

func (r *gatedRooms) Do(id event.RoomID, cmd event.Command, done func(event.Reply, error)) {
	r.coreRooms.Do(id, cmd, func(reply event.Reply, err error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if _, ok := cmd.(event.Submit); ok && r.hold {
			r.held = append(r.held, func() { done(reply, err) })
			return
		}
		done(reply, err)
	})
}

func (r *gatedRooms) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.held {
		f()
	}
	r.held, r.hold = nil, false
}

// A new connection of a session takes the place of the old one at once. What
// comes late to the old one, answers and its own end, does nothing to the new.
func TestWhatComesLateToAReplacedConnection(t *testing.T) {
	rooms := &gatedRooms{coreRooms: newCoreRooms(), hold: true}
	s := serve(t, rooms)
	open := func() *peer {
		p := s.dial(t, "room-1").hello(mint(t, player("ann")), []string{"public"}, "session", "tab")
		p.until("caught_up")
		return p
	}
	old := open()
	oldConn := connOf(t, s, "ann")
	for i := range 3 {
		old.send(input(fmt.Sprint("i", i), "hello"))
	}
	waitUntil(t, func() bool {
		rooms.mu.Lock()
		defer rooms.mu.Unlock()
		return len(rooms.held) == 3
	})
	next := open()
	nextConn := connOf(t, s, "ann")
	for nextConn == oldConn { // which of two is found is a matter of luck
		nextConn = connOf(t, s, "ann")
	}
	rooms.release() // the answers find the old connection closing
	if last := old.closed(wire.CloseReplaced); last["type"] == "accepted" {
		t.Errorf("an answer after the fence: %v", last)
	}
	// The new one owes nothing, and gets its own answers when it asks again.
	nextConn.mu.Lock()
	pending, owed := nextConn.pending, len(nextConn.control)
	nextConn.mu.Unlock()
	if pending != 0 || owed != 0 {
		t.Errorf("the new connection has %d pending requests and %d frames of the old", pending, owed)
	}
	for i := range 3 {
		next.send(input(fmt.Sprint("i", i), "hello"))
		if f := next.until("accepted"); f["id"] != fmt.Sprint("i", i) || f["duplicate"] != true {
			t.Errorf("the input again: %v", f)
		}
	}
	// The old one's socket ends now.
	old.ws.Close()
	waitUntil(t, func() bool { return s.Stats().Connections == 1 })
	next.send(input("later", "hello"))
	if f := next.until("accepted"); f["duplicate"] != false {
		t.Errorf("after the late end of the old: %v", f)
	}
	s.mu.Lock()
	seat := s.seats[seatKey{"room-1", "ann"}]
	if len(seat.conns) != 1 || seat.conns[0] != nextConn || s.subjects["ann"].conns != 1 {
		t.Errorf("the seat has %d connections, the subject %d", len(seat.conns), s.subjects["ann"].conns)
	}
	s.mu.Unlock()
	next.ws.Close()
	waitUntil(t, func() bool { return s.Stats().Connections == 0 })
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(seat.conns) != 0 || s.subjects["ann"].conns != 0 {
		t.Errorf("places are kept: %d, %d", len(seat.conns), s.subjects["ann"].conns)
	}
}

// Of many that come at once for one session one stays, and the rest are told.
func TestManyForOneSession(t *testing.T) {
	s := serve(t, newCoreRooms())
	const many = 24
	hello := text(helloText(t, "ann")[:len(helloText(t, "ann"))-1] + `,"session":"tab"}`)
	codes := make(chan int, many)
	var all []*raw
	for range many {
		p := s.raw(t, "room-1")
		all = append(all, p)
		go func() {
			p.write(hello)
			code, _, _ := p.end()
			codes <- code
		}()
	}
	for range many - 1 {
		if code := <-codes; code != int(wire.CloseReplaced) {
			t.Errorf("closed with %d", code)
		}
	}
	waitUntil(t, func() bool { return s.Stats().Connections == 1 })
	s.mu.Lock()
	if seat := s.seats[seatKey{"room-1", "ann"}]; len(seat.conns) != 1 || s.subjects["ann"].conns != 1 {
		t.Errorf("the seat has %d connections, the subject %d", len(seat.conns), s.subjects["ann"].conns)
	}
	s.mu.Unlock()
	for _, p := range all {
		p.write(closeFrame(1000, ""))
	}
	if code := <-codes; code != 1000 {
		t.Errorf("the one that stayed ended with %d", code)
	}
}

// An old connection that reads nothing does not keep its place from the new one.
func TestAReplacedConnectionThatReadsNothing(t *testing.T) {
	f := &spool{}
	s := serve(t, f)
	hello := func(d *peer) *peer {
		return d.hello(mint(t, player("ann")), []string{"public"}, "session", "tab", "from", "start")
	}
	p, refused := dialWith(t, narrow(t), s.url("r"), http.Header{"Origin": {testOrigin}})
	if refused != nil {
		t.Fatal(refused.err)
	}
	hello(p).expect("ready")
	const total = 1000
	f.say(total) // it takes none of it
	v := &viewer{p: hello(s.dial(t, "r"))}
	start := time.Now()
	if err := v.read(total, true); !errors.Is(err, errDone) {
		t.Errorf("the new connection: %v at %d", err, v.last)
	}
	waitUntil(t, func() bool { return s.Stats().Connections == 1 })
	if took := time.Since(start); took > closeGrace+linger+patience/2 {
		t.Errorf("the old one went after %v", took)
	}
	if got := s.Stats().Closed[wire.CloseReplaced]; got != 1 {
		t.Errorf("%d are counted as replaced", got)
	}
}

// A token that runs out ends the stream that it opened, however busy that is,
// and a fresh one in the time of grace keeps it.
func TestTokensExpireWhileTheStreamIsBusy(t *testing.T) {
	for _, fresh := range []bool{false, true} {
		f := &tape{}
		bubble(t, func() Rooms { return f }, func(t *testing.T, s *memory) {
			p := s.live(t, 10*time.Second)
			start := time.Now()
			stop := make(chan struct{})
			defer close(stop)
			go func() {
				tick := time.NewTicker(time.Second)
				defer tick.Stop()
				for {
					select {
					case <-tick.C:
						f.add(delta("public", event.ToRoom(), "x"))
					case <-stop:
						return
					}
				}
			}()
			want := 35 * time.Second
			if fresh {
				want = 30*time.Second + 100*time.Second + 25*time.Second
			}
			n := 0
			for {
				_ = p.ws.SetReadDeadline(time.Time{})
				fr := frame{}
				if err := p.ws.ReadJSON(&fr); err != nil {
					if took := time.Since(start); took != want || closeCode(err) != wire.CloseTokenExpired {
						t.Errorf("ended after %v with %v, want %v", took, err, want)
					}
					break
				}
				switch fr["type"] {
				case "ping":
					p.send(frame{"type": "pong", "t": fr["t"]})
				case "events":
					n += len(itemsOf(fr))
					p.send(frame{"type": "ack", "n": n})
					if n == 30 && fresh { // beyond exp, within the grace
						p.send(frame{"type": "auth", "ref": "a", "token": mint(t, player("ann"), 100*time.Second)})
					}
				}
			}
			if least := int(want/time.Second) - 2; n < least {
				t.Errorf("%d items in %v", n, want)
			}
		})
	}
}
