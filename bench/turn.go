package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
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
	CommitsPerTurn     float64 `json:"commitsPerTurn"`        // batches of its room that a turn took
	EntriesPerCommit   float64 `json:"entriesPerCommit"`      // of a room's batch
	SyncsPerSecond     float64 `json:"groupCommitsPerSecond"` // of the store, each with one fsync for all rooms in it
	BytesPerEntry      float64 `json:"bytesPerEntry"`
	SyncP50Ms          float64 `json:"fdatasyncP50Ms"`
	BarePebble         float64 `json:"barePebbleEntriesPerSecond"`
	RatioToBare        float64 `json:"entriesToBarePebble"`
	FirstDeltaToSync   float64 `json:"firstDeltaP50ToFdatasync"`
	ServerRSSMegabytes float64 `json:"serverRSSMegabytes"`
}

// Turn runs W1 at each size against a fresh server process, with the baselines beside it.
func Turn(ctx context.Context, c TurnConfig) (res *TurnResult, err error) {
	if c.Binary == "" {
		if c.Binary, err = os.Executable(); err != nil {
			return nil, fmt.Errorf("find the binary: %w", err)
		}
	}
	if len(c.Rooms) == 0 {
		c.Rooms = []int{1, 16, 128, 512}
	}
	if c.Duration == 0 {
		c.Duration = 5 * time.Second
	}
	if c.Out == nil {
		c.Out = io.Discard
	}
	dir, err := os.MkdirTemp(c.Dir, "parley-bench")
	if err != nil {
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	res = &TurnResult{Workload: "W1 turn", At: time.Now().UTC(), Machine: machine(), Lifted: lifted, Seconds: c.Duration.Seconds()}
	for _, n := range c.Rooms {
		size, err := turnSize(ctx, c, dir, n)
		if err != nil {
			return nil, err
		}
		res.Sizes = append(res.Sizes, size)
		size.print(c.Out)
	}
	return res, nil
}

func turnSize(ctx context.Context, c TurnConfig, dir string, rooms int) (TurnSize, error) {
	out := TurnSize{Rooms: rooms}
	home, err := os.MkdirTemp(dir, "server")
	if err != nil {
		return out, fmt.Errorf("make a directory: %w", err)
	}
	sync, err := syncTime(dir, 300)
	if err != nil {
		return out, err
	}
	s, err := newServer(ctx, c.Binary, home)
	if err != nil {
		return out, err
	}
	if _, err := s.start(ctx); err != nil {
		return out, err
	}
	firsts, wholes, elapsed, cpu, rss, loadErr := load(ctx, s, rooms, c.Duration)
	count, err := s.stop()
	if err = errors.Join(loadErr, err); err != nil {
		return out, err
	}
	out.Turns = len(wholes)
	if out.Turns == 0 || count.Batches == 0 {
		return out, errors.New("no turn was completed")
	}
	// Setting up each room is one batch and one entry.
	batches, entries := float64(count.Batches-int64(rooms)), float64(count.Entries-int64(rooms))
	turns := entries / (eventsPerTurn + 2)
	out.EventsPerSecond = float64(out.Turns*eventsPerTurn) / elapsed.Seconds()
	out.FirstDeltaP50Ms, out.FirstDeltaP99Ms = ms(quantile(firsts, 0.5)), ms(quantile(firsts, 0.99))
	out.TurnP50Ms, out.TurnP99Ms = ms(quantile(wholes, 0.5)), ms(quantile(wholes, 0.99))
	out.CPUPer1000Events = cpu.Seconds() / float64(out.Turns*eventsPerTurn) * 1000
	out.CommitsPerTurn = batches / turns
	out.EntriesPerCommit = entries / batches
	out.BytesPerEntry = float64(count.Bytes) / float64(count.Entries)
	out.SyncsPerSecond = float64(count.Store.Commits) / elapsed.Seconds()
	out.ServerRSSMegabytes = float64(rss) / (1 << 20)
	out.SyncP50Ms = ms(sync)
	if out.BarePebble, err = barePebble(home, shape{writers: rooms, entries: out.EntriesPerCommit, bytes: out.BytesPerEntry}, c.Duration); err != nil {
		return out, err
	}
	out.RatioToBare = float64(out.Turns*(eventsPerTurn+2)) / elapsed.Seconds() / out.BarePebble
	out.FirstDeltaToSync = out.FirstDeltaP50Ms / out.SyncP50Ms
	return out, nil
}

// load runs the closed loop of every room for a while, after everyone has
// entered and had one turn.
func load(ctx context.Context, s *server, rooms int, d time.Duration) (firsts, wholes []time.Duration, elapsed, cpu time.Duration, rss int64, err error) {
	seats := make([]*seat, rooms)
	for i := range seats {
		if seats[i], err = sit(ctx, s, fmt.Sprintf("bench-%d", i), "t"); err != nil {
			return
		}
		defer func() { _ = seats[i].ws.Close() }() // the load is over
		if _, err = seats[i].turn(); err != nil {
			return
		}
	}
	before, _, err := s.usage()
	if err != nil {
		return
	}
	began := time.Now()
	end := began.Add(d)
	var mu sync.Mutex // guards firsts, wholes and err
	var wg sync.WaitGroup
	for _, c := range seats {
		wg.Go(func() {
			var f, w []time.Duration
			var failed error
			for failed == nil && time.Now().Before(end) && ctx.Err() == nil {
				t, err := c.turn()
				if failed = err; err == nil {
					f, w = append(f, t.first), append(w, t.whole)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			firsts, wholes, err = append(firsts, f...), append(wholes, w...), errors.Join(err, failed)
		})
	}
	wg.Wait()
	elapsed = time.Since(began)
	after, rss, usageErr := s.usage()
	return firsts, wholes, elapsed, after - before, rss, errors.Join(err, usageErr, ctx.Err())
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
		{"commits per turn", "", t.CommitsPerTurn},
		{"entries per commit", "", t.EntriesPerCommit},
		{"group commits", "/s", t.SyncsPerSecond},
		{"bytes per entry", "B", t.BytesPerEntry},
		{"server RSS", "MB", t.ServerRSSMegabytes},
		{"baseline: append + fdatasync 4 KiB p50", "ms", t.SyncP50Ms},
		{"baseline: bare Pebble, same commits", "entries/s", t.BarePebble},
		{"entries against bare Pebble", "×", t.RatioToBare},
		{"first delta p50 against fdatasync", "×", t.FirstDeltaToSync},
	} {
		_, _ = fmt.Fprintf(w, "W1 %4d rooms  %-40s %12.4g %s\n", t.Rooms, f.name, f.value, f.unit)
	}
}
