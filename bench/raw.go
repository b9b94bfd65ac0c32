package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/gorilla/websocket"
)

// ServeRaw is the baseline of fan-out and of idle connections: gorilla/websocket
// with nothing around it. It takes the connections of the bench's viewers and
// sends to all of them what its control connection tells it to. Nothing is
// checked and nothing is kept. It is started by the hidden command bench raw;
// ready gets its address.
func ServeRaw(ctx context.Context, ready func(addr string) error) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	b := &broadcaster{upgrader: websocket.Upgrader{
		// As tuned as it gets: a small read buffer, write buffers only while they are
		// written to, and no goroutine of the HTTP server.
		ReadBufferSize: 1024, WriteBufferSize: 4096, WriteBufferPool: &sync.Pool{},
	}}
	srv := &http.Server{Handler: http.HandlerFunc(b.serve)} //nolint:gosec // only the bench connects
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	if err := ready(ln.Addr().String()); err != nil {
		return errors.Join(err, srv.Close())
	}
	<-ctx.Done()
	err = srv.Close()
	b.close()
	if e := <-served; !errors.Is(e, http.ErrServerClosed) {
		err = errors.Join(err, e)
	}
	return err
}

// broadcaster has the viewers of the one room there is. Safe for concurrent
// use; mu guards what follows it.
type broadcaster struct {
	upgrader websocket.Upgrader

	mu      sync.Mutex
	viewers []*rawViewer
	order   order
	n       uint64 // of the last item
}

// rawViewer is a connection. Its writer, if it has one, takes frames from out.
type rawViewer struct {
	ws  *websocket.Conn
	out chan []byte // 64 frames; whoever sends waits when it is full
}

// order is what the control connection asks for. With Items it is what frames
// are made of from then on; Frames are to be sent then.
type order struct {
	Type   string   `json:"type"` // "broadcast"
	Cursor string   `json:"cursor"`
	Items  []string `json:"items"` // each the JSON of an item; all of them are in each frame
	Frames int      `json:"frames"`
}

func (b *broadcaster) serve(w http.ResponseWriter, r *http.Request) {
	ws, err := b.upgrader.Upgrade(w, r, http.Header{"Sec-WebSocket-Protocol": {"parley.v1"}})
	if err != nil {
		return // it was answered
	}
	v := &rawViewer{ws: ws}
	b.mu.Lock()
	b.viewers = append(b.viewers, v)
	b.mu.Unlock()
	go b.read(v, strings.Contains(r.URL.Path, "/bench-idle-"))
}

// read reads what a connection sends: orders are carried out, hello is answered,
// all else is dropped.
func (b *broadcaster) read(v *rawViewer, idle bool) {
	defer func() {
		b.mu.Lock()
		if v.out != nil {
			close(v.out)
			v.out = nil
		}
		b.mu.Unlock()
		_ = v.ws.Close() // it is over
	}()
	for {
		_, raw, err := v.ws.ReadMessage()
		switch {
		case err != nil:
			return
		case bytes.HasPrefix(raw, []byte(`{"type":"broadcast"`)):
			var o order
			if json.Unmarshal(raw, &o) != nil {
				return
			}
			b.broadcast(o)
		case bytes.HasPrefix(raw, []byte(`{"`)) && bytes.Contains(raw, []byte(`"type":"hello"`)):
			err := v.ws.WriteMessage(websocket.TextMessage, []byte(`{"type":"ready","resumed":true,"cursor":"none"}`))
			if err == nil {
				err = v.ws.WriteMessage(websocket.TextMessage, []byte(`{"type":"caught_up","cursor":"none"}`))
			}
			if err != nil {
				return
			}
			if !idle { // what only idles has no writer
				b.mu.Lock()
				v.out = make(chan []byte, 64)
				go write(v.ws, v.out)
				b.mu.Unlock()
			}
		}
	}
}

func write(ws *websocket.Conn, frames <-chan []byte) {
	for f := range frames {
		if ws.WriteMessage(websocket.TextMessage, f) != nil {
			break
		}
	}
	for range frames { // its reader closes the channel soon
	}
}

// broadcast sends frames to every viewer. All viewers are there from the start,
// so that the numbers of items are the same for all, and so are the bytes.
func (b *broadcaster) broadcast(o order) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(o.Items) > 0 {
		b.order = o
	}
	for range o.Frames {
		f := []byte(eventsStart)
		f = strconv.AppendUint(f, b.n+1, 10)
		f = append(f, `,"cursor":"`+b.order.Cursor+`","items":[`+strings.Join(b.order.Items, ",")+`]}`...)
		b.n += uint64(len(b.order.Items))
		for _, v := range b.viewers {
			if v.out != nil {
				v.out <- f
			}
		}
	}
}

func (b *broadcaster) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, v := range b.viewers {
		_ = v.ws.NetConn().Close() // it ends its reader
	}
}
