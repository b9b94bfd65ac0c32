package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"parley/event"
	"parley/gateway/wire"
)

// bubble runs f with a server and the configuration of a client that reaches it.
func bubble(t *testing.T, s *server, f func(t *testing.T, c Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s.t = t
		ln := newPipes()
		srv := &http.Server{Handler: s}
		served := make(chan error, 1)
		go func() { served <- srv.Serve(ln) }()
		tokens := 0
		f(t, Config{
			URL: "ws://server", Room: "demo-1", Channels: []event.ChannelID{"public"}, Session: "s",
			Token: func(context.Context) (string, error) {
				tokens++
				return fmt.Sprintf("jwt-%d", tokens), nil
			},
			Dialer: &websocket.Dialer{NetDialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				return ln.dial(ctx, network, addr)
			}},
		})
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}

func newClient(t *testing.T, c Config) *Client {
	t.Helper()
	cl, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return cl
}

// start runs a client beside the test. The function returned ends it.
func start(c *Client, h Handler) (end func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx, h) }()
	return func() error {
		cancel()
		return <-done
	}
}

func TestAClientResumesWhereItsHandlerStands(t *testing.T) {
	var cursors []string
	s := &server{scripts: []func(*peer){
		func(p *peer) {
			cursors = append(cursors, p.Hello.Cursor)
			p.send(readyAt("c0", false), stateOf(), eventsFrom(1, "c2", "e1", "e2"), eventsFrom(3, "c4", "e3", "e4"))
			p.close(wire.CloseRestarting)
		},
		func(p *peer) {
			cursors = append(cursors, p.Hello.Cursor)
			p.send(readyAt(p.Hello.Cursor, true), eventsFrom(1, "c5", "e1", "e2", "e3", "e4", "e5"), wire.CaughtUp{Cursor: "c5"}.Append(nil))
			p.gone()
		},
	}}
	bubble(t, s, func(t *testing.T, c Config) {
		store := &shelf{}
		c.Storage = store
		h := &product{seen: make(chan string)}
		cl := newClient(t, c)
		end := start(cl, h)
		for _, want := range []string{"reset:", "e1"} {
			if got := <-h.seen; got != want {
				t.Fatalf("got %s, want %s", got, want)
			}
		}
		// The handler is in the middle of e2 while the server restarts.
		time.Sleep(5 * time.Second)
		for _, want := range []string{"e2", "e3", "e4", "e5"} {
			if got := <-h.seen; got != want {
				t.Fatalf("got %s, want %s", got, want)
			}
		}
		synctest.Wait()
		if st := cl.Status(); st.Phase != Live || st.Sub != "ada" {
			t.Errorf("the status is %+v", st)
		}
		if err := end(); !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v", err)
		}
		s.busy.Wait()
		if want := []string{"", "c0"}; !reflect.DeepEqual(cursors, want) {
			t.Errorf("asked to resume from %q, want %q", cursors, want)
		}
		if store.cursor != "c5" {
			t.Errorf("the cursor is %q", store.cursor)
		}
		if want := []string{"Bearer jwt-1", "Bearer jwt-2"}; !reflect.DeepEqual(s.tokens, want) {
			t.Errorf("the tokens were %q, want a fresh one each time", s.tokens)
		}
	})
}

