package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	"golang.org/x/sys/unix"
)

// ActivationConfig is W4: rooms that have to be woken.
type ActivationConfig struct {
	Place
	Small    int // entries of a short room; 0: 100
	Large    int // entries of a long room; 0: 1,000,000
	Rooms    int // rooms of each kind that are woken after each start; 0: 3
	Rounds   int // starts of the server with a warm page cache, and as many with a cold one; 0: 5
	OpenRuns int // runs that are open when the server is killed; 0: 10,000, negative: not measured
}

// ActivationResult is W4. A waking is timed from the moment at which hello and
// the input are sent together on a connected socket.
type ActivationResult struct {
	result
	Small     int       `json:"entriesOfShortRooms"`
	Large     int       `json:"entriesOfLongRooms"`
	Warm      Waking    `json:"warm"`
	Cold      Waking    `json:"coldPageCache"` // the store's files were put out of the page cache
	SyncP50Ms float64   `json:"fdatasyncP50Ms"`
	OpenRuns  *OpenRuns `json:"openRuns,omitempty"`
}

// Waking is how long the first input to a room took that was asleep.
type Waking struct {
	Samples         int     `json:"samplesOfEach"`
	SmallAcceptedMs float64 `json:"shortAcceptedP50Ms"`
	LargeAcceptedMs float64 `json:"longAcceptedP50Ms"`
	LargeAcceptMax  float64 `json:"longAcceptedMaxMs"`
	SmallFirstMs    float64 `json:"shortFirstDeltaP50Ms"`
	LargeFirstMs    float64 `json:"longFirstDeltaP50Ms"`
	Ratio           float64 `json:"longToShort"` // of the p50s until accepted
}

// OpenRuns is W4 of a store with many open runs: the server is killed while
// they wait, and started again.
type OpenRuns struct {
	Count          int     `json:"count"`
	ReadyMs        float64 `json:"readyMs"`              // from the start of the process
	FirstInputMs   float64 `json:"firstInputMs"`         // the first to another room, after ready
	InputP50Ms     float64 `json:"inputsMeanwhileP50Ms"` // of inputs to other rooms while runs resume
	InputMaxMs     float64 `json:"inputsMeanwhileMaxMs"`
	ResumedSeconds float64 `json:"allResumedSeconds"` // from the start of the process until the last driver's first event was journaled
	NotResumed     int     `json:"notResumed"`        // must be 0
	ResumedTwice   int     `json:"resumedTwice"`      // must be 0
	CPUSeconds     float64 `json:"serverCPUSeconds"`  // until all was quiet
}

// Bad reports whether runs were not resumed, or more than once.
func (r *ActivationResult) Bad() bool {
	return r.OpenRuns != nil && r.OpenRuns.NotResumed+r.OpenRuns.ResumedTwice > 0
}

// Activation runs W4.
func Activation(ctx context.Context, c ActivationConfig) (res *ActivationResult, err error) {
	orDefault(&c.Small, 100)
	orDefault(&c.Large, 1_000_000)
	orDefault(&c.Rooms, 3)
	orDefault(&c.Rounds, 5)
	orDefault(&c.OpenRuns, 10_000)
	dir, remove, err := c.open("activation")
	if err != nil {
		return nil, err
	}
	defer settle(&err, remove)
	res = &ActivationResult{result: newResult("W4 activation", dir, lifted), Small: c.Small, Large: c.Large}
	syncs, err := syncTimes(dir, 200)
	if err != nil {
		return nil, err
	}
	res.SyncP50Ms = ms(quantile(syncs, 0.5))
	if err := c.wake(ctx, dir, res); err != nil {
		return nil, err
	}
	printFigures(c.Out, "W4", figure{"baseline: append + fdatasync 4 KiB p50", "ms", res.SyncP50Ms})
	res.Warm.print(c.Out, "W4 warm", c)
	res.Cold.print(c.Out, "W4 cold page cache", c)
	if c.OpenRuns > 0 {
		if res.OpenRuns, err = c.openRuns(ctx, dir); err != nil {
			return nil, fmt.Errorf("%d open runs: %w", c.OpenRuns, err)
		}
		res.OpenRuns.print(c.Out)
	}
	return res, nil
}

func longRoom(i int) string         { return fmt.Sprint("bench-long-", i) }
func shortRoom(round, i int) string { return fmt.Sprintf("bench-short-%d-%d", round, i) }

// wake fills a store and wakes its rooms, after one start of the server and the other.
func (c *ActivationConfig) wake(ctx context.Context, dir string, res *ActivationResult) error {
	home, err := os.MkdirTemp(dir, "server")
	if err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	s, err := newServer(ctx, c.Binary, home)
	if err != nil {
		return err
	}
	if _, err := s.start(ctx); err != nil {
		return err
	}
	turns := map[string]int{}
	for i := range c.Rooms {
		turns[longRoom(i)] = c.Large / (eventsPerTurn + 2)
		for round := range 2 * c.Rounds {
			turns[shortRoom(round, i)] = c.Small / (eventsPerTurn + 2)
		}
	}
	err = fillRooms(ctx, s, turns)
	if _, stopErr := s.stop(); err != nil || stopErr != nil {
		return errors.Join(err, stopErr)
	}
	var warm, cold wakings
	for round := range 2 * c.Rounds {
		w := &warm
		if round%2 == 1 {
			w = &cold
			if err := evict(filepath.Join(home, "data")); err != nil {
				return err
			}
		}
		if err := c.wakeRound(ctx, s, round, w); err != nil {
			return err
		}
	}
	res.Warm, res.Cold = warm.result(), cold.result()
	return nil
}

