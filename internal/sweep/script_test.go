package sweep

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"parley/event"
)

// line is an input of the script.
type line struct {
	who      event.ParticipantID
	on       event.ChannelID
	text     string
	to       event.Disclosure
	busy     event.BusyPolicy
	deadline time.Duration
	agents   []event.AgentID
}

// lines are all inputs by id. The ids after "z" belong to the time after a crash.
var lines = map[event.InputID]line{
	"a1":  {who: "ann", on: public, text: tell},
	"a2":  {who: "ann", on: public, text: tell},
	"b1":  {who: "bob", on: public, text: tell, busy: event.BusyQueue},
	"a3":  {who: "ann", on: private, text: tell},
	"a4":  {who: "ann", on: public, text: hang},
	"a5":  {who: "ann", on: public, text: tell}, // supersedes a4
	"b2":  {who: "bob", on: public, text: hang},
	"a6":  {who: "ann", on: private, text: ask},
	"b3":  {who: "bob", on: public, text: hang, deadline: 3 * time.Second},
	"a7":  {who: "ann", on: private, text: "the second"}, // answers a6
	"b4":  {who: "bob", on: public, text: ask},           // stays unanswered
	"a8":  {who: "ann", on: public, text: load, to: event.ToParticipants("ann", "cat")},
	"c1":  {who: "cat", on: public, text: tell, busy: event.BusyQueue},
	"b5":  {who: "bob", on: public, text: tell, busy: event.BusyQueue, agents: []event.AgentID{"keeper"}},
	"b6":  {who: "bob", on: public, text: tell}, // in the middle of the restart
	"a9":  {who: "ann", on: private, text: ask}, // is open when the power goes
	"b7":  {who: "bob", on: public, text: load}, // in the middle of the loss of power
	"c2":  {who: "cat", on: public, text: tell, busy: event.BusyQueue},
	"a10": {who: "ann", on: private, text: "the third"}, // answers a9
	"b8":  {who: "bob", on: public, text: hang, deadline: 2 * time.Second},
	"a11": {who: "ann", on: private, text: tell},
	"z1":  {who: "ann", on: private, text: tell},
	"z2":  {who: "bob", on: public, text: load},
	"z3":  {who: "cat", on: public, text: tell, busy: event.BusyQueue},
}

// stage is what a script is played on.
type stage struct {
	disk   *disk
	ledger *ledger
	rng    *rand.Rand
	strict bool
	fatal  func(string)
	// alive is the process that is alive, nil between two; guarded by mu.
	mu    sync.Mutex
	alive *life
	moved func(*vfs.MemFS) // called with the disk after a loss of power; nil: nobody cares
}

// script is a life of the room in three processes: a long one, one after a
// restart in good order, and one after a loss of power. It returns the last one
// when it is over, for the caller to look at and to end; after an error
// everything has ended.
func (s *stage) script() (*life, error) {
	x, err := s.begin()
	if err != nil {
		return nil, err
	}
	for i, act := range []func(*life) error{s.first, s.second, s.third} {
		if i > 0 {
			if x, err = s.again(x, i == 2); err != nil {
				return nil, err
			}
		}
		if err := act(x); err != nil {
			return nil, errors.Join(err, x.end())
		}
	}
	return x, nil
}

// What a process cannot do is to begin or to end, with a fault of the disk.
var (
	errOpen = errors.New("a process did not begin")
	errEnd  = errors.New("a process did not end in order")
)

func (s *stage) begin() (*life, error) {
	x, err := begin(s.disk, s.ledger, s.rng, s.strict, s.fatal)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errOpen, err)
	}
	s.live(x)
	return x, nil
}

func (s *stage) live(x *life) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.alive = x
}

// living returns the process that is alive, nil between two.
func (s *stage) living() *life {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.alive
}

// again ends a process and begins the next one.
func (s *stage) again(x *life, powerLoss bool) (*life, error) {
	s.live(nil)
	if powerLoss {
		left, err := x.kill(50, s.rng)
		if err != nil && s.strict {
			return nil, err
		}
		s.disk = left
		if s.moved != nil {
			s.moved(left.mem)
		}
	} else if err := x.end(); err != nil {
		return nil, fmt.Errorf("%w: %w", errEnd, err)
	}
	time.Sleep(100 * time.Millisecond)
	return s.begin()
}

