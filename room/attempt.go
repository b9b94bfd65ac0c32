package room

import (
	"errors"
	"time"

	"parley/channel"
	"parley/event"
)

// failed is the public form of every failure of a driver (E4).
func failed() event.RunFailed {
	return event.RunFailed{Code: event.CodeProcessingFailed, Message: "The agent could not finish its answer."}
}

var errOpenOutput = errors.New("the driver returned while an output was open")

// attempt returns the open run whose current attempt a message concerns.
func (d *draft) attempt(id event.RunID, attempt uint32) (*channel.Lane, *channel.Run) {
	ch, ok := d.s.byRun[id]
	if !ok {
		return nil, nil
	}
	l := d.s.lanes[ch]
	r := l.Open
	if r == nil || r.ID != id || r.Attempt != attempt || !working(r) {
		return nil, nil
	}
	return l, r
}

// emit takes an event of a driver (E1–E7). What is not allowed fails the run.
func (d *draft) emit(m Emit) (Decision, error) {
	own, r := d.attempt(m.Run, m.Attempt)
	if r == nil {
		return Decision{}, ErrStale
	}
	var one [1]channel.Event // the common case needs no more
	evs, err := r.Check(one[:0], m.N, m.Event, channel.Fresh{Now: d.now, Rand: d.in.Rand, Wait: d.s.config.Wait()})
	if err != nil {
		l := d.lane(own.Channel)
		d.end(l, l.Open, Faulted, failed())
		d.d.Fault = err
		return d.d, nil
	}
	if len(evs) == 0 {
		return Decision{}, nil
	}
	switch m.Event.(type) {
	case event.Progress, event.AssistantOutput, event.Checkpoint:
		// The common case writes one entry that no other entry of the decision
		// builds on, so it needs no copy of the lane.
		d.runEntry(own.Channel, evs[0].Disclosure, event.RunEvent{
			Run: r.ID, Agent: r.Agent, Input: r.Input, Attempt: r.Attempt, Sequence: r.Sequence + 1, N: m.N,
			Logical: evs[0].Logical, Event: evs[0].Body,
		})
		return d.d, nil
	}
	l := d.lane(own.Channel)
	for _, ev := range evs {
		d.stopFinished(l.Open, ev.Body)
		d.runEvent(l, l.Open, ev, m.N)
	}
	d.next(l)
	return d.d, nil
}

// stopFinished lets the driver go when its own event ends the attempt: a wait
// keeps no goroutine (W1).
func (d *draft) stopFinished(r *channel.Run, body event.RunBody) {
	switch body.(type) {
	case event.InputRequested, event.Completed:
		d.stop(r, Finished)
	}
}

// ended takes the return of a driver (E4).
func (d *draft) ended(m Ended) (Decision, error) {
	own, r := d.attempt(m.Run, m.Attempt)
	if r == nil {
		return Decision{}, ErrStale
	}
	l := d.lane(own.Channel)
	if m.Failed || r.HasOpenOutput() {
		d.end(l, l.Open, Finished, failed())
		if !m.Failed {
			d.d.Fault = errOpenOutput
		}
		return d.d, nil
	}
	d.end(l, l.Open, Finished, event.Completed{})
	return d.d, nil
}

// tick ends what is past its deadline or its wait (C3, W1).
func (d *draft) tick() {
	for _, own := range d.s.sorted() {
		if due(own.Open, d.now) {
			l := d.lane(own.Channel)
			d.end(l, l.Open, DeadlinePassed, event.DeadlineExceeded{})
		}
	}
}

func due(r *channel.Run, now time.Time) bool {
	at := r.NextTick()
	return !at.IsZero() && !now.Before(at)
}

// recover gives every active run its next attempt after a restart, or ends it (R1).
func (d *draft) recover() {
	for _, own := range d.s.sorted() {
		if due(own.Open, d.now) {
			l := d.lane(own.Channel)
			d.end(l, l.Open, DeadlinePassed, event.DeadlineExceeded{})
			continue
		}
		if own.Open.Status != event.RunActive {
			continue
		}
		l := d.lane(own.Channel)
		r := l.Open
		switch {
		case r.Recovery == event.RecoverFail:
			d.run(l, r, event.RunFailed{
				Code: event.CodeRecoveryRefused, Message: "The answer was interrupted by a restart. Ask again.",
			})
			d.next(l)
		case r.Recoveries >= channel.MaxRecoveries && !r.Drained:
			d.run(l, r, event.RunFailed{
				Code: event.CodeAttemptsExhausted, Message: "The agent could not go on after several restarts. Ask again.",
			})
			d.next(l)
		default:
			d.begin(l, r, true)
		}
	}
}

// drain lets the attempts go in good order, so that the recovery that follows does not count (R1).
func (d *draft) drain() {
	for _, l := range d.s.sorted() {
		d.stop(l.Open, Drained)
	}
	if len(d.d.After) > 0 {
		d.entry("", event.ToNone(), &event.Drained{})
	}
}
