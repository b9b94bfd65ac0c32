package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"parley/event"
	"parley/gateway/wire"
	"parley/internal/wsconn"
)

// bubble runs a test with a Gateway on a network in memory, where time stands
// still unless everybody waits for it.
func bubble(t *testing.T, rooms func() Rooms, f func(t *testing.T, s *memory), change ...func(*Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := wsconn.Listen(16 << 10)
		r := rooms()
		cfg := Config{
			Rooms: r, Auth: testAuth, Secret: testSecret, Origins: []string{testOrigin},
			Templates: func(event.RoomID) (*event.RoomConfig, bool) { return &testTemplate, true },
		}
		for _, c := range change {
			c(&cfg)
		}
		g, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		srv := &http.Server{Handler: g.Handler()}
		done := make(chan struct{})
		go func() {
			defer close(done)
			if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				t.Error(err)
			}
		}()
		f(t, &memory{Gateway: g, listener: l})
		g.Close()
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
		<-done
		if c, ok := r.(interface{ Close() }); ok {
			c.Close()
		}
	})
}

type memory struct {
	*Gateway
	listener *wsconn.Listener
}

func (m *memory) dial(t *testing.T) *peer {
	t.Helper()
	p, refused := m.tryDial(t)
	if refused != nil {
		t.Fatal(refused.err)
	}
	return p
}

func (m *memory) tryDial(t *testing.T) (*peer, *turnedAway) {
	t.Helper()
	d := websocket.Dialer{Subprotocols: []string{wire.Subprotocol}, NetDialContext: m.listener.Dial}
	return dialWith(t, d, "ws://memory/v1/rooms/r/ws", http.Header{"Origin": {testOrigin}})
}

func (m *memory) live(t *testing.T, life time.Duration) *peer {
	t.Helper()
	p := m.dial(t).hello(mint(t, player("ann"), life), []string{"public"})
	p.until("caught_up")
	return p
}

func onTape() Rooms { return &tape{} }

func TestHelloTimeout(t *testing.T) {
	bubble(t, onTape, func(t *testing.T, s *memory) {
		start := time.Now()
		s.dial(t).closed(wire.CloseHelloTimeout)
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("closed after %v", took)
		}
	})
}

// pingsOf reads the pings of a silent stream, and answers the first n.
func pingsOf(p *peer, answer int) (times []time.Duration, cursors map[string]bool, end error) {
	start := time.Now()
	cursors = map[string]bool{}
	for {
		_ = p.ws.SetReadDeadline(time.Time{})
		var f frame
		if err := p.ws.ReadJSON(&f); err != nil {
			return times, cursors, err
		}
		if f["type"] != "ping" {
			continue
		}
		times = append(times, time.Since(start))
		cursors[f["cursor"].(string)] = true
		if len(times) <= answer {
			p.send(frame{"type": "pong", "t": f["t"]})
		}
	}
}

func closeCode(err error) wire.Close {
	if ce, ok := errors.AsType[*websocket.CloseError](err); ok {
		return wire.Close(ce.Code)
	}
	return 0
}

func TestPingsOnAFixedClockAndTwoUnansweredEnd(t *testing.T) {
	bubble(t, onTape, func(t *testing.T, s *memory) {
		p := s.live(t, time.Hour)
		times, cursors, err := pingsOf(p, 3)
		var want []time.Duration
		for i := range 5 {
			want = append(want, time.Duration(i+1)*25*time.Second)
		}
		if fmt.Sprint(times) != fmt.Sprint(want) || closeCode(err) != wire.CloseHelloTimeout {
			t.Errorf("pings at %v, then %v", times, err)
		}
		if len(cursors) != 5 {
			t.Errorf("%d different cursors in 5 pings", len(cursors))
		}
	})
}

// A viewer who sees nothing for longer than retention still resumes.
func TestCursorsOfPingsStayFresh(t *testing.T) {
	f := &tape{}
	bubble(t, func() Rooms { return f }, func(t *testing.T, s *memory) {
		p := s.live(t, 2*time.Hour)
		var cursor string
		for start := time.Now(); time.Since(start) < time.Hour; {
			f.add(delta("private:bob", event.ToRoom(), "hidden"))
			fr := frame{}
			_ = p.ws.SetReadDeadline(time.Time{})
			if err := p.ws.ReadJSON(&fr); err != nil {
				t.Fatal(err)
			}
			if fr["type"] == "ping" {
				cursor = fr["cursor"].(string)
				p.send(frame{"type": "pong", "t": fr["t"]})
			}
		}
		p.ws.Close()
		p = s.dial(t).hello(mint(t, player("ann")), []string{"public"}, "cursor", cursor)
		if ready := p.expect("ready"); ready["resumed"] != true {
			t.Errorf("got %v", ready)
		}
	}, func(c *Config) { c.Limits.Retention = 10 * time.Minute })
}

