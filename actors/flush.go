package actors

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"go.uber.org/zap"

	"parley/event"
	"parley/room"
)

// flight is one batch with all that waits for it to be durable. Owned by the
// room actor.
type flight struct {
	batch   *event.Batch
	size    int // of batch, about
	entries int // bytes of its entries, about
	began   time.Time
	late    bool // its callers were told that its outcome is not known
	stuck   bool // Fatal was called
	last    bool // the batch before hibernation

	now      time.Time
	ambient  room.Ambient
	answers  []answer
	deciding *request // in neither answers nor the queue of the room; nil: none is
	settles  []settle
	after    []room.Effect
	recovers bool // it decided what was active when the state was loaded
	view     *event.View
}

// answer is what a caller gets once the batch is durable.
type answer struct {
	cmd   *request
	reply event.Reply
	err   error
	view  bool // reply is the view at the end of the batch
}

// settle is what an emitter learns once the batch is durable: that
// taken[from:to] is. With err the attempt is over.
type settle struct {
	out      *emitter
	from, to int
	bytes    int
	err      error
}

var (
	// errDecide says that a decision panicked; the state is as it was.
	errDecide = errors.New("actors: a decision panicked")
	// errRead says that a row could not be read; it was logged.
	errRead = errors.New("actors: a row could not be read")
)

// flushMessage yields once before it flushes, and goes to the end of the
// mailbox again: what drivers and callers were about to send still joins the
// batch.
func (r *roomActor) flushMessage() {
	if !r.yielded {
		r.yielded = true
		runtime.Gosched()
		r.ctx.Send(r.self, flushNow{})
		return
	}
	r.flushing, r.yielded = false, false
	if r.phase == live && r.flight == nil {
		r.flush()
	}
	r.progress()
}

// flush decides what is pending, as far as it goes into one batch, and hands
// the batch to the journal. What it was decided from leaves with the batch.
func (r *roomActor) flush() {
	f := &flight{
		batch: &event.Batch{Room: r.id, Term: r.term, Expect: r.state.Head()},
		now:   r.now(), ambient: r.ambient(),
	}
	r.building = f
	clear(r.rowAt)
	full := r.sys.cfg.Journal.Writable()
	var kept []item
	for r.pending.len() > 0 {
		x := r.pending.front()
		fits := true
		switch {
		case x.cmd != nil:
			// It leaves the queue first: when Apply panics it is answered with the
			// batch, and must not be decided, and answered, once more.
			r.pending.pop()
			r.commands--
			f.deciding = x.cmd
			// A full disk refuses what would write; the rest is answered.
			if fits = r.decideCommand(f, x.cmd, full); !fits {
				r.pending.unshift(x)
				r.commands++
			}
			f.deciding = nil
		case full != nil:
			kept = append(kept, x)
		case x.out != nil:
			fits = r.decideEmissions(f, x.out)
		default:
			fits = r.decideMessage(f, x.msg)
		}
		if !fits {
			break
		}
		if x.cmd == nil {
			r.pending.pop()
		}
	}
	if len(kept) > 0 {
		r.pending.unshift(kept...)
		r.retryAt = f.now.Add(r.sys.cfg.Retry)
	}
	r.seeView(f)
	if len(f.batch.Entries) == 0 {
		r.building = nil
		r.release(f)
		return
	}
	b := f.batch
	b.Incarnation = r.state.Incarnation()
	if wake := r.state.Wake(); !wake.IsZero() && (r.alarm.IsZero() || wake.Before(r.alarm)) {
		b.Alarm = &wake
	}
	if r.sinceSnapshot.entries+len(b.Entries) >= r.sys.cfg.SnapshotEntries ||
		r.sinceSnapshot.bytes+f.entries >= r.sys.cfg.SnapshotBytes {
		r.snapshot(b)
	}
	r.send(f)
}

// ambient is what the room's decisions may know beside its state.
func (r *roomActor) ambient() room.Ambient {
	a := room.Ambient{Unresponsive: r.sys.census.unresponsive(r.id)}
	for _, x := range r.state.Agents() {
		if _, ok := r.sys.cfg.Drivers(x.Driver); !ok {
			if a.Missing == nil {
				a.Missing = map[event.AgentID]bool{}
			}
			a.Missing[x.ID] = true
		}
	}
	return a
}

