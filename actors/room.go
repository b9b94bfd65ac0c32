package actors

import (
	"errors"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"parley/event"
	"parley/room"
)

// phase is where a room actor stands.
type phase uint8

const (
	loading phase = iota // the journal is being read
	failed               // it could not be; it is tried again
	live                 // there is a state
	resting              // the last batch before hibernation is under way, or done
	dead                 // given up until the process restarts
)

// roomActor waits for one room. Its Receive never waits itself: what has to be
// waited for comes back as a message. Owned by its actor, except feed, quota
// and the emitters, which are safe for concurrent use.
type roomActor struct {
	sys  *System
	id   event.RoomID
	log  *zap.Logger
	feed *feed
	ctx  actor.Context // of the message being received
	self *actor.PID

	phase phase
	load  uint64 // number of the load under way; an answer to an older one is ignored
	state *room.State
	term  event.Term
	alarm time.Time // as stored in the journal; zero: none

	// pending are the inputs that wait for a decision, in order.
	// Invariant: while a batch is in flight, nothing is decided.
	pending  queue
	commands int // of pending
	flushing bool
	yielded  bool
	flight   *flight
	building *flight // set while flush runs, so that a panic forgets nobody
	stalled  bool    // the batch in flight, or the load, is beyond its deadline

	runs  map[attemptID]*run
	tail  publisher
	quota *quota // of its drivers; nil until there is one
	// sinceSnapshot counts what the journal holds beyond the snapshot.
	sinceSnapshot struct{ entries, bytes int }

	timer    *time.Timer // the one timer of the room; nil until it is needed
	armed    time.Time   // when it fires; zero: it does not
	used     time.Time   // when the last command or driver was done with
	retryAt  time.Time   // when flush is tried again; zero: no need
	loadAt   time.Time   // when the load is tried again, in phase failed; when callers are told that it is late, in phase loading
	failures int         // loads and batches that failed in a row
	faults   []time.Time // of the last minute: panics and fences
	ticked   time.Time   // no further tick before: the last one changed nothing

	asked     bool              // to rest
	draining  bool              // Shutdown was called
	drained   bool              // and the state was told
	recovered bool              // what was active when the state was loaded has been seen to
	settled   bool              // what the room was woken for is done
	said      event.Seq         // the head that the followers were told
	shown     *event.View       // the last view that was built
	rowAt     map[event.Key]int // of the batch being built, once it has many rows
	shed      bool              // nothing was done since letGo
}

// attemptID names an attempt of a run.
type attemptID struct {
	run     event.RunID
	attempt uint32
}

// run is one attempt with a driver at work, or not yet back.
type run struct {
	pid   *actor.PID
	out   *emitter
	ended bool // it was told that the attempt is over
}

// item is one thing to decide: a command, what an emitter has queued, or a
// message of package room.
type item struct {
	cmd *request
	out *emitter
	msg any
}

// The messages to a room, beside *request, *emitter and what the engine sends.
type (
	flushNow  struct{ mayBeLate }
	timeIsUp  struct{ mayBeLate }
	restNow   struct{ mayBeLate }
	drainNow  struct{ mayBeLate }
	abortNow  struct{ mayBeLate }
	committed struct {
		mayBeLate
		flight *flight
		err    error
	}
	loaded struct {
		mayBeLate
		load  uint64
		state *room.State
		rec   event.Recovered
		took  time.Duration
		err   error
	}
)

func newRoomActor(s *System, id event.RoomID) *roomActor {
	return &roomActor{
		sys: s, id: id, log: s.log, feed: s.feeds.wake(id),
		tail: publisher{maxEntries: s.cfg.TailEntries, maxBytes: s.cfg.TailBytes},
		used: s.cfg.Clock(),
	}
}

// Receive implements actor.Actor. A panic anywhere below is one of the commit
// path, unless it was caught nearer to its cause: the state is dropped.
func (r *roomActor) Receive(ctx actor.Context) {
	r.ctx = ctx
	defer func() {
		if v := recover(); v != nil {
			r.sys.logPanic(InRoom, "panic in a room", r.id, v)
			r.drop(errPanic)
		}
		r.ctx = nil
	}()
	switch m := ctx.Message().(type) {
	case *request:
		r.command(m)
	case *emitter:
		r.add(item{out: m})
	case flushNow:
		r.flushMessage()
	case committed:
		r.committed(m)
	case *actor.Started:
		r.self = ctx.Self()
		r.startLoad()
	case loaded:
		r.loaded(m)
	case timeIsUp:
		r.armed = time.Time{}
		r.time()
	case restNow:
		r.restNow()
	case drainNow:
		r.draining = true
		r.progress()
	case abortNow:
		r.abort()
	case *actor.Terminated:
		r.runOver(m.Who)
	case *actor.Stopped:
		// The engine's set of children does not clear the place of one that it
		// removes, so this actor may be reachable for as long as the process lives.
		*r = roomActor{}
	}
}

