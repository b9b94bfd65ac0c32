package sweep

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"parley/actors"
	"parley/driver"
	"parley/event"
	"parley/persistence"
)

const hall event.RoomID = "hall"

const (
	public  event.ChannelID = "public"
	private event.ChannelID = "private:ann"
)

// The settings of the system that the script counts on.
const (
	idleAfter      = 2 * time.Second
	commitDeadline = 5 * time.Second
	roomDeadline   = 20 * time.Second
	roomWait       = 30 * time.Second
)

// life is one process: a store, a system on it, a follower of the room's feed,
// and the callers of the script.
type life struct {
	*ledger
	disk  *disk
	store *persistence.Store
	sys   *actors.System

	quit chan struct{}
	wg   sync.WaitGroup // the follower and calls that nobody waits for
	over bool           // what is promised from now on does not count; guarded by the ledger's mu

	// strict: no fault is expected, so nothing may be refused.
	strict bool
}

// begin opens the store and starts the system. fatal ends the process.
func begin(d *disk, l *ledger, rng *rand.Rand, strict bool, fatal func(string)) (*life, error) {
	x := &life{ledger: l, disk: d, quit: make(chan struct{}), strict: strict}
	var err error
	if x.store, err = persistence.Open(persistence.Config{Dir: dir, FS: d.fs(l.alive.Load), Fatal: fatal}); err != nil {
		return nil, err
	}
	l.alive.Store(true)
	var random [32]byte
	for i := range random {
		random[i] = byte(rng.Uint32())
	}
	x.sys, err = actors.New(actors.Config{
		Journal: x.store, Fatal: fatal, Rand: rand.NewChaCha8(random),
		Drivers:   func(string) (driver.Driver, bool) { return driver.RunFunc(play), true },
		IdleAfter: idleAfter, CommitDeadline: commitDeadline,
		SnapshotEntries: 12, TailEntries: 24, MaxBatchEntries: 24,
	})
	if err != nil {
		l.alive.Store(false)
		return nil, errors.Join(err, x.store.Close())
	}
	l.note(func(r *record) { r.Starts = append(r.Starts, time.Now()) })
	x.wg.Go(x.follow)
	if err := x.sys.Start(context.Background()); err != nil {
		return nil, errors.Join(err, x.end())
	}
	return x, nil
}

// end stops the process in good order.
func (x *life) end() error {
	err := x.sys.Shutdown(context.Background())
	close(x.quit)
	x.wg.Wait()
	x.alive.Store(false)
	return errors.Join(err, x.store.Close())
}

// kill takes what the disk holds at this instant and lets the process run out unseen.
func (x *life) kill(percent int, rng *rand.Rand) (*disk, error) {
	x.mu.Lock()
	x.disk.mu.Lock()
	before := x.disk.before
	x.disk.before = nil
	x.over = true
	left := newDisk(crash(x.disk.mem, percent, rng), before)
	x.disk.mu.Unlock()
	x.mu.Unlock()
	return left, x.end()
}

// promise notes something unless the process is dead, which it reports.
func (x *life) promise(f func()) bool {
	x.mu.Lock()
	over := x.over
	x.mu.Unlock()
	if !over {
		f()
	}
	return !over
}

// follow reads the feed from where the last life's follower stood.
func (x *life) follow() {
	moved := make(chan struct{}, 1)
	defer x.sys.Follow(hall, func(event.Seq) {
		select {
		case moved <- struct{}{}:
		default:
		}
	})()
	for {
		es, head, err := x.sys.Read(hall, x.position(), 10)
		switch {
		case err != nil && x.strict:
			x.promise(func() { x.wrong("reading the feed: %w", err) })
			return
		case err != nil:
			head = 0
		case head < x.position():
			x.promise(func() { x.wrong("the head is %d, %d was seen", head, x.position()) })
		}
		for _, e := range es {
			if !x.promise(func() { x.saw(e) }) {
				return
			}
		}
		if len(es) > 0 {
			continue
		}
		var again <-chan time.Time
		if err != nil {
			again = time.After(time.Second)
		}
		select {
		case <-moved:
		case <-again:
		case <-x.quit:
			return
		}
	}
}

// errStuck says that something did not come to pass although the system is alive.
var errStuck = errors.New("it never came to pass")

// ask gives a command and returns its answer, which has to come within the
// commit deadline.
func (x *life) ask(cmd event.Command) (event.Reply, error) {
	ctx, cancel := context.WithTimeout(context.Background(), commitDeadline+100*time.Millisecond)
	defer cancel()
	reply, err := x.sys.Ask(ctx, hall, cmd)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("%T was not answered within the commit deadline", cmd)
	}
	return reply, err
}

