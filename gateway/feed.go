package gateway

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"parley/event"
	"parley/gateway/wire"
)

// feed is a room as its connections see it: the newest position that is
// durable, the newest entries with their encoded items, and who is to be woken.
// It holds entries only while connections are at work on them, so that an idle
// room costs nothing but this struct.
//
// Safe for concurrent use; mu guards the fields below it. refs is guarded by
// the Gateway's lock.
type feed struct {
	g    *Gateway
	room event.RoomID
	refs int

	follow sync.Once
	stop   func()

	head    atomic.Uint64
	viewers atomic.Int32 // len(conns)

	fill sync.Mutex // held while the rooms are read for all, so that it is done once

	mu        sync.Mutex
	inc       event.Incarnation
	conns     []*conn
	spreading bool
	tail      []*feedEntry // contiguous; the newest at the end
	keys      *wire.Keys   // nil until they are needed
	used      time.Time    // when tail or keys were last filled; zero when both are empty
	trim      timer
}

// feedEntry is an entry with its items, each written once for all viewers of its variant.
// shared says that they are kept for others.
type feedEntry struct {
	*event.Entry
	shared bool
	items  [wire.Variants]atomic.Pointer[[]byte]
}

const (
	feedChunk = 64   // entries taken at once
	feedTail  = 256  // entries kept at least
	manyTail  = 1024 // and for many viewers, of whom some are always behind
	many      = 64
	feedIdle  = 2 * time.Second // after which they are let go
	direct    = 4               // connections that are woken without a goroutine of their own
)

// moved is called by the room. It must not block.
func (f *feed) moved(head event.Seq) {
	if !f.raise(head) {
		return
	}
	f.mu.Lock()
	if len(f.conns) <= direct {
		var few [direct]*conn
		list := append(few[:0], f.conns...)
		f.mu.Unlock()
		for _, c := range list {
			c.kick()
		}
		return
	}
	if !f.spreading {
		f.spreading = true
		f.g.work.Add(1) // while a connection is here its own count is not given back
		go f.spread()
	}
	f.mu.Unlock()
}

// raise moves the head up.
func (f *feed) raise(head event.Seq) bool {
	for {
		was := f.head.Load()
		if uint64(head) <= was {
			return false
		}
		if f.head.CompareAndSwap(was, uint64(head)) {
			return true
		}
	}
}

// spread wakes many connections, away from the room's goroutine. It ends by
// itself once the head rests.
func (f *feed) spread() {
	defer f.g.work.Done()
	var list []*conn
	for {
		head := f.head.Load()
		f.mu.Lock()
		list = append(list[:0], f.conns...)
		f.mu.Unlock()
		for _, c := range list {
			c.kick()
		}
		f.mu.Lock()
		if f.head.Load() == head {
			f.spreading = false
			f.mu.Unlock()
			return
		}
		f.mu.Unlock()
	}
}

func (f *feed) add(c *conn) {
	f.mu.Lock()
	f.conns = append(f.conns, c)
	f.viewers.Add(1)
	f.mu.Unlock()
}

func (f *feed) remove(c *conn) {
	f.mu.Lock()
	if i := slices.Index(f.conns, c); i >= 0 {
		last := len(f.conns) - 1
		f.conns[i], f.conns[last] = f.conns[last], nil
		f.conns = f.conns[:last]
		f.viewers.Add(-1)
	}
	f.mu.Unlock()
}

func (f *feed) setIncarnation(inc event.Incarnation) {
	f.mu.Lock()
	f.inc = inc
	f.mu.Unlock()
}

func (f *feed) incarnation() event.Incarnation {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.inc
}

