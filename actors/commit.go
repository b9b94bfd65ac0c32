package actors

import (
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"parley/event"
	"parley/room"
)

// send hands a batch to the journal; the answer comes as committed.
func (r *roomActor) send(f *flight) {
	f.began = r.now()
	r.flight, r.building = f, nil
	self, root := r.self, r.sys.root
	r.sys.cfg.Journal.Append(f.batch, func(err error) { root.Send(self, committed{flight: f, err: err}) })
}

// committed takes the journal's answer. The answer to a batch that was given up
// changes nothing: the state that made it is gone.
func (r *roomActor) committed(m committed) {
	f := m.flight
	if f != r.flight {
		return
	}
	took := r.now().Sub(f.began)
	if f.late {
		r.log.Warn("the journal answered late", zap.String("room", string(r.id)), zap.Duration("took", took), zap.Bool("failed", m.err != nil))
	}
	r.stalled = false
	if f.last {
		r.flight = nil
		r.lastCommitted(f, m.err)
		return
	}
	if m.err != nil {
		r.log.Error("a batch was not committed; the room is recovered", zap.String("room", string(r.id)),
			zap.Uint64("expect", uint64(f.batch.Expect)), zap.Int("entries", len(f.batch.Entries)), zap.Error(m.err))
		r.drop(m.err)
		return
	}
	r.flight = nil
	r.failures = 0
	r.sys.cfg.Observer.Committed(len(f.batch.Entries), f.size, took)
	if r.quota != nil {
		r.quota.charge(f.size, r.now())
	}
	r.stored(f)
	r.feed.tail.Store(r.tail.add(r.state.Head(), f.batch.Entries))
	r.release(f)
	r.announce()
	// While the batch was under way the others had their time to send.
	r.yielded = true
	r.progress()
}

// stored notes what a durable batch left in the journal beside its entries.
func (r *roomActor) stored(f *flight) {
	if f.batch.Alarm != nil {
		r.alarm = *f.batch.Alarm
	}
	if f.batch.Snapshot != nil {
		r.sinceSnapshot.entries, r.sinceSnapshot.bytes = 0, 0
		return
	}
	r.sinceSnapshot.entries += len(f.batch.Entries)
	r.sinceSnapshot.bytes += f.entries
}

// lastCommitted takes the answer to the batch before hibernation. The room may
// have gone on meanwhile, when the journal was late.
func (r *roomActor) lastCommitted(f *flight, err error) {
	if err == nil {
		r.stored(f)
	} else {
		r.log.Warn("a room hibernates without a snapshot", zap.String("room", string(r.id)), zap.Error(err))
	}
	if r.phase == resting {
		r.rested()
		return
	}
	r.progress()
}

// release lets out what was computed from a state that is durable now: the
// answers in their order, what the emitters learn, the effects.
func (r *roomActor) release(f *flight) {
	if f.view != nil {
		r.feed.view.Store(f.view)
	}
	for _, a := range f.answers {
		r.sys.answer(a.cmd, a.reply, a.err)
	}
	f.answers = nil
	for _, s := range f.settles {
		s.out.settle(s.to-s.from, s.bytes)
		if s.err != nil {
			s.out.close(s.err)
		}
	}
	r.effects(f.after)
	for _, s := range f.settles {
		if s.err != nil { // unless an effect has said so, with its own cause
			r.stopRun(attemptID{s.out.run, s.out.attempt}, room.Finished)
		}
	}
	if f.recovers {
		r.recovered = true
	}
	if r.recovered {
		r.settle()
	}
}

// announce tells the followers that the durable head has moved.
func (r *roomActor) announce() {
	head := r.feed.tail.Load().head
	if head == r.said {
		return
	}
	r.said = head
	for _, w := range r.feed.audience() {
		r.tell(w, head)
	}
}

func (r *roomActor) tell(w *follower, head event.Seq) {
	defer func() {
		if v := recover(); v != nil {
			r.sys.logPanic(InCallback, "panic in a follower's function", r.id, v)
		}
	}()
	w.moved(head)
}

