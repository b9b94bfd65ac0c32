package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"parley/event"
	"parley/gateway/wire"
)

// pipes is a listener whose connections are in memory, so that they can be used in a bubble.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case p.conns <- far:
		return near, nil
	case <-p.done:
		return nil, errors.New("nobody listens")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error { p.once.Do(func() { close(p.done) }); return nil }

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// server is the other end of a client's connection: each connection is served
// by the next of its scripts.
type server struct {
	t       *testing.T
	mu      sync.Mutex
	scripts []func(*peer)
	refuse  []func(http.ResponseWriter) // asked before the scripts
	tokens  []string
	served  int
	busy    sync.WaitGroup
}

// peer is one connection of the server. Owned by its script.
type peer struct {
	t     *testing.T
	ws    *websocket.Conn
	Hello *wire.Hello
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.busy.Add(1)
	defer s.busy.Done()
	s.mu.Lock()
	s.tokens = append(s.tokens, r.Header.Get("Authorization"))
	if len(s.refuse) > 0 {
		f := s.refuse[0]
		s.refuse = s.refuse[1:]
		s.mu.Unlock()
		f(w)
		return
	}
	if r.URL.Path != "/v1/rooms/demo-1/ws" || s.served == len(s.scripts) {
		s.mu.Unlock()
		http.NotFound(w, r)
		return
	}
	script := s.scripts[s.served]
	s.served++
	s.mu.Unlock()
	u := websocket.Upgrader{Subprotocols: []string{wire.Subprotocol}}
	ws, err := u.Upgrade(w, r, nil)
	if err != nil {
		s.t.Errorf("upgrade: %v", err)
		return
	}
	defer ws.Close()
	p := &peer{t: s.t, ws: ws}
	f := p.read()
	if p.Hello, _ = f.(*wire.Hello); p.Hello == nil {
		s.t.Errorf("the first frame is %T", f)
		return
	}
	script(p)
}

// read returns the next frame, or nil when the connection ended.
func (p *peer) read() wire.Client {
	_, raw, err := p.ws.ReadMessage()
	if err != nil {
		return nil
	}
	f, err := wire.DecodeClient(raw)
	if err != nil {
		p.t.Errorf("%s: %v", raw, err)
	}
	return f
}

// next returns the next frame that is no acknowledgement.
func (p *peer) next() wire.Client {
	for {
		f := p.read()
		if _, ok := f.(*wire.Ack); !ok {
			return f
		}
	}
}

func (p *peer) send(frames ...[]byte) {
	for _, f := range frames {
		// A client may have left, which is its right; what it got is asserted there.
		_ = p.ws.WriteMessage(websocket.TextMessage, f)
	}
}

func (p *peer) close(code wire.Close) {
	_ = p.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(int(code), code.Word()), time.Now().Add(time.Second))
	for p.read() != nil { // until the client has answered the close
	}
}

// gone waits until the client has left, and returns the code that it gave.
func (p *peer) gone() int {
	for {
		_, _, err := p.ws.ReadMessage()
		if closed, ok := errors.AsType[*websocket.CloseError](err); ok {
			return closed.Code
		}
		if err != nil {
			return int(closeGone)
		}
	}
}

func readyAt(cursor string, resumed bool) []byte {
	return wire.Ready{
		Conn: "c", Sub: "ada", Resumed: resumed, Cursor: cursor, ExpiresIn: 600, PingMs: 25000, MaxFrame: 32768, Window: 512,
	}.Append(nil)
}

func stateOf() []byte { return wire.State(nil, wire.Viewer{Subject: "ada"}, nil, 32768)[0] }

func eventsFrom(n uint64, cursor string, ids ...string) []byte {
	var b wire.Batch
	b.Reset(nil)
	for _, id := range ids {
		e := &event.Entry{At: time.UnixMilli(1), Channel: "public", Disclosure: event.ToRoom(), Body: &event.RunEvent{
			Run: "r", Attempt: 1, Event: event.Progress{Stage: id},
		}}
		b.Add(wire.AppendItem(nil, e, id, wire.Viewer{}, wire.Public))
	}
	return append([]byte(nil), b.Frame(n, []byte(cursor))...)
}

func accepted(id event.InputID, duplicate bool) []byte {
	return wire.Accepted{ID: id, Entry: "e", Run: "r", At: time.UnixMilli(1), State: event.Started, Duplicate: duplicate}.Append(nil)
}

// product is a handler that keeps what it is given. Owned by the handler's
// goroutine; got is read after Run or through seen.
type product struct {
	got  []string
	seen chan string // of everything, when it is set; without capacity
	fail func(string) error
}

func (p *product) take(ctx context.Context, s string) error {
	if p.fail != nil {
		if err := p.fail(s); err != nil {
			return err
		}
	}
	p.got = append(p.got, s)
	if p.seen != nil {
		select {
		case p.seen <- s:
		case <-ctx.Done():
		}
	}
	return nil
}

func (p *product) Reset(ctx context.Context, _ *State, why wire.Reset) error {
	return p.take(ctx, "reset:"+string(why))
}

func (p *product) Item(ctx context.Context, i *Item) error { return p.take(ctx, i.ID) }

// shelf is a storage in memory.
type shelf struct {
	cursor  string
	outbox  []Input
	saved   []string
	failing error
}

func (s *shelf) Load(context.Context) (string, []Input, error) { return s.cursor, s.outbox, s.failing }

func (s *shelf) SaveCursor(_ context.Context, c string) error {
	s.cursor = c
	s.saved = append(s.saved, c)
	return s.failing
}

func (s *shelf) SaveOutbox(_ context.Context, in []Input) error {
	s.outbox = in
	s.saved = append(s.saved, fmt.Sprintf("%d inputs", len(in)))
	return s.failing
}