func TestAnInputIsSentUntilItIsAccepted(t *testing.T) {
	s := &server{scripts: []func(*peer){
		func(p *peer) { // takes the input and dies before the answer
			p.send(readyAt("c0", false), stateOf())
			if in, ok := p.next().(*wire.Input); !ok || in.Final.ID != "i-1" {
				p.t.Errorf("got %+v", in)
			}
		},
		func(p *peer) { // wants it later
			p.send(readyAt("c0", false), stateOf())
			p.next()
			asked := time.Now()
			p.send(wire.Error{Ref: "i-1", Code: wire.CodeRateLimited, Message: "Slow down.", RetryMs: 700}.Append(nil))
			p.next()
			if waited := time.Since(asked); waited < 700*time.Millisecond {
				p.t.Errorf("sent again after %v", waited)
			}
			p.send(accepted("i-1", true))
			in := p.next().(*wire.Input)
			p.send(wire.Error{Ref: string(in.Final.ID), Code: wire.CodeNoAgent, Message: "Nobody is there."}.Append(nil))
			p.gone()
		},
	}}
	bubble(t, s, func(t *testing.T, c Config) {
		store := &shelf{}
		c.Storage = store
		var told []string
		c.Observer = Observer{
			Deferred: func(id event.InputID, code wire.Code) { told = append(told, fmt.Sprint("deferred ", id, " ", code)) },
			Accepted: func(a Accepted) { told = append(told, fmt.Sprint("accepted ", a.ID)) },
			Refused:  func(id event.InputID, err error) { told = append(told, fmt.Sprint("refused ", id)) },
		}
		cl := newClient(t, c)
		end := start(cl, &product{})
		got, err := cl.Submit(t.Context(), Input{ID: "i-1", Channel: "public", Text: "hello"})
		if err != nil || got.Run != "r" || !got.Duplicate {
			t.Errorf("got %+v, %v", got, err)
		}
		_, err = cl.Submit(t.Context(), Input{ID: "i-2", Channel: "public", Text: "hello"})
		if refused, ok := errors.AsType[*RefusedError](err); !ok || refused.Code != wire.CodeNoAgent {
			t.Errorf("got %v", err)
		}
		if err := end(); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if len(store.outbox) != 0 {
			t.Errorf("%d inputs are kept", len(store.outbox))
		}
		if want := []string{"deferred i-1 rate_limited", "accepted i-1", "refused i-2"}; !reflect.DeepEqual(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
	})
}

func TestAnInputOutlivesTheClient(t *testing.T) {
	s := &server{scripts: []func(*peer){
		func(p *peer) {
			p.send(readyAt("c0", false), stateOf())
			p.gone()
		},
		func(p *peer) {
			p.send(readyAt("c0", true))
			in := p.next().(*wire.Input)
			p.send(accepted(in.Final.ID, false))
			p.gone()
		},
	}}
	bubble(t, s, func(t *testing.T, c Config) {
		store := &shelf{}
		c.Storage = store
		cl := newClient(t, c)
		end := start(cl, &product{})
		answered := make(chan error, 1)
		go func() {
			_, err := cl.Submit(context.Background(), Input{ID: "i-1", Channel: "public", Text: "hello"})
			answered <- err
		}()
		synctest.Wait()
		if err := end(); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if err := <-answered; !errors.Is(err, ErrStopped) {
			t.Errorf("the caller was told %v", err)
		}
		done := make(chan Accepted, 1)
		c.Observer.Accepted = func(a Accepted) { done <- a }
		end = start(newClient(t, c), &product{})
		if a := <-done; a.ID != "i-1" {
			t.Errorf("accepted %+v", a)
		}
		if err := end(); !errors.Is(err, context.Canceled) || len(store.outbox) != 0 {
			t.Errorf("%v; %d inputs are kept", err, len(store.outbox))
		}
	})
}

func TestAHandlerThatFailsEndsRunAndIsGivenTheSameAgain(t *testing.T) {
	serve := func(p *peer) {
		if p.Hello.Cursor == "" {
			p.send(readyAt("c0", false), stateOf())
		} else {
			p.send(readyAt(p.Hello.Cursor, true))
		}
		p.send(eventsFrom(1, "c2", "e1", "e2"))
		p.gone()
	}
	bubble(t, &server{scripts: []func(*peer){serve, serve}}, func(t *testing.T, c Config) {
		broken := errors.New("the database is away")
		h := &product{fail: func(s string) error {
			if s == "e2" {
				return broken
			}
			return nil
		}}
		cl := newClient(t, c)
		err := cl.Run(t.Context(), h)
		if failed, ok := errors.AsType[*HandlerError](err); !ok || failed.Item != "e2" || !errors.Is(err, broken) {
			t.Fatalf("Run returned %v", err)
		}
		h.fail, h.seen = nil, make(chan string)
		end := start(cl, h)
		if got := <-h.seen; got != "e2" {
			t.Errorf("began again with %s", got)
		}
		if err := end(); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if want := []string{"reset:", "e1", "e2"}; !reflect.DeepEqual(h.got, want) {
			t.Errorf("handled %q, want %q", h.got, want)
		}
	})
}

func TestAGapIsClosedWith4000AndResumed(t *testing.T) {
	var code int
	s := &server{scripts: []func(*peer){
		func(p *peer) {
			p.send(readyAt("c0", false), stateOf(), eventsFrom(1, "c1", "e1"), eventsFrom(3, "c3", "e3"))
			code = p.gone()
		},
		func(p *peer) {
			p.send(readyAt(p.Hello.Cursor, true), eventsFrom(1, "c3", "e1", "e2", "e3"))
			p.gone()
		},
	}}
	bubble(t, s, func(t *testing.T, c Config) {
		var faults []error
		c.Observer.Fault = func(err error) { faults = append(faults, err) }
		h := &product{seen: make(chan string)}
		end := start(newClient(t, c), h)
		for _, want := range []string{"reset:", "e1", "e2", "e3"} {
			if got := <-h.seen; got != want {
				t.Fatalf("got %s, want %s", got, want)
			}
		}
		if err := end(); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		s.busy.Wait()
		if code != int(wire.CloseGap) {
			t.Errorf("left with %d", code)
		}
		if _, ok := errors.AsType[*GapError](errors.Join(faults...)); !ok || len(faults) != 1 {
			t.Errorf("the faults are %v", faults)
		}
	})
}

func TestASilentServerIsLeft(t *testing.T) {
	var died time.Duration
	s := &server{scripts: []func(*peer){
		func(p *peer) {
			p.send(readyAt("c0", false), stateOf())
			since := time.Now()
			p.send(wire.Ping{Cursor: "c0", T: 5}.Append(nil))
			if pong, ok := p.next().(*wire.Pong); !ok || pong.T != 5 {
				p.t.Errorf("the ping was answered with %+v", pong)
			}
			p.gone()
			died = time.Since(since)
		},
		func(p *peer) { p.send(readyAt("c0", true), eventsFrom(1, "c1", "e1")); p.gone() },
	}}
	bubble(t, s, func(t *testing.T, c Config) {
		h := &product{seen: make(chan string)}
		end := start(newClient(t, c), h)
		<-h.seen
		if got := <-h.seen; got != "e1" {
			t.Errorf("got %s", got)
		}
		if err := end(); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		s.busy.Wait()
		if died != 35*time.Second {
			t.Errorf("declared dead after %v, want the ping interval and ten seconds", died)
		}
	})
}

func TestAcknowledgementsComeEachSecondOr64Items(t *testing.T) {
	type ack struct {
		n  uint64
		at time.Duration
	}
	var acks []ack
	s := &server{scripts: []func(*peer){func(p *peer) {
		p.send(readyAt("c0", false), stateOf())
		since := time.Now()
		go func() {
			for i := range 4 { // 130 items at once, then one after the other
				p.send(eventsFrom(uint64(i*40+1), fmt.Sprint("c", i), many(i, 40)...))
			}
			time.Sleep(300 * time.Millisecond)
			p.send(eventsFrom(161, "c9", "last"))
		}()
		for {
			f := p.read()
			if f == nil {
				return
			}
			if a, ok := f.(*wire.Ack); ok {
				acks = append(acks, ack{a.N, time.Since(since)})
			}
		}
	}}}
	bubble(t, s, func(t *testing.T, c Config) {
		end := start(newClient(t, c), &product{})
		time.Sleep(10 * time.Second)
		if err := end(); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		s.busy.Wait()
		want := []ack{{64, 0}, {128, 0}, {161, time.Second}}
		if !reflect.DeepEqual(acks, want) {
			t.Errorf("acknowledged %v, want %v", acks, want)
		}
	})
}

func many(i, n int) []string {
	ids := make([]string, n)
	for k := range ids {
		ids[k] = fmt.Sprintf("e%d-%d", i, k)
	}
	return ids
}

func TestAHandshakeThatIsRefusedSaysWhatToDo(t *testing.T) {
	status := func(code int, body string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.Header().Set("Retry-After", "30")
			w.WriteHeader(code)
			_, _ = w.Write([]byte(body))
		}
	}
	for _, c := range []struct {
		name   string
		refuse []func(http.ResponseWriter)
		code   wire.Close
		waited time.Duration
	}{
		{"no such room", []func(http.ResponseWriter){status(404, "")}, wire.CloseRoomNotFound, 0},
		{"not allowed", []func(http.ResponseWriter){status(403, "")}, wire.CloseForbidden, 0},
		{"not known", []func(http.ResponseWriter){status(401, `{"code":"unauthenticated"}`)}, wire.CloseUnauthenticated, 0},
		{"an old token, then not known", []func(http.ResponseWriter){status(401, `{"code":"token_expired"}`), status(401, "")}, wire.CloseUnauthenticated, 0},
		{"full, then no such room", []func(http.ResponseWriter){status(503, ""), status(404, "")}, wire.CloseRoomNotFound, 30 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, &server{refuse: c.refuse}, func(t *testing.T, cfg Config) {
				began := time.Now()
				err := newClient(t, cfg).Run(t.Context(), &product{})
				if closed, ok := errors.AsType[*ClosedError](err); !ok || closed.Code != c.code {
					t.Errorf("Run returned %v, want the code %d", err, c.code)
				}
				if waited := time.Since(began); waited != c.waited {
					t.Errorf("waited %v, want %v", waited, c.waited)
				}
			})
		})
	}
}

