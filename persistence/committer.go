package persistence

import (
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"go.uber.org/zap"

	"parley/event"
)

// The bounds of one commit. A greater one makes the requests in it wait longer
// for little: an fsync of 64 KiB takes 1.5 times as long as one of 4 KiB.
const (
	maxGroup      = 1024
	maxGroupBytes = 4 << 20
)

// committer makes requests durable, group by group, in two goroutines: write
// checks a group and hands it to Pebble, finish waits for its fsync and answers.
// So one group is checked and written while the one before it is being synced,
// and no more: what arrives meanwhile makes the next group greater. Against one
// goroutine that does both in turn this gave 1.2 to 1.4 times the entries per
// second at 128 rooms, about the same at 512, and cost nothing at one room.
//
// The members are owned by the goroutine of write.
type committer struct {
	s     *Store
	terms event.Term // the greatest term granted by this process
	next  roomNumber // for the next room to be created
	key   []byte     // scratch
	val   []byte     // scratch

	// flights hands groups from write to finish. Without capacity: when a group
	// is taken, the one before it is answered and may be filled again.
	flights chan *group
	groups  [2]group
	dead    chan struct{} // closed when finish has ended
}

// group is what shares one commit. Owned by write, then by finish.
type group struct {
	requests []request
	since    time.Time // when its oldest request came; guarded by the Store's mu; zero: not in use
	start    time.Time
	wb       *pebble.Batch
	// snap is the store with this group and without the next one. Nil: the group
	// changes nothing.
	snap *pebble.Snapshot
}

func (s *Store) startCommitter(next roomNumber) {
	c := &committer{s: s, next: next, flights: make(chan *group), dead: make(chan struct{})}
	s.groups = &c.groups
	s.goroutines.Go(c.write)
	s.goroutines.Go(c.finish)
}

// write takes requests until the store is closed and the queue is empty.
func (c *committer) write() {
	defer close(c.flights)
	defer c.s.guard()
	for i := 0; ; i = 1 - i {
		g := &c.groups[i]
		if !c.s.take(g) {
			return
		}
		c.assemble(g)
		select {
		case c.flights <- g:
		case <-c.dead: // after a failure that ended finish
			return
		}
	}
}

// take waits for requests and fills g with as many of the queue as a commit may
// hold. It returns false when there will be none.
func (s *Store) take(g *group) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.queue) == 0 {
		if s.draining {
			return false
		}
		s.work.Wait()
	}
	n := groupLen(s.queue)
	g.requests = append(g.requests[:0], s.queue[:n]...)
	g.since = s.queue[0].since
	left := copy(s.queue, s.queue[n:])
	clear(s.queue[left:])
	s.queue = s.queue[:left]
	return true
}

func groupLen(queue []request) int {
	bytes := 0
	for i := range queue {
		bytes += queue[i].size()
		if i > 0 && (i == maxGroup || bytes > maxGroupBytes) {
			return i
		}
	}
	return len(queue)
}

// assemble checks a group and writes it, without waiting for the fsync.
func (c *committer) assemble(g *group) {
	g.start = time.Now()
	g.wb = c.s.db.NewBatch()
	full := c.s.disk.full.Load()
	for i := range g.requests {
		g.requests[i].err = c.admit(g.wb, &g.requests[i], full)
	}
	if g.wb.Empty() {
		return
	}
	// The heads in memory are ahead of the disk now, so an error has no way back.
	if err := c.s.db.ApplyNoSyncWait(g.wb, pebble.Sync); err != nil {
		c.s.fatal("a commit failed", err)
	}
	g.snap = c.s.db.NewSnapshot()
}

// finish waits until each group is on disk, makes it readable and answers it.
func (c *committer) finish() {
	defer close(c.dead)
	defer c.s.guard()
	for g := range c.flights {
		if g.snap != nil {
			// After a failed fsync the system may have dropped the pages, so a
			// later one proves nothing. Only a new start finds out what is there.
			if err := g.wb.SyncWait(); err != nil {
				c.s.fatal("the log could not be synced", err)
			}
			c.s.views.publish(g.snap)
			took := time.Since(g.start)
			c.s.counters.commit(g.wb.Len(), took)
			c.s.cfg.Observer(took)
		}
		if err := g.wb.Close(); err != nil {
			c.s.log.Error("a batch could not be recycled", zap.Error(err))
		}
		c.s.answer(g)
	}
}

// answer calls the dones of a group in order and lets its rooms go.
func (s *Store) answer(g *group) {
	for i := range g.requests {
		r := &g.requests[i]
		s.counters.request(r)
		if r.kind == requestGrant && r.err == nil {
			r.grant.view = s.views.acquire()
		}
		if r.kind == requestDelete && r.err == nil {
			s.names.forget(r.room.name)
		}
		s.recycle(r.enc)
		r.done(r.err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range g.requests {
		s.rooms.release(g.requests[i].room)
	}
	clear(g.requests)
	g.since, g.wb, g.snap = time.Time{}, nil, nil
}

// guard ends the process when a goroutine of the committer panics: half a group
// may be on its way, so nothing can be said of it. The value of a panic may hold
// content; its type and the stack do not.
func (s *Store) guard() {
	if p := recover(); p != nil {
		s.log.Error("the committer panicked", zap.ByteString("stack", debug.Stack()))
		s.fatal("the committer panicked", fmt.Errorf("panic with a %T", p))
	}
}

// fatal ends the process.
func (s *Store) fatal(what string, err error) {
	s.log.Error("the journal cannot go on; the process ends", zap.String("what", what), zap.Error(err))
	s.cfg.Fatal(what + ": " + err.Error())
	panic(errors.New("persistence: Config.Fatal returned"))
}