// decideCommand reports false when the command has to wait for the next batch.
func (r *roomActor) decideCommand(f *flight, q *request, full error) bool {
	if _, ok := q.cmd.(event.ReadView); ok && r.state.Exists() {
		f.answers, f.deciding = append(f.answers, answer{cmd: q, view: true}), nil
		return true
	}
	d, err := r.decide(f, q.cmd)
	switch {
	case errors.Is(err, errDecide):
		err = refuseFault()
	case errors.Is(err, errRead):
		err = refuseRead()
	case err == nil && len(d.Entries) > 0 && full != nil:
		err = refuseDisk(full)
	case err == nil && !r.fits(f, d):
		return false
	}
	f.answers, f.deciding = append(f.answers, answer{cmd: q, reply: d.Reply, err: err}), nil
	if err == nil {
		r.apply(f, d)
		switch q.cmd.(type) {
		case event.Configure, event.Open:
			if len(d.Entries) > 0 {
				f.ambient = r.ambient() // other agents, other drivers
			}
		}
	}
	return true
}

// decideEmissions decides what a driver has sent, in order. It reports false
// when something is left for the next batch.
func (r *roomActor) decideEmissions(f *flight, e *emitter) bool {
	if e.next == len(e.taken) {
		e.take(f)
	}
	e.batch = f
	s := settle{out: e, from: e.next}
	fits := true
	for fits && s.err == nil && e.next < len(e.taken) {
		x := e.taken[e.next]
		d, err := r.decide(f, e.message(x))
		if errors.Is(err, errDecide) {
			// The event cannot be taken, and the driver cannot go on without it.
			d, err = r.decide(f, room.Ended{Run: e.run, Attempt: e.attempt, N: x.n, Failed: true})
			d.Fault = errDecide
		}
		if err == nil && !r.fits(f, d) {
			fits = false
			break
		}
		e.next++
		s.bytes += x.size
		switch {
		case err != nil:
			s.err = causes[room.Finished].emit
			e.drop(x.body != nil)
		case d.Fault != nil:
			s.err = fmt.Errorf("%w: %w", errFault, d.Fault)
			log := r.log.With(zap.String("room", string(r.id)), zap.String("run", string(e.run)), zap.Uint32("attempt", e.attempt), zap.Uint64("n", x.n))
			r.sys.cfg.Observer.DriverFailed()
			log.Warn("driver broke its contract", zap.String("event", fmt.Sprintf("%T", x.body)))
			// What is wrong may name a member of the driver's own JSON.
			log.Debug("driver broke its contract", zap.Error(d.Fault))
			e.drop(false)
		}
		if err == nil {
			r.apply(f, d)
		}
	}
	if s.to = e.next; s.to > s.from {
		f.settles = append(f.settles, s)
	}
	return fits
}

// decideMessage decides a message of package room.
func (r *roomActor) decideMessage(f *flight, msg any) bool {
	d, err := r.decide(f, msg)
	switch msg.(type) {
	case room.Recover:
		if err != nil {
			panic(errRecover)
		}
		if !r.fits(f, d) {
			return false
		}
		f.recovers = true
	case room.Drain:
		if err != nil {
			r.stopRuns(room.Drained)
			return true
		}
		if !r.fits(f, d) {
			return false
		}
	case room.Tick:
		if err != nil {
			return true // it comes again
		}
		if !r.fits(f, d) {
			return false
		}
		if len(d.Entries) > 0 {
			r.ticked = time.Time{}
		}
	default: // room.Ended of a run whose actor was lost
		if err != nil {
			return true
		}
		if !r.fits(f, d) {
			return false
		}
	}
	r.apply(f, d)
	return true
}

// errRecover is raised when a state cannot decide what becomes of its active
// runs: it is dropped like any other that is in doubt.
var errRecover = errors.New("actors: the runs of a room cannot be recovered")

