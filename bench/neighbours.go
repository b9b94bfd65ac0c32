package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// NeighboursConfig is W8: rooms that behave, beside three bad neighbours.
type NeighboursConfig struct {
	Place
	Rooms  int           // that behave; 0: 64
	Pace   time.Duration // between the inputs of such a room, whatever its answers take; 0: 250 ms
	Rounds int           // each with and without the neighbours; 0: 5
	Window time.Duration // of each half of a round; 0: 10 s
	Flood  int           // frames a second that the client sends that floods; 0: 2,000
	Deaf   int           // viewers that never read; 0: 8
}

// NeighboursResult is W8. The load is open: a room's inputs come on a fixed
// schedule, far below what the server could take, and times count from the
// scheduled instant, so that a stall shows in all that it delays.
type NeighboursResult struct {
	result
	Rooms      int              `json:"rooms"`
	TurnsPerS  float64          `json:"turnsPerSecond"`
	FloodPerS  int              `json:"floodFramesPerSecond"`
	Deaf       int              `json:"viewersThatNeverRead"`
	Seconds    float64          `json:"secondsPerHalf"`
	Rounds     []NeighbourRound `json:"rounds"`
	FirstRatio float64          `json:"firstDeltaP99Ratio"` // median of the rounds' ratios
	TurnRatio  float64          `json:"turnP99Ratio"`
	ServerCPU  float64          `json:"serverShareOfCPUUndisturbed"`
	CPUWorse   float64          `json:"serverShareOfCPUDisturbed"`
	Commits    float64          `json:"batchesPerTurn"` // of all rooms, the bad ones' too
	Flooded    int64            `json:"framesFlooded"`
	Refused    int64            `json:"floodFramesRefused"`
	Closed     int64            `json:"floodConnectionsClosed"`
	Hung       int64            `json:"inputsToDriversThatHang"`
	Deafened   int64            `json:"connectionsOfViewersThatNeverRead"`
	Faults     []string         `json:"faults"` // of the rooms that behave; must be none
}

// NeighbourRound is p99 of the rooms that behave, in ms.
type NeighbourRound struct {
	FirstAlone float64 `json:"firstDeltaP99UndisturbedMs"`
	FirstWorse float64 `json:"firstDeltaP99DisturbedMs"`
	TurnAlone  float64 `json:"turnP99UndisturbedMs"`
	TurnWorse  float64 `json:"turnP99DisturbedMs"`
	TurnP50    float64 `json:"turnP50UndisturbedMs"`
	Turns      int     `json:"turns"`
}

// Bad reports whether a room that behaves was not served.
func (r *NeighboursResult) Bad() bool { return len(r.Faults) > 0 }

// street is one run of W8.
type street struct {
	config NeighboursConfig
	server *server
	over   atomic.Bool
	half   atomic.Int64 // number of the half in which a turn counts; 0: in none

	flooded, refused, closed, hung, deafened atomic.Int64
	turns                                    atomic.Int64 // of the rooms that behave, in all

	mu     sync.Mutex // guards what follows
	times  map[int64][]turnTimes
	faults []string
}

// unlifted are limits that keep their defaults: they are what W8 is about.
var unlifted = []string{"inputsPerSecond", "inputBurst", "framesPerSecond", "journalBytesPerSecond"}

// Neighbours runs W8.
func Neighbours(ctx context.Context, c NeighboursConfig) (res *NeighboursResult, err error) {
	orDefault(&c.Rooms, 64)
	orDefault(&c.Pace, 250*time.Millisecond)
	orDefault(&c.Rounds, 5)
	orDefault(&c.Window, 10*time.Second)
	orDefault(&c.Flood, 2000)
	orDefault(&c.Deaf, 8)
	dir, remove, err := c.open("neighbours")
	if err != nil {
		return nil, err
	}
	defer settle(&err, remove)
	limits := without(lifted, unlifted...)
	s, err := newServerWith(ctx, c.Binary, dir, limits, 200)
	if err != nil {
		return nil, err
	}
	if _, err := s.start(ctx); err != nil {
		return nil, err
	}
	res = &NeighboursResult{
		result: newResult("W8 neighbours", dir, limits), Rooms: c.Rooms, TurnsPerS: float64(c.Rooms) / c.Pace.Seconds(),
		FloodPerS: c.Flood, Deaf: c.Deaf, Seconds: c.Window.Seconds(), Faults: []string{},
	}
	w := &street{config: c, server: s, times: map[int64][]turnTimes{}}
	if err := w.run(ctx, res); err != nil {
		return nil, errors.Join(err, s.kill())
	}
	count, err := s.stop()
	if err != nil {
		return nil, err
	}
	res.Commits = float64(count.Batches) / float64(w.turns.Load())
	res.print(c.Out)
	return res, nil
}

