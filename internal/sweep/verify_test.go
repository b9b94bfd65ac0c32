package sweep

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"parley/event"
	"parley/internal/invariants"
	"parley/persistence"
	"parley/room"
)

// shot is what a fault has left: a disk, and what was promised before.
type shot struct {
	what  string // where it was taken
	disk  *vfs.MemFS
	rec   record
	at    time.Time
	tear  tear
	exact bool // nothing failed or hung before, so that no run may fail and deadlines keep to the clock
}

// found is a shot compared.
type found struct {
	resumed int // runs that got another attempt
	resent  int // inputs without an answer that were there already
	more    int // entries that were durable and not seen yet
}

// verify opens a store on what is left, compares it with the promises, lets a
// system recover and finish on it, and compares again:
//
//   - all that was accepted, canceled, seen or shown is there, at its place and
//     once; the journal keeps its laws, and the rows, the snapshot and the alarm
//     are those that it implies;
//   - an accepted input that is sent again is a duplicate with the same receipt,
//     one without an answer is accepted, or is a duplicate of itself;
//   - the room takes new inputs, every open run is resumed and ends, deadlines
//     are not reset, and each run has said what it had to, once;
//   - the live view and the one after hibernation are the replay's.
//
// With a fuse the machine loses its power again at that operation after the
// start; what is left then comes back as a second shot.
func (s shot) verify(t *testing.T, rng *rand.Rand, fuse int) (f found, second *shot) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		down := time.Duration(rng.Int64N(int64(3 * time.Second)))
		if rng.IntN(4) == 0 {
			down = time.Minute // deadlines pass meanwhile
		}
		time.Sleep(time.Until(s.at.Add(down)))
		var err error
		if f, second, err = s.recover(rng, fuse); err != nil {
			t.Errorf("%s (log: %s), down for %v: %v", s.what, s.tear, down, err)
		}
	})
	return f, second
}

func (s shot) recover(rng *rand.Rand, fuse int) (f found, second *shot, err error) {
	l, err := newLedger(s.rec)
	if err != nil {
		return f, nil, err
	}
	d := newDisk(s.disk, nil)
	var cam *camera
	if fuse > 0 {
		cam = &camera{disk: d.mem, ledger: l, from: fuse, to: fuse + 1, step: 1, rng: rng, what: s.what + ", then again at", exact: s.exact}
		d.before, l.noted = cam.operation, cam.promise
	}
	fatal := func(msg string) { l.wrong("the process ended without a fault: %s", msg) }
	store, err := persistence.Open(persistence.Config{Dir: dir, FS: d.fs(l.alive.Load), Fatal: fatal})
	if err != nil {
		return f, nil, fmt.Errorf("opening: %w", err)
	}
	es, err := audit(store, s.rec)
	f.more = len(es) - len(s.rec.Seen)
	if err = errors.Join(err, store.Close()); err != nil {
		return f, nil, fmt.Errorf("as it was left: %w", err)
	}
	x, err := begin(d, l, rng, true, fatal)
	if err != nil {
		return f, nil, err
	}
	if err = x.finish(&f); err == nil {
		f.resumed, err = resumed(es, x.copy().Seen)
	}
	x.disk.unwatch()
	l.noted = nil
	if err == nil {
		err = x.settled(s.exact)
	}
	if err = errors.Join(err, l.err(), x.end()); err != nil {
		return f, nil, fmt.Errorf("after the recovery: %w", err)
	}
	if cam != nil && len(cam.shots) > 0 {
		second = &cam.shots[0]
	}
	return f, second, nil
}