// insist gives a command until it is answered by something else than a refusal
// that may pass.
func (x *life) insist(cmd event.Command) (event.Reply, error) {
	for range 100 {
		reply, err := x.ask(cmd)
		refusal, ok := event.AsRefusal(err)
		if !ok || refusal.Reason != event.Unavailable && refusal.Reason != event.RoomFailed {
			return reply, err
		}
		if x.strict {
			return nil, fmt.Errorf("%T was refused without a fault: %w", cmd, err)
		}
		time.Sleep(time.Second)
	}
	return nil, fmt.Errorf("%T: %w", cmd, errStuck)
}

// say sends an input until it is accepted.
func (x *life) say(s sent) (event.Receipt, error) {
	x.sent(s)
	reply, err := x.insist(submit(s))
	if err != nil {
		return event.Receipt{}, fmt.Errorf("input %s: %w", s.ID, err)
	}
	r := reply.(event.Receipt)
	x.promise(func() { x.receipt(r) })
	return r, nil
}

// cast sends an input and waits for nothing.
func (x *life) cast(s sent) {
	x.sent(s)
	x.sys.Do(hall, submit(s), func(reply event.Reply, err error) {
		if err == nil {
			x.promise(func() { x.receipt(reply.(event.Receipt)) })
		}
	})
}

// cancel ends a run on its speaker's word.
func (x *life) cancel(who event.ParticipantID, run event.RunID) error {
	reply, err := x.insist(event.CancelRun{Access: person(who), Run: run})
	if err != nil {
		return err
	}
	if reply.(event.CancelResult).Canceled {
		x.promise(func() { x.note(func(r *record) { r.Ended = append(r.Ended, run) }) })
	}
	return nil
}

// look asks for a view.
func (x *life) look() (*event.View, error) {
	reply, err := x.insist(event.ReadView{})
	if err != nil {
		return nil, err
	}
	v := reply.(*event.View)
	x.promise(func() { x.viewed(v) })
	return v, nil
}

// until waits for what the follower will see.
func (x *life) until(what string, cond func() bool) error {
	for range 40_000 {
		if cond() {
			return nil
		}
		time.Sleep(3 * time.Millisecond)
	}
	return fmt.Errorf("%s: %w", what, errStuck)
}

func (x *life) untilEnded(run event.RunID) error {
	return x.until("the end of a run", func() bool { return x.status(run).Terminal() })
}

func (x *life) untilWaiting(run event.RunID) error {
	return x.until("the question of a run", func() bool { return x.status(run) == event.RunWaiting })
}

func host() event.Access {
	return event.Access{Subject: "host", Scopes: []event.Scope{event.ScopeHost}, Rooms: []string{"**"}}
}

func person(id event.ParticipantID) event.Access {
	can := []event.Scope{event.ScopeRead, event.ScopeInput, event.ScopeCancel}
	return event.Access{
		Subject: id, Rooms: []string{"**"}, Scopes: can,
		Channels: []event.ChannelRule{
			{Match: "private:{sub}", Can: can, Disclosure: event.ToParticipants(id)},
			{Match: string(public), Can: can, Disclosure: event.ToRoom()},
		},
	}
}

func config(phase string) event.RoomConfig {
	return event.RoomConfig{
		Agents: []event.Agent{
			{ID: "guide", Label: "Guide", Role: "guide", Driver: "play"},
			{ID: "keeper", Label: "Keeper", Role: "character", Driver: "play", Visibility: event.ToParticipants("ann", "bob")},
		},
		FallbackAgent: "guide", Phase: phase,
		DeadlineMs: roomDeadline.Milliseconds(), WaitMs: roomWait.Milliseconds(),
	}
}

// submit makes the command of an input of the script.
func submit(s sent) event.Submit {
	l := lines[s.ID]
	m := event.Submit{
		Access: person(l.who), Channel: l.on,
		Input: event.FinalInput{
			ID: s.ID, Text: l.text, Modality: event.Text, OnBusy: l.busy, Disclosure: l.to, Agents: l.agents,
		},
		Digest: sha256.Sum256([]byte(s.ID)),
	}
	if l.deadline != 0 {
		m.Input.Deadline = &l.deadline
	}
	if s.Run != "" {
		m.Input.Continuation = &event.ContinuationRef{Run: s.Run, Token: s.Token}
	}
	return m
}
