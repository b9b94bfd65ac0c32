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
// meanwhile gathers.
func (r *roomActor) startLoad() {
	r.phase = loading
	r.load++
	load, self, s := r.load, r.self, r.sys
	s.work.add()
	go func() {
		defer s.work.done()
		start := time.Now()
		m := loaded{load: load}
		m.state, m.rec, m.err = restore(s.cfg.Journal, r.id)
		m.took = time.Since(start)
		s.root.Send(self, m)
	}()
}

// restore returns the state that a room's journal holds. A panic of the state
// is a journal that this program cannot have written.
func restore(j Journal, id event.RoomID) (st *room.State, rec event.Recovered, err error) {
	defer func() {
		if v := recover(); v != nil {
			st, err = nil, fmt.Errorf("the journal does not replay: a panic of type %T", v)
		}
	}()
	rec, err = j.Recover(id)
	if err != nil {
		return nil, rec, err
	}
	st = room.New(id)
	if rec.Snapshot != nil {
		if st, err = room.Restore(id, rec.Snapshot); err != nil {
			return nil, rec, err
		}
		if st.Head() != rec.SnapshotAt {
			return nil, rec, fmt.Errorf("the snapshot at %d has the head %d", rec.SnapshotAt, st.Head())
		}
	}
	for _, e := range rec.Tail {
		st.Apply(e)
	}
	if st.Head() != rec.Head {
		return nil, rec, fmt.Errorf("the journal replays to %d, its head is %d", st.Head(), rec.Head)
	}
	return st, rec, nil
}

// loaded takes the result of a load.
func (r *roomActor) loaded(m loaded) {
	if m.load != r.load {
		return
	}
	r.sys.cfg.Observer.Recovered(m.err == nil, m.took)
	if m.err != nil {
		r.loadFailed(m.err)
		return
	}
	r.phase, r.state, r.term, r.alarm = live, m.state, m.rec.Term, m.rec.Alarm
	r.sinceSnapshot.entries, r.sinceSnapshot.bytes = len(m.rec.Tail), 0
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
