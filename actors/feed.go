package actors

import (
	"slices"
	"sync"
	"sync/atomic"

	"parley/event"
)

// feeds holds what may be seen of the rooms from outside their actors. Safe for
// concurrent use.
type feeds struct{ rooms sync.Map } // event.RoomID → *feed

// feed is one room's durable head, latest entries and followers. It exists
// while the room is awake or followed. Safe for concurrent use; mu guards the
// members below it. The tail and the view are published by the room actor only.
type feed struct {
	tail atomic.Pointer[tail] // nil while the room hibernates
	view atomic.Pointer[event.View]

	mu        sync.Mutex
	awake     bool
	gone      bool // taken out of feeds; whoever holds it looks again
	followers []*follower
	told      []*follower // copy of followers for announce; nil after a change
}

type follower struct {
	moved func(event.Seq)
	at    int // in followers
}

// tail is a run of durable entries up to the durable head. Immutable.
type tail struct {
	head    event.Seq
	entries []*event.Entry
}

// first is the position of the first entry held; head+1 when there is none.
func (t *tail) first() event.Seq { return t.head - event.Seq(len(t.entries)) + 1 }

// after returns at most max entries after a position, and false when they are
// not all held. The entries are shared.
func (t *tail) after(after event.Seq, max int) ([]*event.Entry, bool) {
	if after >= t.head {
		return nil, true
	}
	if after+1 < t.first() {
		return nil, false
	}
	from := int(after + 1 - t.first())
	to := min(from+max, len(t.entries))
	return t.entries[from:to:to], true
}

// find returns the feed of a room that is awake or followed, else nil.
func (fs *feeds) find(id event.RoomID) *feed {
	if f, ok := fs.rooms.Load(id); ok {
		return f.(*feed)
	}
	return nil
}

// with calls use with the locked feed of a room, which it makes if need be.
func (fs *feeds) with(id event.RoomID, use func(*feed)) *feed {
	for {
		v, ok := fs.rooms.Load(id)
		if !ok {
			v, _ = fs.rooms.LoadOrStore(id, new(feed))
		}
		f := v.(*feed)
		f.mu.Lock()
		if !f.gone {
			use(f)
			f.mu.Unlock()
			return f
		}
		f.mu.Unlock()
	}
}

// drop takes a feed out that nobody needs. The caller holds f.mu.
func (fs *feeds) drop(id event.RoomID, f *feed) {
	if !f.awake && len(f.followers) == 0 {
		f.gone = true
		fs.rooms.CompareAndDelete(id, f)
	}
}

// wake returns the feed of a room that an actor now runs.
func (fs *feeds) wake(id event.RoomID) *feed {
	return fs.with(id, func(f *feed) { f.awake = true })
}

// sleep says that the room hibernates and all that it wrote is durable: who
// reads goes to the journal.
func (fs *feeds) sleep(id event.RoomID, f *feed) {
	f.tail.Store(nil)
	f.view.Store(nil)
	f.mu.Lock()
	f.awake = false
	fs.drop(id, f)
	f.mu.Unlock()
}

func (fs *feeds) follow(id event.RoomID, moved func(event.Seq)) (stop func()) {
	w := &follower{moved: moved}
	f := fs.with(id, func(f *feed) {
		w.at = len(f.followers)
		f.followers, f.told = append(f.followers, w), nil
	})
	return sync.OnceFunc(func() {
		f.mu.Lock()
		last := f.followers[len(f.followers)-1]
		f.followers[w.at], last.at = last, w.at
		f.followers[len(f.followers)-1] = nil
		f.followers, f.told = f.followers[:len(f.followers)-1], nil
		fs.drop(id, f)
		f.mu.Unlock()
	})
}

// audience returns the followers. The copy is made once per change, not once
// per commit.
func (f *feed) audience() []*follower {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.told == nil && len(f.followers) > 0 {
		f.told = slices.Clone(f.followers)
	}
	return f.told
}

// publisher makes the tails of one room. Owned by the room actor.
//
// Entries are appended behind those of earlier tails in the same array: who
// holds an earlier tail does not look there, and the atomic store of the new
// one orders the writes before its readers. So a commit costs no copy.
type publisher struct {
	maxEntries, maxBytes int

	entries []*event.Entry
	sizes   []int
	from    int // first of entries that is still part of the tail
	bytes   int // of entries[from:]
	stale   int // bytes of entries[:from]
}

// reset starts over with these entries.
func (p *publisher) reset() { *p = publisher{maxEntries: p.maxEntries, maxBytes: p.maxBytes} }

// add appends durable entries and returns the tail that ends with them.
func (p *publisher) add(head event.Seq, entries []*event.Entry) *tail {
	for _, e := range entries {
		n := entrySize(e)
		p.entries, p.sizes = append(p.entries, e), append(p.sizes, n)
		p.bytes += n
	}
	for p.from < len(p.entries) && (len(p.entries)-p.from > p.maxEntries || p.bytes > p.maxBytes) {
		p.bytes -= p.sizes[p.from]
		p.stale += p.sizes[p.from]
		p.from++
	}
	if p.from > p.maxEntries || p.stale > p.maxBytes {
		p.entries = slices.Clone(p.entries[p.from:])
		p.sizes = slices.Clone(p.sizes[p.from:])
		p.from, p.stale = 0, 0
	}
	return &tail{head: head, entries: p.entries[p.from:len(p.entries):len(p.entries)]}
}