func TestTheBudgetEndsRun(t *testing.T) {
	bubble(t, &server{}, func(t *testing.T, c Config) {
		c.Budget = 3
		tries := 0
		c.Dialer.NetDialContext = func(context.Context, string, string) (net.Conn, error) {
			tries++
			return nil, errors.New("the network is down")
		}
		if err := newClient(t, c).Run(t.Context(), &product{}); !errors.Is(err, ErrBudget) || tries != 4 {
			t.Errorf("after %d tries: %v", tries, err)
		}
		c.Token = func(context.Context) (string, error) { return "", fmt.Errorf("%w: signed out", ErrTokenRefused) }
		if err := newClient(t, c).Run(t.Context(), &product{}); !errors.Is(err, ErrTokenRefused) {
			t.Errorf("without a token: %v", err)
		}
	})
}

func TestRequestsAreAnsweredOrFail(t *testing.T) {
	canceled := &event.CancelResult{Canceled: true, Status: event.RunCanceledStatus}
	s := &server{scripts: []func(*peer){
		func(p *peer) {
			p.send(readyAt("c0", false), stateOf(), wire.CaughtUp{Cursor: "c0"}.Append(nil))
			cancel := p.next().(*wire.Cancel)
			p.send(wire.Done{Ref: cancel.Ref, Cancel: canceled}.Append(nil))
			focus := p.next().(*wire.Focus)
			p.send(wire.Error{Ref: focus.Ref, Code: wire.CodeAgentUnknown}.Append(nil))
			sub := p.next().(*wire.Subscribe)
			p.send(wire.Subscribed{Ref: sub.Ref, Channels: sub.Channels, Can: []wire.Right{{Channel: "private:ada", Can: []event.Scope{"read"}}}}.Append(nil))
			p.next() // and dies before the answer
		},
		func(p *peer) {
			if len(p.Hello.Channels) != 2 {
				p.t.Errorf("asked for %q after a subscribe", p.Hello.Channels)
			}
			p.send(readyAt("c0", true))
			p.gone()
		},
	}}
	bubble(t, s, func(t *testing.T, c Config) {
		live := make(chan struct{}, 16)
		c.Observer.Status = func(s Status) {
			if s.Phase == Live {
				live <- struct{}{}
			}
		}
		cl := newClient(t, c)
		end := start(cl, &product{})
		<-live
		if got, err := cl.Cancel(t.Context(), "r"); err != nil || got != (CancelResult{true, "canceled"}) {
			t.Errorf("cancel: %+v, %v", got, err)
		}
		err := cl.Focus(t.Context(), "nobody")
		if refused, ok := errors.AsType[*RefusedError](err); !ok || refused.Code != wire.CodeAgentUnknown {
			t.Errorf("focus: %v", err)
		}
		can, err := cl.Subscribe(t.Context(), "private:ada")
		if err != nil || len(can["private:ada"]) != 1 {
			t.Errorf("subscribe: %v, %v", can, err)
		}
		if _, err := cl.Cancel(t.Context(), "r"); !errors.Is(err, ErrDisconnected) {
			t.Errorf("cancel on a connection that ends: %v", err)
		}
		time.Sleep(time.Second)
		if err := end(); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

func TestAStorageThatFailsEndsRun(t *testing.T) {
	s := &server{scripts: []func(*peer){func(p *peer) { p.send(readyAt("c0", false), stateOf()); p.gone() }}}
	bubble(t, s, func(t *testing.T, c Config) {
		store := &shelf{}
		c.Storage = store
		full := errors.New("the disk is full")
		h := &product{fail: func(string) error { store.failing = full; return nil }}
		if err := newClient(t, c).Run(t.Context(), h); !errors.Is(err, full) {
			t.Errorf("Run returned %v", err)
		}
		if err := newClient(t, c).Run(t.Context(), h); !errors.Is(err, full) {
			t.Errorf("Run without a start returned %v", err)
		}
	})
}

func TestOneRunAtATime(t *testing.T) {
	bubble(t, &server{}, func(t *testing.T, c Config) {
		c.Token = func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() }
		cl := newClient(t, c)
		end := start(cl, &product{})
		synctest.Wait()
		if err := cl.Run(t.Context(), &product{}); !errors.Is(err, ErrRunning) {
			t.Errorf("the second Run returned %v", err)
		}
		if err := end(); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

func TestConfigurationFaultsAreReportedAtOnce(t *testing.T) {
	_, err := New(Config{URL: "ftp://x", Room: "a room", Channels: []event.ChannelID{"ö"}, From: "middle", MaxFrame: 1, Budget: -1})
	if err == nil {
		t.Fatal("taken")
	}
	for _, key := range []string{"URL", "Room", "Token", "Channels[0]", "From", "MaxFrame", "Budget"} {
		if !strings.Contains(err.Error(), key+":") {
			t.Errorf("%s is not named in: %v", key, err)
		}
	}
}

// Over a real socket.
func TestLoopback(t *testing.T) {
	s := &server{t: t, scripts: []func(*peer){
		func(p *peer) {
			p.send(readyAt("c0", false), stateOf(), eventsFrom(1, "c2", "e1", "e2"))
			p.next()
		},
		func(p *peer) {
			p.send(readyAt(p.Hello.Cursor, true), eventsFrom(1, "c3", "e3"))
			in := p.next().(*wire.Input)
			p.send(accepted(in.Final.ID, true))
			p.gone()
		},
	}}
	srv := httptest.NewServer(s)
	defer srv.Close()
	cl := newClient(t, Config{
		URL: srv.URL, Room: "demo-1", Channels: []event.ChannelID{"public"},
		Token: func(context.Context) (string, error) { return "jwt", nil },
	})
	h := &product{seen: make(chan string)}
	end := start(cl, h)
	for _, want := range []string{"reset:", "e1", "e2"} {
		if got := <-h.seen; got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
	}
	got := make(chan error, 1)
	go func() {
		_, err := cl.Submit(context.Background(), Input{Channel: "public", Text: "hello"})
		got <- err
	}()
	if e := <-h.seen; e != "e3" {
		t.Errorf("got %s", e)
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
	if err := end(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
