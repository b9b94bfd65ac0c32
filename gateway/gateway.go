package gateway

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"
	"go.uber.org/zap"

	"parley/event"
	"parley/gateway/wire"
	"parley/internal/workerpool"
)

// Gateway serves connections. Safe for concurrent use; mu guards the registry,
// which is all that connections share.
type Gateway struct {
	cfg      Config
	verifier *Verifier
	origins  map[string]bool
	upgrader websocket.Upgrader
	wheel    *wheel
	mux      *http.ServeMux
	ready    atomic.Bool
	work     sync.WaitGroup // of the connections' goroutines
	writers  *workerpool.Pool
	pens     sync.Pool // of *pen
	stats    stats

	inputs, frames, creates pace
	// owed is how many answers may wait for a connection's writer: as many as its
	// requests and a burst of frames can ask for before the rate ends it.
	owed int

	mu        sync.Mutex
	draining  bool
	conns     map[*conn]struct{}
	addresses map[netip.Addr]int
	subjects  map[event.ParticipantID]*subject
	seats     map[seatKey]*seat
	feeds     map[event.RoomID]*feed
	empty     chan struct{} // closed when the last connection has gone while draining; nil before
}

// subject is what a subject has on this node. Guarded by the Gateway's mu.
type subject struct {
	conns   int
	creates bucket
	purge   timer // when it has no connection
}

type seatKey struct {
	room    event.RoomID
	subject event.ParticipantID
}

// seat is a subject in a room. conns is guarded by the Gateway's mu, the rest
// by its own.
type seat struct {
	conns []*conn
	purge timer // when it has no connection

	mu     sync.Mutex
	inputs bucket
	recent []uint64 // hashes of the latest inputs handed to the room, as a ring
	next   int      // the oldest of a full ring
}

// recentInputs is how many inputs of a subject are known again, so that their
// exact repetition after a lost connection costs nothing: twice a full outbox.
const recentInputs = 64

// idleFor is how long a subject and a seat without connections are kept, so
// that going and coming back does not refill their buckets.
const idleFor = 2 * time.Minute

// New returns a Gateway that is not ready yet, or all that is wrong with the
// configuration. Close it.
func New(cfg Config) (*Gateway, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	cfg.fill()
	v, err := NewVerifier(cfg.Auth)
	if err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	l := cfg.Limits
	g := &Gateway{
		cfg: cfg, verifier: v, origins: map[string]bool{}, wheel: newWheel(), writers: workerpool.New(), pens: sync.Pool{New: newPen},
		inputs: perSecond(l.InputsPerSec, l.InputBurst), frames: perSecond(l.FramesPerSec, l.FrameBurst),
		creates: pace{time.Minute / time.Duration(l.CreatesPerMin), l.CreatesPerMin},
		owed:    min(l.Requests, maxOwed) + min(l.FrameBurst, maxOwed) + 2*maxExcess,
		conns:   map[*conn]struct{}{}, addresses: map[netip.Addr]int{}, subjects: map[event.ParticipantID]*subject{},
		seats: map[seatKey]*seat{}, feeds: map[event.RoomID]*feed{},
	}
	for _, o := range cfg.Origins {
		g.origins[o] = true
	}
	g.upgrader = websocket.Upgrader{
		// What idle clients send fits; the rest of what is longer is read around the buffer.
		ReadBufferSize: 256, WriteBufferSize: 4096, WriteBufferPool: &sync.Pool{},
		Subprotocols: []string{wire.Subprotocol}, HandshakeTimeout: cfg.Limits.HelloTimeout,
		CheckOrigin:       func(*http.Request) bool { return true }, // the handler has checked it with its own answer
		EnableCompression: false,                                    // SetReadLimit would count compressed bytes
	}
	g.mux = http.NewServeMux()
	g.mux.HandleFunc("GET /v1/rooms/{room}/ws", g.serveWS)
	g.mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answerText(w, http.StatusOK, "ok\n") })
	g.mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !g.ready.Load() {
			answerText(w, http.StatusServiceUnavailable, "not ready\n")
			return
		}
		answerText(w, http.StatusOK, "ready\n")
	})
	return g, nil
}

// Handler serves GET /v1/rooms/{room}/ws, /healthz and /readyz.
func (g *Gateway) Handler() http.Handler { return g.mux }

// SetReady says what /readyz answers. A Gateway is not ready until it is told so.
func (g *Gateway) SetReady(ready bool) { g.ready.Store(ready) }

