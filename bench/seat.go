package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"parley/gateway/wire"
)

// seat is one client of one room, as light as it can be: it counts items by
// their bytes and decodes nothing that it does not need. Owned by one goroutine.
type seat struct {
	ws    *websocket.Conn
	room  string
	n     uint64 // of the last item
	acked uint64
	tag   string // makes the ids of inputs unique
	turns int
	total atomic.Int64 // items so far; read by whoever measures
}

// turnTimes is what one turn took: to its first delta, and to its end.
type turnTimes struct{ first, whole time.Duration }

func (s *server) url(room string) string { return "ws://" + s.addr + "/v1/rooms/" + room + "/ws" }

func dial(ctx context.Context, s *server, room string) (*websocket.Conn, error) {
	d := websocket.Dialer{Subprotocols: []string{wire.Subprotocol}, HandshakeTimeout: 10 * time.Second}
	return dialWith(ctx, &d, s.url(room), s.token)
}

func dialWith(ctx context.Context, d *websocket.Dialer, url, token string) (*websocket.Conn, error) {
	h := map[string][]string{"Authorization": {"Bearer " + token}}
	ws, res, err := d.DialContext(ctx, url, h) //nolint:bodyclose // the dialer keeps the body in memory
	if err != nil {
		if res != nil {
			return nil, fmt.Errorf("connect to %s: %w (status %d)", url, err, res.StatusCode)
		}
		return nil, fmt.Errorf("connect to %s: %w", url, err)
	}
	return ws, nil
}

// sit connects and waits until the stream is caught up.
func sit(ctx context.Context, s *server, room, tag string) (*seat, error) {
	ws, err := dial(ctx, s, room)
	if err != nil {
		return nil, err
	}
	c := &seat{ws: ws, room: room, tag: tag}
	hello, err := json.Marshal(map[string]any{
		"type": "hello", "session": "bench-" + tag + "-" + room, "from": "tail", "channels": []string{"public"}, "client": "bench",
	})
	if err == nil {
		err = ws.WriteMessage(websocket.TextMessage, hello)
	}
	for err == nil {
		var raw []byte
		if raw, err = c.read(); err == nil && bytes.HasPrefix(raw, []byte(`{"type":"caught_up"`)) {
			return c, nil
		}
	}
	return nil, fmt.Errorf("enter %s: %w", room, err)
}

// read reads a frame, and answers what only needs an answer.
func (c *seat) read() ([]byte, error) {
	if err := c.ws.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return nil, err
	}
	for {
		_, raw, err := c.ws.ReadMessage()
		if err != nil {
			return nil, err
		}
		switch {
		case bytes.HasPrefix(raw, []byte(`{"type":"ping"`)):
			var p struct{ T int64 }
			if err := json.Unmarshal(raw, &p); err != nil {
				return nil, err
			}
			if err := c.write(`{"type":"pong","t":` + strconv.FormatInt(p.T, 10) + `}`); err != nil {
				return nil, err
			}
			continue
		case bytes.HasPrefix(raw, []byte(`{"type":"error"`)):
			return nil, fmt.Errorf("the server answered %s", raw)
		case bytes.HasPrefix(raw, []byte(`{"type":"events","n":`)):
			rest := raw[len(`{"type":"events","n":`):]
			n, err := strconv.ParseUint(string(rest[:bytes.IndexByte(rest, ',')]), 10, 64)
			if err != nil || n != c.n+1 {
				return nil, fmt.Errorf("%s: items begin at %d after %d", c.room, n, c.n)
			}
			k := items(raw)
			c.n += uint64(k)
			c.total.Add(int64(k))
			if c.n-c.acked >= 64 {
				c.acked = c.n
				if err := c.write(`{"type":"ack","n":` + strconv.FormatUint(c.n, 10) + `}`); err != nil {
					return nil, err
				}
			}
		}
		return raw, nil
	}
}

// items counts the items of an events frame. No text of the bench's driver holds the mark.
func items(raw []byte) int {
	return bytes.Count(raw, []byte(`"kind":"`)) - bytes.Count(raw, []byte(`"speaker":{"kind":"`))
}

func (c *seat) write(frame string) error {
	return c.ws.WriteMessage(websocket.TextMessage, []byte(frame))
}

// turn sends one input and reads until its run has ended.
func (c *seat) turn() (t turnTimes, err error) {
	c.turns++
	began := time.Now()
	err = c.write(`{"type":"input","id":"` + c.tag + "-" + strconv.Itoa(c.turns) +
		`","channel":"public","text":"Tell me what happens next.","modality":"text"}`)
	for err == nil {
		var raw []byte
		if raw, err = c.read(); err != nil {
			break
		}
		if !bytes.HasPrefix(raw, []byte(`{"type":"events"`)) {
			continue
		}
		if t.first == 0 && bytes.Contains(raw, []byte(`"type":"assistant_output"`)) {
			t.first = time.Since(began)
		}
		if bytes.Contains(raw, []byte(`"type":"completed"`)) {
			t.whole = time.Since(began)
			return t, nil
		}
		if bytes.Contains(raw, []byte(`"type":"run_failed"`)) {
			return t, fmt.Errorf("a run of %s failed", c.room)
		}
	}
	return t, fmt.Errorf("turn %d of %s: %w", c.turns, c.room, err)
}
