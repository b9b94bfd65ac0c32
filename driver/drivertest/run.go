package drivertest

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"parley/driver"
	"parley/event"
)

// Grace is how soon a driver must return once its context is done, or its
// emitter said so (C5).
const Grace = 5 * time.Second

// limit is how long a whole attempt may take: the deadline that a room gives by default.
const limit = event.DefaultDeadline

// abandon is when the suite stops waiting for a driver that did not return in
// time. A driver that returns never cannot be left behind in a bubble.
const abandon = 24 * time.Hour

// Ending is how an attempt must end.
type Ending int

// The endings. The zero value allows any.
const (
	EndsAnyhow Ending = iota
	Completes         // a clean return, with or without completed
	Waits             // input_requested
	Fails             // an error or a panic
)

// String returns the word for a message.
func (e Ending) String() string {
	return [...]string{"ends anyhow", "completes", "waits for input", "fails"}[e]
}

// Case is one turn to examine a driver with.
type Case struct {
	Name string
	// Turn is what the driver is asked. Members that a room always fills are
	// filled where they are zero. Attempt, Resumed and Checkpoint are those of
	// the first attempt.
	Turn driver.Turn
	Ends Ending
	// Varies says that two attempts at the same turn may word it differently,
	// as a language model does; R2 is then not examined.
	Varies bool
	// Check, when not nil, looks at the recording of the whole attempt.
	Check func(t *testing.T, r *Recorder)
}

// Run examines a driver with each case, as the package comment says. The
// function makes the driver, once per case and inside the bubble; it may use t
// to fail and to clean up.
func Run(t *testing.T, open func(t *testing.T) driver.Driver, cases ...Case) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			for _, err := range examine(t, open, c) {
				t.Error(err)
			}
		})
	}
}

// Attempt invokes a driver once with a turn and returns what it sent and how it
// returned. A panic comes back as an error. It waits for the driver.
func Attempt(ctx context.Context, drv driver.Driver, turn driver.Turn) (*Recorder, error) {
	turn = filled(turn)
	ctx, rec := Record(ctx, &turn)
	err := invoke(ctx, drv, turn, rec)
	rec.returned(err)
	return rec, err
}

// examine returns everything that is wrong with the driver in that case.
func examine(t *testing.T, open func(t *testing.T) driver.Driver, c Case) (wrong []error) {
	synctest.Test(t, func(t *testing.T) {
		drv := open(t)
		if err := driver.Check(t.Name(), drv); err != nil {
			wrong = append(wrong, err)
			return
		}
		x := examination{drv: drv, c: c}
		x.c.Turn = filled(c.Turn)
		whole := x.whole()
		if len(x.wrong) == 0 {
			if c.Check != nil {
				c.Check(t, whole)
			}
			x.canceledAtEvents(whole)
			x.canceledInPauses(whole)
			x.atOnce(whole)
			if !c.Varies && c.Ends != Fails {
				x.resumed(whole)
			}
		}
		wrong = x.wrong
	})
	return wrong
}

// examination is one case of one driver. Owned by the test's goroutine.
type examination struct {
	drv   driver.Driver
	c     Case
	wrong []error
}

func (x *examination) found(when string, errs ...error) {
	for _, err := range errs {
		if err != nil {
			x.wrong = append(x.wrong, fmt.Errorf("%s: %w", when, err))
		}
	}
}

// whole runs an attempt that nobody disturbs.
func (x *examination) whole() *Recorder {
	rec, err := x.attempt(x.c.Turn, "undisturbed", stop{})
	x.found("undisturbed", endedAs(x.c.Ends, rec, err))
	return rec
}

func endedAs(want Ending, rec *Recorder, err error) error {
	got := Completes
	switch {
	case err != nil:
		got = Fails
	case rec.Request() != "":
		got = Waits
	}
	if want == EndsAnyhow || want == got {
		return nil
	}
	if err != nil {
		return fmt.Errorf("the attempt must be one that %s, and it failed: %w", want, err)
	}
	return fmt.Errorf("the attempt must be one that %s, but it is one that %s", want, got)
}

