package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"parley/event"
	"parley/gateway/wire"
)

// TestEveryItemIsHandledOnceInOrderWhateverTheNetworkDoes drives a machine
// against a model of a server: connections end at any point, items come in
// batches of any size, the handler is slow or fails, the server forgets.
func TestEveryItemIsHandledOnceInOrderWhateverTheNetworkDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		t.Repeat(map[string]func(*rapid.T){
			"":               w.check,
			"journal":        func(t *rapid.T) { w.journal += rapid.IntRange(1, 200).Draw(t, "entries") },
			"connect":        func(*rapid.T) { w.connect() },
			"items":          func(t *rapid.T) { w.items(rapid.IntRange(1, wire.MaxBatch).Draw(t, "items")) },
			"ping":           func(*rapid.T) { w.ping() },
			"take":           func(*rapid.T) { w.take() },
			"handled":        func(*rapid.T) { w.handled() },
			"handle some":    func(t *rapid.T) { w.handle(rapid.IntRange(1, 100).Draw(t, "deliveries")) },
			"handler failed": func(*rapid.T) { w.handlerFailed() },
			"lost":           func(*rapid.T) { w.m.Closed(w.now, w.conn, 1006, "", 0); w.effects() },
			"time passes": func(t *rapid.T) {
				w.pass(time.Duration(rapid.IntRange(1, 40_000).Draw(t, "ms")) * time.Millisecond)
			},
			"restored": func(*rapid.T) { w.incarnation++ },
		})
		w.settle()
		if w.product != w.journal {
			t.Fatalf("the product has %d of %d entries", w.product, w.journal)
		}
	})
}

// world is a machine, the server it talks to and the product it serves.
type world struct {
	t   *rapid.T
	m   *Machine
	now time.Time

	journal     int // entries
	incarnation int

	conn  int  // of the machine
	up    bool // the server has said ready
	hello *string
	pos   int // of the server's reader
	n     int // items sent on this connection
	from  int // position of the connection's first item

	product int // entries that the product has
	inHand  *Delivery
	acked   int
	cursor  string
}

func newWorld(t *rapid.T) *world {
	w := &world{t: t, now: time.Unix(0, 0), incarnation: 1}
	w.m = NewMachine(Options{
		Channels: []event.ChannelID{"public"}, Budget: 1 << 30,
		Random: func() float64 { return 0.5 },
	})
	w.m.Start()
	w.effects()
	return w
}

func (w *world) effects() {
	for e, ok := w.m.Next(); ok; e, ok = w.m.Next() {
		switch e := e.(type) {
		case Open:
			w.conn, w.up, w.hello = e.Conn, false, nil
		case Send:
			w.sent(e.Frame)
		case SaveCursor:
			w.cursor = e.Cursor
		case Faulted:
			w.t.Fatalf("the machine found a fault: %v", e.Err)
		}
	}
}

func (w *world) sent(frame []byte) {
	var f struct {
		Type   string
		Cursor string
		N      int
	}
	if err := json.Unmarshal(frame, &f); err != nil {
		w.t.Fatalf("sent %s: %v", frame, err)
	}
	switch f.Type {
	case wire.TypeHello:
		w.hello = &f.Cursor
	case wire.TypeAck:
		if f.N <= w.acked || f.N > w.n {
			w.t.Fatalf("acknowledged %d after %d; %d were sent", f.N, w.acked, w.n)
		}
		w.acked = f.N
		if got := w.from + f.N; got > w.product {
			w.t.Fatalf("acknowledged the entry at %d, of which the product has %d", got, w.product)
		}
	}
}

func cursorOf(incarnation, pos int) string { return fmt.Sprintf("%d.%d", incarnation, pos) }

func (w *world) at(cursor string) (incarnation, pos int) {
	a, b, _ := strings.Cut(cursor, ".")
	incarnation, _ = strconv.Atoi(a)
	pos, _ = strconv.Atoi(b)
	return incarnation, pos
}

