package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// KillConfig is W6: a server is killed under load, again and again.
type KillConfig struct {
	Binary  string        // the binary under test; empty: this one
	Dir     string        // where its data goes; empty: a temporary directory
	Rooms   int           // with one client each; 0: 64
	Slow    int           // further rooms whose answers take some 100 ms; 0: 16, negative: none
	Rounds  int           // 0: 20
	Least   time.Duration // of load before a kill; 0: 200 ms
	Most    time.Duration // 0: 2 s
	Prefill int           // entries that the store holds before, in other rooms; 0: none
	Seed    uint64        // of the instants of the kills; 0: taken from the clock
	Out     io.Writer     // a line per round; nil: nowhere
}

// KillResult is W6. All counts of the second group must be zero.
type KillResult struct {
	Workload string            `json:"workload"`
	At       time.Time         `json:"at"`
	Machine  Machine           `json:"machine"`
	Lifted   map[string]string `json:"limitsLifted"`
	Seed     uint64            `json:"seed"`
	Rooms    int               `json:"rooms"`
	Slow     int               `json:"slowRooms"`
	Prefill  int               `json:"entriesBefore"`
	Kills    int               `json:"kills"`
	Accepted int               `json:"inputsAcknowledged"`
	Seen     int               `json:"eventsSeen"`
	Journal  int               `json:"entriesInJournal"`
	Resumed  int               `json:"attemptsResumed"`
	Deferred int               `json:"inputsDeferred"` // refused with "unavailable" and sent again

	Lost        int      `json:"acknowledgedInputsLost"`
	NotJournal  int      `json:"eventsSeenButNotJournaled"`
	Doubled     int      `json:"eventsDoubled"`    // shown twice to a client
	DoubledRows int      `json:"inputsDoubled"`    // in the journal
	Terminals   int      `json:"terminalsDoubled"` // second terminals of a run in the journal
	Gaps        int      `json:"sequenceGaps"`     // in a room or a run
	Disordered  int      `json:"eventsOutOfOrder"` // clients that saw another order than the journal's, or a hole
	Changed     int      `json:"eventsChanged"`    // shown otherwise to a second reader at the end
	Unseen      int      `json:"eventsNeverShown"` // in the journal, but not shown to the room's client at the end
	Unfinished  int      `json:"runsWithoutEnd"`   // at the end
	Conflicts   int      `json:"answersConflicting"`
	NotResumed  int      `json:"cursorsNotResumed"`
	NotWhole    int      `json:"answersNotWhole"` // with a closed output doubled, missing or mutilated
	Faults      []string `json:"faults"`          // connections that ended although the server was not killed

	ReadyP50Ms       float64 `json:"readyP50Ms"` // from the start of the process
	ReadyMaxMs       float64 `json:"readyMaxMs"`
	FirstServedP50Ms float64 `json:"firstServedP50Ms"` // the first accepted input, after ready
	FirstServedMaxMs float64 `json:"firstServedMaxMs"`
}

// Bad reports whether anything was lost, doubled or shown too early.
func (r *KillResult) Bad() bool {
	return r.Lost+r.NotJournal+r.Doubled+r.DoubledRows+r.Terminals+r.Gaps+r.Disordered+r.Changed+r.Unseen+r.Unfinished+
		r.Conflicts+r.NotResumed+r.NotWhole+len(r.Faults) > 0
}