// finish sends again all that was sent, and something new, and lets time pass.
func (x *life) finish(f *found) error {
	rec := x.copy()
	if len(rec.Receipts) == 0 {
		if _, err := x.insist(event.Configure{Access: host(), Config: config("day")}); err != nil {
			return err
		}
	}
	if _, err := x.look(); err != nil {
		return err
	}
	for _, in := range rec.Sent {
		reply, err := x.insist(submit(in))
		refusal, refused := event.AsRefusal(err)
		_, accepted := rec.Receipts[in.ID]
		switch {
		case refused && !accepted && in.Run != "" && (refusal.Reason == event.ContinuationMismatch || refusal.Reason == event.NotWaiting):
			continue // the question has expired meanwhile
		case err != nil:
			return fmt.Errorf("input %s, sent again: %w", in.ID, err)
		}
		r := reply.(event.Receipt)
		if accepted && !r.Duplicate {
			return fmt.Errorf("input %s was accepted, and sent again it is new", in.ID)
		}
		if !accepted && r.Duplicate {
			f.resent++
		}
		x.receipt(r)
	}
	for _, id := range []event.InputID{"z1", "z2", "z3"} {
		if _, err := x.say(sent{ID: id}); err != nil {
			return err
		}
	}
	if _, err := x.look(); err != nil {
		return err
	}
	// Beyond every deadline and wait there are.
	time.Sleep(4 * (roomDeadline + roomWait))
	synctest.Wait()
	return nil
}

// resumed returns how many runs were active at the end of a journal, each of
// which must go on with its next attempt, or end because its deadline has passed.
func resumed(es []*event.Entry, later [][]byte) (int, error) {
	check := invariants.NewChecker()
	for _, e := range es {
		if err := check.Add(e); err != nil {
			return 0, err
		}
	}
	lost := map[event.RunID]bool{}
	for _, run := range check.Open() {
		if check.Status(run) == event.RunActive {
			lost[run] = true
		}
	}
	n := len(lost)
	for i := len(es); i < len(later) && len(lost) > 0; i++ {
		e, err := event.DecodeEntry(event.Seq(i+1), later[i])
		if err != nil {
			return 0, err
		}
		x, ok := e.Body.(*event.RunEvent)
		if !ok || !lost[x.Run] {
			continue
		}
		if x.Event != event.RunBody(event.AttemptStarted{Resumed: true}) && x.Event != event.RunBody(event.DeadlineExceeded{}) {
			return 0, fmt.Errorf("run %s was active at the crash and goes on with %s", x.Run, x.Event.RunKind())
		}
		delete(lost, x.Run)
	}
	if len(lost) > 0 {
		return 0, fmt.Errorf("%d runs that were active at the crash were never resumed", len(lost))
	}
	return n, nil
}

// settled compares a room in which nothing is open any more.
func (x *life) settled(exact bool) error {
	if v, err := x.look(); err != nil || len(v.Runs) > 0 {
		return fmt.Errorf("%d runs are open in the end, %w", len(v.Runs), err)
	}
	time.Sleep(idleAfter + time.Second) // it hibernates with a snapshot
	synctest.Wait()
	if _, err := x.look(); err != nil {
		return err
	}
	synctest.Wait()
	rec := x.copy()
	es, err := audit(x.store, rec)
	if err != nil {
		return err
	}
	if len(es) != len(rec.Seen) {
		return fmt.Errorf("%d entries are in the journal, the follower has %d", len(es), len(rec.Seen))
	}
	return said(es, rec.Starts, exact)
}