func (w *world) frame(format string, args ...any) {
	w.m.Frame(w.now, w.conn, fmt.Appendf(nil, format, args...))
	w.effects()
}

func (w *world) connect() {
	switch w.m.Status().Phase {
	case Authorizing:
		w.m.Token(w.now, "jwt")
	case Connecting:
		w.m.Opened(w.now, w.conn)
	}
	w.effects()
	if w.hello == nil || w.up || w.m.Status().Phase != Greeting {
		return
	}
	incarnation, pos := w.at(*w.hello)
	resumed := incarnation == w.incarnation
	if !resumed {
		pos = w.journal // from the tail
	}
	w.up, w.pos, w.from, w.n, w.acked = true, pos, pos, 0, 0
	w.frame(`{"type":"ready","resumed":%t,"cursor":%q,"can":{},"expiresIn":600,"pingMs":25000,"window":512}`,
		resumed, cursorOf(w.incarnation, pos))
	if !resumed {
		w.frame(`{"type":"state","part":1,"parts":1,"room":{"phase":"%d","agents":[]}}`, pos)
	}
}

func (w *world) items(most int) {
	if !w.up || w.m.Status().Phase != Replaying && w.m.Status().Phase != Live {
		return
	}
	k := min(most, w.journal-w.pos, 512-(w.n-w.acked))
	if k <= 0 {
		return
	}
	var items []string
	for i := range k {
		p := w.pos + i + 1
		items = append(items, fmt.Sprintf(`{"id":"e%d","at":"2026-11-30T21:00:00Z","channel":"public","kind":"run.event","run":"r%d","body":{"type":"completed","entry":%d}}`, p, p, p))
	}
	n := w.n + 1
	w.pos += k
	w.n += k
	w.frame(`{"type":"events","n":%d,"cursor":%q,"items":[%s]}`, n, cursorOf(w.incarnation, w.pos), strings.Join(items, ","))
}

func (w *world) ping() {
	if w.up && (w.m.Status().Phase == Replaying || w.m.Status().Phase == Live) {
		w.frame(`{"type":"ping","cursor":%q,"t":1}`, cursorOf(w.incarnation, w.pos))
	}
}

func (w *world) take() {
	if w.inHand != nil {
		return
	}
	if d, ok := w.m.Delivery(); ok {
		w.inHand = &d
	}
}

func (w *world) handled() {
	if w.inHand == nil {
		return
	}
	d := w.inHand
	w.inHand = nil
	if d.Item == nil {
		w.product, _ = strconv.Atoi(d.State.Phase)
	} else {
		var body struct{ Entry int }
		if err := json.Unmarshal(d.Item.Body, &body); err != nil || body.Entry != w.product+1 {
			w.t.Fatalf("the product has %d entries and is given %s (%v)", w.product, d.Item.Body, err)
		}
		w.product++
	}
	w.m.Handled(w.now)
	w.effects()
}

func (w *world) handle(k int) {
	for range k {
		w.take()
		w.handled()
	}
}

func (w *world) handlerFailed() {
	if w.inHand == nil {
		return
	}
	w.inHand = nil
	w.m.HandlerFailed(errors.New("no"))
	w.effects()
	if s := w.m.Status(); s.Phase != Stopped || s.Err == nil {
		w.t.Fatalf("after a failed handler the machine is %v", s)
	}
	w.m.Start()
	w.effects()
}

func (w *world) pass(d time.Duration) {
	end := w.now.Add(d)
	for at := w.m.Wake(); !at.IsZero() && !at.After(end); at = w.m.Wake() {
		if at.After(w.now) {
			w.now = at
		}
		w.m.Tick(w.now)
		w.effects()
	}
	w.now = end
}

