package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/gorilla/websocket"

	"parley/client"
	"parley/event"
	"parley/gateway/wire"
)

// follower is a product that keeps what it is shown.
type follower struct {
	ids    []string
	resets int
}

func (f *follower) Reset(context.Context, *client.State, wire.Reset) error {
	f.resets++
	return nil
}

func (f *follower) Item(_ context.Context, i *client.Item) error {
	f.ids = append(f.ids, i.ID)
	return nil
}

// TestAClientOutlivesItsServer: the Go client stays up over kills of the real
// binary, every input that it hands over is accepted, and what its handler gets
// is the journal, each entry once and in order.
func TestAClientOutlivesItsServer(t *testing.T) {
	ctx := t.Context()
	s, err := newServer(ctx, binary, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.start(ctx); err != nil {
		t.Fatal(err)
	}
	// The dialer waits for the next process instead of spending the client's tries.
	var up sync.RWMutex
	c, err := client.New(client.Config{
		URL: "ws://" + s.addr, Room: "bench-c", Channels: []event.ChannelID{"public"}, From: wire.FromStart,
		Token: func(context.Context) (string, error) { return s.token, nil },
		Dialer: &websocket.Dialer{NetDialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			up.RLock()
			defer up.RUnlock()
			return new(net.Dialer).DialContext(ctx, network, addr)
		}},
		Observer: client.Observer{
			Fault:   func(err error) { t.Errorf("fault: %v", err) },
			Refused: func(id event.InputID, err error) { t.Errorf("%s was refused: %v", id, err) },
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	runCtx, stop := context.WithCancel(ctx)
	defer stop()
	product, ran := &follower{}, make(chan error, 1)
	go func() { ran <- c.Run(runCtx, product) }()

	// Each input supersedes the run of the one before, at any point of its answer.
	const inputs, kills = 90, 2
	accepted := make(chan int)
	go func() {
		defer close(accepted)
		for i := 1; i <= inputs; i++ {
			id := event.InputID(fmt.Sprintf("c-%d", i))
			got, err := c.Submit(ctx, client.Input{ID: id, Channel: "public", Text: "Go on."})
			if err != nil || got.ID != id {
				t.Errorf("input %d: %+v, %v", i, got, err)
				return
			}
			accepted <- i
		}
	}()
	for n := range accepted {
		if n%(inputs/(kills+1)) != 0 || n == inputs {
			continue
		}
		up.Lock()
		if err := s.kill(); err != nil {
			t.Fatal(err)
		}
		_, err := s.start(ctx)
		up.Unlock()
		if err != nil {
			t.Fatal(err)
		}
	}
	stop()
	if err := <-ran; !errors.Is(err, context.Canceled) {
		t.Errorf("the client ended with %v", err)
	}
	if _, err := s.stop(); err != nil {
		t.Fatal(err)
	}
	rooms, err := s.replay(ctx)
	if err != nil {
		t.Fatal(err)
	}
	admitted := map[string]bool{}
	var shown []string
	for _, e := range rooms["bench-c"] {
		if e.Kind == "input" {
			admitted[e.Input] = true
		}
		if !e.hidden() {
			shown = append(shown, e.ID)
		}
	}
	if len(admitted) != inputs {
		t.Errorf("%d inputs were accepted and %d are in the journal", inputs, len(admitted))
	}
	if product.resets != 1 || len(product.ids) == 0 || !slices.Equal(product.ids, shown[:min(len(shown), len(product.ids))]) {
		t.Errorf("after %d resets the handler got %d items, which are not the first of the journal's %d", product.resets, len(product.ids), len(shown))
	}
}