// audit compares a journal with what was promised and with what it implies. It
// takes the room over from whoever has it, unless that is asleep.
func audit(store *persistence.Store, rec record) ([]*event.Entry, error) {
	head, err := store.Head(hall)
	if err != nil {
		return nil, err
	}
	var es []*event.Entry
	for event.Seq(len(es)) < head {
		more, err := store.Read(hall, event.Seq(len(es)), head, 100)
		if err != nil {
			return nil, err
		}
		es = append(es, more...)
	}
	if err := invariants.Check(es); err != nil {
		return nil, err
	}
	if len(es) < len(rec.Seen) {
		return nil, fmt.Errorf("%d entries were seen, the journal has %d", len(rec.Seen), len(es))
	}
	state := room.New(hall)
	views := map[event.Seq]*event.View{}
	for _, v := range rec.Views {
		if v.Head > head {
			return nil, fmt.Errorf("a view of %d was shown, the journal has %d entries", v.Head, head)
		}
		views[v.Head] = nil
	}
	for i, e := range es {
		if i < len(rec.Seen) && !bytes.Equal(event.AppendEntry(nil, e), rec.Seen[i]) {
			return nil, fmt.Errorf("entry %d is another than was seen", e.Seq)
		}
		state.Apply(e)
		if _, ok := views[e.Seq]; ok {
			views[e.Seq] = state.View()
		}
	}
	for _, v := range rec.Views {
		if err := sameView("a view that was shown", v.JSON, views[v.Head]); err != nil {
			return nil, err
		}
	}
	if err := promised(es, rec); err != nil {
		return nil, err
	}
	return es, errors.Join(rows(store, es), stored(store, state))
}

// promised looks for every receipt and every canceled run in a journal.
func promised(es []*event.Entry, rec record) error {
	var errs []error
	inc := event.Incarnation(0)
	if len(es) > 0 {
		inc = es[0].Body.(*event.RoomConfigured).Incarnation
	}
	for id, r := range rec.Receipts {
		if r.Entry == 0 || r.Entry > event.Seq(len(es)) {
			errs = append(errs, fmt.Errorf("input %s was accepted at %d of %d", id, r.Entry, len(es)))
			continue
		}
		e := es[r.Entry-1]
		in, ok := e.Body.(*event.InputAdmitted)
		if !ok || in.Input != id || in.Run != r.Run || in.State != r.State || !e.At.Equal(r.At) || r.Incarnation != inc {
			errs = append(errs, fmt.Errorf("input %s was answered %+v, the journal has another entry there", id, r))
		}
	}
	check := invariants.NewChecker()
	for _, e := range es {
		errs = append(errs, check.Add(e))
	}
	for _, run := range rec.Ended {
		if got := check.Status(run); got != event.RunCanceledStatus {
			errs = append(errs, fmt.Errorf("run %s was said to be canceled and is %s", run, got))
		}
	}
	return errors.Join(errs...)
}

// rows compares the rows of a store with those that a journal implies.
func rows(store *persistence.Store, es []*event.Entry) error {
	want := invariants.Rows(es)
	for key, w := range want {
		got, err := store.Row(hall, key)
		if err != nil {
			return err
		}
		if got == nil || !bytes.Equal(event.AppendRow(nil, got), event.AppendRow(nil, w)) {
			return fmt.Errorf("a row of table %d is %+v, the journal implies %+v", key.Table, got, w)
		}
	}
	for id, l := range lines {
		key := event.InputKey(l.on, event.Person(l.who), id)
		if got, err := store.Row(hall, key); err != nil || want[key] == nil && got != nil {
			return fmt.Errorf("input %s has a row and no entry, %w", id, err)
		}
	}
	for _, ch := range []event.ChannelID{public, private} {
		got, err := store.Transcript(hall, ch, 0, 10_000, 64<<20)
		if err != nil {
			return err
		}
		n := 0
		for key := range want {
			if lo, hi := event.TranscriptRange(ch, 1<<40); key.Table == event.TableTranscript && lo.ID <= key.ID && key.ID < hi.ID {
				n++
			}
		}
		if len(got) != n {
			return fmt.Errorf("the transcript of %s has %d rows, the journal implies %d", ch, len(got), n)
		}
	}
	return nil
}

