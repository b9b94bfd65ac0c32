package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/gorilla/websocket"

	"parley/gateway/wire"
)

// viewer is one connection that only watches, as cheap as it can be: it shares
// the machine with the server that it measures. Every frame is checked to begin
// where the one before ended, and its items are counted; some viewers decode
// everything as well. Owned by its goroutine; what others may read meanwhile is
// atomic, and all of it once that goroutine has ended.
type viewer struct {
	crowd   *crowd
	ws      *websocket.Conn
	fd      int // of its socket, when a poller has it; else 0
	url     string
	room    string // if it matters
	token   string
	session string
	whole   bool // decodes every item and keeps its id
	ids     []string
	last    []json.RawMessage // items of the last frame, if it decodes them

	buf    []byte
	n      uint64 // of the last item of this connection
	acked  uint64
	total  uint64 // items of all connections
	cursor []byte // after the last of them
	sum    uint64 // of the ids of all items, in order
	frames uint64
	seen   atomic.Uint64 // total, for others
	state  atomic.Int32  // upState
}

// upState is how far a viewer's connection is.
type upState int32

const (
	down upState = iota
	caughtUp
)

// crowd is a number of viewers. Safe for concurrent use.
type crowd struct {
	items  atomic.Int64 // that all viewers got
	frames atomic.Int64
	bytes  atomic.Int64 // of those frames
	goal   atomic.Int64 // of items; when it is reached it is told
	hit    chan struct{}
	sums   bool // whether the viewers add up ids

	wg      sync.WaitGroup
	mu      sync.Mutex // guards what follows
	faults  []error
	leaving bool
	viewers []*viewer
}

func newCrowd() *crowd { return &crowd{hit: make(chan struct{}, 1)} }

// dialer has small buffers: there are thousands of connections.
var dialer = websocket.Dialer{
	Subprotocols: []string{wire.Subprotocol}, ReadBufferSize: 1024, WriteBufferSize: 512, WriteBufferPool: &sync.Pool{},
}

// join has n viewers connect, many at a time, and returns when all are caught
// up and are watching. where names the address and the token of each.
func (c *crowd) join(ctx context.Context, n int, where func(i int) (url, token string, err error)) error {
	if err := c.enter(ctx, n, where); err != nil {
		return err
	}
	for _, v := range c.viewers {
		c.wg.Go(v.watch)
	}
	return nil
}

// joinPolled is join for a crowd that a poller watches.
func (c *crowd) joinPolled(ctx context.Context, n int, where func(i int) (url, token string, err error)) error {
	if err := c.enter(ctx, n, where); err != nil {
		return err
	}
	return c.poll()
}

func (c *crowd) enter(ctx context.Context, n int, where func(i int) (url, token string, err error)) error {
	failed := make(chan error, n)
	slots := make(chan struct{}, 64)
	var wg sync.WaitGroup
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			url, token, err := where(i)
			if err != nil {
				failed <- err
				return
			}
			v := &viewer{crowd: c, url: url, token: token, session: fmt.Sprint("viewer-", i), whole: i%100 == 0}
			if err := v.connect(ctx); err != nil {
				failed <- err
				return
			}
			c.mu.Lock()
			c.viewers = append(c.viewers, v)
			c.mu.Unlock()
		})
	}
	wg.Wait()
	close(failed)
	var errs []error
	for err := range failed {
		if errs = append(errs, err); len(errs) == 3 {
			break
		}
	}
	return errors.Join(errs...)
}

// leave closes all connections, waits for their goroutines, and returns what
// went wrong with any before.
func (c *crowd) leave() error {
	c.mu.Lock()
	c.leaving = true
	for _, v := range c.viewers {
		_ = v.ws.NetConn().Close() // done with
	}
	c.mu.Unlock()
	c.wg.Wait()
	return errors.Join(c.faults...)
}

// ends reports whether everybody leaves.
func (c *crowd) ends() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leaving
}