func (x *examination) canceledAtEvents(whole *Recorder) {
	for _, k := range sample(len(whole.Events())) {
		for _, cause := range []error{driver.ErrCanceled, driver.ErrDeadline} {
			when := fmt.Sprintf("ended at event %d (%v)", k, cause)
			_, _ = x.attempt(x.c.Turn, when, stop{atEvent: k, cause: cause})
		}
	}
}

// canceledInPauses ends attempts in the middle of the pauses that the
// undisturbed one made.
func (x *examination) canceledInPauses(whole *Recorder) {
	var last time.Duration
	var pauses []time.Duration
	for _, e := range whole.Events() {
		if gap := e.At - last; gap > 1 {
			pauses = append(pauses, last+gap/2)
		}
		last = e.At
	}
	for _, i := range sample(len(pauses)) {
		at := pauses[i-1]
		_, _ = x.attempt(x.c.Turn, fmt.Sprintf("canceled in a pause, after %v", at), stop{after: at, cause: driver.ErrCanceled})
	}
}

// resumed interrupts attempts and invokes the driver again.
func (x *examination) resumed(whole *Recorder) {
	want := closed(whole.Outputs())
	for _, k := range sample(len(whole.Events())) {
		when := fmt.Sprintf("interrupted at event %d", k)
		first, _ := x.attempt(x.c.Turn, when, stop{atEvent: k, cause: driver.ErrShutdown})
		turn := x.c.Turn
		turn.Attempt++
		turn.Resumed = true
		if cp := first.Checkpoint(); cp != nil {
			turn.Checkpoint = cp
		}
		when = fmt.Sprintf("resumed after an interruption at event %d", k)
		second, err := x.attempt(turn, when, stop{})
		x.found(when, endedAs(x.c.Ends, second, err), together(want, closed(first.Outputs()), closed(second.Outputs())))
	}
}

// together checks R2: the outputs of two attempts, without those of the second
// that the first had closed, are the ones of an undisturbed attempt.
func together(want, first, second []Output) error {
	got := slices.Clone(first)
	for _, o := range second {
		i := slices.IndexFunc(first, func(f Output) bool { return f.ID == o.ID })
		if i < 0 {
			got = append(got, o)
			continue
		}
		if first[i].Text != o.Text {
			return fmt.Errorf("output %q was closed with other text before; a room suppresses it and its new text is lost", o.ID)
		}
	}
	if !slices.Equal(want, got) {
		return fmt.Errorf("both attempts together closed %s; an undisturbed one closes %s", ids(got), ids(want))
	}
	return nil
}

// atOnce runs several attempts side by side; the race detector sees what they share.
func (x *examination) atOnce(whole *Recorder) {
	const n = 4
	recs := make([]*Recorder, n)
	done := make(chan int, n)
	for i := range n {
		go func() {
			recs[i], _ = Attempt(context.Background(), x.drv, x.c.Turn)
			done <- i
		}()
	}
	for range n {
		<-done
	}
	for _, rec := range recs {
		x.found("side by side with others", rec.Wrong()...)
		if !x.c.Varies && !slices.Equal(rec.Outputs(), whole.Outputs()) {
			x.found("side by side with others", errors.New("the outputs differ from those of an attempt that runs alone"))
		}
	}
}

// stop says when and why an attempt is ended from outside. The zero value lets
// it run to its end.
type stop struct {
	atEvent int           // instead of taking this event
	after   time.Duration // or after this time, while the driver waits
	cause   error
}

