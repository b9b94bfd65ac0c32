package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// eventsPerTurn is what the driver of W1 sends: one progress, twenty deltas and completed.
const eventsPerTurn = 22

// TurnConfig is W1: rooms with one client each in a closed loop.
type TurnConfig struct {
	Binary   string        // the binary under test; empty: this one
	Dir      string        // where its data goes; empty: a temporary directory
	Rooms    []int         // sizes; empty: 1, 16, 128, 512
	Duration time.Duration // of each size; 0: 5 s
	Out      io.Writer     // a line per figure; nil: nowhere
}

// TurnResult is W1 with its baselines.
type TurnResult struct {
	Workload string            `json:"workload"`
	At       time.Time         `json:"at"`
	Machine  Machine           `json:"machine"`
	Lifted   map[string]string `json:"limitsLifted"`
	Seconds  float64           `json:"secondsPerSize"`
	Sizes    []TurnSize        `json:"sizes"`
}

// TurnSize is W1 at one number of rooms. Events are those that drivers sent:
// 22 a turn; the journal holds 24 entries a turn, with the input and the start
// of the attempt.
type TurnSize struct {
	Rooms              int     `json:"rooms"`
	Turns              int     `json:"turns"`
	EventsPerSecond    float64 `json:"eventsPerSecond"`
	FirstDeltaP50Ms    float64 `json:"firstDeltaP50Ms"`
	FirstDeltaP99Ms    float64 `json:"firstDeltaP99Ms"`
	TurnP50Ms          float64 `json:"turnP50Ms"`
	TurnP99Ms          float64 `json:"turnP99Ms"`
	CPUPer1000Events   float64 `json:"serverCPUSecondsPer1000Events"`
	ClientCPU          float64 `json:"clientCPUSecondsPer1000Events"` // of the load itself, on the same cores
	OthersCPU          float64 `json:"othersShareOfCPU"`              // of the machine while it was measured
	CommitsPerTurn     float64 `json:"commitsPerTurn"`                // batches of its room that a turn took
	EntriesPerCommit   float64 `json:"entriesPerCommit"`              // of a room's batch
	SyncsPerSecond     float64 `json:"groupCommitsPerSecond"`         // of the store, each with one fsync for all rooms in it
	BytesPerEntry      float64 `json:"bytesPerEntry"`
	BytesPerCommit     float64 `json:"bytesPerCommit"` // of a room's batch, with keys and index rows
	SyncP50Ms          float64 `json:"fdatasyncP50Ms"`
	BarePebble         float64 `json:"barePebbleEntriesPerSecond"`
	BareCPU            float64 `json:"barePebbleCPUSecondsPer1000Entries"`
	RatioToBare        float64 `json:"entriesToBarePebble"`
	FirstDeltaToSync   float64 `json:"firstDeltaP50ToFdatasync"`
	ServerRSSMegabytes float64 `json:"serverRSSMegabytes"`
}

// rounds is how often load and baselines alternate, so that what else a shared
// machine does falls on both. Ratios are medians of the rounds'.
const rounds = 3

