package actors

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"parley/event"
	"parley/room"
)

// maxFaults is how many panics and fences a room survives within faultWindow.
const (
	maxFaults   = 3
	faultWindow = time.Minute
	maxBackoff  = 60 // times Retry
)

// startLoad reads the room from its journal, off the actor: what arrives
// meanwhile gathers, for as long as a commit may take.
func (r *roomActor) startLoad() {
	r.phase, r.loadAt = loading, r.now().Add(r.sys.cfg.CommitDeadline)
	r.load++
	load, self, s := r.load, r.self, r.sys
	s.work.add()
	go func() {
		defer s.work.done()
		start := time.Now()
		m := loaded{load: load}
		m.state, m.rec, m.err = s.restore(r.id)
		m.took = time.Since(start)
		s.root.Send(self, m)
	}()
	r.arm()
}

// restore returns the state that a room's journal holds. The snapshot only
// spares reading: when it cannot be used, the entries are replayed from the
// first one on, and only what they do not give is lost.
func (s *System) restore(id event.RoomID) (*room.State, event.Recovered, error) {
	rec, err := s.cfg.Journal.Recover(id)
	if err != nil {
		return nil, rec, err
	}
	if rec.Snapshot == nil {
		st, err := s.replay(id, nil, rec)
		return st, rec, err
	}
	st, err := s.replay(id, rec.Snapshot, rec)
	if err == nil {
		return st, rec, nil
	}
	s.log.Error("a snapshot cannot be used; the room is replayed from its first entry", zap.String("room", string(id)),
		zap.Uint64("at", uint64(rec.SnapshotAt)), zap.Error(err))
	rec.Snapshot, rec.SnapshotAt = nil, 0 // so that a new one is due
	st, err = s.replay(id, nil, rec)
	return st, rec, err
}

// replayChunk is how many entries before the tail are held in memory at once.
const replayChunk = 512

// replay folds the entries after a snapshot, or without one all entries. A
// panic of the state is a journal that this program cannot have written.
func (s *System) replay(id event.RoomID, snapshot []byte, rec event.Recovered) (st *room.State, err error) {
	defer func() {
		if v := recover(); v != nil {
			s.logPanic(InLoad, "panic in the replay of a journal", id, v)
			st, err = nil, fmt.Errorf("the journal does not replay: a panic of type %T", v)
		}
	}()
	st = room.New(id)
	if snapshot != nil {
		if st, err = room.Restore(id, snapshot); err != nil {
			return nil, err
		}
		if st.Head() != rec.SnapshotAt {
			return nil, fmt.Errorf("the snapshot at %d has the head %d", rec.SnapshotAt, st.Head())
		}
	}
	for tail := rec.Head - event.Seq(len(rec.Tail)); st.Head() < tail; {
		es, err := s.cfg.Journal.Read(id, st.Head(), tail, replayChunk)
		if err == nil && len(es) == 0 {
			err = fmt.Errorf("the journal has no entry after %d, its head is %d", st.Head(), rec.Head)
		}
		if err != nil {
			return nil, err
		}
		for _, e := range es {
			st.Apply(e)
		}
	}
	for _, e := range rec.Tail {
		st.Apply(e)
	}
	if st.Head() != rec.Head {
		return nil, fmt.Errorf("the journal replays to %d, its head is %d", st.Head(), rec.Head)
	}
	return st, nil
}

// loaded takes the result of a load.
func (r *roomActor) loaded(m loaded) {
	if m.load != r.load {
		return
	}
	r.sys.cfg.Observer.Recovered(m.err == nil, m.took)
	r.stalled, r.loadAt = false, time.Time{}
	if m.err != nil {
		r.loadFailed(m.err)
		return
	}
	r.phase, r.state, r.term, r.alarm = live, m.state, m.rec.Term, m.rec.Alarm
	r.sinceSnapshot.entries, r.sinceSnapshot.bytes = int(m.rec.Head-m.rec.SnapshotAt), 0
	for _, e := range m.rec.Tail {
		r.sinceSnapshot.bytes += entrySize(e)
	}
	r.tail.reset()
	r.feed.tail.Store(r.tail.add(m.rec.Head, m.rec.Tail))
	switch {
	case !r.state.Exists():
		r.recovered = true
	case !r.recovered:
		r.pending.unshift(item{msg: room.Recover{}})
	default:
		// Nothing of the last batch was written, so the attempts went on; see to
		// it that none is missing.
		r.effects(r.state.Outstanding(r.now()))
	}
	r.announce()
	if r.recovered {
		r.settle()
	}
	r.progress()
}