func (w *street) run(ctx context.Context, res *NeighboursResult) error {
	c := w.config
	var wg sync.WaitGroup
	defer wg.Wait()
	defer w.over.Store(true)
	for i := range c.Rooms {
		seat, err := sit(ctx, w.server, fmt.Sprint("bench-n-", i), "n")
		if err != nil {
			return err
		}
		wg.Go(func() { w.behave(ctx, seat, time.Duration(i)*c.Pace/time.Duration(c.Rooms)) })
	}
	// The room that the deaf viewers are in streams all the time: that is no fault of it.
	wg.Go(func() { w.stream(ctx) })
	if err := rest(ctx, c.Window/5); err != nil {
		return err
	}
	var firsts, wholes, alone, worse []float64
	for i := range c.Rounds {
		// Now the one half first and now the other.
		var halves [2]int64
		for k := range 2 {
			disturbed := (i + k) % 2
			number := int64(2*i + k + 1)
			halves[disturbed] = number
			share, err := w.window(ctx, i, number, disturbed == 1)
			if err != nil {
				return err
			}
			if disturbed == 1 {
				worse = append(worse, share)
			} else {
				alone = append(alone, share)
			}
		}
		r := w.round(halves[0], halves[1])
		if r.Turns == 0 || r.TurnAlone == 0 || r.FirstAlone == 0 {
			return errors.New("a round had no turns")
		}
		res.Rounds = append(res.Rounds, r)
		firsts, wholes = append(firsts, r.FirstWorse/r.FirstAlone), append(wholes, r.TurnWorse/r.TurnAlone)
	}
	res.FirstRatio, res.TurnRatio, res.ServerCPU, res.CPUWorse = median(firsts), median(wholes), median(alone), median(worse)
	res.Flooded, res.Refused, res.Closed = w.flooded.Load(), w.refused.Load(), w.closed.Load()
	res.Hung, res.Deafened = w.hung.Load(), w.deafened.Load()
	w.mu.Lock()
	defer w.mu.Unlock()
	res.Faults = append(res.Faults, w.faults...)
	return nil
}

// window is one half of a round. It returns the server's share of the machine's CPU.
func (w *street) window(ctx context.Context, round int, number int64, disturbed bool) (share float64, err error) {
	stop := make(chan struct{})
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(stop)
	if disturbed {
		wg.Go(func() { w.flood(ctx, round, stop) })
		wg.Go(func() { w.hang(ctx, round, stop) })
		for i := range w.config.Deaf {
			wg.Go(func() { w.deaf(ctx, i, stop) })
		}
	}
	settling := w.config.Window / 10
	if err := rest(ctx, settling); err != nil {
		return 0, err
	}
	before, _, err := w.server.usage()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	w.half.Store(number)
	err = rest(ctx, w.config.Window)
	w.half.Store(0)
	after, _, usageErr := w.server.usage()
	return (after - before).Seconds() / time.Since(began).Seconds() / float64(runtime.NumCPU()), errors.Join(err, usageErr)
}

// round compares two halves.
func (w *street) round(alone, worse int64) (r NeighbourRound) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := func(half int64, q float64) (first, whole float64) {
		var firsts, wholes []time.Duration
		for _, t := range w.times[half] {
			firsts, wholes = append(firsts, t.first), append(wholes, t.whole)
		}
		r.Turns += len(wholes)
		return ms(quantile(firsts, q)), ms(quantile(wholes, q))
	}
	_, r.TurnP50 = p(alone, 0.5)
	r.Turns = 0
	r.FirstAlone, r.TurnAlone = p(alone, 0.99)
	r.FirstWorse, r.TurnWorse = p(worse, 0.99)
	return r
}

// behave is a room that behaves: an input at each scheduled instant, or as soon
// as the answer before has ended when that is later.
func (w *street) behave(ctx context.Context, c *seat, after time.Duration) {
	defer func() { _ = c.ws.Close() }() // done with
	for due := time.Now().Add(after); !w.over.Load() && ctx.Err() == nil; due = due.Add(w.config.Pace) {
		_ = rest(ctx, time.Until(due)) // the loop looks itself
		half := w.half.Load()
		sent := time.Now()
		t, err := c.turn()
		if err != nil {
			w.mu.Lock()
			if len(w.faults) < 5 {
				w.faults = append(w.faults, fmt.Sprintf("%s: %v", c.room, err))
			}
			w.mu.Unlock()
			return
		}
		w.turns.Add(1)
		if half != 0 {
			late := sent.Sub(due)
			w.mu.Lock()
			w.times[half] = append(w.times[half], turnTimes{t.first + late, t.whole + late})
			w.mu.Unlock()
		}
	}
}

func (r *NeighboursResult) print(w io.Writer) {
	for i, n := range r.Rounds {
		_, _ = fmt.Fprintf(w, "W8 round %d: %d turns; first delta p99 %.2f ms undisturbed, %.2f ms disturbed; turn p99 %.2f and %.2f ms\n",
			i+1, n.Turns, n.FirstAlone, n.FirstWorse, n.TurnAlone, n.TurnWorse)
	}
	printFigures(w, "W8",
		figure{"turns of the rooms that behave, open load", "/s", r.TurnsPerS},
		figure{"first delta p99, disturbed against undisturbed", "×", r.FirstRatio},
		figure{"turn p99, disturbed against undisturbed", "×", r.TurnRatio},
		figure{"server's share of the CPU, undisturbed", "", r.ServerCPU},
		figure{"server's share of the CPU, disturbed", "", r.CPUWorse},
		figure{"commits of all rooms per turn of those that behave", "", r.Commits},
		figure{"frames flooded", "", float64(r.Flooded)},
		figure{"of those, answered with a refusal", "", float64(r.Refused)},
		figure{"flooding connections closed by the server", "", float64(r.Closed)},
		figure{"inputs to drivers that hang", "", float64(r.Hung)},
		figure{"connections of viewers that never read", "", float64(r.Deafened)},
		figure{"faults of the rooms that behave (must be 0)", "", float64(len(r.Faults))})
	for _, f := range r.Faults {
		_, _ = fmt.Fprintf(w, "W8 fault: %s\n", f)
	}
}
