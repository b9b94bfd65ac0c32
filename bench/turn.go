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
	ClientCPU          float64 `json:"clientCPUSecondsPer1000Events"` // of the load itself, on the same cores
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
	dir, err := os.MkdirTemp(c.Dir, "parley-bench-")
	if err != nil {
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	res = &TurnResult{Workload: "W1 turn", At: time.Now().UTC(), Machine: machine(dir), Lifted: lifted, Seconds: c.Duration.Seconds()}
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
	l, loadErr := load(ctx, s, rooms, c.Duration)
	count, err := s.stop()
	if err = errors.Join(loadErr, err); err != nil {
		return out, err
	}
	firsts, wholes, elapsed := l.firsts, l.wholes, l.elapsed
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
	out.CPUPer1000Events = l.server.Seconds() / float64(out.Turns*eventsPerTurn) * 1000
	out.ClientCPU = l.client.Seconds() / float64(out.Turns*eventsPerTurn) * 1000
	out.CommitsPerTurn = batches / turns
	out.EntriesPerCommit = entries / batches
	out.BytesPerEntry = float64(count.Bytes) / float64(count.Entries)
	out.BytesPerCommit = float64(count.Store.Bytes) / float64(count.Store.Batches)
	// The counters hold the setting up too, so a rate comes from what a turn took.
	out.SyncsPerSecond = float64(count.Store.Commits) / turns * float64(out.Turns) / elapsed.Seconds()
	out.ServerRSSMegabytes = float64(l.rss) / (1 << 20)
	out.SyncP50Ms = ms(sync)
	b, err := barePebble(home, shape{writers: rooms, entries: out.EntriesPerCommit, bytes: out.BytesPerCommit}, c.Duration)
	if err != nil {
		return out, err
	}
	out.BarePebble, out.BareCPU = b.entriesPerSecond, b.cpuPer1000
	out.RatioToBare = float64(out.Turns*(eventsPerTurn+2)) / elapsed.Seconds() / out.BarePebble
	out.FirstDeltaToSync = out.FirstDeltaP50Ms / out.SyncP50Ms
	return out, nil
}

// loaded is what a load took.
type loaded struct {
	firsts, wholes []time.Duration // of each turn: to its first delta, to its end
	elapsed        time.Duration
	server, client time.Duration // CPU
	rss            int64         // bytes of the server, at the end
}

// load runs the closed loop of every room for a while, after everyone has
// entered and had one turn.
func load(ctx context.Context, s *server, rooms int, d time.Duration) (l loaded, err error) {
	seats := make([]*seat, rooms)
	for i := range seats {
		if seats[i], err = sit(ctx, s, fmt.Sprintf("bench-%d", i), "t"); err != nil {
			return l, err
		}
		defer func() { _ = seats[i].ws.Close() }() // the load is over
		if _, err = seats[i].turn(); err != nil {
			return l, err
		}
	}
	server, _, err := s.usage()
	if err != nil {
		return l, err
	}
	client, err := ownCPU()
	if err != nil {
		return l, err
	}
	began := time.Now()
	end := began.Add(d)
	var mu sync.Mutex // guards l and err
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
			l.firsts, l.wholes, err = append(l.firsts, f...), append(l.wholes, w...), errors.Join(err, failed)
		})
	}
	wg.Wait()
	l.elapsed = time.Since(began)
	serverAfter, rss, serverErr := s.usage()
	clientAfter, clientErr := ownCPU()
	l.server, l.client, l.rss = serverAfter-server, clientAfter-client, rss
	return l, errors.Join(err, serverErr, clientErr, ctx.Err())
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
