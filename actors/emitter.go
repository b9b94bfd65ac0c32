package actors

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"parley/driver"
	"parley/event"
	"parley/room"
)

// emitter is the line from one attempt of a driver to its room (D1). Emit
// queues here and tells the room once that there is something to take, so that
// a burst costs the mailbox one message and the room takes all that was queued
// by then. Safe for concurrent use; mu guards the members below it.
type emitter struct {
	mayBeLate
	sys     *System
	room    *actor.PID
	run     event.RunID
	attempt uint32
	quota   *quota
	over    chan struct{} // closed when the attempt is over
	space   chan struct{} // capacity 1; filled when something became durable

	mu    sync.Mutex
	err   error // what Emit returns once the attempt is over; nil before
	queue []emission
	told  bool   // the room knows that queue is not empty
	n     uint64 // of the last event
	ends  bool   // an event was sent that ends the attempt by itself
	// count and bytes are what was emitted and is not durable yet.
	count, bytes int

	// taken is what the room took, and next the first of it that is not decided.
	// batch is the last one that holds some of it: what it holds stays here until
	// it was answered, so that it can be decided again. Owned by the room actor.
	taken []emission
	next  int
	batch *flight
}

// emission is one event of a driver on its way; without a body it is the
// return of the driver.
type emission struct {
	n      uint64
	body   event.RunBody
	size   int
	failed bool // the driver returned an error or panicked
}

func newEmitter(sys *System, pid *actor.PID, run event.RunID, attempt uint32, q *quota) *emitter {
	return &emitter{
		sys: sys, room: pid, run: run, attempt: attempt, quota: q,
		over: make(chan struct{}), space: make(chan struct{}, 1), queue: make([]emission, 0, 16),
	}
}

// Emit implements driver.Emitter.
func (e *emitter) Emit(body event.RunBody) error {
	size := bodySize(body)
	body = own(body)
	for {
		if err := e.pause(); err != nil {
			return err
		}
		e.mu.Lock()
		if e.err != nil {
			e.mu.Unlock()
			return e.refuse(1)
		}
		// An event that is larger than the window goes alone.
		if e.count < e.sys.cfg.EmitEvents && (e.count == 0 || e.bytes+size <= e.sys.cfg.EmitBytes) {
			e.n++
			switch body.(type) {
			case event.Completed, event.InputRequested:
				e.ends = true
			}
			e.push(emission{n: e.n, body: body, size: size})
			return nil
		}
		e.mu.Unlock()
		select {
		case <-e.space:
		case <-e.over:
		}
	}
}

// pause waits while the room's drivers have used up its share of the journal.
func (e *emitter) pause() error {
	for {
		d := e.quota.wait(e.sys.cfg.Clock())
		if d == 0 {
			return nil
		}
		t := time.NewTimer(d)
		select {
		case <-t.C:
		case <-e.over:
			t.Stop()
			return e.refuse(1)
		}
	}
}

// refuse counts events that came too late and returns why they did.
func (e *emitter) refuse(n int) error {
	e.sys.cfg.Observer.LateEvents(n)
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err
}

// push queues x and unlocks mu. The room is told outside the lock: what is
// queued meanwhile it finds when it comes.
func (e *emitter) push(x emission) {
	e.queue = append(e.queue, x)
	e.count++
	e.bytes += x.size
	tell := !e.told
	e.told = true
	e.mu.Unlock()
	if tell {
		e.sys.root.Send(e.room, e)
	}
}

// finish queues the return of the driver, unless the room ends the attempt
// anyway or has done so.
func (e *emitter) finish(failed bool) {
	e.mu.Lock()
	if e.err != nil || e.ends {
		e.mu.Unlock()
		return
	}
	e.ends = true
	e.push(emission{n: e.n + 1, failed: failed})
}

