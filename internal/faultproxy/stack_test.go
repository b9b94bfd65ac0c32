package faultproxy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus"

	"parley"
	"parley/client"
	"parley/driver"
	"parley/event"
	"parley/gateway/wire"
	"parley/internal/faultproxy"
	"parley/internal/wsconn"
)

const (
	issuer, audience = "https://issuer.example", "parley"
	pieces           = 12 // of an answer, each a delta of its own
)

var key = parley.Key{Alg: "HS256", Secret: bytes.Repeat([]byte{7}, 32)}

// stack is a real server with its data on the disk, a proxy before it, and what
// a test needs to look past the proxy. Made in a bubble; close it there.
type stack struct {
	t     *testing.T
	rt    *parley.Runtime
	srv   *http.Server
	front *wsconn.Listener // of the proxy
	back  *wsconn.Listener // of the server
	proxy *faultproxy.Proxy
	done  chan error
}

// story answers every input with many small pieces, a moment between them.
func story(ctx context.Context, turn *driver.Turn, out driver.Emitter) error {
	for i := range pieces {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(50 * time.Millisecond):
		}
		if err := out.Emit(event.AssistantOutput{
			Output: "o", Delta: fmt.Sprintf("%s/%d ", turn.Text, i), Final: i == pieces-1, Purpose: event.Answer, History: event.Record,
		}); err != nil {
			return err
		}
	}
	return nil
}