func (w *world) check(*rapid.T) {
	if i, pos := w.at(w.m.Cursor()); pos > w.product && i == w.incarnation {
		w.t.Fatalf("the cursor is at %d, of which the product has %d", pos, w.product)
	}
	if w.m.Cursor() != w.cursor {
		w.t.Fatalf("the cursor is %s, the last that was to be saved %s", w.m.Cursor(), w.cursor)
	}
	if n := len(w.m.stream.pending); n > 2*512 {
		w.t.Fatalf("%d deliveries are pending", n)
	}
}

// settle lets everything come to rest.
func (w *world) settle() {
	// What a forgetful server would leave out is not the machine's to find.
	for range 10 {
		w.handle(2000)
		w.connect()
		w.ping()
		w.pass(time.Second)
	}
	for w.pos < w.journal || len(w.m.stream.pending) > 0 {
		w.connect()
		w.items(wire.MaxBatch)
		w.handle(2000)
		w.pass(time.Second)
		w.ping()
		w.check(nil)
	}
}

func TestCloseCodes(t *testing.T) {
	want := map[wire.Close]action{
		1001: retry, 1005: retry, 1006: retry, 3000: retry, 4399: retry, 4402: stop, 4499: stop, 4500: retry,
		wire.CloseTokenExpired: fresh, wire.CloseGap: retry, wire.CloseRestarting: retry, wire.CloseOverloaded: retry,
		wire.CloseInternal: retry, wire.CloseHelloTimeout: retry, wire.CloseSlowConsumer: retry, wire.CloseMoved: retry,
		wire.CloseRateLimited: retry, wire.CloseUnauthenticated: stop, wire.CloseReplaced: stop, wire.CloseRoomClosed: stop,
		wire.CloseForbidden: stop, wire.CloseRoomNotFound: stop, wire.CloseBadRequest: stop, wire.CloseInvalidUTF8: stop,
	}
	for code, action := range want {
		if got := closeAction(code); got != action {
			t.Errorf("after %d the client does %d, want %d", code, got, action)
		}
	}
	for _, row := range wire.Closes {
		if got := closeAction(row.Close); row.Retry == (got == stop) {
			t.Errorf("after %d the client does %d, and the table of the protocol says retry %t", row.Close, got, row.Retry)
		}
	}
}

func TestWaitsAreJitteredGrowingAndBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := backoff{budget: rapid.IntRange(1, 100).Draw(t, "budget"), random: func() float64 {
			return rapid.Float64Range(0, 0.999999).Draw(t, "random")
		}}
		for i := 1; ; i++ {
			d, ok := b.next()
			if !ok {
				if i != b.budget+1 {
					t.Fatalf("the budget of %d ended at try %d", b.budget, i)
				}
				break
			}
			if ceiling := min(MaxWait, MinWait<<min(i, 16)); d < MinWait || d >= max(ceiling, MinWait+1) {
				t.Fatalf("try %d waits %v, not within %v and %v", i, d, MinWait, ceiling)
			}
		}
		b.progress()
		if d, ok := b.next(); !ok || d >= 2*MinWait {
			t.Fatalf("after progress the wait is %v %t", d, ok)
		}
	})
}

func TestRecentRemembersTheNewest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newRecent(4)
		var model []string
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			s := strconv.Itoa(rapid.IntRange(0, 9).Draw(t, "member"))
			at := -1
			for i := range model {
				if model[i] == s {
					at = i
				}
			}
			if r.has(s) && at < 0 {
				t.Fatalf("%s is remembered and is not among the newest", s)
			}
			switch {
			case at < 0:
				if !r.has(s) {
					r.add(s)
				}
				model = append(model, s)
				model = model[max(0, len(model)-4):]
			case rapid.Bool().Draw(t, "forget"):
				r.forget(s)
				// A place that was given up stays taken until it is the oldest.
				model[at] = "-" + strconv.Itoa(len(model))
			}
		}
		for _, s := range model {
			if !strings.HasPrefix(s, "-") && !r.has(s) {
				t.Fatalf("%s is among the newest and is not remembered", s)
			}
		}
	})
}
