package actors

import (
	"context"
	"flag"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"parley/driver"
	"parley/event"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a System on a journal in memory, inside a synctest bubble.
type rig struct {
	*testing.T
	*System
	journal *memJournal
	counts  *counts
	logs    *observer.ObservedLogs
	mu      sync.Mutex
	drivers map[string]driver.Driver
	fatal   atomic.Int32
}

// in runs a test in a bubble, with the drivers of the configuration of guide.
func in(t *testing.T, f func(*rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newMemJournal(), nil)
		f(r)
		r.stop()
	})
}

func newRig(t *testing.T, j *memJournal, change func(*Config)) *rig {
	t.Helper()
	r := unstarted(t, j, j, change)
	r.start()
	return r
}

// unstarted makes a rig that is yet to be started: what it recovers needs its
// drivers to be there before.
func unstarted(t *testing.T, on Journal, j *memJournal, change func(*Config)) *rig {
	t.Helper()
	r := &rig{T: t, journal: j, counts: &counts{refused: map[event.Reason]int{}}, drivers: map[string]driver.Driver{}}
	r.drive("guide", driver.RunFunc(sayHello))
	core, logs := observer.New(zap.DebugLevel)
	r.logs = logs
	c := Config{
		Journal: on, Drivers: r.driver, Observer: r.counts, Logger: zap.New(core),
		Fatal: func(string) { r.fatal.Add(1) },
	}
	if change != nil {
		change(&c)
	}
	var err error
	if r.System, err = New(c); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) start() {
	r.Helper()
	if err := r.Start(r.Context()); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) stop() {
	r.Helper()
	if err := r.Shutdown(context.Background()); err != nil {
		r.Errorf("shutdown: %v", err)
	}
	time.Sleep(time.Minute) // what the journal still has to answer, and drivers to return
	synctest.Wait()
}

func (r *rig) drive(name string, d driver.Driver) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drivers[name] = d
}

func (r *rig) driver(name string) (driver.Driver, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	d, ok := r.drivers[name]
	return d, ok
}

// create makes a room with one agent per driver, the first of which answers.
func (r *rig) create(id event.RoomID, drivers ...string) {
	r.Helper()
	r.must(r.Ask(r.Context(), id, event.Configure{Access: host(), Config: config(drivers...)}))
}

func config(drivers ...string) event.RoomConfig {
	if len(drivers) == 0 {
		drivers = []string{"guide"}
	}
	c := event.RoomConfig{FallbackAgent: event.AgentID(drivers[0])}
	for _, d := range drivers {
		c.Agents = append(c.Agents, event.Agent{ID: event.AgentID(d), Label: d, Role: "guide", Driver: d})
	}
	return c
}

func (r *rig) must(reply event.Reply, err error) event.Reply {
	r.Helper()
	if err != nil {
		r.Fatalf("refused: %v", err)
	}
	return reply
}

func (r *rig) say(id event.RoomID, input event.InputID) event.Receipt {
	r.Helper()
	return r.must(r.Ask(r.Context(), id, submit("public", input))).(event.Receipt)
}

// outcome is what Do answers, some time.
type outcome struct {
	mu    sync.Mutex
	reply event.Reply
	err   error
	n     int
}

func (l *outcome) get() (event.Reply, int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reply, l.n, l.err
}

func (r *rig) do(id event.RoomID, cmd event.Command) *outcome {
	l := &outcome{}
	r.Do(id, cmd, func(reply event.Reply, err error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.reply, l.err = reply, err
		l.n++
	})
	return l
}

// refusedFor fails unless l was refused for that reason.
func (r *rig) refusedFor(l *outcome, why event.Reason) {
	r.Helper()
	_, n, err := l.get()
	x, ok := event.AsRefusal(err)
	if n != 1 || !ok || x.Reason != why {
		r.Errorf("got %d answers, error %v; want one refusal for reason %d", n, err, why)
	}
}

func host() event.Access {
	return event.Access{Subject: "host", Scopes: []event.Scope{event.ScopeHost}, Rooms: []string{"**"}}
}

func submit(ch event.ChannelID, id event.InputID) event.Submit {
	return event.Submit{
		Access: event.Access{
			Subject: "ann", Rooms: []string{"**"},
			Scopes:   []event.Scope{event.ScopeRead, event.ScopeInput, event.ScopeCancel},
			Channels: []event.ChannelRule{{Match: "**", Can: []event.Scope{event.ScopeRead, event.ScopeInput, event.ScopeCancel}, Disclosure: event.ToRoom()}},
		},
		Channel: ch,
		Input:   event.FinalInput{ID: id, Text: "What is this?", Modality: event.Text},
		Digest:  [32]byte{1},
	}
}

func sayHello(_ context.Context, _ *driver.Turn, out driver.Emitter) error {
	if err := out.Emit(event.Progress{Stage: "looking"}); err != nil {
		return err
	}
	for _, d := range []string{"Hello ", "there."} {
		if err := out.Emit(event.AssistantOutput{Output: "a", Delta: d, Final: d == "there."}); err != nil {
			return err
		}
	}
	return nil
}

// counts is an Observer. Safe for concurrent use.
type counts struct {
	rooms, commits, entries, recovered, failedLoads, late, abandoned atomic.Int64
	dead, started, resumed, over, driverFailures                     atomic.Int64
	panics                                                           [Places]atomic.Int64
	mu                                                               sync.Mutex
	refused                                                          map[event.Reason]int
}

func (c *counts) RoomsAwake(d int) { c.rooms.Add(int64(d)) }
func (c *counts) Committed(entries, _ int, _ time.Duration) {
	c.commits.Add(1)
	c.entries.Add(int64(entries))
}

func (c *counts) Refused(why event.Reason) {
	c.mu.Lock()
	c.refused[why]++
	c.mu.Unlock()
}

func (c *counts) Recovered(ok bool, _ time.Duration) {
	if ok {
		c.recovered.Add(1)
	} else {
		c.failedLoads.Add(1)
	}
}
func (c *counts) LateEvents(n int)       { c.late.Add(int64(n)) }
func (c *counts) DriversAbandoned(n int) { c.abandoned.Add(int64(n)) }
func (c *counts) RoomFailed()            { c.dead.Add(1) }
func (c *counts) AttemptOver()           { c.over.Add(1) }
func (c *counts) DriverFailed()          { c.driverFailures.Add(1) }
func (c *counts) Panicked(where Place)   { c.panics[where].Add(1) }

func (c *counts) AttemptStarted(resumed bool) {
	c.started.Add(1)
	if resumed {
		c.resumed.Add(1)
	}
}

var seedFlag = flag.Uint64("seed", 0, "seed of the random tests; 0: a new one each time")

// seed returns the seed of a random test and prints it when the test fails.
func seed(t *testing.T) uint64 {
	n := *seedFlag
	if n == 0 {
		n = rand.Uint64()
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("run with -seed=%d", n)
		}
	})
	return n
}