// attempt runs one attempt and notes what the driver did wrong and whether it
// returned in time.
func (x *examination) attempt(turn driver.Turn, when string, s stop) (*Recorder, error) {
	ctx, rec := Record(context.Background(), &turn)
	rec.stopAt, rec.stopWith = s.atEvent, s.cause
	var pause <-chan time.Time
	if s.after > 0 {
		t := time.NewTimer(s.after)
		defer t.Stop()
		pause = t.C
	}
	done := make(chan error, 1)
	go func() {
		err := invoke(ctx, x.drv, turn, rec)
		rec.returned(err)
		done <- err
	}()
	overall := time.NewTimer(limit)
	defer overall.Stop()
	var err error
	select {
	case err = <-done:
	case <-overall.C:
		x.found(when, fmt.Errorf("it did not return within %v", limit))
		rec.End(driver.ErrDeadline)
		err = x.await(done, when)
	case <-pause:
		synctest.Wait()
		rec.End(s.cause)
		err = x.await(done, when)
	case <-ctx.Done():
		err = x.await(done, when)
	}
	synctest.Wait() // what the driver left behind has settled
	x.found(when, rec.Wrong()...)
	var p *panicked
	if errors.As(err, &p) && x.c.Ends != Fails {
		x.found(when, p)
	}
	return rec, err
}

func (x *examination) await(done <-chan error, when string) error {
	grace := time.NewTimer(Grace)
	defer grace.Stop()
	select {
	case err := <-done:
		return err
	case <-grace.C:
		x.found(when, fmt.Errorf("it did not return within %v after its context was done", Grace))
	}
	giveUp := time.NewTimer(abandon)
	defer giveUp.Stop()
	select {
	case err := <-done:
		return err
	case <-giveUp.C:
		panic(fmt.Sprintf("drivertest: %s: the driver did not return within %v after its context was done", when, abandon))
	}
}

// panicked is a driver's panic.
type panicked struct {
	value any
	stack []byte
}

func (p *panicked) Error() string {
	return fmt.Sprintf("the driver panicked: %v\n%s", p.value, p.stack)
}

// invoke runs the driver as a room does: Run wins over Respond (E5).
func invoke(ctx context.Context, drv driver.Driver, turn driver.Turn, out driver.Emitter) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicked{value: v, stack: debug.Stack()}
		}
	}()
	turn.Checkpoint = slices.Clone(turn.Checkpoint)
	switch d := drv.(type) {
	case driver.Runner:
		return d.Run(ctx, &turn, out)
	case driver.Responder:
		decision, err := d.Respond(ctx, &turn)
		if err != nil || decision == nil {
			return err
		}
		return out.Emit(*decision)
	}
	return driver.Check("under test", drv)
}

// filled returns the turn with what a room always knows.
func filled(turn driver.Turn) driver.Turn {
	set(&turn.Room, "room")
	set(&turn.Channel, "public")
	set(&turn.Run, "run-1")
	set(&turn.Attempt, 1)
	if turn.Agent.ID == "" {
		turn.Agent = event.Agent{ID: "agent", Label: "Agent", Role: "guide", Driver: "under-test"}
	}
	set(&turn.Speaker, event.Person("ann"))
	set(&turn.Input, "input-1")
	set(&turn.Root, turn.Input)
	set(&turn.Modality, event.Text)
	if !turn.Disclosure.Stated() {
		turn.Disclosure = event.ToRoom()
	}
	return turn
}

func set[T comparable](member *T, value T) {
	var zero T
	if *member == zero {
		*member = value
	}
}

// sample returns the numbers 1 to n, or 200 of them spread evenly, the first
// and the last included.
func sample(n int) []int {
	const most = 200
	picked := make([]int, min(n, most))
	for i := range picked {
		picked[i] = 1 + i
		if n > most {
			picked[i] = 1 + i*(n-1)/(most-1)
		}
	}
	return picked
}

func closed(outputs []Output) []Output {
	return slices.DeleteFunc(outputs, func(o Output) bool { return !o.Closed })
}

func ids(outputs []Output) string {
	list := make([]event.OutputID, len(outputs))
	for i, o := range outputs {
		list[i] = o.ID
	}
	return fmt.Sprintf("%q", list)
}