// late does what a batch without an answer calls for: beyond CommitDeadline its
// callers learn that its outcome is not known and new commands are refused;
// beyond StuckAfter the process ends, for a restart knows more than we do.
func (r *roomActor) late(f *flight, now time.Time) {
	if !f.late && !now.Before(f.began.Add(r.sys.cfg.CommitDeadline)) {
		f.late, r.stalled = true, true
		r.log.Error("the journal does not answer", zap.String("room", string(r.id)), zap.Uint64("expect", uint64(f.batch.Expect)),
			zap.Int("entries", len(f.batch.Entries)))
		for _, a := range f.answers {
			r.sys.answer(a.cmd, nil, refuseUnknown())
		}
		f.answers = nil
		r.refuseCommands(refuseStalled())
		if f.last && r.phase == resting {
			r.wait()
		}
	}
	if !f.stuck && !now.Before(f.began.Add(r.sys.cfg.StuckAfter)) {
		f.stuck = true
		r.sys.cfg.Fatal("the journal has not answered for too long; the process ends, and its rooms are recovered at the restart")
	}
}

// wait takes a room back that was about to hibernate when the journal stopped
// answering: what the registry holds for it is to be refused, not to hang. In a
// Shutdown there is nothing to take it back for.
func (r *roomActor) wait() {
	if r.draining {
		r.flight = nil
		r.rested()
		return
	}
	r.phase = live
	r.ctx.Send(r.sys.registry, rests{pid: r.self, busy: true})
}

// effects carries out what follows from a durable batch.
func (r *roomActor) effects(after []room.Effect) {
	for _, e := range after {
		switch e := e.(type) {
		case room.StartAttempt:
			r.startRun(e)
		case room.StopAttempt:
			r.stopRun(attemptID{e.Run, e.Attempt}, e.Cause)
		}
	}
}

// startRun gives an attempt its actor. One that is at work already is left alone.
func (r *roomActor) startRun(e room.StartAttempt) {
	id := attemptID{e.Run, e.Attempt}
	if r.runs[id] != nil {
		return
	}
	if r.draining {
		r.drained = false // it is let go before it began
		return
	}
	if r.quota == nil {
		r.quota = newQuota(r.sys.cfg.JournalQuota, r.sys.cfg.QuotaWindow)
	}
	out := newEmitter(r.sys, r.self, e.Run, e.Attempt, r.quota)
	pid := r.ctx.Spawn(actor.PropsFromProducer(func() actor.Actor { return newRunActor(r.sys, r.id, e, out) },
		actor.WithDispatcher(dispatcher{r.sys.pool})))
	if r.runs == nil {
		r.runs = map[attemptID]*run{}
	}
	r.runs[id] = &run{pid: pid, out: out}
}

// stopRun tells an attempt that it is over. The first cause counts.
func (r *roomActor) stopRun(id attemptID, cause room.StopCause) {
	if x := r.runs[id]; x != nil && !x.ended {
		x.ended = true
		r.ctx.Send(x.pid, endAttempt{cause: cause})
	}
}

// stopRuns tells all attempts that they are over.
func (r *roomActor) stopRuns(cause room.StopCause) {
	for id, x := range r.runs {
		x.out.close(causes[cause].emit)
		r.stopRun(id, cause)
	}
}

// runOver takes the end of a run actor.
func (r *roomActor) runOver(pid *actor.PID) {
	for id, x := range r.runs {
		if x.pid.Id != pid.Id {
			continue
		}
		delete(r.runs, id)
		r.used, r.shed = r.now(), false
		if !x.ended {
			// Its actor ended by itself, so nobody minds the driver any more.
			r.log.Error("a run's actor ended by itself", zap.String("room", string(r.id)), zap.String("run", string(id.run)))
			r.pending.push(item{msg: room.Ended{Run: id.run, Attempt: id.attempt, N: x.out.following(), Failed: true}})
		}
		break
	}
	r.progress()
}