// first ends in the middle of the answer to b6.
func (s *stage) first(x *life) error {
	if _, err := x.insist(event.Configure{Access: host(), Config: config("day")}); err != nil {
		return err
	}
	a1, err := x.say(sent{ID: "a1"})
	if err != nil {
		return err
	}
	if err := x.untilEnded(a1.Run); err != nil {
		return err
	}
	// Three at once, on two channels; one of them queues.
	runs, err := x.all("a2", "b1", "a3")
	if err != nil {
		return err
	}
	if _, err := x.look(); err != nil {
		return err
	}
	if err := x.untilAllEnded(runs...); err != nil {
		return err
	}
	// An answer that is superseded, and one that is canceled.
	if _, err := x.say(sent{ID: "a4"}); err != nil {
		return err
	}
	time.Sleep(10 * time.Millisecond)
	a5, err := x.say(sent{ID: "a5"})
	if err != nil {
		return err
	}
	if err := x.untilEnded(a5.Run); err != nil {
		return err
	}
	b2, err := x.say(sent{ID: "b2"})
	if err != nil {
		return err
	}
	if _, err := x.insist(event.SetFocus{Access: person("bob"), Agent: "keeper"}); err != nil {
		return err
	}
	if err := x.cancel("bob", b2.Run); err != nil {
		return err
	}
	if _, err := x.insist(event.SetFocus{Access: person("bob")}); err != nil {
		return err
	}
	// A question, a deadline that fires while it is open, hibernation, its answer.
	a6, err := x.say(sent{ID: "a6"})
	if err != nil {
		return err
	}
	if err := x.untilWaiting(a6.Run); err != nil {
		return err
	}
	b3, err := x.say(sent{ID: "b3"})
	if err != nil {
		return err
	}
	if err := x.untilEnded(b3.Run); err != nil {
		return err
	}
	time.Sleep(idleAfter + time.Second)
	if a6, err = x.say(sent{ID: "a7", Run: a6.Run, Token: x.token(a6.Run)}); err != nil {
		return err
	}
	if err := x.untilEnded(a6.Run); err != nil {
		return err
	}
	// A question that nobody answers: the room hibernates until its alarm.
	b4, err := x.say(sent{ID: "b4"})
	if err != nil {
		return err
	}
	if err := x.untilEnded(b4.Run); err != nil {
		return err
	}
	if _, err := x.insist(event.Configure{Access: host(), Config: config("night")}); err != nil {
		return err
	}
	if runs, err = x.all("a8", "c1", "b5"); err != nil {
		return err
	}
	if err := x.untilAllEnded(runs...); err != nil {
		return err
	}
	if _, err := x.say(sent{ID: "b6"}); err != nil {
		return err
	}
	time.Sleep(5 * time.Millisecond)
	_, err = x.look()
	return err
}

// second begins with what is left of b6 and ends in the middle of the answer to
// b7, with an open question, a queued input, and one on its way.
func (s *stage) second(x *life) error {
	if err := x.untilEnded(x.copy().Receipts["b6"].Run); err != nil {
		return err
	}
	a9, err := x.say(sent{ID: "a9"})
	if err != nil {
		return err
	}
	if err := x.untilWaiting(a9.Run); err != nil {
		return err
	}
	if _, err := x.say(sent{ID: "b7"}); err != nil {
		return err
	}
	time.Sleep(9 * time.Millisecond)
	x.cast(sent{ID: "c2"})
	time.Sleep(syncTime / 2)
	return nil
}

// third begins with a recovery and ends with nothing open.
func (s *stage) third(x *life) error {
	r := x.copy().Receipts
	c2, err := x.say(sent{ID: "c2"})
	if err != nil {
		return err
	}
	a9 := r["a9"].Run
	if err := x.until("the question that was open", func() bool { return x.token(a9) != "" }); err != nil {
		return err
	}
	a10, err := x.say(sent{ID: "a10", Run: a9, Token: x.token(a9)})
	if err != nil {
		return err
	}
	if err := x.untilAllEnded(r["b7"].Run, c2.Run, a10.Run); err != nil {
		return err
	}
	runs, err := x.all("b8", "a11")
	if err != nil {
		return err
	}
	if err := x.untilAllEnded(runs...); err != nil {
		return err
	}
	time.Sleep(idleAfter + time.Second)
	_, err = x.look()
	return err
}

// all sends inputs at once and returns their runs.
func (x *life) all(ids ...event.InputID) ([]event.RunID, error) {
	runs, errs := make([]event.RunID, len(ids)), make([]error, len(ids))
	var wg sync.WaitGroup
	for i, id := range ids {
		wg.Go(func() {
			r, err := x.say(sent{ID: id})
			runs[i], errs[i] = r.Run, err
		})
	}
	wg.Wait()
	return runs, errors.Join(errs...)
}

func (x *life) untilAllEnded(runs ...event.RunID) error {
	for _, r := range runs {
		if err := x.untilEnded(r); err != nil {
			return err
		}
	}
	return nil
}