// Drain takes no new connections, tells the open ones to go at instants spread
// over Limits.DrainSpread, closes them then with 1012, and returns when all are
// gone or ctx ends.
func (g *Gateway) Drain(ctx context.Context) error {
	g.SetReady(false)
	g.mu.Lock()
	g.draining = true
	if g.empty == nil {
		g.empty = make(chan struct{})
		if len(g.conns) == 0 {
			close(g.empty)
		}
	}
	empty := g.empty
	list := g.list()
	g.mu.Unlock()
	spread := g.cfg.Limits.DrainSpread
	for _, c := range list {
		c.goaway(time.Duration(rand.Int64N(int64(spread) + 1)))
	}
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("gateway: drain: %w", context.Cause(ctx))
	}
}

// Close ends all connections at once with 1012 and waits for their goroutines.
func (g *Gateway) Close() {
	g.SetReady(false)
	g.mu.Lock()
	g.draining = true
	list := g.list()
	g.mu.Unlock()
	for _, c := range list {
		c.shut(wire.CloseRestarting)
	}
	g.work.Wait()
	g.wheel.close()
	g.writers.Close()
}

// list returns the connections. g.mu is held.
func (g *Gateway) list() []*conn {
	list := make([]*conn, 0, len(g.conns))
	for c := range g.conns {
		list = append(list, c)
	}
	return list
}

// enter counts a connection before its upgrade, or tells why it may not come.
func (g *Gateway) enter(c *conn) *refusal {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.draining:
		return &refusal{http.StatusServiceUnavailable, wire.CodeUnavailable, "the server is restarting", 5}
	case len(g.conns) >= g.cfg.Limits.Connections:
		return &refusal{http.StatusServiceUnavailable, wire.CodeUnavailable, "the server has no room for more connections", 10}
	case g.addresses[c.address] >= g.cfg.Limits.PerAddress:
		return &refusal{http.StatusTooManyRequests, wire.CodeRateLimited, "too many connections from this address", 10}
	}
	g.conns[c] = struct{}{}
	g.addresses[c.address]++
	g.work.Add(1)
	return nil
}

// leave forgets a connection. What it held goes with it and nothing else: the
// late end of a connection that was replaced touches nothing of its successor.
func (g *Gateway) leave(c *conn) {
	g.wheel.stop(&c.timer)
	g.mu.Lock()
	delete(g.conns, c)
	if g.addresses[c.address]--; g.addresses[c.address] == 0 {
		delete(g.addresses, c.address)
	}
	if c.seat != nil {
		g.unseat(c)
	}
	if g.empty != nil && len(g.conns) == 0 {
		select {
		case <-g.empty:
		default:
			close(g.empty)
		}
	}
	g.mu.Unlock()
	if c.feed != nil {
		c.feed.remove(c)
		g.release(c.feed)
	}
	g.work.Done()
}

// take gives a connection its place in a room. A place of the same session is
// taken over, and its connection returned, to be closed as replaced. ok is
// false when the subject has too many.
func (g *Gateway) take(c *conn, sub event.ParticipantID) (replaced *conn, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	key := seatKey{c.room, sub}
	s := g.seats[key]
	if s == nil {
		s = &seat{}
		s.purge.fire = func() { g.purgeSeat(key, s) }
	}
	for _, other := range s.conns {
		if c.session != "" && other.session == c.session {
			replaced = other
		}
	}
	p := g.subject(sub)
	if replaced == nil && (len(s.conns) >= g.cfg.Limits.PerSubjectRoom || p.conns >= g.cfg.Limits.PerSubject) {
		return nil, false
	}
	if replaced != nil {
		g.unseat(replaced)
	}
	g.seats[key] = s
	g.wheel.stop(&s.purge)
	g.wheel.stop(&p.purge)
	s.conns = append(s.conns, c)
	p.conns++
	c.seat, c.subject = s, sub
	return replaced, true
}

// unseat gives a connection's place back. g.mu is held.
func (g *Gateway) unseat(c *conn) {
	i := slices.Index(c.seat.conns, c)
	if i < 0 {
		return // its place was taken over
	}
	c.seat.conns = slices.Delete(c.seat.conns, i, i+1)
	if len(c.seat.conns) == 0 {
		g.wheel.set(&c.seat.purge, time.Now().Add(idleFor))
	}
	p := g.subject(c.subject)
	if p.conns--; p.conns == 0 {
		g.wheel.set(&p.purge, time.Now().Add(idleFor))
	}
}

// subject returns the record of a subject. g.mu is held.
func (g *Gateway) subject(id event.ParticipantID) *subject {
	p := g.subjects[id]
	if p == nil {
		p = &subject{}
		p.purge.fire = func() { g.purgeSubject(id, p) }
		g.subjects[id] = p
		g.wheel.set(&p.purge, time.Now().Add(idleFor))
	}
	return p
}

func (g *Gateway) purgeSeat(key seatKey, s *seat) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(s.conns) == 0 && g.seats[key] == s {
		delete(g.seats, key)
	}
}