func newStack(t *testing.T) *stack {
	t.Helper()
	rt, err := parley.New(parley.Config{
		Data: t.TempDir(), Secret: bytes.Repeat([]byte{9}, 32), Auth: parley.Auth{Issuer: issuer, Audience: audience, Keys: []parley.Key{key}},
		Drivers: map[string]driver.Driver{"story": driver.RunFunc(story)},
		Templates: []parley.Template{{Match: "demo-*", ParticipantsCreate: true, Room: event.RoomConfig{
			Agents:        []event.Agent{{ID: "story", Label: "Story", Role: "guide", Driver: "story"}},
			FallbackAgent: "story", Channels: []event.ChannelPolicy{{Match: "**", OnBusy: event.BusyQueue}},
		}}},
		Limits: parley.Limits{InputsPerSecond: 100, InputBurst: 100, FramesPerSecond: 1000},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := rt.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	s := &stack{
		t: t, rt: rt, front: wsconn.Listen(16 << 10), back: wsconn.Listen(16 << 10), done: make(chan error, 1),
		srv: &http.Server{Handler: rt.Handler(), ReadHeaderTimeout: 10 * time.Second},
	}
	go func() { s.done <- s.srv.Serve(s.back) }()
	s.proxy = faultproxy.New(s.front, s.back.Dial)
	return s
}

func (s *stack) close() {
	s.t.Helper()
	s.proxy.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := errors.Join(s.rt.Shutdown(ctx), s.srv.Shutdown(ctx)); err != nil {
		s.t.Error(err)
	}
	if err := <-s.done; !errors.Is(err, http.ErrServerClosed) {
		s.t.Error(err)
	}
}

// connections returns how many sockets the server believes in.
func (s *stack) connections() int {
	s.t.Helper()
	reg := prometheus.NewRegistry()
	reg.MustRegister(s.rt.Collector())
	families, err := reg.Gather()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "parley_connections_open" {
			return int(f.GetMetric()[0].GetGauge().GetValue())
		}
	}
	s.t.Fatal("open connections are not counted any more")
	return 0
}

// guest is a real client, and what it has handled. mu guards seen and changes;
// the rest is set before Run.
type guest struct {
	*client.Client
	cancel context.CancelFunc
	ended  chan error

	mu      sync.Mutex
	seen    []*client.Item
	resets  int
	gone    []time.Time // when it found a connection dead or closed
	closed  []error
	faults  []error
	changed chan struct{}
}

// join starts a client behind the proxy, or past it.
func (s *stack) join(sub event.ParticipantID, proxied bool) *guest {
	s.t.Helper()
	g := &guest{ended: make(chan error, 1), changed: make(chan struct{}, 1)}
	l := s.back
	if proxied {
		l = s.front
	}
	token := func(context.Context) (string, error) { return parleyToken(sub) }
	c, err := client.New(client.Config{
		URL: "ws://parley.example", Room: "demo-1", Token: token, Channels: []event.ChannelID{"public"}, From: wire.FromStart,
		Budget: 1000, Dialer: &websocket.Dialer{NetDialContext: l.Dial, HandshakeTimeout: 10 * time.Second},
		Observer: client.Observer{
			Status: func(st client.Status) {
				g.mu.Lock()
				defer g.mu.Unlock()
				if st.Phase == client.Waiting {
					g.gone = append(g.gone, time.Now())
					g.closed = append(g.closed, st.Err)
				}
			},
			Fault: func(err error) {
				g.mu.Lock()
				defer g.mu.Unlock()
				g.faults = append(g.faults, err)
			},
		},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	g.Client = c
	ctx, cancel := context.WithCancel(context.Background())
	g.cancel = cancel
	go func() { g.ended <- c.Run(ctx, g) }()
	return g
}

func parleyToken(sub event.ParticipantID) (string, error) {
	can := []event.Scope{event.ScopeRead, event.ScopeInput, event.ScopeCancel}
	return parley.MintToken(key, parley.TokenSpec{Issuer: issuer, Audience: audience, Life: time.Hour, Access: event.Access{
		Subject: sub, Rooms: []string{"demo-*"}, Scopes: can,
		Channels: []event.ChannelRule{{Match: "public", Can: can, Disclosure: event.ToRoom()}},
	}})
}

func (g *guest) leave() error {
	g.cancel()
	return <-g.ended
}

func (g *guest) Reset(context.Context, *client.State, wire.Reset) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.resets++
	return nil
}

func (g *guest) Item(_ context.Context, i *client.Item) error {
	g.mu.Lock()
	g.seen = append(g.seen, i)
	g.mu.Unlock()
	select {
	case g.changed <- struct{}{}:
	default:
	}
	return nil
}

func (g *guest) items() []*client.Item {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.seen)
}

// completed waits until n runs have ended before the guest's eyes.
func (g *guest) completed(t *testing.T, n int) {
	t.Helper()
	late := time.After(time.Hour) // of the bubble
	for {
		ends := 0
		for _, i := range g.items() {
			var b struct{ Type string }
			if json.Unmarshal(i.Body, &b) == nil && b.Type == "completed" {
				ends++
			}
		}
		if ends >= n {
			return
		}
		select {
		case <-g.changed:
		case err := <-g.ended:
			t.Fatalf("the client ended with %v after %d of %d runs", err, ends, n)
		case <-late:
			t.Fatalf("%d of %d runs have ended after an hour; %+v", ends, n, g.Status())
		}
	}
}

// sameAsTheJournal compares what a guest behind faults has handled with what
// one without any gets from the start: all of it, in order, once.
func (s *stack) sameAsTheJournal(g *guest, inputs []event.InputID) {
	t := s.t
	t.Helper()
	plain := s.join("ann", false)
	plain.completed(t, len(inputs))
	want, got := plain.items(), g.items()
	if err := plain.leave(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if len(got) != len(want) {
		t.Errorf("the guest has handled %d items, there are %d", len(got), len(want))
	}
	ids := map[string]bool{}
	for i := range min(len(got), len(want)) {
		if got[i].ID != want[i].ID || !bytes.Equal(got[i].Body, want[i].Body) {
			t.Fatalf("item %d is %s %s, want %s %s", i, got[i].ID, got[i].Body, want[i].ID, want[i].Body)
		}
		if ids[got[i].ID] {
			t.Errorf("item %s came twice", got[i].ID)
		}
		ids[got[i].ID] = true
	}
	// Each input is in the journal once, and so is each piece of its answer.
	var admitted []event.InputID
	said := map[event.RunID]string{}
	for _, i := range want {
		var b struct {
			InputID     event.InputID
			Type, Delta string
		}
		if err := json.Unmarshal(i.Body, &b); err != nil {
			t.Fatal(err)
		}
		if i.Kind == "input" {
			admitted = append(admitted, b.InputID)
		}
		said[i.Run] += b.Delta
	}
	if !slices.Equal(admitted, inputs) {
		t.Errorf("the journal admits %v, want %v", admitted, inputs)
	}
	answers := map[string]bool{}
	for _, text := range said {
		if text != "" {
			answers[text] = true
		}
	}
	for _, id := range inputs {
		whole := ""
		for i := range pieces {
			whole += fmt.Sprintf("say %s/%d ", id, i)
		}
		if !answers[whole] {
			t.Errorf("no run has answered %s whole: %v", id, answers)
		}
	}
}