// Kill runs W6. The error says only that it could not be run; see KillResult.Bad.
func Kill(ctx context.Context, c KillConfig) (res *KillResult, err error) {
	if c.Binary == "" {
		if c.Binary, err = os.Executable(); err != nil {
			return nil, fmt.Errorf("find the binary: %w", err)
		}
	}
	orDefault(&c.Rooms, 64)
	orDefault(&c.Slow, 16)
	orDefault(&c.Rounds, 20)
	orDefault(&c.Least, 200*time.Millisecond)
	orDefault(&c.Most, 2*time.Second)
	orDefault(&c.Seed, uint64(time.Now().UnixNano()))
	if c.Out == nil {
		c.Out = io.Discard
	}
	dir, err := os.MkdirTemp(c.Dir, "parley-kill-")
	if err != nil {
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s, err := newServer(ctx, c.Binary, dir)
	if err != nil {
		return nil, err
	}
	k := &killing{config: c, server: s, rand: rand.New(rand.NewPCG(c.Seed, 6)), res: &KillResult{
		Workload: "W6 kill", At: time.Now().UTC().Truncate(time.Second), Machine: machine(dir), Lifted: lifted, Seed: c.Seed, Rooms: c.Rooms,
		Slow: max(0, c.Slow),
	}}
	if _, err := fmt.Fprintf(c.Out, "W6 seed %d\n", c.Seed); err != nil {
		return nil, err
	}
	if c.Prefill > 0 {
		if err := k.prefill(ctx); err != nil {
			return nil, fmt.Errorf("prefill: %w", err)
		}
	}
	for i := range c.Rooms {
		k.witnesses = append(k.witnesses, newWitness(fmt.Sprintf("bench-%d", i)))
	}
	for i := range k.res.Slow {
		k.witnesses = append(k.witnesses, newWitness(fmt.Sprint(slowPrefix, i)))
	}
	for range c.Rounds {
		if err := k.round(ctx, true); err != nil {
			return nil, err
		}
	}
	// The last process is left alone until every run has ended.
	if err := k.round(ctx, false); err != nil {
		return nil, err
	}
	r := k.res
	r.ReadyP50Ms, r.ReadyMaxMs = ms(quantile(k.ready, 0.5)), ms(quantile(k.ready, 1))
	r.FirstServedP50Ms, r.FirstServedMaxMs = ms(quantile(k.served, 0.5)), ms(quantile(k.served, 1))
	return r, nil
}

func orDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// killing is one run of W6. Owned by the goroutine of Kill.
type killing struct {
	config        KillConfig
	server        *server
	rand          *rand.Rand
	witnesses     []*witness
	res           *KillResult
	ready, served []time.Duration
}

const (
	fillPrefix = "bench-fill-" // of the rooms that only make the store large
	slowPrefix = "bench-slow-" // of the rooms whose answers take their time
)

// prefill has 128 rooms take turns until the store holds enough.
func (k *killing) prefill(ctx context.Context) error {
	if _, err := k.server.start(ctx); err != nil {
		return err
	}
	const rooms = 128
	var left atomic.Int64
	left.Store(int64(k.config.Prefill))
	failed := make([]error, rooms)
	var wg sync.WaitGroup
	for i := range rooms {
		wg.Go(func() {
			c, err := sit(ctx, k.server, fmt.Sprint(fillPrefix, i), "f")
			if err != nil {
				failed[i] = err
				return
			}
			defer func() { _ = c.ws.Close() }() // the load is over
			for ctx.Err() == nil && left.Add(-(eventsPerTurn+2)) > -(eventsPerTurn+2) {
				if _, failed[i] = c.turn(); failed[i] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	count, err := k.server.stop()
	k.res.Prefill = int(count.Entries)
	return errors.Join(append(failed, err, ctx.Err())...)
}

// round starts the server, lets the witnesses go on, ends the server, and holds
// what they saw against the journal.
func (k *killing) round(ctx context.Context, kill bool) error {
	took, err := k.server.start(ctx)
	if err != nil {
		return err
	}
	k.ready = append(k.ready, took)
	began := time.Now()
	stop := make(chan struct{})
	var killed atomic.Bool
	var wg sync.WaitGroup
	for _, w := range k.witnesses {
		w.first = time.Time{}
		wg.Go(func() { w.attend(ctx, k.server, stop, &killed) })
	}
	load := k.config.Least + time.Duration(k.rand.Int64N(max(1, int64(k.config.Most-k.config.Least)+1)))
	select {
	case <-time.After(load):
	case <-ctx.Done():
	}
	if kill {
		killed.Store(true)
		err = k.server.kill()
		wg.Wait()
		k.res.Kills++
	} else {
		close(stop)
		wg.Wait()
		err = k.reread(ctx)
		_, stopErr := k.server.stop()
		err = errors.Join(err, stopErr)
	}
	if err = errors.Join(err, ctx.Err()); err != nil {
		return err
	}
	var first time.Duration
	for _, w := range k.witnesses {
		if d := w.first.Sub(began); !w.first.IsZero() && (first == 0 || d < first) {
			first = d
		}
	}
	if first > 0 {
		k.served = append(k.served, first)
	}
	if err := k.check(ctx, !kill); err != nil {
		return err
	}
	r := k.res
	how := "stopped"
	if kill {
		how = fmt.Sprintf("kill %2d", r.Kills)
	}
	_, err = fmt.Fprintf(k.config.Out, "W6 %s after %4d ms: ready in %.0f ms, first served in %.0f ms; %d inputs acknowledged, %d events seen, %d entries, %d attempts resumed; lost %d, not journaled %d, doubled %d, other %d\n",
		how, load.Milliseconds(), ms(took), ms(first), r.Accepted, r.Seen, r.Journal, r.Resumed, r.Lost, r.NotJournal, r.Doubled+r.DoubledRows,
		r.Terminals+r.Gaps+r.Disordered+r.Changed+r.Unseen+r.Unfinished+r.Conflicts+r.NotResumed+r.NotWhole+len(r.Faults))
	return err
}

// reread has a second reader of each room hold what it is shown against what the first was shown.
func (k *killing) reread(ctx context.Context) error {
	failed := make([]error, len(k.witnesses))
	var wg sync.WaitGroup
	for i, w := range k.witnesses {
		wg.Go(func() { failed[i] = w.reread(ctx, k.server) })
	}
	wg.Wait()
	return errors.Join(failed...)
}

// check reads the whole journal while no server has it, and counts anew.
func (k *killing) check(ctx context.Context, last bool) error {
	rooms, err := k.server.replay(ctx)
	if err != nil {
		return err
	}
	r := k.res
	*r = KillResult{
		Workload: r.Workload, At: r.At, Machine: r.Machine, Lifted: r.Lifted, Seed: r.Seed, Rooms: r.Rooms, Slow: r.Slow, Prefill: r.Prefill,
		Kills: r.Kills, Faults: []string{},
	}
	for _, w := range k.witnesses {
		r.compare(w, rooms[w.room], last)
	}
	r.NotWhole = notWhole(k.witnesses)
	return nil
}

// Print writes the totals, a line per figure.
func (r *KillResult) Print(w io.Writer) {
	for _, f := range []struct {
		name  string
		value any
	}{
		{"kills", r.Kills},
		{"entries in the store before", r.Prefill},
		{"inputs acknowledged", r.Accepted},
		{"events seen", r.Seen},
		{"entries in the journal", r.Journal},
		{"attempts resumed", r.Resumed},
		{"inputs deferred", r.Deferred},
		{"acknowledged inputs lost", r.Lost},
		{"events seen but not journaled", r.NotJournal},
		{"events doubled for a client", r.Doubled},
		{"inputs doubled in the journal", r.DoubledRows},
		{"terminals doubled", r.Terminals},
		{"steps doubled", "no driver of this workload has steps"},
		{"gaps", r.Gaps},
		{"clients that saw another order", r.Disordered},
		{"events shown otherwise later", r.Changed},
		{"events never shown", r.Unseen},
		{"runs without an end", r.Unfinished},
		{"answers conflicting", r.Conflicts},
		{"cursors not resumed", r.NotResumed},
		{"answers not whole", r.NotWhole},
		{"other faults", len(r.Faults)},
		{"ready p50, ms", number(r.ReadyP50Ms)},
		{"ready max, ms", number(r.ReadyMaxMs)},
		{"first served after ready p50, ms", number(r.FirstServedP50Ms)},
		{"first served after ready max, ms", number(r.FirstServedMaxMs)},
		{"seed", r.Seed},
	} {
		_, _ = fmt.Fprintf(w, "W6 %-40s %10v\n", f.name, f.value)
	}
	for _, f := range r.Faults {
		_, _ = fmt.Fprintf(w, "W6 fault: %s\n", f)
	}
}

func number(v float64) string { return fmt.Sprintf("%.4g", v) }
