package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"time"
)

// KillConfig is W6: a server is killed under load, again and again.
type KillConfig struct {
	Binary string        // the binary under test; empty: this one
	Dir    string        // where its data goes; empty: a temporary directory
	Rooms  int           // with one client each; 0: 64
	Rounds int           // 0: 20
	Least  time.Duration // of load before a kill; 0: 200 ms
	Most   time.Duration // 0: 2 s
	Seed   uint64        // of the instants of the kills; 0: taken from the clock
	Out    io.Writer     // a line per round; nil: nowhere
}

// KillResult is W6. All counts but Rounds, Accepted, Seen and Resumed must be zero.
type KillResult struct {
	Workload string            `json:"workload"`
	At       time.Time         `json:"at"`
	Machine  Machine           `json:"machine"`
	Lifted   map[string]string `json:"limitsLifted"`
	Seed     uint64            `json:"seed"`
	Rooms    int               `json:"rooms"`
	Rounds   int               `json:"rounds"`
	Accepted int               `json:"inputsAcknowledged"`
	Seen     int               `json:"eventsSeen"`
	Journal  int               `json:"entriesInJournal"`
	Resumed  int               `json:"attemptsResumed"`

	Lost        int `json:"acknowledgedInputsLost"`
	NotJournal  int `json:"eventsSeenButNotJournaled"`
	Doubled     int `json:"eventsDoubled"`    // shown twice to a client
	DoubledRows int `json:"inputsDoubled"`    // in the journal
	Terminals   int `json:"terminalsDoubled"` // second terminals of a run in the journal
	Gaps        int `json:"sequenceGaps"`     // in a room or a run
	Unseen      int `json:"eventsNeverShown"` // in the journal, but not shown to the room's client at the end
	Unfinished  int `json:"runsWithoutEnd"`   // at the end
	Conflicts   int `json:"answersConflicting"`
	NotResumed  int `json:"cursorsNotResumed"`

	ReadyP50Ms       float64 `json:"readyP50Ms"`       // from the start of the process
	FirstServedMaxMs float64 `json:"firstServedMaxMs"` // the first accepted input, after ready
	FirstServedP50Ms float64 `json:"firstServedP50Ms"`
}

// Bad reports whether anything was lost, doubled or shown too early.
func (r *KillResult) Bad() bool {
	return r.Lost+r.NotJournal+r.Doubled+r.DoubledRows+r.Terminals+r.Gaps+r.Unseen+r.Unfinished+r.Conflicts+r.NotResumed > 0
}

