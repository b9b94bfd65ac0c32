package persistence

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"go.uber.org/zap"

	"parley/event"
)

// Store is the journal of all rooms of a node. See the package comment for what
// it guarantees. Safe for concurrent use.
type Store struct {
	cfg   Config // Immutable after Open.
	log   *zap.Logger
	db    *pebble.DB
	lock  *pebble.Lock
	views *views
	names names
	disk  *diskWatch

	encodings sync.Pool // of *encoded

	opened  atomic.Bool  // Open has what it needs
	retries atomic.Int64 // background errors of Pebble before that

	mu     sync.Mutex
	work   sync.Cond // signaled when queue is not empty or draining is set
	rooms  rooms
	queue  []request // in the order in which the committer takes them
	groups *[2]group // in the committer's hands; only their since is guarded by mu
	// closed refuses new requests; draining lets the committer end once the queue is empty.
	closed, draining bool

	loads      sync.WaitGroup // goroutines that load rooms
	goroutines sync.WaitGroup // the committer's

	counters counters
}

// Append queues a batch to be made durable and returns at once. done is called
// exactly once, from another goroutine, with nil once the whole batch is on
// disk, and must not block: the node's other batches wait for it. Batches of one
// room are written in the order of the calls. The batch belongs to the Store
// until then and is not changed.
//
// Errors: event.ErrFenced when the batch does not follow the room's head or is
// not of the room's newest term; event.ErrDiskFull; ErrClosed; or a fault of the
// batch or of the store. Nothing was written in any of these cases. A commit
// that fails midway ends the process (Config.Fatal), and then done is not called
// at all.
//
// The queue is not bounded: a room has one or two batches outstanding, each of
// bounded size.
func (s *Store) Append(b *event.Batch, done func(error)) {
	enc := s.encoding()
	err := enc.encode(b)
	s.submit(b.Room, request{kind: requestAppend, batch: b, enc: enc, err: err, done: done})
}

// Recover grants a term to a new owner of the room and returns what its journal
// holds. Batches of earlier terms are refused from then on; those that were
// appended before are waited for, and are part of the answer if they were taken.
// All that is returned is durable. A room that does not exist has Head 0. A
// snapshot that is damaged is left out, and so is a tail that is longer than a
// room with a snapshot has it: Read gives what is missing.
//
// It blocks until it has an answer: while an fsync hangs, it hangs too. Errors:
// ErrClosed, ErrDamaged with the room and the position, or a failed read.
func (s *Store) Recover(room event.RoomID) (event.Recovered, error) {
	g := &grant{}
	if err := s.call(room, request{kind: requestGrant, grant: g}); err != nil {
		return event.Recovered{}, err
	}
	defer s.views.release(g.view)
	return g.view.recovered(room, g, s.log)
}

// Delete removes the room with its entries, rows, snapshot and alarm, and
// returns once that is durable. A later batch may create a room of the same
// name; it has nothing of this one. Owners from before are fenced. Deleting a
// room that does not exist does nothing. It works on a full disk.
func (s *Store) Delete(room event.RoomID) error {
	return s.call(room, request{kind: requestDelete})
}

// Writable returns nil, or event.ErrDiskFull while new commits are refused. It
// costs one load from memory.
func (s *Store) Writable() error {
	if s.disk.full.Load() {
		return event.ErrDiskFull
	}
	return nil
}

// Close makes durable what is queued, answers it, waits for calls in progress
// and closes the directory. Later calls get ErrClosed.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return ErrClosed
	}
	s.closed = true
	s.mu.Unlock()

	s.loads.Wait()
	s.mu.Lock()
	s.draining = true
	s.work.Signal()
	s.mu.Unlock()
	s.goroutines.Wait()
	s.disk.stop()
	s.views.close()
	return s.closeFiles()
}

// call submits a request and waits for its answer.
func (s *Store) call(room event.RoomID, r request) error {
	answer := make(chan error, 1)
	r.done = func(err error) { answer <- err }
	s.submit(room, r)
	return <-answer
}

// submit hands a request to the committer, in the order of the calls for a room.
func (s *Store) submit(room event.RoomID, r request) {
	r.since = time.Now()
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		s.recycle(r.enc)
		// The committer has gone, and a caller need not expect the answer inside
		// its call.
		go r.done(ErrClosed)
		return
	}
	defer s.mu.Unlock()
	rm := s.rooms.hold(room)
	r.room = rm
	if rm.loaded {
		s.enqueue(r)
		return
	}
	rm.waiting = append(rm.waiting, r)
	if len(rm.waiting) == 1 {
		s.loads.Add(1)
		go s.load(rm)
	}
}

// enqueue is called with mu held.
func (s *Store) enqueue(r request) {
	s.queue = append(s.queue, r)
	s.work.Signal()
}