func (g *Gateway) purgeSubject(id event.ParticipantID, p *subject) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.conns == 0 && g.subjects[id] == p {
		delete(g.subjects, id)
	}
}

// mayCreate takes from the subject's allowance of rooms.
func (g *Gateway) mayCreate(sub event.ParticipantID) (wait time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.subject(sub).creates.take(g.cfg.Clock(), g.creates)
}

// join returns the feed of a room and counts the caller in; release it.
func (g *Gateway) join(room event.RoomID) *feed {
	g.mu.Lock()
	f := g.feeds[room]
	if f == nil {
		f = &feed{g: g, room: room}
		f.trim.fire = f.idle
		g.feeds[room] = f
	}
	f.refs++
	g.mu.Unlock()
	f.follow.Do(func() {
		f.stop = g.cfg.Rooms.Follow(room, f.moved)
		// What was written before that, and after the room said where it stood, was
		// told to nobody. A failed read is found again by whoever reads on.
		if _, head, err := g.cfg.Rooms.Read(room, math.MaxInt64, 1); err == nil {
			f.raise(head)
		}
	})
	return f
}

// keys derives the keys of a room.
func (g *Gateway) keys(room event.RoomID) *wire.Keys {
	k, err := wire.NewKeys(g.cfg.Secret, room)
	if err != nil {
		// Only a short secret is refused, which Validate has ruled out.
		g.cfg.Logger.Panic("gateway: keys could not be derived", zap.Error(err))
	}
	return k
}

func (g *Gateway) release(f *feed) {
	g.mu.Lock()
	f.refs--
	last := f.refs == 0
	if last {
		delete(g.feeds, f.room)
	}
	g.mu.Unlock()
	if last {
		f.stop()
		g.wheel.stop(&f.trim)
	}
}

// ask hands a command to a room and waits for the answer, for a limited time.
func (g *Gateway) ask(room event.RoomID, cmd event.Command) (event.Reply, error) {
	type answer struct {
		reply event.Reply
		err   error
	}
	got := make(chan answer, 1)
	g.cfg.Rooms.Do(room, cmd, func(r event.Reply, err error) { got <- answer{r, err} })
	late := time.NewTimer(g.cfg.Limits.RoomTimeout)
	defer late.Stop()
	select {
	case a := <-got:
		return a.reply, a.err
	case <-late.C:
		return nil, event.Refuse(event.Unavailable, "the room did not answer in time; try again")
	}
}

// open makes sure that the room exists and returns its position. A room that
// does not is created from its template if the caller may.
func (g *Gateway) open(room event.RoomID, a event.Access) (event.Done, error) {
	if v := g.cfg.Rooms.View(room); v != nil {
		return event.Done{Head: v.Head, Incarnation: v.Incarnation}, nil
	}
	reply, err := g.ask(room, event.Open{By: a.Subject})
	if r, ok := event.AsRefusal(err); ok && r.Reason == event.NotFound {
		template, participants := g.cfg.Templates(room)
		if template == nil || !participants && !a.Host() {
			return event.Done{}, err
		}
		if wait := g.mayCreate(a.Subject); wait > 0 && !a.Host() {
			g.stats.refuses(wire.CodeRateLimited)
			refused := event.Refuse(event.RateLimited, "you have created many rooms; try again later")
			refused.Retry = wait
			return event.Done{}, refused
		}
		reply, err = g.ask(room, event.Open{By: a.Subject, Template: template})
	}
	if err != nil {
		return event.Done{}, err
	}
	done, ok := reply.(event.Done)
	if !ok {
		return event.Done{}, fmt.Errorf("gateway: open was answered by %T", reply)
	}
	return done, nil
}

// view returns what there is to see of a room that exists, at its durable head.
func (g *Gateway) view(room event.RoomID) (*event.View, error) {
	if v := g.cfg.Rooms.View(room); v != nil {
		return v, nil
	}
	reply, err := g.ask(room, event.ReadView{})
	if err != nil {
		return nil, err
	}
	v, ok := reply.(*event.View)
	if !ok {
		return nil, fmt.Errorf("gateway: a view was answered by %T", reply)
	}
	return v, nil
}

func (g *Gateway) random(b []byte) {
	if _, err := io.ReadFull(g.cfg.Rand, b); err != nil {
		// crypto/rand never fails; a source that does must not weaken a nonce.
		g.cfg.Logger.Panic("gateway: the source of randomness failed", zap.Error(err))
	}
}

func (g *Gateway) connID() string {
	var b [9]byte
	g.random(b[:])
	return "c_" + base64.RawURLEncoding.EncodeToString(b[:])
}
