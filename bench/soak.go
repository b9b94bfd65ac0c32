package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// SoakConfig is W7: the load of W1 for a long time.
type SoakConfig struct {
	Place
	Rooms    int           // with one client each at any time; 0: 64
	Duration time.Duration // after the warm-up; 0: 10 min
	Warm     time.Duration // before samples count; 0: a third of Duration, at most 3 min
	Stay     time.Duration // of a client in a room before it goes on to its next one; 0: 20 s
	Each     int           // rooms that a client goes round; 0: 6
	Samples  int           // of the trend; each is the median of what was read in its part of Duration; 0: 60
}

// SoakResult is W7. A client goes round its rooms, so that most of them
// hibernate, are woken, and have a longer history each time.
type SoakResult struct {
	result
	Rooms       int     `json:"roomsAtATime"`
	RoomsInAll  int     `json:"rooms"`
	Seconds     float64 `json:"seconds"`
	WarmSeconds float64 `json:"warmUpSeconds"`
	StaySeconds float64 `json:"secondsInARoom"`
	Turns       int     `json:"turns"`
	PerSecond   float64 `json:"eventsPerSecond"`
	Commits     float64 `json:"commitsPerTurn"`
	CPUPer1000  float64 `json:"serverCPUSecondsPer1000Events"`
	RSS         Trend   `json:"rssMegabytes"`
	Live        Trend   `json:"liveHeapMegabytes"` // what the latest collection left
	Goroutines  Trend   `json:"goroutines"`
}

// Trend is how a figure went over the time, in units per hour, with the interval
// of 95 % confidence.
type Trend struct {
	Median  float64   `json:"median"`
	PerHour float64   `json:"slopePerHour"`
	Low     float64   `json:"slopeLow"`
	High    float64   `json:"slopeHigh"`
	Grows   bool      `json:"grows"` // the interval lies above 0
	Samples []float64 `json:"samples"`
}

// Bad reports whether memory or goroutines grow.
func (r *SoakResult) Bad() bool { return r.RSS.Grows || r.Goroutines.Grows }

// reading is one look at the server.
type reading struct {
	at                    time.Duration // since the end of the warm-up
	rss, live, goroutines float64
}

// Soak runs W7.
func Soak(ctx context.Context, c SoakConfig) (res *SoakResult, err error) {
	orDefault(&c.Rooms, 64)
	orDefault(&c.Duration, 10*time.Minute)
	orDefault(&c.Warm, min(c.Duration/3, 3*time.Minute))
	orDefault(&c.Stay, 20*time.Second)
	orDefault(&c.Each, 6)
	orDefault(&c.Samples, 60)
	dir, remove, err := c.open("soak")
	if err != nil {
		return nil, err
	}
	defer settle(&err, remove)
	s, err := newServer(ctx, c.Binary, dir)
	if err != nil {
		return nil, err
	}
	if _, err := s.start(ctx); err != nil {
		return nil, err
	}
	res = &SoakResult{
		result: newResult("W7 soak", dir, lifted), Rooms: c.Rooms, RoomsInAll: c.Rooms * c.Each, Seconds: c.Duration.Seconds(),
		WarmSeconds: c.Warm.Seconds(), StaySeconds: c.Stay.Seconds(),
	}
	if err := c.run(ctx, s, res); err != nil {
		return nil, errors.Join(err, s.kill())
	}
	count, err := s.stop()
	if err != nil {
		return nil, err
	}
	// Making a room is a batch and an entry of their own.
	res.Commits = float64(count.Batches-int64(res.RoomsInAll)) / (float64(count.Entries-int64(res.RoomsInAll)) / (eventsPerTurn + 2))
	res.print(c.Out)
	return res, nil
}

func (c *SoakConfig) run(ctx context.Context, s *server, res *SoakResult) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var turns atomic.Int64
	var over atomic.Bool
	var wg sync.WaitGroup
	for i := range c.Rooms {
		wg.Go(func() {
			if err := c.rounds(ctx, s, i, &over, &turns); err != nil {
				cancel(err)
			}
		})
	}
	readings, err := c.watch(ctx, s, res, &turns)
	over.Store(true)
	wg.Wait()
	if err = errors.Join(err, context.Cause(ctx)); err != nil {
		return err
	}
	for _, t := range []struct {
		to *Trend
		of func(reading) float64
	}{
		{&res.RSS, func(r reading) float64 { return r.rss }},
		{&res.Live, func(r reading) float64 { return r.live }},
		{&res.Goroutines, func(r reading) float64 { return r.goroutines }},
	} {
		if *t.to, err = c.trend(readings, t.of); err != nil {
			return err
		}
	}
	return nil
}