// wakings are times of first inputs, to the acceptance and to the first delta.
type wakings struct{ small, large []turnTimes }

func (w *wakings) result() Waking {
	p50 := func(list []turnTimes, q float64, of func(turnTimes) time.Duration) float64 {
		var all []time.Duration
		for _, t := range list {
			all = append(all, of(t))
		}
		return ms(quantile(all, q))
	}
	accepted := func(t turnTimes) time.Duration { return t.first }
	delta := func(t turnTimes) time.Duration { return t.whole }
	out := Waking{
		Samples:         len(w.large),
		SmallAcceptedMs: p50(w.small, 0.5, accepted), LargeAcceptedMs: p50(w.large, 0.5, accepted), LargeAcceptMax: p50(w.large, 1, accepted),
		SmallFirstMs: p50(w.small, 0.5, delta), LargeFirstMs: p50(w.large, 0.5, delta),
	}
	out.Ratio = out.LargeAcceptedMs / out.SmallAcceptedMs
	return out
}

// wakeRound starts the server and wakes long and short rooms in turns, now the
// one first and now the other.
func (c *ActivationConfig) wakeRound(ctx context.Context, s *server, round int, w *wakings) (err error) {
	if _, err := s.start(ctx); err != nil {
		return err
	}
	defer func() {
		_, stopErr := s.stop()
		err = errors.Join(err, stopErr)
	}()
	// What every process does once is not the room's to pay for.
	if _, err := firstInput(ctx, s, "bench-warm"); err != nil {
		return err
	}
	for i := range c.Rooms {
		for k := range 2 {
			room, list := longRoom(i), &w.large
			if (i+k+round/2)%2 == 1 {
				room, list = shortRoom(round, i), &w.small
			}
			t, err := firstInput(ctx, s, room)
			if err != nil {
				return err
			}
			*list = append(*list, t)
		}
	}
	return nil
}

// firstInput connects, sends hello and an input together, and waits for the
// acceptance (first) and the first delta (whole), then for the end.
func firstInput(ctx context.Context, s *server, room string) (t turnTimes, err error) {
	ws, err := dial(ctx, s, room)
	if err != nil {
		return t, err
	}
	defer func() { _ = ws.Close() }() // done with
	id := fmt.Sprint("a-", time.Now().UnixNano())
	began := time.Now()
	err = ws.WriteMessage(websocket.TextMessage, []byte(
		`{"type":"hello","session":"first-`+id+`","from":"tail","channels":["public"],"client":"bench"}`))
	if err == nil {
		err = ws.WriteMessage(websocket.TextMessage, []byte(
			`{"type":"input","id":"`+id+`","channel":"public","text":"Tell me what happens next.","modality":"text"}`))
	}
	c := &seat{ws: ws, room: room}
	mine := ""
	for err == nil {
		var raw []byte
		if raw, err = c.read(); err != nil {
			break
		}
		if bytes.HasPrefix(raw, []byte(`{"type":"accepted"`)) {
			t.first = time.Since(began)
			_, rest, _ := bytes.Cut(raw, []byte(`"run":"`))
			run, _, _ := bytes.Cut(rest, []byte(`"`))
			mine = string(run)
		}
		if mine == "" || !bytes.Contains(raw, []byte(mine)) {
			continue
		}
		if t.whole == 0 && bytes.Contains(raw, []byte(`"type":"assistant_output"`)) {
			t.whole = time.Since(began)
		}
		if bytes.Contains(raw, []byte(`"type":"completed"`)) {
			return t, nil
		}
	}
	return t, fmt.Errorf("first input to %s: %w", room, err)
}

// fillRooms takes so many turns in each room, in up to 64 rooms at a time.
func fillRooms(ctx context.Context, s *server, turns map[string]int) error {
	names := sortedKeys(turns)
	failed := make([]error, len(names))
	slots := make(chan struct{}, 64)
	var wg sync.WaitGroup
	for i, name := range names {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			c, err := sit(ctx, s, name, "f")
			if err != nil {
				failed[i] = err
				return
			}
			defer func() { _ = c.ws.Close() }() // the load is over
			for range turns[name] {
				if _, failed[i] = c.turn(); failed[i] != nil || ctx.Err() != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(append(failed, ctx.Err())...)
}

// evict puts all files of a directory out of the system's page cache. What is
// not written yet is written first.
func evict(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return fmt.Errorf("cool the page cache: %w", err)
		}
		if err = f.Sync(); err == nil {
			err = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("cool the page cache: %w", err)
		}
		return nil
	})
}

func (w *Waking) print(out io.Writer, label string, c ActivationConfig) {
	printFigures(
		out, label,
		figure{fmt.Sprintf("first input accepted, room of %d entries, p50", c.Small), "ms", w.SmallAcceptedMs},
		figure{fmt.Sprintf("first input accepted, room of %d entries, p50", c.Large), "ms", w.LargeAcceptedMs},
		figure{fmt.Sprintf("first input accepted, room of %d entries, max", c.Large), "ms", w.LargeAcceptMax},
		figure{fmt.Sprintf("first delta, room of %d entries, p50", c.Small), "ms", w.SmallFirstMs},
		figure{fmt.Sprintf("first delta, room of %d entries, p50", c.Large), "ms", w.LargeFirstMs},
		figure{"long against short room", "×", w.Ratio},
		figure{"rooms woken of each kind", "", float64(w.Samples)},
	)
}