// take moves what is queued to taken, for a batch f that is being built. All
// that was taken before is decided. Called by the room actor.
func (e *emitter) take(f *flight) {
	if e.batch == f {
		e.mu.Lock()
		e.taken = append(e.taken, e.queue...)
		clear(e.queue)
		e.queue, e.told = e.queue[:0], false
		e.mu.Unlock()
		return
	}
	clear(e.taken)
	spare := e.taken[:0]
	e.mu.Lock()
	e.taken, e.queue, e.told = e.queue, spare, false
	e.mu.Unlock()
	e.next = 0
}

// drop passes over what was taken and not decided, because the attempt is over,
// and counts it; also the event before it, when that was not accepted. Called
// by the room actor.
func (e *emitter) drop(also bool) {
	late := 0
	if also {
		late++
	}
	for _, x := range e.taken[e.next:] {
		if x.body != nil {
			late++
		}
	}
	e.next = len(e.taken)
	if late > 0 {
		e.sys.cfg.Observer.LateEvents(late)
	}
}

// following is the number that the next event would have.
func (e *emitter) following() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.n + 1
}

// settle opens the window by what is durable by now.
func (e *emitter) settle(count, bytes int) {
	e.mu.Lock()
	e.count -= count
	e.bytes -= bytes
	e.mu.Unlock()
	select {
	case e.space <- struct{}{}:
	default:
	}
}

// close ends the line; the first error stays. What was queued is dropped.
func (e *emitter) close(err error) {
	e.mu.Lock()
	if e.err != nil {
		e.mu.Unlock()
		return
	}
	e.err = err
	late := 0
	for _, x := range e.queue {
		if x.body != nil {
			late++
		}
	}
	e.queue = nil
	e.mu.Unlock()
	close(e.over)
	if late > 0 {
		e.sys.cfg.Observer.LateEvents(late)
	}
}

// message is what the room decides for an emission.
func (e *emitter) message(x emission) any {
	if x.body == nil {
		return room.Ended{Run: e.run, Attempt: e.attempt, N: x.n, Failed: x.failed}
	}
	return room.Emit{Run: e.run, Attempt: e.attempt, N: x.n, Event: x.body}
}

// nothing stands for a nil event, which is the driver's fault and not ours: no
// room takes it.
type nothing struct{}

// RunKind implements event.RunBody.
func (nothing) RunKind() event.RunKind { return 0 }

// own copies what a driver may go on changing after Emit returned.
func own(b event.RunBody) event.RunBody {
	switch x := b.(type) {
	case nil:
		return nothing{}
	case event.AssistantOutput:
		if x.Audience.Participants == nil && x.Interruptible == nil {
			return b // the common case shares nothing
		}
		x.Audience.Participants = slices.Clone(x.Audience.Participants)
		x.Interruptible = ownValue(x.Interruptible)
		return x
	case event.Checkpoint:
		x.Value = slices.Clone(x.Value)
		return x
	case event.Progress:
		x.Current, x.Total = ownValue(x.Current), ownValue(x.Total)
		return x
	case event.Decision:
		x.Utterances = slices.Clone(x.Utterances)
		for i := range x.Utterances {
			to := &x.Utterances[i].Audience
			to.Participants = slices.Clone(to.Participants)
		}
		return x
	}
	return b
}

func ownValue[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

// The errors that drivers see once their attempt is over.
var (
	errCanceled = fmt.Errorf("%w: %w", driver.ErrEnded, driver.ErrCanceled)
	errDeadline = fmt.Errorf("%w: %w", driver.ErrEnded, driver.ErrDeadline)
	errFault    = fmt.Errorf("%w: %w", driver.ErrEnded, driver.ErrFault)
	errDrained  = fmt.Errorf("%w: %w", driver.ErrEnded, driver.ErrShutdown)
)

// causes are, for each cause of the core, the error of the emitter and the
// cause of the context.
var causes = map[room.StopCause]struct{ emit, ctx error }{
	room.Canceled:       {errCanceled, driver.ErrCanceled},
	room.DeadlinePassed: {errDeadline, driver.ErrDeadline},
	room.Faulted:        {errFault, driver.ErrFault},
	room.Drained:        {errDrained, driver.ErrShutdown},
	room.Finished:       {driver.ErrEnded, driver.ErrEnded},
}
