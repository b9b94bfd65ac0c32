package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/gorilla/websocket"

	"parley/gateway/wire"
)

// witness is one client of one room that remembers everything it was told, over
// all its connections. Owned by one goroutine at a time: that of its session,
// then that of the check.
type witness struct {
	room    string
	session string
	cursor  string
	n       uint64 // of the last item on this connection
	acked   uint64

	next    int    // number of the next input
	pending string // the input that is not yet accepted, resent after each loss
	waits   string // the run whose end is awaited

	accepted map[string]sighting // by input id: what accepted said
	seen     map[string]sighting // by entry id: what an item said
	ended    map[string]bool     // runs whose terminal was seen

	doubled    int       // items that came again
	notResumed int       // connections that had to start over although there was a cursor
	conflicts  int       // answers that contradict an earlier one
	first      time.Time // when this process first accepted an input of this witness
}

// sighting is what a client may later hold against the journal.
type sighting struct {
	Entry string // entry id
	Kind  string
	Run   string
	Type  string
}

func newWitness(room string) *witness {
	return &witness{
		room: room, session: "witness-" + room, accepted: map[string]sighting{}, seen: map[string]sighting{}, ended: map[string]bool{},
	}
}

type frame struct {
	Type    string
	N       uint64
	Cursor  string
	T       int64
	Resumed bool
	Items   []struct {
		ID, Kind, Run string
		Body          struct{ Type string }
	}
	// of accepted and error
	ID, Ref, Entry, Run, Code string
}

// attend connects, resumes, and goes on with its inputs until the connection is
// lost or stop is closed and nothing is pending. It returns nil when it stopped
// because it was told to.
func (w *witness) attend(ctx context.Context, s *server, stop <-chan struct{}) error {
	ws, err := dial(ctx, s, w.room)
	if err != nil {
		return err
	}
	defer func() { _ = ws.Close() }() // lost, or done with
	hello := map[string]any{"type": "hello", "session": w.session, "from": "start", "channels": []string{"public"}, "client": "witness"}
	if w.cursor != "" {
		hello["cursor"] = w.cursor
	}
	had := w.cursor != ""
	w.n, w.acked = 0, 0
	if err := ws.WriteJSON(hello); err != nil {
		return err
	}
	up := false
	for {
		if up && w.pending == "" && w.waits == "" {
			select {
			case <-stop:
				return nil
			default:
			}
			w.next++
			w.pending = w.room + "-" + strconv.Itoa(w.next)
			if err := w.submit(ws); err != nil {
				return err
			}
		}
		if err := ws.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
			return err
		}
		_, raw, err := ws.ReadMessage()
		if err != nil {
			return err
		}
		var f frame
		if err := json.Unmarshal(raw, &f); err != nil {
			return fmt.Errorf("a frame of %d bytes is not JSON: %w", len(raw), err)
		}
		switch f.Type {
		case "ready":
			if had && !f.Resumed {
				w.notResumed++
			}
		case "caught_up":
			up = true
			if w.pending != "" {
				if err := w.submit(ws); err != nil {
					return err
				}
			}
		case "events":
			if err := w.events(ws, &f); err != nil {
				return err
			}
		case "accepted":
			w.accept(&f)
		case "error":
			if f.Code == "unavailable" || f.Code == "rate_limited" {
				return fmt.Errorf("%s: refused with %s", w.room, f.Code) // tried again after the next restart
			}
			w.conflicts++
			return fmt.Errorf("%s: refused with %s", w.room, f.Code)
		case "ping":
			if err := ws.WriteJSON(map[string]any{"type": "pong", "t": f.T}); err != nil {
				return err
			}
		}
	}
}

func (w *witness) submit(ws *websocket.Conn) error {
	return ws.WriteJSON(map[string]any{
		"type": "input", "id": w.pending, "channel": "public", "text": "Tell me what happens next.", "modality": "text",
	})
}

func (w *witness) accept(f *frame) {
	if w.first.IsZero() {
		w.first = time.Now()
	}
	now := sighting{Entry: f.Entry, Kind: wire.KindInput, Run: f.Run}
	if before, ok := w.accepted[f.ID]; ok && before != now {
		w.conflicts++
	}
	w.accepted[f.ID] = now
	if f.ID == w.pending {
		w.pending = ""
		if !w.ended[f.Run] {
			w.waits = f.Run
		}
	}
}

func (w *witness) events(ws *websocket.Conn, f *frame) error {
	if f.N != w.n+1 {
		return fmt.Errorf("%s: items begin at %d after %d", w.room, f.N, w.n)
	}
	for _, i := range f.Items {
		w.n++
		if _, ok := w.seen[i.ID]; ok {
			w.doubled++
		}
		w.seen[i.ID] = sighting{Entry: i.ID, Kind: i.Kind, Run: i.Run, Type: i.Body.Type}
		switch i.Body.Type {
		case "completed", "run_canceled", "run_failed", "deadline_exceeded":
			w.ended[i.Run] = true
			if w.waits == i.Run {
				w.waits = ""
			}
		}
	}
	w.cursor = f.Cursor // after its items were handled (K3)
	if w.n-w.acked >= 64 {
		w.acked = w.n
		return ws.WriteJSON(map[string]any{"type": "ack", "n": w.n})
	}
	return nil
}