// fault notes what went wrong with a viewer, the first few.
func (c *crowd) fault(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.leaving && len(c.faults) < 5 {
		c.faults = append(c.faults, err)
		select {
		case c.hit <- struct{}{}: // whoever waits looks at the faults
		default:
		}
	}
}

func (c *crowd) faulty() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.faults...)
}

// await waits until all viewers together got so many items.
func (c *crowd) await(ctx context.Context, goal int64) error {
	c.goal.Store(goal)
	for c.items.Load() < goal {
		select {
		case <-c.hit:
			if err := c.faulty(); err != nil {
				return err
			}
		case <-ctx.Done():
			return fmt.Errorf("%d of %d items have come: %w", c.items.Load(), goal, context.Cause(ctx))
		}
	}
	return nil
}

// connect says hello, with the cursor if there is one, and reads until the
// stream is caught up. What it is shown before that counts.
func (v *viewer) connect(ctx context.Context) error {
	ws, err := dialWith(ctx, &dialer, v.url, v.token)
	if err != nil {
		return err
	}
	v.ws, v.n, v.acked = ws, 0, 0
	hello := map[string]any{"type": "hello", "session": v.session, "from": "tail", "channels": []string{"public"}, "client": "bench"}
	if v.cursor != nil {
		hello["cursor"] = string(v.cursor)
	}
	raw, err := json.Marshal(hello)
	if err == nil {
		err = ws.WriteMessage(websocket.TextMessage, raw)
	}
	for err == nil && upState(v.state.Load()) != caughtUp {
		err = v.next()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("enter %s: %w", v.url, err), ws.Close())
	}
	return nil
}

var errNotResumed = errors.New("the cursor was not resumed")

// watch reads until the connection ends.
func (v *viewer) watch() {
	for {
		if err := v.next(); err != nil {
			_ = v.ws.Close() // it is over
			v.crowd.fault(fmt.Errorf("%s: %w", v.url, err))
			return
		}
	}
}

const (
	eventsStart = `{"type":"events","n":`
	itemStart   = `{"id":"` // of every item, and of nothing else that a frame of runs and inputs holds
)

// next reads a frame and does what it asks for.
func (v *viewer) next() error {
	_, r, err := v.ws.NextReader()
	if err != nil {
		return err
	}
	if v.buf, err = readInto(v.buf[:0], r); err != nil {
		return err
	}
	return v.handle(v.buf)
}

// handle does what a frame asks for. It keeps nothing of raw.
func (v *viewer) handle(raw []byte) error {
	switch {
	case bytes.HasPrefix(raw, []byte(eventsStart)):
		return v.events(raw)
	case bytes.HasPrefix(raw, []byte(`{"type":"ping"`)):
		var p struct{ T int64 }
		if err := json.Unmarshal(raw, &p); err != nil {
			return err
		}
		return v.write(`{"type":"pong","t":` + strconv.FormatInt(p.T, 10) + `}`)
	case bytes.HasPrefix(raw, []byte(`{"type":"ready"`)):
		var f struct {
			Resumed bool
			Cursor  string
		}
		if err := json.Unmarshal(raw, &f); err != nil {
			return err
		}
		if v.cursor != nil && !f.Resumed {
			return errNotResumed
		}
		v.cursor = append(v.cursor[:0], f.Cursor...)
	case bytes.HasPrefix(raw, []byte(`{"type":"caught_up"`)):
		v.state.Store(int32(caughtUp))
	case bytes.HasPrefix(raw, []byte(`{"type":"error"`)):
		return fmt.Errorf("the server answered %s", raw)
	}
	return nil
}

