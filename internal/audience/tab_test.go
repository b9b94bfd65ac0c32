package audience

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"parley/gateway/wire"
)

// tab is one connection of a client, as a page that is open. Safe for concurrent
// use; mu guards what follows it, and wmu the writing.
type tab struct {
	ws     *websocket.Conn
	from   time.Time
	ended  chan struct{}
	wmu    sync.Mutex
	mu     sync.Mutex
	frames []frame
	gate   chan struct{} // closed: it reads
	acks   bool          // it acknowledges each frame
	n      uint64        // items that came
	slept  bool          // it has paused
	code   int           // of the close; 0 while it is open, -1 without a close frame
}

// frame is what came, and when.
type frame struct {
	at  time.Duration
	raw []byte
	typ string
}

// dial opens a connection as a page of the game does.
func (s *stack) dial(from time.Time) (*tab, error) {
	d := websocket.Dialer{Subprotocols: []string{wire.Subprotocol}, NetDialContext: s.listener.Dial}
	ws, resp, err := d.DialContext(context.Background(), "ws://memory/v1/rooms/"+string(hall)+"/ws", http.Header{"Origin": {origin}})
	if err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	resp.Body.Close()
	open := make(chan struct{})
	close(open)
	t := &tab{ws: ws, from: from, ended: make(chan struct{}), gate: open, acks: true}
	go t.read()
	return t, nil
}

func (t *tab) read() {
	defer close(t.ended)
	defer t.ws.Close()
	for {
		t.mu.Lock()
		gate := t.gate
		t.mu.Unlock()
		<-gate
		_, raw, err := t.ws.ReadMessage()
		if err != nil {
			t.mu.Lock()
			t.code = -1
			if c, ok := errors.AsType[*websocket.CloseError](err); ok {
				t.code = c.Code
			}
			t.mu.Unlock()
			return
		}
		var f struct {
			Type  string            `json:"type"`
			N     uint64            `json:"n"`
			T     int64             `json:"t"`
			Items []json.RawMessage `json:"items"`
		}
		if err := json.Unmarshal(raw, &f); err != nil {
			f.Type = "unreadable"
		}
		t.mu.Lock()
		t.frames = append(t.frames, frame{time.Since(t.from), raw, f.Type})
		t.n += uint64(len(f.Items))
		acks, n := t.acks, t.n
		t.mu.Unlock()
		switch {
		case f.Type == wire.TypePing:
			t.send(map[string]any{"type": "pong", "t": f.T})
		case f.Type == wire.TypeEvents && acks:
			t.send(map[string]any{"type": "ack", "n": n})
		}
	}
}

// send writes a frame. That the connection has ended is seen by read.
func (t *tab) send(f map[string]any) {
	raw, err := json.Marshal(f)
	if err != nil {
		panic(err) // plain values only
	}
	t.wmu.Lock()
	defer t.wmu.Unlock()
	_ = t.ws.WriteMessage(websocket.TextMessage, raw)
}

// pause stops reading after at most one more frame; resume goes on.
func (t *tab) pause() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.slept = true
	select {
	case <-t.gate:
		t.gate = make(chan struct{})
	default:
	}
}

func (t *tab) resume() {
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-t.gate:
	default:
		close(t.gate)
	}
}

// hold stops acknowledging; release acknowledges all that came, and all that comes.
func (t *tab) hold() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.acks = false
}

func (t *tab) release() {
	t.mu.Lock()
	t.acks = true
	n := t.n
	t.mu.Unlock()
	t.send(map[string]any{"type": "ack", "n": n})
}

// got returns what has come so far, and how the connection ended: 0 for not yet.
func (t *tab) got() ([]frame, int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.frames[:len(t.frames):len(t.frames)], t.code
}

// leave closes the connection, with a close frame or without, and waits for its end.
func (t *tab) leave(politely bool) {
	t.resume()
	if politely {
		t.wmu.Lock()
		_ = t.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), time.Now().Add(time.Second))
		t.wmu.Unlock()
	} else {
		t.ws.Close()
	}
	<-t.ended
}

// cursor returns the cursor of a frame, "" when it has none.
func (f frame) cursor() string {
	var c struct {
		Cursor string `json:"cursor"`
	}
	_ = json.Unmarshal(f.raw, &c)
	return c.Cursor
}
