package faultproxy_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"parley/client"
	"parley/event"
	"parley/internal/faultproxy"
)

var (
	rounds = flag.Int("rounds", 3, "rounds of random faults")
	seed   = flag.Uint64("seed", 0, "seed of the first round; 0: another one each time")
)

// inputs is how many inputs a guest sends in a scenario.
const inputs = 6

// scenario has a guest speak and listen through a network that does what inject
// does to it. Whatever that is: each input is acknowledged once, with one run,
// and the guest handles the whole transcript, in order, once.
func scenario(t *testing.T, inject func(s *stack)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newStack(t)
		defer s.close()
		g := s.join("ann", true)
		harmed := make(chan struct{})
		go func() {
			defer close(harmed)
			inject(s)
			s.proxy.Set(faultproxy.Fault{})
		}()
		var ids []event.InputID
		runs := map[event.RunID]bool{}
		for i := range inputs {
			id := event.InputID(fmt.Sprint("i-", i))
			ids = append(ids, id)
			ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
			got, err := g.Submit(ctx, client.Input{ID: id, Channel: "public", Text: "say " + string(id), Modality: event.Text})
			cancel()
			if err != nil || got.ID != id || runs[got.Run] {
				t.Errorf("input %s: %+v, %v", id, got, err)
			}
			runs[got.Run] = true
			time.Sleep(300 * time.Millisecond)
		}
		g.completed(t, inputs)
		<-harmed
		s.sameAsTheJournal(g, ids)
		if err := g.leave(); !errors.Is(err, context.Canceled) {
			t.Errorf("the client ended with %v", err)
		}
		for _, err := range g.faults {
			t.Errorf("the client saw a fault of the server: %v", err)
		}
	})
}

func TestNothingIsLostOrDoubled(t *testing.T) {
	for name, inject := range map[string]func(s *stack){
		"over a good network": func(*stack) {},
		"when all is late": func(s *stack) {
			s.proxy.Set(faultproxy.Fault{Mode: faultproxy.Delay, Wait: 400 * time.Millisecond})
			time.Sleep(time.Minute)
		},
		"when all is later than the client bears to wait": func(s *stack) {
			s.proxy.Set(faultproxy.Fault{Mode: faultproxy.Delay, Wait: 15 * time.Second})
			time.Sleep(3 * time.Minute)
		},
		"when all trickles": func(s *stack) {
			s.proxy.Set(faultproxy.Fault{Mode: faultproxy.Trickle, Bytes: 50, Wait: 10 * time.Millisecond})
			time.Sleep(time.Minute)
		},
		"when it is cut again and again": func(s *stack) {
			for range 40 {
				time.Sleep(370 * time.Millisecond)
				s.proxy.Reset()
			}
		},
		"when it is cut in mid frame": func(s *stack) {
			for range 20 {
				s.proxy.Set(faultproxy.Fault{Mode: faultproxy.Trickle, Bytes: 7, Wait: time.Millisecond})
				time.Sleep(777 * time.Millisecond)
				s.proxy.Reset()
				s.proxy.Set(faultproxy.Fault{})
				time.Sleep(50 * time.Millisecond)
			}
		},
		"when it is half open": func(s *stack) {
			for range 3 {
				time.Sleep(450 * time.Millisecond)
				s.proxy.Set(faultproxy.Fault{Mode: faultproxy.HalfOpen})
				time.Sleep(2 * time.Minute)
				s.proxy.Set(faultproxy.Fault{})
				time.Sleep(30 * time.Second)
			}
		},
		"when only old connections are half open": func(s *stack) {
			for range 5 {
				time.Sleep(333 * time.Millisecond)
				s.proxy.Present(faultproxy.Fault{Mode: faultproxy.HalfOpen})
				time.Sleep(40 * time.Second)
			}
		},
		"when what was held back comes late": func(s *stack) {
			for range 5 {
				time.Sleep(333 * time.Millisecond)
				s.proxy.Present(faultproxy.Fault{Mode: faultproxy.HalfOpen})
				time.Sleep(40 * time.Second) // the client is on another connection
				s.proxy.Present(faultproxy.Fault{})
			}
		},
		"when closes are swallowed": func(s *stack) {
			s.proxy.Set(faultproxy.Fault{Mode: faultproxy.Swallow})
			for range 10 {
				time.Sleep(410 * time.Millisecond)
				s.proxy.Reset()
			}
		},
	} {
		t.Run(name, func(t *testing.T) { scenario(t, inject) })
	}
}