func TestTokensExpireWhileTheStreamIsSilent(t *testing.T) {
	bubble(t, onTape, func(t *testing.T, s *memory) {
		p := s.live(t, 10*time.Second)
		start := time.Now()
		_, _, err := pingsOf(p, 9)
		if took := time.Since(start); took != 35*time.Second || closeCode(err) != wire.CloseTokenExpired {
			t.Errorf("closed after %v with %v, want 10 s and the grace", took, err)
		}
		// A refresh moves the end; the same subject's shorter token moves it back.
		p = s.live(t, 10*time.Second)
		start = time.Now()
		p.send(frame{"type": "auth", "ref": "a", "token": mint(t, player("ann"), 100*time.Second)})
		if d := p.expect("done"); d["expiresIn"] != 100.0 {
			t.Errorf("got %v", d)
		}
		_, _, err = pingsOf(p, 9)
		if took := time.Since(start); took != 125*time.Second || closeCode(err) != wire.CloseTokenExpired {
			t.Errorf("closed after %v with %v, want 100 s and the grace", took, err)
		}
		p = s.live(t, 1000*time.Second)
		start = time.Now()
		p.send(frame{"type": "auth", "ref": "a", "token": mint(t, player("ann"), 5*time.Second)})
		p.expect("done")
		_, _, err = pingsOf(p, 9)
		if took := time.Since(start); took != 30*time.Second || closeCode(err) != wire.CloseTokenExpired {
			t.Errorf("closed after %v with %v, want 5 s and the grace", took, err)
		}
	})
}

func TestARoomThatDoesNotAnswerIsAFaultThatPasses(t *testing.T) {
	rooms := func() Rooms {
		r := newCoreRooms()
		r.hold["r"] = true
		return r
	}
	bubble(t, rooms, func(t *testing.T, s *memory) {
		start := time.Now()
		last := s.dial(t).hello(mint(t, player("ann")), []string{"public"}).closed(wire.CloseOverloaded)
		if last["code"] != "unavailable" || time.Since(start) != 10*time.Second {
			t.Errorf("%v after %v", last, time.Since(start))
		}
	})
}

// A client that reads but never acknowledges and never answers is told so
// before its socket blocks.
func TestAClientThatNeverAnswersIsClosedBeforeItsSocketBlocks(t *testing.T) {
	f := &tape{}
	bubble(t, func() Rooms { return f }, func(t *testing.T, s *memory) {
		p := s.live(t, time.Hour)
		start := time.Now()
		for range 100 {
			f.add(delta("public", event.ToRoom(), strings.Repeat("x", 100)))
		}
		_, _, err := pingsOf(p, 0)
		if took := time.Since(start); took != 20*time.Second || closeCode(err) != wire.CloseSlowConsumer {
			t.Errorf("closed after %v with %v", took, err)
		}
		if got := s.Stats().Closed[wire.CloseSlowConsumer]; got != 1 {
			t.Errorf("%d closes counted", got)
		}
	})
}

// A client that is alive but does not acknowledge is held at the window, and
// closed when something has waited for it too long.
func TestAClientThatNeverAcknowledgesIsHeldAndClosed(t *testing.T) {
	f := &tape{}
	bubble(t, func() Rooms { return f }, func(t *testing.T, s *memory) {
		p := s.live(t, time.Hour)
		start := time.Now()
		for range 20 {
			f.add(delta("public", event.ToRoom(), "x"))
		}
		_, _, err := pingsOf(p, 100)
		if took := time.Since(start); took != 30*time.Second || closeCode(err) != wire.CloseSlowConsumer {
			t.Errorf("closed after %v with %v", took, err)
		}
	}, func(c *Config) { c.Limits.Window = 10 })
}

