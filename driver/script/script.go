package script

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"parley/driver"
	"parley/event"
)

// ErrScripted is in the chain of the error that a fail step returns.
var ErrScripted = errors.New("the script says to fail")

// Script is what a driver of this package plays. Immutable after Parse.
type Script struct {
	replies []reply
}

// reply is one named list of steps and the inputs that it answers.
type reply struct {
	name  string
	match match
	steps []step
}

// match says which turns a reply answers: those that fit every member that is
// set. The zero match fits every turn.
type match struct {
	contains  []string // lower case
	regexp    *regexp.Regexp
	continues []event.RequestID
	resumed   *bool
}

func (m match) any() bool {
	return m.contains == nil && m.regexp == nil && m.continues == nil && m.resumed == nil
}

func (m match) fits(turn *driver.Turn) bool {
	if m.contains != nil {
		text := strings.ToLower(turn.Text)
		if !slices.ContainsFunc(m.contains, func(s string) bool { return strings.Contains(text, s) }) {
			return false
		}
	}
	if m.regexp != nil && !m.regexp.MatchString(turn.Text) {
		return false
	}
	if m.continues != nil && !slices.Contains(m.continues, turn.Continues) {
		return false
	}
	return m.resumed == nil || *m.resumed == turn.Resumed
}

// Driver plays a Script. It is a driver.Runner.
//
// Safe for concurrent use; only released changes, once.
type Driver struct {
	script   *Script
	once     sync.Once
	released chan struct{}
}

var _ driver.Runner = (*Driver)(nil)

// New returns a driver that plays the script. In a testing/synctest bubble, make
// it inside the bubble, or a hang step keeps the bubble's time from passing.
func New(s *Script) *Driver {
	return &Driver{script: s, released: make(chan struct{})}
}

// Release ends every hang step, those to come included.
func (d *Driver) Release() { d.once.Do(func() { close(d.released) }) }

// Run implements driver.Runner: it plays the first reply that fits the turn.
func (d *Driver) Run(ctx context.Context, turn *driver.Turn, out driver.Emitter) error {
	p := player{ctx: ctx, turn: turn, out: out, released: d.released}
	for i := range d.script.replies {
		if r := &d.script.replies[i]; r.match.fits(turn) {
			return p.play(r.steps)
		}
	}
	return nil // Parse made sure that one fits
}

// player plays the steps of one attempt. Owned by the goroutine of its Run.
type player struct {
	ctx      context.Context
	turn     *driver.Turn
	out      driver.Emitter
	released <-chan struct{}
	said     int  // say steps without an id of their own so far
	round    int  // of the innermost repeat, from 1; 0 outside
	over     bool // a step ended the attempt well
}

func (p *player) play(steps []step) error {
	for _, s := range steps {
		if err := s.play(p); err != nil || p.over {
			return err
		}
	}
	return nil
}

// pause waits for d, or returns the cause when the context is done first.
func (p *player) pause(d time.Duration) error {
	if d <= 0 || p.ctx.Err() != nil {
		return context.Cause(p.ctx)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-p.ctx.Done():
		return context.Cause(p.ctx)
	}
}