// rounds has one client take turns in its rooms, one room after the other.
func (c *SoakConfig) rounds(ctx context.Context, s *server, client int, over *atomic.Bool, turns *atomic.Int64) error {
	for visit := 0; !over.Load() && ctx.Err() == nil; visit++ {
		room := fmt.Sprintf("bench-k-%d-%d", client, visit%c.Each)
		seat, err := sit(ctx, s, room, fmt.Sprint("v", visit))
		if err != nil {
			return err
		}
		stay := c.Stay
		if visit == 0 { // so that not all move at once
			stay = c.Stay * time.Duration(client+1) / time.Duration(c.Rooms)
		}
		for until := time.Now().Add(stay); time.Now().Before(until) && !over.Load() && ctx.Err() == nil; {
			if _, err := seat.turn(); err != nil {
				return errors.Join(err, seat.ws.Close())
			}
			turns.Add(1)
		}
		_ = seat.ws.Close() // on to the next
	}
	return nil
}

// watch reads the server's memory four times a second and returns what it saw
// after the warm-up.
func (c *SoakConfig) watch(ctx context.Context, s *server, res *SoakResult, turns *atomic.Int64) (all []reading, err error) {
	if err := rest(ctx, c.Warm); err != nil {
		return nil, err
	}
	cpu, _, err := s.usage()
	if err != nil {
		return nil, err
	}
	before, began := turns.Load(), time.Now()
	tick := time.NewTicker(min(250*time.Millisecond, c.Duration/time.Duration(4*c.Samples)))
	defer tick.Stop()
	profiled := make(chan error, 1)
	go func() { profiled <- c.profile(s, "profile", "w7-cpu", min(10*time.Second, c.Duration/2)) }()
	for time.Since(began) < c.Duration {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		m, err := s.memory(false)
		if err != nil {
			return nil, err
		}
		const mb = 1 << 20
		all = append(all, reading{time.Since(began), float64(m.RSS) / mb, float64(m.HeapLive) / mb, float64(m.Goroutines)})
	}
	elapsed := time.Since(began)
	after, _, err := s.usage()
	if err = errors.Join(err, <-profiled); err != nil {
		return nil, err
	}
	res.Turns = int(turns.Load() - before)
	events := float64(res.Turns * eventsPerTurn)
	res.PerSecond, res.CPUPer1000 = events/elapsed.Seconds(), (after-cpu).Seconds()/events*1000
	return all, c.profile(s, "heap", "w7-heap", 0)
}

// trend reduces readings to samples that lie far apart, so that they depend on
// each other as little as can be, and estimates their slope.
func (c *SoakConfig) trend(readings []reading, of func(reading) float64) (t Trend, err error) {
	var x []float64
	part := c.Duration / time.Duration(c.Samples)
	for i := range c.Samples {
		var in []float64
		for _, r := range readings {
			if r.at >= part*time.Duration(i) && r.at < part*time.Duration(i+1) {
				in = append(in, of(r))
			}
		}
		if len(in) > 0 {
			x, t.Samples = append(x, (part*time.Duration(i)+part/2).Hours()), append(t.Samples, median(in))
		}
	}
	s, err := theilSen(x, t.Samples)
	if err != nil {
		return t, err
	}
	t.PerHour, t.Low, t.High, t.Grows = s.Value, s.Low, s.High, s.grows()
	t.Median = median(append([]float64(nil), t.Samples...))
	return t, nil
}

func (r *SoakResult) print(w io.Writer) {
	printFigures(w, "W7",
		figure{"durable events", "/s", r.PerSecond},
		figure{"turns", "", float64(r.Turns)},
		figure{"commits per turn", "", r.Commits},
		figure{"server CPU per 1,000 events", "s", r.CPUPer1000})
	for _, t := range []struct {
		name, unit string
		t          Trend
	}{{"RSS", "MB", r.RSS}, {"live heap", "MB", r.Live}, {"goroutines", "", r.Goroutines}} {
		_, _ = fmt.Fprintf(w, "W7  %-58s %12.6g %s, slope %.4g per hour, 95 %% interval %.4g to %.4g, grows: %v\n",
			t.name+" in the middle", t.t.Median, t.unit, t.t.PerHour, t.t.Low, t.t.High, t.t.Grows)
	}
}