// Hidden entries behind a full window hold nothing up.
func TestHiddenEntriesDoNotMakeAClientSlow(t *testing.T) {
	f := &tape{}
	bubble(t, func() Rooms { return f }, func(t *testing.T, s *memory) {
		p := s.live(t, time.Hour)
		for range 10 {
			f.add(delta("public", event.ToRoom(), "x"))
		}
		for range 10 {
			f.add(delta("private:bob", event.ToRoom(), "x"))
		}
		start := time.Now()
		for time.Since(start) < 10*time.Minute {
			fr := frame{}
			_ = p.ws.SetReadDeadline(time.Time{})
			if err := p.ws.ReadJSON(&fr); err != nil {
				t.Fatalf("after %v: %v", time.Since(start), err)
			}
			if fr["type"] == "ping" {
				p.send(frame{"type": "pong", "t": fr["t"]})
			}
		}
	}, func(c *Config) { c.Limits.Window = 10 })
}

// A peer that does not read at all costs a bounded amount and ends; the others
// of the room go on.
func TestAPeerThatReadsNothingEndsAlone(t *testing.T) {
	f := &tape{}
	bubble(t, func() Rooms { return f }, func(t *testing.T, s *memory) {
		s.live(t, time.Hour) // reads nothing from here on
		good := s.dial(t).hello(mint(t, player("bob")), []string{"public"})
		good.until("caught_up")
		for n := 1; n <= 512; n++ {
			f.add(delta("public", event.ToRoom(), strings.Repeat("x", 1000)))
			good.items(1)
			if n%64 == 0 {
				good.send(frame{"type": "ack", "n": n})
			}
		}
		if got := s.Stats().Connections; got != 2 {
			t.Fatalf("%d connections", got)
		}
		go func() {
			for {
				fr := frame{}
				_ = good.ws.SetReadDeadline(time.Time{})
				if good.ws.ReadJSON(&fr) != nil {
					return
				}
				if fr["type"] == "ping" {
					_ = good.ws.WriteJSON(frame{"type": "pong", "t": fr["t"]})
				}
			}
		}()
		time.Sleep(15 * time.Second)
		synctest.Wait()
		if got := s.Stats(); got.Connections != 1 || got.Closed[wire.CloseSlowConsumer] != 1 {
			t.Errorf("after a while: %+v", got)
		}
		good.ws.Close()
	})
}

// The close of a slow peer gets through, since the stream stopped before the
// buffers between the two were full.
func TestASlowPeerLearnsWhyItWasClosed(t *testing.T) {
	f := &tape{}
	bubble(t, func() Rooms { return f }, func(t *testing.T, s *memory) {
		s.listener = wsconn.Listen(192 << 10)
		srv := &http.Server{Handler: s.Handler()}
		go func() { _ = srv.Serve(s.listener) }()
		defer srv.Close()
		p := s.live(t, time.Hour)
		for range 1000 {
			f.add(delta("public", event.ToRoom(), strings.Repeat("x", 3000)))
		}
		time.Sleep(time.Minute)
		n := 0
		for {
			fr, err := p.read()
			if err != nil {
				if closeCode(err) != wire.CloseSlowConsumer {
					t.Errorf("ended with %v", err)
				}
				break
			}
			if fr["type"] == "events" {
				n += len(itemsOf(fr))
			}
		}
		if n == 0 || n > 60 {
			t.Errorf("%d items were sent to a peer that reads nothing", n)
		}
	})
}

func TestDrainSpreadsTheEnd(t *testing.T) {
	bubble(t, onTape, func(t *testing.T, s *memory) {
		s.SetReady(true)
		var peers []*peer
		for i := range 8 {
			p := s.dial(t).hello(mint(t, player(fmt.Sprint("p", i))), []string{"public"})
			p.until("caught_up")
			peers = append(peers, p)
		}
		waiting := s.dial(t) // has not said hello
		drained := make(chan error)
		start := time.Now()
		go func() { drained <- s.Drain(context.Background()) }()
		ends := map[time.Duration]bool{}
		results := make(chan time.Duration)
		for _, p := range peers {
			go func() {
				g := frame{}
				if err := p.ws.ReadJSON(&g); err != nil || g["type"] != "goaway" || g["reason"] != "restarting" {
					t.Errorf("got %v, %v", g, err)
				}
				err := p.ws.ReadJSON(&g)
				took := time.Since(start)
				if ms := g["afterMs"].(float64); closeCode(err) != wire.CloseRestarting || took < time.Duration(ms)*time.Millisecond ||
					took > time.Duration(ms+1)*time.Millisecond {
					t.Errorf("closed after %v with %v, announced %v ms", took, err, ms)
				}
				results <- took
			}()
		}
		waiting.closed(wire.CloseRestarting)
		for range peers {
			ends[<-results] = true
		}
		if len(ends) < 5 {
			t.Errorf("8 connections ended at only %d instants", len(ends))
		}
		if err := <-drained; err != nil {
			t.Error(err)
		}
		if s.ready.Load() {
			t.Error("still ready")
		}
		if _, r := s.tryDial(t); r == nil || r.status != 503 || r.retry == "" {
			t.Errorf("a new connection while draining: %+v", r)
		}
	})
}