// stored compares the alarm and the snapshot of a store with the replayed state.
func stored(store *persistence.Store, state *room.State) error {
	var alarm time.Time
	if err := store.Alarms(func(r event.RoomID, at time.Time) bool {
		if r == hall {
			alarm = at
		}
		return true
	}); err != nil {
		return err
	}
	if wake := state.Wake(); !wake.IsZero() && (alarm.IsZero() || alarm.After(wake)) {
		return fmt.Errorf("the alarm is at %v, the room wants to wake at %v", alarm, wake)
	}
	r, err := store.Recover(hall)
	if err != nil {
		return err
	}
	if r.Head != state.Head() {
		return fmt.Errorf("recovered at %d of %d", r.Head, state.Head())
	}
	if r.Snapshot == nil {
		if state.Head() > 60 {
			return fmt.Errorf("at %d there is no snapshot yet", state.Head())
		}
		return nil
	}
	back, err := room.Restore(hall, r.Snapshot)
	if err != nil {
		return err
	}
	for _, e := range r.Tail {
		back.Apply(e)
	}
	if !bytes.Equal(back.Snapshot(), state.Snapshot()) {
		return fmt.Errorf("the snapshot at %d and its tail give another state than the replay", r.SnapshotAt)
	}
	raw, err := json.Marshal(back.View())
	if err != nil {
		return err
	}
	return sameView("the view from the snapshot", raw, state.View())
}

// said compares what every run has said with what its driver must have, and when it ended.
func said(es []*event.Entry, starts []time.Time, exact bool) error {
	type work struct {
		text      string // of the input worked on
		input     event.InputID
		continued bool
		budget    time.Duration
		due       time.Time // its deadline; zero: none
		closed    map[event.OutputID]string
		open      map[event.OutputID]string
	}
	runs := map[event.RunID]*work{}
	var errs []error
	bad := func(run event.RunID, format string, args ...any) {
		errs = append(errs, fmt.Errorf("run %s of input %s: %s", run, runs[run].input, fmt.Sprintf(format, args...)))
	}
	for _, e := range es {
		switch x := e.Body.(type) {
		case *event.InputAdmitted:
			w := runs[x.Run]
			if w == nil {
				w = &work{}
				runs[x.Run] = w
			}
			w.text, w.input, w.continued, w.budget, w.due = x.Text, x.Input, x.State == event.Continued, x.Budget, time.Time{}
			w.closed, w.open = map[event.OutputID]string{}, map[event.OutputID]string{}
		case *event.RunEvent:
			w := runs[x.Run]
			switch b := x.Event.(type) {
			case event.AttemptStarted:
				if w.due.IsZero() {
					w.due = e.At.Add(w.budget)
				}
				w.open = map[event.OutputID]string{}
			case event.AssistantOutput:
				if w.open[x.Logical] += b.Delta; b.Final {
					if _, ok := w.closed[x.Logical]; ok {
						bad(x.Run, "%s was said twice", x.Logical)
					}
					w.closed[x.Logical] = w.open[x.Logical]
					if may := mayClose(w.input, w.text, w.continued); w.closed[x.Logical] != may[x.Logical] {
						bad(x.Run, "%s is not what its driver says", x.Logical)
					}
				}
			case event.InputRequested:
				w.due = b.ExpiresAt
			case event.Completed:
				if must := answer(w.input, w.text, w.continued); len(must) == 0 || len(must) != len(w.closed) {
					bad(x.Run, "completed with %d outputs of %d", len(w.closed), len(must))
				}
			case event.DeadlineExceeded:
				latest := w.due
				for _, s := range starts {
					if !s.After(e.At) && s.After(latest) {
						latest = s
					}
				}
				if e.At.Before(w.due) || exact && e.At.After(latest.Add(time.Second)) {
					bad(x.Run, "ended by its deadline %v after it, with a start at %v", e.At.Sub(w.due), latest)
				}
			case event.RunFailed:
				// A read that fails can fail the attempt that needs it (E4).
				if exact || b.Code != event.CodeProcessingFailed {
					bad(x.Run, "failed: %s", b.Code)
				}
			case event.RunCanceled:
				if strings.HasPrefix(w.text, hang) && w.closed[partID(0)] == "" && len(w.closed) > 0 {
					bad(x.Run, "says what it cannot")
				}
			}
		}
	}
	return errors.Join(errs...)
}