// loadLate refuses those who have waited for a load as long as for a commit: the
// room is not its own before what may be outstanding of it is durable, and an
// fsync can hang. The load goes on.
func (r *roomActor) loadLate() {
	r.stalled, r.loadAt = true, time.Time{}
	r.log.Error("the journal does not answer; a room is not loaded", zap.String("room", string(r.id)))
	r.refuseCommands(refuseStalled())
}

func (r *roomActor) loadFailed(err error) {
	r.failures++
	r.phase, r.loadAt = failed, r.now().Add(r.backoff())
	r.log.Error("a room could not be loaded", zap.String("room", string(r.id)), zap.Int("failures", r.failures), zap.Error(err))
	r.refuseCommands(refuseUnloaded(r.backoff()))
	r.settle()
	r.progress()
}

// backoff is the pause after the failures so far.
func (r *roomActor) backoff() time.Duration {
	return r.sys.cfg.Retry * time.Duration(min(1<<min(r.failures-1, 6), maxBackoff))
}

// settle tells the registry, once, that the room has done what it was woken for.
func (r *roomActor) settle() {
	if !r.settled {
		r.settled = true
		r.ctx.Send(r.sys.registry, settled{r.self})
	}
}

// drop forgets the state, of which something is in doubt, and recovers the room
// from its journal. The drivers at work are stopped and their attempts lost,
// except when it is certain that nothing of the last batch was written for want
// of space: then only what it had decided is decided again.
func (r *roomActor) drop(cause error) {
	now := r.now()
	full := errors.Is(cause, event.ErrDiskFull) && r.flight != nil
	why := refuseUnknown()
	switch {
	case full:
		why = refuseDisk(event.ErrDiskFull)
		r.again(r.flight)
	case errors.Is(cause, event.ErrFenced):
		why = refuseFenced()
	}
	r.forget(why)
	r.state, r.shown = nil, nil
	r.stalled, r.asked, r.drained, r.retryAt, r.ticked = false, false, false, time.Time{}, time.Time{}
	if !full {
		r.recovered = false
		r.pending.keep(func(x item) bool { return x.cmd != nil })
		r.stopRuns(room.Finished)
	} else {
		r.pending.keep(func(x item) bool { return x.msg == nil })
	}
	switch {
	case r.phase == dead:
		return
	case r.phase == resting && !r.draining:
		r.ctx.Send(r.sys.registry, rests{pid: r.self, busy: true})
	}
	r.failures++
	if errors.Is(cause, errPanic) || errors.Is(cause, event.ErrFenced) {
		r.faults = append(slices.DeleteFunc(r.faults, func(t time.Time) bool { return now.Sub(t) >= faultWindow }), now)
		if len(r.faults) >= maxFaults {
			r.die()
			return
		}
	}
	if r.failures == 1 || errors.Is(cause, errPanic) {
		r.startLoad()
	} else {
		r.phase, r.loadAt = failed, now.Add(r.backoff())
		r.refuseCommands(refuseUnloaded(r.backoff()))
	}
	r.progress()
}

// die gives the room up until the process restarts.
func (r *roomActor) die() {
	r.phase = dead
	r.sys.cfg.Observer.RoomFailed()
	r.log.Error("a room failed too often and is out of service until the restart", zap.String("room", string(r.id)))
	r.refuseCommands(refuseDead())
	r.settle()
	r.progress()
}

// forget gives up the batch in flight and the one being built.
func (r *roomActor) forget(why error) {
	for _, f := range []*flight{r.flight, r.building} {
		if f == nil {
			continue
		}
		for _, a := range f.answers {
			r.sys.answer(a.cmd, nil, why)
		}
		f.answers = nil
		if f.deciding != nil {
			r.sys.answer(f.deciding, nil, why)
			f.deciding = nil
		}
	}
	r.flight, r.building = nil, nil
}

// again puts what the drivers had sent into a batch back in front.
func (r *roomActor) again(f *flight) {
	for _, s := range slices.Backward(f.settles) {
		s.out.next = s.from
		r.pending.unshift(item{out: s.out})
	}
}

// refuseCommands answers the commands that wait for a decision.
func (r *roomActor) refuseCommands(why error) {
	r.pending.keep(func(x item) bool {
		if x.cmd != nil {
			r.sys.answer(x.cmd, nil, why)
		}
		return x.cmd == nil
	})
	r.commands = 0
}
