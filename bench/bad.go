package bench

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"parley/gateway/wire"
)

// deafRoom is where the viewers are that never read.
const deafRoom = "bench-stream-deaf"

// stream has that room stream 200 deltas twice a second, until the run is over.
func (w *street) stream(ctx context.Context) {
	for !w.over.Load() && ctx.Err() == nil {
		c, err := sit(ctx, w.server, deafRoom, fmt.Sprint("s", time.Now().UnixNano()))
		for err == nil && !w.over.Load() && ctx.Err() == nil {
			began := time.Now()
			if _, err = c.turn(); err == nil {
				_ = rest(ctx, 500*time.Millisecond-time.Since(began)) // the loop looks itself
			}
		}
		if c != nil {
			_ = c.ws.Close() // it streams again on another
		}
		_ = rest(ctx, 50*time.Millisecond)
	}
}

// until calls f again and again until stop is closed or ctx ends.
func until(ctx context.Context, stop <-chan struct{}, f func(ctx context.Context)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-stop:
		case <-ctx.Done():
		}
		cancel()
	}()
	for ctx.Err() == nil {
		f(ctx)
	}
}

// deaf is a viewer that asks for everything from the start and reads nothing,
// with a buffer as small as the system has. It gives up after ten seconds and
// begins anew.
func (w *street) deaf(ctx context.Context, i int, stop <-chan struct{}) {
	d := websocket.Dialer{Subprotocols: []string{wire.Subprotocol}, NetDialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetReadBuffer(4096) // a larger one is a weaker nuisance
		}
		return c, err
	}}
	until(ctx, stop, func(ctx context.Context) {
		token, err := w.server.tokenOf(fmt.Sprint("deaf-", i))
		if err != nil {
			_ = rest(ctx, time.Second)
			return
		}
		ws, err := dialWith(ctx, &d, w.server.url(deafRoom), token)
		if err != nil {
			_ = rest(ctx, 100*time.Millisecond)
			return
		}
		defer func() { _ = ws.Close() }()
		if hello(ws, fmt.Sprint("deaf-", i), "") == nil {
			w.deafened.Add(1)
			_ = rest(ctx, 10*time.Second)
		}
	})
}

// hang gives inputs to a driver that never returns, each of which supersedes the
// one before, in a room of its own in each round.
func (w *street) hang(ctx context.Context, round int, stop <-chan struct{}) {
	room := fmt.Sprint("bench-hang-", round)
	until(ctx, stop, func(ctx context.Context) {
		c, err := sit(ctx, w.server, room, "h")
		if err != nil {
			_ = rest(ctx, 100*time.Millisecond)
			return
		}
		var wg sync.WaitGroup
		defer wg.Wait()
		defer func() { _ = c.ws.NetConn().Close() }()
		wg.Go(func() {
			for {
				if _, _, err := c.ws.ReadMessage(); err != nil {
					return
				}
			}
		})
		for ctx.Err() == nil {
			n := w.hung.Add(1)
			if c.write(fmt.Sprintf(`{"type":"input","id":"h-%d","channel":"public","text":"Are you there?","modality":"text"}`, n)) != nil {
				return
			}
			_ = rest(ctx, 300*time.Millisecond)
		}
	})
}

// flood sends inputs far beyond the rate that is allowed, and comes back at once
// when it is thrown out. Its own rate is bounded: it is to burden the server and
// not the machine that both share.
func (w *street) flood(ctx context.Context, round int, stop <-chan struct{}) {
	room := fmt.Sprint("bench-flood-", round)
	until(ctx, stop, func(ctx context.Context) {
		c, err := sit(ctx, w.server, room, "f")
		if err != nil {
			_ = rest(ctx, 20*time.Millisecond)
			return
		}
		var wg sync.WaitGroup
		defer wg.Wait()
		defer func() { _ = c.ws.NetConn().Close() }()
		gone := make(chan struct{})
		wg.Go(func() {
			defer close(gone)
			for {
				_, raw, err := c.ws.ReadMessage()
				if err != nil {
					if websocket.IsCloseError(err, int(wire.CloseRateLimited)) {
						w.closed.Add(1)
					}
					return
				}
				if strings.HasPrefix(string(raw), `{"type":"error"`) {
					w.refused.Add(1)
				}
			}
		})
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-gone:
				return
			case <-ctx.Done():
				return
			}
			for range max(1, w.config.Flood/100) {
				n := w.flooded.Add(1)
				if c.write(fmt.Sprintf(`{"type":"input","id":"f-%d","channel":"public","text":"Me, me, me!","modality":"text"}`, n)) != nil {
					break // its reader sees why
				}
			}
		}
	})
}
