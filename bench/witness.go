package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"sync/atomic"
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
	order    []string            // entry ids as they were first seen
	ended    map[string]bool     // runs whose terminal was seen
	told     map[string]*telling // runs whose terminal was not
	answers  map[string]int      // whole answers, by their text: how many runs gave it

	doubled    int       // items that came again
	notResumed int       // connections that had to start over although there was a cursor
	conflicts  int       // answers that contradict an earlier one, or refuse what is in order
	changed    int       // items that a second reader was shown otherwise
	deferred   int       // inputs that the server wanted later, and got later
	faults     []string  // of the connection, while the server was not killed
	first      time.Time // when this process first accepted an input of this witness
}

// telling is what a run has said so far, as a client shows it.
type telling struct {
	open  map[string]string // by output id: the text so far
	whole []string          // texts that were closed
}

// hear adds an event of a run. What an attempt left open is dropped when the
// next begins (R3); what it closed is never said again (R2).
func (w *witness) hear(run string, b *body) {
	t := w.told[run]
	if t == nil {
		t = &telling{open: map[string]string{}}
		w.told[run] = t
	}
	switch b.Type {
	case "attempt_started":
		clear(t.open)
	case "assistant_output":
		t.open[b.OutputID] += b.Delta
		if b.Final {
			t.whole = append(t.whole, t.open[b.OutputID])
			delete(t.open, b.OutputID)
		}
	case "completed":
		w.answers[strings.Join(t.whole, "\n")]++
	}
	if terminal(b.Type) {
		delete(w.told, run)
	}
}

// sighting is what a client may later hold against the journal.
type sighting struct {
	Entry string // entry id
	Kind  string
	Run   string
	Type  string
	Sum   uint64 // of the item's bytes
}

func newWitness(room string) *witness {
	return &witness{
		room: room, session: "witness-" + room, accepted: map[string]sighting{}, seen: map[string]sighting{}, ended: map[string]bool{},
		told: map[string]*telling{}, answers: map[string]int{},
	}
}

type frame struct {
	Type    string
	N       uint64
	Cursor  string
	T       int64
	Resumed bool
	Items   []json.RawMessage
	// of accepted and error
	ID, Ref, Entry, Run, Code string
	RetryMs                   int64
}

// errTold says that a session ended because it was told to.
var errTold = errors.New("told to stop")

// attend resumes, and goes on with its inputs until the connection is lost or
// stop is closed and nothing is pending. A connection that ends before killed is
// set is a fault.
func (w *witness) attend(ctx context.Context, s *server, stop <-chan struct{}, killed *atomic.Bool) {
	err := w.converse(ctx, s, stop)
	if !errors.Is(err, errTold) && !killed.Load() && ctx.Err() == nil {
		w.faults = append(w.faults, fmt.Sprintf("%s: %v", w.room, err))
	}
}

func (w *witness) converse(ctx context.Context, s *server, stop <-chan struct{}) error {
	ws, err := dial(ctx, s, w.room)
	if err != nil {
		return err
	}
	defer func() { _ = ws.Close() }() // lost, or done with
	if err := hello(ws, w.session, w.cursor); err != nil {
		return err
	}
	had := w.cursor != ""
	w.n, w.acked = 0, 0
	up := false
	for {
		if up && w.pending == "" && w.waits == "" {
			select {
			case <-stop:
				return errTold
			default:
			}
			w.next++
			w.pending = w.room + "-" + strconv.Itoa(w.next)
			if err := w.submit(ws); err != nil {
				return err
			}
		}
		f, err := read(ws)
		if err != nil {
			return err
		}
		switch f.Type {
		case wire.TypeReady:
			if had && !f.Resumed {
				w.notResumed++
			}
		case wire.TypeCaughtUp:
			up = true
			if w.pending != "" {
				err = w.submit(ws)
			}
		case wire.TypeEvents:
			err = w.events(ws, f)
		case wire.TypeAccepted:
			w.accept(f)
		case wire.TypeError:
			if f.Code != string(wire.CodeUnavailable) || f.Ref != w.pending {
				w.conflicts++
				return fmt.Errorf("refused with %s", f.Code)
			}
			w.deferred++
			time.Sleep(min(time.Second, max(10*time.Millisecond, time.Duration(f.RetryMs)*time.Millisecond)))
			err = w.submit(ws)
		}
		if err != nil {
			return err
		}
	}
}