func (v *viewer) events(raw []byte) error {
	rest := raw[len(eventsStart):]
	n := uint64(0)
	for len(rest) > 0 && rest[0] >= '0' && rest[0] <= '9' {
		n, rest = n*10+uint64(rest[0]-'0'), rest[1:]
	}
	if n != v.n+1 {
		return fmt.Errorf("items begin at %d after %d", n, v.n)
	}
	const cursorStart = `,"cursor":"`
	if !bytes.HasPrefix(rest, []byte(cursorStart)) {
		return errors.New("a frame of items has no cursor where it should be")
	}
	rest = rest[len(cursorStart):]
	end := max(0, bytes.IndexByte(rest, '"'))
	cursor, rest := rest[:end], rest[end:]
	count := 0
	if v.crowd.sums {
		count = v.sumIDs(rest)
	} else {
		count = bytes.Count(rest, []byte(itemStart))
	}
	if v.whole {
		if err := v.decode(raw, count); err != nil {
			return err
		}
	}
	v.n += uint64(count)
	v.total += uint64(count)
	v.frames++
	v.cursor = append(v.cursor[:0], cursor...)
	v.seen.Store(v.total)
	c := v.crowd
	c.frames.Add(1)
	c.bytes.Add(int64(len(raw)))
	if now := c.items.Add(int64(count)); now >= c.goal.Load() && now-int64(count) < c.goal.Load() {
		select {
		case c.hit <- struct{}{}:
		default:
		}
	}
	if v.n-v.acked >= 64 {
		v.acked = v.n
		return v.write(`{"type":"ack","n":` + strconv.FormatUint(v.n, 10) + `}`)
	}
	return nil
}

// decode reads a frame as a client does and notes the ids of its items.
func (v *viewer) decode(raw []byte, count int) error {
	var f frame
	if err := json.Unmarshal(raw, &f); err != nil {
		return fmt.Errorf("a frame is not JSON: %w", err)
	}
	if len(f.Items) != count {
		return fmt.Errorf("a frame of %d items was taken for one of %d", len(f.Items), count)
	}
	v.last = f.Items // copies: json.RawMessage does not alias what it was read from
	for _, item := range f.Items {
		s, _, err := sight(item)
		if err != nil {
			return err
		}
		if s.Entry == "" || s.Kind == "" {
			return errors.New("an item has no id or no kind")
		}
		v.ids = append(v.ids, s.Entry)
	}
	return nil
}

// sumIDs adds the ids of the items to the viewer's sum, in order, and counts them.
func (v *viewer) sumIDs(rest []byte) (count int) {
	for {
		at := bytes.Index(rest, []byte(itemStart))
		if at < 0 {
			return count
		}
		rest = rest[at+len(itemStart):]
		end := max(0, bytes.IndexByte(rest, '"'))
		v.sum = addID(v.sum, rest[:end])
		rest = rest[end:]
		count++
	}
}

// addID is a sum over ids that depends on their order.
func addID[T string | []byte](sum uint64, id T) uint64 {
	h := fnv.New64a()
	var before [8]byte
	put64(before[:], sum)
	_, _ = h.Write(before[:]) // never fails (hash.Hash)
	_, _ = h.Write([]byte(id))
	return h.Sum64()
}

func (v *viewer) write(frame string) error {
	if v.fd != 0 {
		return writeRaw(v.fd, frame)
	}
	return v.ws.WriteMessage(websocket.TextMessage, []byte(frame))
}

// readInto reads a frame into memory that is used again.
func readInto(b []byte, r io.Reader) ([]byte, error) {
	for {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if errors.Is(err, io.EOF) {
			return b, nil
		}
		if err != nil {
			return b, err
		}
	}
}

// check holds the viewers of one room, who began at the same position, against
// each other: all have the same number of items, unless they were cut off while
// some lagged behind, and those that kept ids have the same ones in the same
// order, each once. It returns how many differ. The viewers have ended.
func (c *crowd) check(cutOff bool) (differ int) {
	var most *viewer
	for _, v := range c.viewers {
		if v.whole && (most == nil || v.total > most.total) {
			most = v
		}
	}
	once := map[string]bool{}
	for _, id := range most.ids {
		once[id] = true
	}
	if len(once) != int(most.total) || len(most.ids) != int(most.total) {
		differ++
	}
	for _, v := range c.viewers {
		if !cutOff && v.total != most.total || v.whole && !slices.Equal(v.ids, most.ids[:min(len(v.ids), len(most.ids))]) {
			differ++
		}
	}
	return differ
}