// read returns entries after a position, at most feedChunk, and the head. Those
// near the head come from what all connections share; a connection that is far
// behind, or the only one, reads for itself. They are valid until p reads again.
func (f *feed) read(after event.Seq, p *pen) ([]*feedEntry, event.Seq, error) {
	head := event.Seq(f.head.Load())
	if after >= head {
		return nil, head, nil
	}
	if f.viewers.Load() == 1 {
		return f.readFor(after, p)
	}
	buf := p.entries[:0]
	if out, ok := f.shared(after, buf); ok {
		return out, head, nil
	}
	if head-after > feedTail {
		return f.readFor(after, p)
	}
	f.fill.Lock()
	defer f.fill.Unlock()
	if out, ok := f.shared(after, buf); ok { // somebody else has read it meanwhile
		return out, head, nil
	}
	from := f.end(after)
	entries, head, err := f.g.cfg.Rooms.Read(f.room, from, feedTail)
	if err != nil {
		return nil, head, err
	}
	f.keep(from, entries)
	if out, ok := f.shared(after, buf); ok {
		return out, max(head, event.Seq(f.head.Load())), nil
	}
	return f.readFor(after, p)
}

func (f *feed) readFor(after event.Seq, p *pen) ([]*feedEntry, event.Seq, error) {
	entries, head, err := f.g.cfg.Rooms.Read(f.room, after, feedChunk)
	buf := p.entries[:0]
	p.owned = max(p.owned, len(entries))
	for i, e := range entries {
		p.own[i].Entry = e
		buf = append(buf, &p.own[i])
	}
	return buf, max(head, event.Seq(f.head.Load())), err
}

// shared returns what the shared entries have after a position.
func (f *feed) shared(after event.Seq, buf []*feedEntry) ([]*feedEntry, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.tail) == 0 || after+1 < f.tail[0].Seq || after >= f.tail[len(f.tail)-1].Seq {
		return buf, false
	}
	at := int(after + 1 - f.tail[0].Seq)
	return append(buf, f.tail[at:min(len(f.tail), at+feedChunk)]...), true
}

// end returns the position after which to read so that the tail stays
// contiguous and reaches beyond after.
func (f *feed) end(after event.Seq) event.Seq {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := len(f.tail); n > 0 && after+1 >= f.tail[0].Seq {
		if last := f.tail[n-1].Seq; after-min(after, last) < feedTail {
			return last
		}
	}
	return after
}

func (f *feed) keep(from event.Seq, entries []*event.Entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := len(f.tail); n > 0 && f.tail[n-1].Seq != from {
		f.tail = nil
	}
	held := make([]feedEntry, len(entries)) // they are let go together, nearly
	for i, e := range entries {
		if n := len(f.tail); n > 0 && f.tail[n-1].Seq+1 != e.Seq {
			f.tail = nil // what lay between is no longer retained
		}
		held[i].Entry, held[i].shared = e, true
		f.tail = append(f.tail, &held[i])
	}
	most := feedTail
	if f.viewers.Load() >= many {
		most = manyTail
	}
	if n := len(f.tail); n > 2*most { // seldom, so that a few entries cost no copy
		f.tail = append(make([]*feedEntry, 0, 2*most+feedTail), f.tail[n-most:]...)
	}
	f.useLocked()
}

// useLocked says that what is shared is in use.
func (f *feed) useLocked() {
	idle := f.used.IsZero()
	f.used = time.Now()
	if idle {
		f.g.wheel.set(&f.trim, f.used.Add(feedIdle))
	}
}

// sealer returns the keys of the room. They are 1.7 KB, and an idle room needs
// them once in 25 seconds, so they are derived again when they were let go.
func (f *feed) sealer() *wire.Keys {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.keys == nil {
		f.keys = f.g.keys(f.room)
		f.useLocked()
	}
	return f.keys
}

// idle lets what is shared go once nobody has read for a while.
func (f *feed) idle() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if next := f.used.Add(feedIdle); time.Now().Before(next) {
		f.g.wheel.set(&f.trim, next)
		return
	}
	f.tail, f.keys, f.used = nil, nil, time.Time{}
}

// seal is what entry ids are made of.
type seal struct {
	keys *wire.Keys
	inc  event.Incarnation
}

func (f *feed) seal() seal { return seal{f.sealer(), f.incarnation()} }