// hello begins a session, from the cursor or else from the start.
func hello(ws *websocket.Conn, session, cursor string) error {
	h := map[string]any{"type": wire.TypeHello, "session": session, "from": wire.FromStart, "channels": []string{"public"}, "client": "bench"}
	if cursor != "" {
		h["cursor"] = cursor
	}
	return ws.WriteJSON(h)
}

// read reads a frame, and answers pings.
func read(ws *websocket.Conn) (*frame, error) {
	for {
		if err := ws.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
			return nil, err
		}
		_, raw, err := ws.ReadMessage()
		if err != nil {
			return nil, err
		}
		f := &frame{}
		if err := json.Unmarshal(raw, f); err != nil {
			return nil, fmt.Errorf("a frame of %d bytes is not JSON: %w", len(raw), err)
		}
		if f.Type != wire.TypePing {
			return f, nil
		}
		if err := ws.WriteJSON(map[string]any{"type": wire.TypePong, "t": f.T}); err != nil {
			return nil, err
		}
	}
}

func (w *witness) submit(ws *websocket.Conn) error {
	return ws.WriteJSON(map[string]any{
		"type": wire.TypeInput, "id": w.pending, "channel": "public", "text": "Tell me what happens next.", "modality": "text",
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
		return fmt.Errorf("items begin at %d after %d", f.N, w.n)
	}
	for _, raw := range f.Items {
		w.n++
		i, b, err := sight(raw)
		if err != nil {
			return err
		}
		if _, ok := w.seen[i.Entry]; ok {
			w.doubled++
			continue
		}
		w.seen[i.Entry] = i
		w.order = append(w.order, i.Entry)
		if i.Kind == wire.KindRunEvent {
			w.hear(i.Run, b)
		}
		if terminal(i.Type) {
			w.ended[i.Run] = true
			if w.waits == i.Run {
				w.waits = ""
			}
		}
	}
	w.cursor = f.Cursor // after its items were handled (K3)
	if w.n-w.acked >= 64 {
		w.acked = w.n
		return ws.WriteJSON(map[string]any{"type": wire.TypeAck, "n": w.n})
	}
	return nil
}

// body is what the witness knows of the bodies of items.
type body struct {
	Type     string
	OutputID string
	Delta    string
	Final    bool
}

func sight(raw json.RawMessage) (sighting, *body, error) {
	var i struct {
		ID, Kind, Run string
		Body          body
	}
	if err := json.Unmarshal(raw, &i); err != nil {
		return sighting{}, nil, fmt.Errorf("an item is not what it should be: %w", err)
	}
	sum := fnv.New64a()
	_, _ = sum.Write(raw) // never fails (hash.Hash)
	return sighting{Entry: i.ID, Kind: i.Kind, Run: i.Run, Type: i.Body.Type, Sum: sum.Sum64()}, &i.Body, nil
}

func terminal(typ string) bool {
	switch typ {
	case "completed", "run_canceled", "run_failed", "deadline_exceeded":
		return true
	}
	return false
}

// reread reads the room from its start as a client that was never here, and
// counts what it is shown otherwise than the witness was.
func (w *witness) reread(ctx context.Context, s *server) error {
	ws, err := dial(ctx, s, w.room)
	if err != nil {
		return err
	}
	defer func() { _ = ws.Close() }() // done with
	if err := hello(ws, "reread-"+w.room, ""); err != nil {
		return err
	}
	at, n := 0, uint64(0)
	for {
		f, err := read(ws)
		if err != nil {
			return fmt.Errorf("read %s again: %w", w.room, err)
		}
		switch f.Type {
		case wire.TypeCaughtUp:
			w.changed += max(0, len(w.order)-at)
			return nil
		case wire.TypeEvents:
			for _, raw := range f.Items {
				i, _, err := sight(raw)
				if err != nil {
					return err
				}
				if at >= len(w.order) || w.seen[w.order[at]] != i {
					w.changed++
				}
				at++
			}
			n += uint64(len(f.Items))
			if err := ws.WriteJSON(map[string]any{"type": wire.TypeAck, "n": n}); err != nil {
				return err
			}
		}
	}
}