// Turn runs W1 at each size against a fresh server process, in turns with its baselines.
func Turn(ctx context.Context, c TurnConfig) (res *TurnResult, err error) {
	if c.Binary == "" {
		if c.Binary, err = os.Executable(); err != nil {
			return nil, fmt.Errorf("find the binary: %w", err)
		}
	}
	if len(c.Rooms) == 0 {
		c.Rooms = []int{1, 16, 128, 512}
	}
	orDefault(&c.Duration, 5*time.Second)
	if c.Out == nil {
		c.Out = io.Discard
	}
	dir, err := os.MkdirTemp(c.Dir, "parley-bench-")
	if err != nil {
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	res = &TurnResult{Workload: "W1 turn", At: time.Now().UTC().Truncate(time.Second), Machine: machine(dir), Lifted: lifted, Seconds: c.Duration.Seconds()}
	for _, n := range c.Rooms {
		size, err := turnSize(ctx, c, dir, n)
		if err != nil {
			return nil, fmt.Errorf("%d rooms: %w", n, err)
		}
		res.Sizes = append(res.Sizes, size)
		size.print(c.Out)
	}
	return res, nil
}

func turnSize(ctx context.Context, c TurnConfig, dir string, rooms int) (out TurnSize, err error) {
	home, err := os.MkdirTemp(dir, "size")
	if err != nil {
		return out, fmt.Errorf("make a directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(home)) }()
	// A first, short load tells what a commit holds; the baseline needs it.
	sample, _, err := serveLoad(ctx, c.Binary, home, rooms, func(l *load) error {
		_, err := l.run(ctx, c.Duration/10)
		return err
	})
	if err != nil {
		return out, err
	}
	b, err := openBare(home, sample.shape(rooms))
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, b.db.Close()) }()
	var all measured
	var syncs []time.Duration
	var bares, bareCPUs, ratios []float64
	count, rss, err := serveLoad(ctx, c.Binary, home, rooms, func(l *load) error {
		for range rounds {
			took, err := syncTimes(home, 100)
			if err != nil {
				return err
			}
			m, err := l.run(ctx, c.Duration/rounds)
			if err != nil {
				return err
			}
			perSecond, cpu, err := b.run(c.Duration / rounds)
			if err != nil {
				return err
			}
			all.add(m)
			syncs = append(syncs, took...)
			bares, bareCPUs = append(bares, perSecond), append(bareCPUs, cpu)
			ratios = append(ratios, m.items/m.elapsed.Seconds()/perSecond)
		}
		return nil
	})
	if err != nil {
		return out, err
	}
	events := all.items * eventsPerTurn / (eventsPerTurn + 2)
	turns := count.turns(rooms)
	out = TurnSize{
		Rooms: rooms, Turns: len(all.wholes), EventsPerSecond: events / all.elapsed.Seconds(),
		FirstDeltaP50Ms: ms(quantile(all.firsts, 0.5)), FirstDeltaP99Ms: ms(quantile(all.firsts, 0.99)),
		TurnP50Ms: ms(quantile(all.wholes, 0.5)), TurnP99Ms: ms(quantile(all.wholes, 0.99)),
		CPUPer1000Events: all.server.Seconds() / events * 1000, ClientCPU: all.client.Seconds() / events * 1000,
		OthersCPU:      all.others(),
		CommitsPerTurn: count.batches(rooms) / turns, EntriesPerCommit: count.shape(rooms).entries,
		SyncsPerSecond: float64(count.Store.Commits) / turns * events / eventsPerTurn / all.elapsed.Seconds(),
		BytesPerEntry:  float64(count.Bytes) / float64(count.Entries), BytesPerCommit: count.shape(rooms).bytes,
		SyncP50Ms: ms(quantile(syncs, 0.5)), BarePebble: median(bares), BareCPU: median(bareCPUs), RatioToBare: median(ratios),
		ServerRSSMegabytes: float64(rss) / (1 << 20),
	}
	out.FirstDeltaToSync = out.FirstDeltaP50Ms / out.SyncP50Ms
	return out, nil
}

// Setting up a room is one batch and one entry, which are not counted.
func (c *counters) batches(rooms int) float64 { return float64(c.Batches - int64(rooms)) }

func (c *counters) turns(rooms int) float64 {
	return float64(c.Entries-int64(rooms)) / (eventsPerTurn + 2)
}

func (c *counters) shape(rooms int) shape {
	return shape{
		writers: rooms, entries: float64(c.Entries-int64(rooms)) / c.batches(rooms),
		bytes: float64(c.Store.Bytes) / float64(c.Store.Batches),
	}
}

// serveLoad starts a server on a fresh data directory, has a client enter every
// room, calls f, and stops the server. It returns what the server counted, and
// how much memory it had in the end.
func serveLoad(ctx context.Context, binary, dir string, rooms int, f func(*load) error) (c counters, rss int64, err error) {
	home, err := os.MkdirTemp(dir, "server")
	if err != nil {
		return c, 0, fmt.Errorf("make a directory: %w", err)
	}
	s, err := newServer(ctx, binary, home)
	if err != nil {
		return c, 0, err
	}
	if _, err := s.start(ctx); err != nil {
		return c, 0, err
	}
	l, err := enter(ctx, s, rooms)
	if err == nil {
		err = f(l)
	}
	l.leave()
	_, rss, usageErr := s.usage()
	c, stopErr := s.stop()
	if err = errors.Join(err, usageErr, stopErr); err != nil {
		return c, rss, err
	}
	if c.turns(rooms) < 1 || c.batches(rooms) < 1 {
		return c, rss, errors.New("no turn was completed")
	}
	return c, rss, nil
}

func (t TurnSize) print(w io.Writer) {
	for _, f := range []struct {
		name, unit string
		value      float64
	}{
		{"durable events", "/s", t.EventsPerSecond},
		{"first delta p50", "ms", t.FirstDeltaP50Ms},
		{"first delta p99", "ms", t.FirstDeltaP99Ms},
		{"turn p50", "ms", t.TurnP50Ms},
		{"turn p99", "ms", t.TurnP99Ms},
		{"server CPU per 1,000 events", "s", t.CPUPer1000Events},
		{"client CPU per 1,000 events", "s", t.ClientCPU},
		{"CPU of others, share of the machine", "", t.OthersCPU},
		{"commits per turn", "", t.CommitsPerTurn},
		{"entries per commit", "", t.EntriesPerCommit},
		{"group commits", "/s", t.SyncsPerSecond},
		{"bytes per entry", "B", t.BytesPerEntry},
		{"bytes per commit, with index rows", "B", t.BytesPerCommit},
		{"server RSS", "MB", t.ServerRSSMegabytes},
		{"baseline: append + fdatasync 4 KiB p50", "ms", t.SyncP50Ms},
		{"baseline: bare Pebble, same commits", "entries/s", t.BarePebble},
		{"baseline: bare Pebble CPU per 1,000 entries", "s", t.BareCPU},
		{"entries against bare Pebble", "×", t.RatioToBare},
		{"first delta p50 against fdatasync", "×", t.FirstDeltaToSync},
	} {
		_, _ = fmt.Fprintf(w, "W1 %4d rooms  %-44s %12.6g %s\n", t.Rooms, f.name, f.value, f.unit)
	}
}