// decide asks the state, with the rows it needs. A panic of the state is an
// error here, because a decision changes nothing.
func (r *roomActor) decide(f *flight, msg any) (d room.Decision, err error) {
	defer func() {
		if v := recover(); v != nil {
			r.sys.logPanic(InDecision, "panic in a decision", r.id, v)
			d, err = room.Decision{}, errDecide
		}
	}()
	in := room.Input{Now: f.now, Rand: r.sys.rand.next(), Msg: msg}
	facts := room.Facts{Ambient: f.ambient}
	for _, k := range r.state.Needs(in) {
		row, err := r.row(f, k)
		if err != nil {
			r.log.Error("a row could not be read", zap.String("room", string(r.id)), zap.Error(err))
			return room.Decision{}, errRead
		}
		if row == nil {
			continue
		}
		if facts.Rows == nil {
			facts.Rows = map[event.Key]event.Row{}
		}
		facts.Rows[k] = row
	}
	return r.state.Decide(in, facts)
}

// row returns a row of the room's history: as the batch being built leaves it,
// else as the journal holds it. No batch is in flight.
func (r *roomActor) row(f *flight, k event.Key) (event.Row, error) {
	if i, ok := r.rowOf(f.batch, k); ok {
		return f.batch.Rows[i].Row, nil
	}
	return r.sys.cfg.Journal.Row(r.id, k)
}

// fewRows is how many rows of a batch are searched one by one, which most
// batches never exceed.
const fewRows = 16

// rowOf finds a row of the batch being built.
func (r *roomActor) rowOf(b *event.Batch, k event.Key) (int, bool) {
	if len(b.Rows) <= fewRows {
		i := slices.IndexFunc(b.Rows, func(row event.KeyedRow) bool { return row.Key == k })
		return i, i >= 0
	}
	if r.rowAt == nil {
		r.rowAt = map[event.Key]int{}
	}
	for i := len(r.rowAt); i < len(b.Rows); i++ {
		r.rowAt[b.Rows[i].Key] = i
	}
	i, ok := r.rowAt[k]
	return i, ok
}

// fits reports whether a decision still goes into the batch. Into an empty one
// every decision goes.
func (r *roomActor) fits(f *flight, d room.Decision) bool {
	n := len(f.batch.Entries)
	if n == 0 || len(d.Entries) == 0 {
		return true
	}
	size := f.size
	for _, e := range d.Entries {
		size += entrySize(e)
	}
	return n+len(d.Entries) <= r.sys.cfg.MaxBatchEntries && size <= r.sys.cfg.MaxBatchBytes
}

// apply moves the state on and puts what the decision writes into the batch.
func (r *roomActor) apply(f *flight, d room.Decision) {
	b := f.batch
	for _, e := range d.Entries {
		if f := r.sys.cfg.inApply; f != nil {
			f(r.id, e)
		}
		rows := r.state.Apply(e)
		b.Entries = append(b.Entries, e)
		n := entrySize(e)
		f.size += n
		f.entries += n
		for _, row := range rows {
			f.size += rowSize(row.Row)
			// Of one key only the last row counts.
			if i, ok := r.rowOf(b, row.Key); ok {
				b.Rows[i] = row
				continue
			}
			b.Rows = append(b.Rows, row)
		}
	}
	f.after = append(f.after, d.After...)
}

// seeView gives those who asked for it the view at the end of the batch: one
// view, however many asked.
func (r *roomActor) seeView(f *flight) {
	for i := range f.answers {
		a := &f.answers[i]
		if !a.view {
			continue
		}
		if f.view == nil {
			f.view = r.view()
		}
		if f.view == nil {
			a.err = refuseFault()
			continue
		}
		a.reply = f.view
	}
}

// view returns the view at the state's head, built at most once per head; nil
// when that panics.
func (r *roomActor) view() (v *event.View) {
	defer func() {
		if p := recover(); p != nil {
			r.sys.logPanic(InView, "panic in a view", r.id, p)
			v = nil
		}
	}()
	if r.shown == nil || r.shown.Head != r.state.Head() {
		r.shown = r.state.View()
	}
	return r.shown
}

// snapshot puts the state into the batch, unless it is too large.
func (r *roomActor) snapshot(b *event.Batch) {
	s := r.state.Snapshot()
	if len(s) > r.sys.cfg.MaxSnapshot {
		r.log.Warn("a room is too large for a snapshot", zap.String("room", string(r.id)), zap.Int("bytes", len(s)))
		r.sinceSnapshot.entries, r.sinceSnapshot.bytes = 0, 0 // not with every batch
		return
	}
	b.Snapshot, b.SnapshotAt = s, r.state.Head()
}