// TestRandomFaults is a scenario in which the faults follow a seed.
func TestRandomFaults(t *testing.T) {
	for i := range *rounds {
		first := *seed
		if first == 0 {
			first = uint64(time.Now().UnixNano())
		}
		t.Run(fmt.Sprint("round ", i), func(t *testing.T) {
			t.Logf("-seed %d -rounds 1", first+uint64(i))
			rng := rand.New(rand.NewPCG(first+uint64(i), 1))
			scenario(t, func(s *stack) {
				for range 5 + rng.IntN(20) {
					f := faultproxy.Fault{
						Mode: faultproxy.Mode(rng.IntN(5)), Wait: time.Duration(1+rng.IntN(50)) * time.Millisecond, Bytes: 1 + rng.IntN(200),
					}
					if rng.IntN(2) == 0 {
						s.proxy.Set(f)
					} else {
						s.proxy.Present(f)
					}
					time.Sleep(time.Duration(rng.IntN(1500)) * time.Millisecond)
					if rng.IntN(8) == 0 {
						time.Sleep(time.Minute)
					}
					if rng.IntN(2) == 0 {
						s.proxy.Reset()
					}
				}
			})
		})
	}
}

// The times in which either end notices that the other is gone without a word.
func TestAHalfOpenConnectionIsNoticed(t *testing.T) {
	// The client, by the server's silence: the ping time and ten seconds after
	// what it heard last.
	synctest.Test(t, func(t *testing.T) {
		s := newStack(t)
		defer s.close()
		g := s.join("ann", true)
		time.Sleep(time.Second)
		synctest.Wait()
		if n := s.connections(); n != 1 || g.Status().Phase != client.Live {
			t.Fatalf("%d connections, the client is %v", n, g.Status().Phase)
		}
		start := time.Now()
		s.proxy.Present(faultproxy.Fault{Mode: faultproxy.HalfOpen})
		time.Sleep(60 * time.Second)
		synctest.Wait()
		g.mu.Lock()
		gone := append([]time.Time(nil), g.gone...)
		g.mu.Unlock()
		if len(gone) != 1 || gone[0].Sub(start) > 35*time.Second || gone[0].Sub(start) < 30*time.Second {
			t.Errorf("the client notices after %v", gone)
		}
		// It is back, and its new connection has taken the place of the old.
		if n := s.connections(); n != 1 || g.Status().Phase != client.Live {
			t.Errorf("%d connections, the client is %v", n, g.Status().Phase)
		}
		if err := g.leave(); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	// The server, by pings that nobody answers: with the third that would be due.
	synctest.Test(t, func(t *testing.T) {
		s := newStack(t)
		defer s.close()
		g := s.join("ann", true)
		time.Sleep(3 * time.Second) // all is acknowledged
		s.proxy.Present(faultproxy.Fault{Mode: faultproxy.HalfOpen})
		if err := g.leave(); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		time.Sleep(70 * time.Second)
		synctest.Wait()
		if n := s.connections(); n != 1 {
			t.Errorf("%d connections before the third ping", n)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := s.connections(); n != 0 {
			t.Errorf("%d connections after it", n)
		}
	})
	// Sooner while something is said that it does not acknowledge: 20 s.
	synctest.Test(t, func(t *testing.T) {
		s := newStack(t)
		defer s.close()
		g := s.join("ann", true)
		other := s.join("bob", false)
		time.Sleep(time.Second)
		s.proxy.Present(faultproxy.Fault{Mode: faultproxy.HalfOpen})
		if err := g.leave(); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if _, err := other.Submit(t.Context(), client.Input{ID: "i-0", Channel: "public", Text: "say i-0", Modality: event.Text}); err != nil {
			t.Error(err)
		}
		other.completed(t, 1)
		time.Sleep(15 * time.Second)
		synctest.Wait()
		if n := s.connections(); n != 2 {
			t.Errorf("%d connections before 20 seconds", n)
		}
		time.Sleep(8 * time.Second)
		synctest.Wait()
		if n := s.connections(); n != 1 {
			t.Errorf("%d connections after them", n)
		}
		if err := other.leave(); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// A side that ends without a word, and whose end never arrives, is noticed like
// one that is half open: by the other's pings.
func TestASwallowedEndIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStack(t)
		defer s.close()
		g := s.join("ann", true)
		time.Sleep(time.Second)
		s.proxy.Present(faultproxy.Fault{Mode: faultproxy.HalfOpen}) // of the close frame too
		if err := g.leave(); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		s.proxy.Present(faultproxy.Fault{Mode: faultproxy.Swallow})
		synctest.Wait()
		// The close frame, which was held back, has arrived: that ends it at once.
		if n := s.connections(); n != 0 {
			t.Errorf("%d connections after a close frame", n)
		}
		// Another comes and goes without one.
		c, err := s.front.Dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		token, _ := parleyToken("bob")
		_, _ = fmt.Fprintf(c, "GET /v1/rooms/demo-1/ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"+
			"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: parley.v1\r\nAuthorization: Bearer %s\r\n\r\n", token)
		take(t, c, 12)
		hello := `{"type":"hello","channels":["public"]}`
		if _, err := c.Write(append([]byte{0x81, 0x80 | byte(len(hello)), 0, 0, 0, 0}, hello...)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		s.proxy.Set(faultproxy.Fault{Mode: faultproxy.Swallow})
		c.Close()
		time.Sleep(70 * time.Second)
		synctest.Wait()
		if n := s.connections(); n != 1 {
			t.Errorf("%d connections before the third ping", n)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := s.connections(); n != 0 {
			t.Errorf("%d connections after it", n)
		}
	})
}