// command takes a command in, or refuses it where it will not be decided soon.
func (r *roomActor) command(q *request) {
	r.used, r.shed = r.now(), false
	switch {
	case r.phase == dead:
		r.sys.answer(q, nil, refuseDead())
	case r.phase == failed:
		r.sys.answer(q, nil, refuseUnloaded(r.loadAt.Sub(r.used)))
	case r.stalled:
		r.sys.answer(q, nil, refuseStalled())
	case r.commands >= r.sys.cfg.MaxQueued:
		r.sys.answer(q, nil, refuseBusy())
	default:
		r.commands++
		r.add(item{cmd: q})
	}
}

// add queues an input and sees to it that it is looked at.
func (r *roomActor) add(x item) {
	r.pending.push(x)
	r.wantFlush()
}

// wantFlush sends the room a flush: it goes to the end of the mailbox, so that
// it sees all that was queued before it.
func (r *roomActor) wantFlush() {
	if r.flushing || r.flight != nil || r.phase != live || r.pending.len() == 0 {
		return
	}
	if r.commands == 0 && !r.retryAt.IsZero() {
		return // what is left needs the disk
	}
	r.flushing = true
	r.ctx.Send(r.self, flushNow{})
}

func (r *roomActor) now() time.Time { return r.sys.cfg.Clock() }

// progress goes on after something was done: with the next flush, with the way
// to rest, and with the timer.
func (r *roomActor) progress() {
	if r.draining && !r.drained && r.phase == live && r.state.Active() {
		r.drained = true
		r.pending.push(item{msg: room.Drain{}})
	}
	r.wantFlush()
	if r.draining {
		r.drain()
	}
	r.arm()
}

// time does what is due. The timer may fire early or for nothing.
func (r *roomActor) time() {
	now := r.now()
	if f := r.flight; f != nil {
		r.late(f, now)
	}
	switch r.phase {
	case failed:
		if !now.Before(r.loadAt) {
			r.startLoad()
		}
	case loading:
		if !r.loadAt.IsZero() && !now.Before(r.loadAt) {
			r.loadLate()
		}
	case live:
		if !r.retryAt.IsZero() && !now.Before(r.retryAt) {
			r.retryAt = time.Time{}
		}
		if t := r.state.NextTick(); !t.IsZero() && !now.Before(t) && !now.Before(r.ticked) && r.flight == nil {
			r.ticked = now.Add(r.sys.cfg.Retry)
			r.pending.push(item{msg: room.Tick{}})
		}
		if !r.shed && r.idle() && !now.Before(r.shedAt()) {
			r.letGo()
		}
		if !r.asked && !r.draining && r.idle() && !now.Before(r.restAt()) {
			r.asked = true
			r.ctx.Send(r.sys.registry, wantsRest{r.self})
		}
	case resting, dead:
	}
	r.progress()
}