// Kill runs W6. The error says only that it could not be run; see KillResult.Bad.
func Kill(ctx context.Context, c KillConfig) (res *KillResult, err error) {
	if c.Binary == "" {
		if c.Binary, err = os.Executable(); err != nil {
			return nil, fmt.Errorf("find the binary: %w", err)
		}
	}
	orDefault(&c.Rooms, 64)
	orDefault(&c.Rounds, 20)
	orDefault(&c.Least, 200*time.Millisecond)
	orDefault(&c.Most, 2*time.Second)
	orDefault(&c.Seed, uint64(time.Now().UnixNano()))
	if c.Out == nil {
		c.Out = io.Discard
	}
	dir, err := os.MkdirTemp(c.Dir, "parley-kill")
	if err != nil {
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s, err := newServer(ctx, c.Binary, dir)
	if err != nil {
		return nil, err
	}
	k := &killing{config: c, server: s, rand: rand.New(rand.NewPCG(c.Seed, 6)), res: &KillResult{
		Workload: "W6 kill", At: time.Now().UTC(), Machine: machine(), Lifted: lifted, Seed: c.Seed, Rooms: c.Rooms,
	}}
	for i := range c.Rooms {
		k.witnesses = append(k.witnesses, newWitness(fmt.Sprintf("bench-%d", i)))
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
	k.res.ReadyP50Ms = ms(quantile(k.ready, 0.5))
	k.res.FirstServedP50Ms, k.res.FirstServedMaxMs = ms(quantile(k.served, 0.5)), ms(quantile(k.served, 1))
	return k.res, nil
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
	var wg sync.WaitGroup
	failed := make([]error, len(k.witnesses))
	for i, w := range k.witnesses {
		w.first = time.Time{}
		wg.Go(func() { failed[i] = w.attend(ctx, k.server, stop) })
	}
	load := k.config.Least + time.Duration(k.rand.Int64N(int64(k.config.Most-k.config.Least)+1))
	select {
	case <-time.After(load):
	case <-ctx.Done():
	}
	if kill {
		err = k.server.kill()
		wg.Wait()
	} else {
		close(stop)
		wg.Wait()
		_, err = k.server.stop()
		err = errors.Join(append(failed, err)...)
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
	k.res.Rounds++
	if err := k.check(ctx, !kill); err != nil {
		return err
	}
	r := k.res
	_, err = fmt.Fprintf(k.config.Out, "W6 round %2d: %s after %4d ms, ready in %3.0f ms, %d inputs acknowledged, %d events seen, %d entries, %d attempts resumed; lost %d, not journaled %d, doubled %d, other %d\n",
		r.Rounds, map[bool]string{true: "kill -9", false: "stopped"}[kill], load.Milliseconds(), ms(took), r.Accepted, r.Seen, r.Journal, r.Resumed,
		r.Lost, r.NotJournal, r.Doubled+r.DoubledRows, r.Terminals+r.Gaps+r.Unseen+r.Unfinished+r.Conflicts+r.NotResumed)
	return err
}

// entry is a line of parley room replay --json.
type entry struct {
	Room     string
	Seq      uint64
	ID       string
	Kind     string
	Run      string
	Attempt  uint32
	Sequence uint64
	Input    string
	Type     string
}

// check reads the whole journal while no server has it, and counts anew.
func (k *killing) check(ctx context.Context, last bool) error {
	raw, err := k.server.run(ctx, "room", "replay", "--json", "--data", k.server.dir+"/data", "--config", k.server.config())
	if err != nil {
		return err
	}
	rooms := map[string][]entry{}
	lines := bufio.NewScanner(bytes.NewReader(raw))
	for lines.Scan() {
		var e entry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return fmt.Errorf("read the journal: %w", err)
		}
		rooms[e.Room] = append(rooms[e.Room], e)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read the journal: %w", err)
	}
	r := k.res
	*r = KillResult{Workload: r.Workload, At: r.At, Machine: r.Machine, Lifted: r.Lifted, Seed: r.Seed, Rooms: r.Rooms, Rounds: r.Rounds}
	for _, w := range k.witnesses {
		r.compare(w, rooms[w.room], last)
	}
	return nil
}

// compare counts what one room's journal and its witness do not agree on.
func (r *KillResult) compare(w *witness, journal []entry, last bool) {
	byID := map[string]entry{}
	inputs, terminals, sequence := map[string]int{}, map[string]int{}, map[string]uint64{}
	for i, e := range journal {
		byID[e.ID] = e
		if e.Seq != uint64(i)+1 {
			r.Gaps++
		}
		switch e.Kind {
		case "input":
			inputs[e.Input]++
			terminals[e.Run] += 0
		case "run.event":
			if sequence[e.Run]++; e.Sequence != sequence[e.Run] {
				r.Gaps++
			}
			switch e.Type {
			case "completed", "run_canceled", "run_failed", "deadline_exceeded":
				terminals[e.Run]++
			case "attempt_started":
				if e.Attempt > 1 {
					r.Resumed++
				}
			}
		}
	}
	for id, a := range w.accepted {
		e, ok := byID[a.Entry]
		if !ok || e.Kind != "input" || e.Input != id || e.Run != a.Run {
			r.Lost++
		}
	}
	for id, s := range w.seen {
		e, ok := byID[id]
		if !ok || e.Kind != s.Kind || e.Run != s.Run || (s.Kind == "run.event" && e.Type != s.Type) {
			r.NotJournal++
		}
	}
	for _, n := range inputs {
		r.DoubledRows += max(0, n-1)
	}
	for _, n := range terminals {
		r.Terminals += max(0, n-1)
		if last && n == 0 {
			r.Unfinished++
		}
	}
	if last {
		r.Unseen += max(0, len(byID)-len(w.seen)-hidden(journal))
	}
	r.Accepted += len(w.accepted)
	r.Seen += len(w.seen)
	r.Journal += len(journal)
	r.Doubled += w.doubled
	r.Conflicts += w.conflicts
	r.NotResumed += w.notResumed
}

// hidden counts the entries that no participant is shown.
func hidden(journal []entry) (n int) {
	for _, e := range journal {
		if e.Kind == "drained" || e.Type == "checkpoint" || e.Type == "decision" {
			n++
		}
	}
	return n
}

// Print writes the totals, a line per figure.
func (r *KillResult) Print(w io.Writer) {
	for _, f := range []struct {
		name  string
		value any
	}{
		{"rounds", r.Rounds}, {"inputs acknowledged", r.Accepted}, {"events seen", r.Seen}, {"entries in the journal", r.Journal},
		{"attempts resumed", r.Resumed}, {"acknowledged inputs lost", r.Lost}, {"events seen but not journaled", r.NotJournal},
		{"events doubled for a client", r.Doubled}, {"inputs doubled in the journal", r.DoubledRows},
		{"terminals doubled", r.Terminals}, {"gaps", r.Gaps}, {"events never shown", r.Unseen}, {"runs without an end", r.Unfinished},
		{"answers conflicting", r.Conflicts}, {"cursors not resumed", r.NotResumed}, {"ready p50, ms", r.ReadyP50Ms},
		{"first served after ready p50, ms", r.FirstServedP50Ms}, {"first served after ready max, ms", r.FirstServedMaxMs},
	} {
		_, _ = fmt.Fprintf(w, "W6 %-40s %10v\n", f.name, f.value)
	}
}
