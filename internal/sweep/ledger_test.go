package sweep

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"parley/event"
	"parley/internal/invariants"
)

// record is what a room has promised: all of it must be true after any fault.
type record struct {
	// Sent are the inputs that were sent, each once, in order.
	Sent []sent
	// Receipts are the first answers to inputs.
	Receipts map[event.InputID]event.Receipt
	// Ended are the runs that a cancel was told to have ended.
	Ended []event.RunID
	// Seen are the entries that a follower of the feed got, encoded.
	Seen [][]byte
	// Views are the views that were handed out, as JSON.
	Views []shown
	// Starts are the instants at which the system was started.
	Starts []time.Time
}

// sent is an input of the script, with what a strict continuation answers.
type sent struct {
	ID    event.InputID
	Run   event.RunID
	Token string
}

type shown struct {
	Head event.Seq
	JSON []byte
}

func (r record) clone() record {
	r.Receipts = maps.Clone(r.Receipts)
	// All else only grows.
	r.Sent, r.Ended = r.Sent[:len(r.Sent):len(r.Sent)], r.Ended[:len(r.Ended):len(r.Ended)]
	r.Seen, r.Views = r.Seen[:len(r.Seen):len(r.Seen)], r.Views[:len(r.Views):len(r.Views)]
	r.Starts = r.Starts[:len(r.Starts):len(r.Starts)]
	return r
}

// ledger keeps the record while the life goes on, and holds what is seen to the
// laws of a journal as it comes. Safe for concurrent use; mu guards all below it.
type ledger struct {
	// noted is called after each promise, without the lock; nil: nobody cares.
	noted func()
	// alive is set while a system runs, from after the store was opened until
	// before it is closed.
	alive atomic.Bool

	mu     sync.Mutex
	r      record
	check  *invariants.Checker
	tokens map[event.RunID]string
	errs   []error
	last   time.Time // of the last promise
}

func newLedger(r record) (*ledger, error) {
	l := &ledger{r: r.clone(), check: invariants.NewChecker(), tokens: map[event.RunID]string{}}
	if l.r.Receipts == nil {
		l.r.Receipts = map[event.InputID]event.Receipt{}
	}
	for i, raw := range r.Seen {
		e, err := event.DecodeEntry(event.Seq(i+1), raw)
		if err != nil {
			return nil, err
		}
		l.follow(e)
	}
	return l, errors.Join(l.errs...)
}

// note writes a promise down.
func (l *ledger) note(f func(*record)) {
	l.mu.Lock()
	f(&l.r)
	l.last = time.Now()
	l.mu.Unlock()
	if l.noted != nil {
		l.noted()
	}
}

// copy returns the record as it is now.
func (l *ledger) copy() record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.r.clone()
}

// wrong notes a law that was broken while the life went on.
func (l *ledger) wrong(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errs = append(l.errs, fmt.Errorf(format, args...))
}

func (l *ledger) err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.errs...)
}

// saw notes an entry of the feed.
func (l *ledger) saw(e *event.Entry) {
	raw := event.AppendEntry(nil, e)
	l.note(func(r *record) {
		r.Seen = append(r.Seen, raw)
		l.follow(e)
	})
}

// follow is called with mu held, or before anyone else has l.
func (l *ledger) follow(e *event.Entry) {
	if err := l.check.Add(e); err != nil {
		l.errs = append(l.errs, fmt.Errorf("what was seen breaks a law: %w", err))
	}
	if x, ok := e.Body.(*event.RunEvent); ok {
		if q, ok := x.Event.(event.InputRequested); ok {
			l.tokens[x.Run] = q.Token
		}
	}
}

func (l *ledger) position() event.Seq {
	l.mu.Lock()
	defer l.mu.Unlock()
	return event.Seq(len(l.r.Seen))
}

func (l *ledger) status(run event.RunID) event.Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.check.Status(run)
}

func (l *ledger) token(run event.RunID) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tokens[run]
}

// sent notes an input once.
func (l *ledger) sent(x sent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, y := range l.r.Sent {
		if y.ID == x.ID {
			return
		}
	}
	l.r.Sent = append(l.r.Sent, x)
}

// receipt notes the answer to an input and holds it to the first one (A5).
func (l *ledger) receipt(x event.Receipt) {
	l.note(func(r *record) {
		was, ok := r.Receipts[x.Input]
		if !ok {
			x.Duplicate = false
			r.Receipts[x.Input] = x
			return
		}
		if !x.Duplicate {
			l.errs = append(l.errs, fmt.Errorf("input %s was admitted twice: at %d and %d", x.Input, was.Entry, x.Entry))
		}
		if x.Duplicate = false; x != was {
			l.errs = append(l.errs, fmt.Errorf("input %s was answered %+v and then %+v", x.Input, was, x))
		}
	})
}

// viewed notes a view.
func (l *ledger) viewed(v *event.View) {
	raw, err := json.Marshal(v)
	if err != nil {
		l.wrong("a view does not encode: %w", err)
		return
	}
	l.note(func(r *record) { r.Views = append(r.Views, shown{v.Head, raw}) })
}

// sameView fails unless two views are the same.
func sameView(what string, raw []byte, v *event.View) error {
	got, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if !bytes.Equal(raw, got) {
		return fmt.Errorf("%s at %d:\n%s\nthe replay of the journal:\n%s", what, v.Head, raw, got)
	}
	return nil
}