// arm sets the timer to the earliest instant at which time has something to do.
func (r *roomActor) arm() {
	var next time.Time
	at := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	if f := r.flight; f != nil {
		switch {
		case !f.late:
			at(f.began.Add(r.sys.cfg.CommitDeadline))
		case !f.stuck:
			at(f.began.Add(r.sys.cfg.StuckAfter))
		}
	}
	switch r.phase {
	case failed, loading:
		at(r.loadAt)
	case live:
		at(r.retryAt)
		if r.flight == nil {
			if t := r.state.NextTick(); !t.IsZero() {
				at(later(t, r.ticked))
			}
		}
		if !r.shed && r.idle() {
			at(r.shedAt())
		}
		if !r.asked && !r.draining && r.idle() {
			at(r.restAt())
		}
	case resting, dead:
	}
	// A timer that fires too early costs one look, so it is never moved back.
	if next.IsZero() || !r.armed.IsZero() && !next.Before(r.armed) {
		return
	}
	r.armed = next
	d := max(0, next.Sub(r.now()))
	if r.timer == nil {
		self, root := r.self, r.sys.root
		r.timer = time.AfterFunc(d, func() { root.Send(self, timeIsUp{}) })
	} else {
		r.timer.Reset(d)
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// soon is how near the next instant of a room may be for it to be worth
// hibernating until then.
const soon = time.Second

// idle reports whether the room has nothing to do but to wait for commands or
// for an instant that its alarm can wait for. A room with active runs is not idle.
func (r *roomActor) idle() bool {
	if r.phase != live || r.flight != nil || r.pending.len() > 0 || len(r.runs) > 0 || r.state.Active() {
		return false
	}
	t := r.state.NextTick()
	return t.IsZero() || t.After(r.now().Add(soon))
}

// restAt is when an idle room hibernates. One that does not exist is not kept:
// asking for names must not fill the memory.
func (r *roomActor) restAt() time.Time {
	after := r.sys.cfg.IdleAfter
	if !r.state.Exists() {
		after = min(after, soon)
	}
	return r.used.Add(after)
}

func (r *roomActor) shedAt() time.Time { return r.used.Add(r.sys.cfg.ShedAfter) }

// letGo drops what an idle room can do without: who reads goes to the journal,
// and who asks for the view has it built again. After a turn that is most of
// what the room holds.
func (r *roomActor) letGo() {
	r.shed = true
	r.tail.reset()
	r.feed.tail.Store(&tail{head: r.state.Head()})
	r.feed.view.Store(nil)
	r.shown, r.rowAt, r.pending = nil, nil, queue{}
}

// restNow is the registry's answer to wantsRest. What was sent before it has
// been received; nothing comes after it.
func (r *roomActor) restNow() {
	r.asked = false
	if r.draining || !r.idle() || r.now().Before(r.restAt()) {
		r.ctx.Send(r.sys.registry, rests{pid: r.self, busy: true})
		r.progress()
		return
	}
	r.rest()
}

// rest writes what hibernation needs, the exact alarm and a snapshot, and lets
// the registry stop the room. Without it the room would only wake too early or
// read a longer tail, so nothing of it has to succeed.
func (r *roomActor) rest() {
	r.phase = resting
	wake := r.state.Wake()
	b := &event.Batch{
		Room: r.id, Term: r.term, Expect: r.state.Head(), Incarnation: r.state.Incarnation(),
	}
	if !wake.Equal(r.alarm) {
		b.Alarm = &wake
	}
	if r.sinceSnapshot.entries > 0 {
		r.snapshot(b)
	}
	if b.Alarm == nil && b.Snapshot == nil || r.sys.cfg.Journal.Writable() != nil {
		r.rested()
		return
	}
	r.send(&flight{batch: b, last: true})
	r.arm()
}

// rested hands the room to the registry, to be stopped.
func (r *roomActor) rested() {
	r.phase = resting
	var wake time.Time
	if r.state != nil {
		wake = r.state.Wake()
	}
	r.sys.feeds.sleep(r.id, r.feed)
	r.leave(wake)
}

func (r *roomActor) leave(wake time.Time) {
	if r.timer != nil {
		r.timer.Stop()
	}
	r.ctx.Send(r.sys.registry, rests{pid: r.self, alarm: wake})
}

// drain goes on with the way to rest of a Shutdown.
func (r *roomActor) drain() {
	switch r.phase {
	case loading, resting:
		return // what is under way answers
	case failed, dead:
		r.refuseCommands(refuseShutdown())
		if len(r.runs) == 0 {
			r.rested()
		}
	case live:
		if err := r.sys.cfg.Journal.Writable(); err != nil && r.flight == nil {
			// Nothing more can be written: let the attempts go without a word.
			// They count as lost, and are recovered.
			r.refuseCommands(refuseDisk(err))
			r.pending = queue{}
			r.stopRuns(room.Drained)
		}
		if r.flight == nil && r.pending.len() == 0 && len(r.runs) == 0 {
			r.rest()
		}
	}
}

// abort takes the room down at once: Shutdown has waited long enough. Its feed
// stays, because the head of the journal may lie beyond what is durable.
func (r *roomActor) abort() {
	r.draining = true
	r.forget(refuseUnknown())
	r.refuseCommands(refuseShutdown())
	r.stopRuns(room.Drained)
	r.load++ // a load under way is not waited for
	r.phase = dead
	r.leave(time.Time{})
}

var errPanic = errors.New("actors: a panic in the commit path")

func refuseDead() error {
	return event.Refuse(event.RoomFailed, "this room failed several times in a row and is out of service until the server is restarted")
}

func refuseUnloaded(retry time.Duration) error {
	r := event.Refuse(event.RoomFailed, "the journal of this room cannot be read at the moment; the server tries again by itself")
	r.Retry = max(0, retry)
	return r
}

func refuseStalled() error {
	r := event.Refuse(event.Unavailable, "the disk does not answer; nothing of this was written, send it again later with the same id")
	r.Retry = time.Second
	return r
}

func refuseUnknown() error {
	r := event.Refuse(event.Unavailable, "it is not known whether this was written; send it again with the same id to learn it")
	r.Retry = time.Second
	return r
}

func refuseFenced() error {
	r := event.Refuse(event.Unavailable, "another server has taken this room over; nothing of this was written, send it again with the same id")
	r.Retry = time.Second
	return r
}

func refuseRead() error {
	r := event.Refuse(event.Unavailable, "the journal of this room cannot be read at the moment; send it again with the same id")
	r.Retry = time.Second
	return r
}

func refuseDisk(err error) error {
	r := event.Refuse(event.Unavailable, "%v", err)
	r.Retry = 10 * time.Second
	return r
}

func refuseFault() error {
	return event.Refuse(event.Internal, "the server failed at this because of a fault of its own; sending it again will not help")
}