func TestDrainGivesUpWithItsContext(t *testing.T) {
	bubble(t, onTape, func(t *testing.T, s *memory) {
		s.live(t, time.Hour)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := s.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	}, func(c *Config) { c.Limits.DrainSpread = time.Hour })
}

func TestEntriesThatCannotBeReadEndTheStreamForNow(t *testing.T) {
	f := &tape{}
	bubble(t, func() Rooms { return f }, func(t *testing.T, s *memory) {
		p := s.live(t, time.Hour)
		f.mu.Lock()
		f.fail = errors.New("disk")
		f.mu.Unlock()
		f.add(delta("public", event.ToRoom(), "x"))
		p.closed(wire.CloseOverloaded)
	})
}

// What connections share of a room is let go when nobody reads.
func TestIdleRoomsKeepNoEntries(t *testing.T) {
	f := &tape{}
	bubble(t, func() Rooms { return f }, func(t *testing.T, s *memory) {
		p, q := s.live(t, time.Hour), s.live(t, time.Hour)
		for range 10 {
			f.add(delta("public", event.ToRoom(), "x"))
		}
		p.items(10)
		q.items(10)
		synctest.Wait()
		tail := func() int {
			s.mu.Lock()
			feed := s.feeds["r"]
			s.mu.Unlock()
			feed.mu.Lock()
			defer feed.mu.Unlock()
			return len(feed.tail)
		}
		if got := tail(); got != 10 {
			t.Errorf("%d entries are shared", got)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if got := tail(); got != 0 {
			t.Errorf("%d entries are kept", got)
		}
		f.add(delta("public", event.ToRoom(), "y"))
		if i := p.items(1); body(i[0])["delta"] != "y" {
			t.Errorf("got %v", i)
		}
		// The room is let go with its last connection, the subject a while later.
		p.ws.Close()
		q.ws.Close()
		synctest.Wait()
		if got := s.Stats(); got.Rooms != 0 || got.Connections != 0 {
			t.Errorf("%+v", got)
		}
		time.Sleep(2 * idleFor)
		synctest.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.seats)+len(s.subjects)+len(s.addresses) != 0 {
			t.Errorf("%d seats, %d subjects, %d addresses are kept", len(s.seats), len(s.subjects), len(s.addresses))
		}
	})
}

func TestTheWheel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWheel()
		start := time.Now()
		var got []string
		add := func(name string, d time.Duration) *timer {
			tm := &timer{}
			tm.fire = func() { got = append(got, fmt.Sprint(name, time.Since(start))) }
			w.set(tm, start.Add(d))
			return tm
		}
		c := add("c", 3*time.Second)
		add("a", time.Second)
		b := add("b", 10*time.Second)
		d := add("d", 4*time.Second)
		w.earlier(b, start.Add(2*time.Second))
		w.earlier(b, start.Add(5*time.Second))
		w.stop(c)
		w.stop(c)
		w.set(d, start.Add(6*time.Second))
		add("past", -time.Second)
		time.Sleep(time.Minute)
		synctest.Wait()
		w.close()
		if want := "[past0s a1s b2s d6s]"; fmt.Sprint(got) != want {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

func TestTheBucket(t *testing.T) {
	var b bucket
	p := perSecond(5, 10)
	now := time.Unix(1_000_000, 0)
	for i := range 10 {
		if wait := b.take(now, p); wait != 0 {
			t.Fatalf("take %d waits %v", i, wait)
		}
	}
	if wait := b.take(now, p); wait != 200*time.Millisecond {
		t.Errorf("the eleventh waits %v", wait)
	}
	b.give(p)
	if wait := b.take(now, p); wait != 0 {
		t.Errorf("one was given back, but waits %v", wait)
	}
	if wait := b.take(now.Add(199*time.Millisecond), p); wait != time.Millisecond {
		t.Errorf("waits %v", wait)
	}
	for i := range 10 {
		if wait := b.take(now.Add(time.Hour), p); wait != 0 {
			t.Errorf("an hour later take %d waits %v", i, wait)
		}
	}
	if b.take(now.Add(time.Hour), p) == 0 {
		t.Error("an hour fills the bucket above its brim")
	}
}
