package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

const holdPrefix = "bench-hold-"

// openRuns opens runs, kills the server, starts it again, and sees how the runs
// go on and whether others are served meanwhile.
func (c *ActivationConfig) openRuns(ctx context.Context, dir string) (out *OpenRuns, err error) {
	home, err := os.MkdirTemp(dir, "open")
	if err != nil {
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	s, err := newServer(ctx, c.Binary, home)
	if err != nil {
		return nil, err
	}
	if _, err := s.start(ctx); err != nil {
		return nil, err
	}
	err = holdRuns(ctx, s, c.OpenRuns)
	if err = errors.Join(err, s.kill()); err != nil {
		return nil, err
	}
	began := time.Now()
	ready, err := s.start(ctx)
	if err != nil {
		return nil, err
	}
	out = &OpenRuns{Count: c.OpenRuns, ReadyMs: ms(ready)}
	profiled := make(chan error, 1)
	go func() { profiled <- c.profile(s, "profile", "w4-open-cpu", 3*time.Second) }()
	var others []time.Duration
	for quiet := 0; quiet < 5 && time.Since(began) < 2*time.Minute; {
		cpu, _, err := s.usage()
		if err != nil {
			return nil, errors.Join(err, s.kill())
		}
		t, err := firstInput(ctx, s, fmt.Sprint("bench-other-", len(others)))
		if err == nil {
			err = rest(ctx, 100*time.Millisecond)
		}
		if err != nil {
			return nil, errors.Join(err, s.kill())
		}
		others = append(others, t.first)
		now, _, err := s.usage()
		if err != nil {
			return nil, errors.Join(err, s.kill())
		}
		out.CPUSeconds = now.Seconds()
		// The input itself takes some milliseconds; two readings of a hundredth of a
		// second must not be taken for work.
		if quiet++; now-cpu > 20*time.Millisecond {
			quiet = 0
		}
	}
	if err := errors.Join(<-profiled, s.kill()); err != nil {
		return nil, err
	}
	out.FirstInputMs = ms(others[0])
	out.InputP50Ms, out.InputMaxMs = ms(quantile(others, 0.5)), ms(quantile(others, 1))
	rooms, err := s.replay(ctx)
	if err != nil {
		return nil, err
	}
	out.judge(rooms, began)
	return out, nil
}

// judge finds in the journals which runs went on, how often, and when the last did.
func (r *OpenRuns) judge(rooms map[string][]entry, began time.Time) {
	for i := range r.Count {
		starts, goesOn := 0, false
		for _, e := range rooms[fmt.Sprint(holdPrefix, i)] {
			switch {
			case e.Type == "attempt_started" && e.Attempt > 1:
				starts++
			case e.Type == "progress" && e.Attempt > 1:
				goesOn = true
				r.ResumedSeconds = max(r.ResumedSeconds, e.At.Sub(began).Seconds())
			}
		}
		if !goesOn {
			r.NotResumed++
		}
		r.ResumedTwice += max(0, starts-1)
	}
}

// holdRuns begins a run in each of n rooms and leaves once its driver is at work.
func holdRuns(ctx context.Context, s *server, n int) error {
	return inTurn(n, func(i int) error { return hold(ctx, s, fmt.Sprint(holdPrefix, i)) })
}

func hold(ctx context.Context, s *server, room string) error {
	c, err := sit(ctx, s, room, "h")
	if err != nil {
		return err
	}
	defer func() { _ = c.ws.Close() }() // the run goes on without
	err = c.write(`{"type":"input","id":"h","channel":"public","text":"Hold on.","modality":"text"}`)
	for err == nil {
		var raw []byte
		if raw, err = c.read(); err == nil && strings.Contains(string(raw), `"type":"progress"`) {
			return nil
		}
	}
	return fmt.Errorf("hold a run in %s: %w", room, err)
}

func (r *OpenRuns) print(w io.Writer) {
	printFigures(w, fmt.Sprintf("W4 %d open runs", r.Count),
		figure{"ready after the start of the process", "ms", r.ReadyMs},
		figure{"first input to another room accepted, after ready", "ms", r.FirstInputMs},
		figure{"inputs to other rooms meanwhile, p50", "ms", r.InputP50Ms},
		figure{"inputs to other rooms meanwhile, max", "ms", r.InputMaxMs},
		figure{"all resumed after the start of the process", "s", r.ResumedSeconds},
		figure{"server CPU until all was quiet", "s", r.CPUSeconds},
		figure{"not resumed (must be 0)", "", float64(r.NotResumed)},
		figure{"resumed twice (must be 0)", "", float64(r.ResumedTwice)})
}
