package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// batched is how many items the batched baseline puts into a frame.
const batched = 16

// stream runs W2b with runs one after the other: what it measures is how fast
// many viewers catch up with a run that does not wait for them.
func (c *FanoutConfig) stream(ctx context.Context, dir string) (out *FanoutStream, err error) {
	h, err := c.openHall(ctx, dir, "bench-stream-1", lifted)
	if err != nil {
		return nil, err
	}
	closed := false
	defer func() {
		if !closed {
			_, e := h.close()
			err = errors.Join(err, e)
		}
	}()
	if err := h.fill(ctx, c.Viewers); err != nil {
		return nil, err
	}
	raw, _, err := c.peers(ctx, dir, false)
	if err != nil {
		return nil, err
	}
	defer settle(&err, raw.dismiss)
	// Input, start, deltas, the one that closes the output, completed.
	items := c.Stream + 4
	run := func() error {
		_, err := h.seat.turn()
		return err
	}
	first, err := closedLoop(ctx, 1, h.crowd, h.usage, items, run)
	if err != nil {
		return nil, err
	}
	sample, cursor, err := h.crowd.sample()
	if err != nil {
		return nil, err
	}
	same := max(1, int(first.items/first.frames))
	broadcast := func(perFrame int) (func() error, int) {
		list := make([]string, perFrame)
		for i := range list {
			list[i] = sample[0]
		}
		frames := max(1, items/perFrame)
		return func() error { return raw.send(cursor, list, frames) }, frames * perFrame
	}
	out = &FanoutStream{Deltas: c.Stream}
	part := c.Duration / (2 * rounds)
	var ours, theirs, alike window
	var ratios []float64
	var busy busyness
	for i := range rounds {
		profiled := make(chan error, 1)
		if i == 0 {
			go func() { profiled <- c.profile(h.server, "profile", "w2b-cpu", part) }()
		} else {
			profiled <- nil
		}
		busy.begin()
		w, err := closedLoop(ctx, part, h.crowd, h.usage, items, run)
		busy.end(w.elapsed, w.cpu)
		if err = errors.Join(err, <-profiled); err != nil {
			return nil, err
		}
		ours.add(w)
		out.Runs += len(w.took)
		step, n := broadcast(batched)
		r, err := closedLoop(ctx, part, raw.crowd, raw.usage, n, step)
		if err != nil {
			return nil, err
		}
		theirs.add(r)
		ratios = append(ratios, w.perSecond()/r.perSecond())
		step, n = broadcast(same)
		if r, err = closedLoop(ctx, part/2, raw.crowd, raw.usage, n, step); err != nil {
			return nil, err
		}
		alike.add(r)
	}
	if err := c.profile(h.server, "heap", "w2b-heap", 0); err != nil {
		return nil, err
	}
	count, err := h.close()
	closed = true
	if err != nil {
		return nil, err
	}
	out.PerSecond, out.CPUPer1000 = ours.perSecond(), ours.cpuPer1000()
	out.ItemsPerFrame = float64(ours.items) / float64(ours.frames)
	out.CommitsPerRun = float64(count.Batches-1) / float64(h.seat.turns)
	out.RawPerSecond, out.RawCPUPer1000, out.RawOfSameFrames = theirs.perSecond(), theirs.cpuPer1000(), alike.perSecond()
	out.ToRaw, out.OthersCPU, out.ClientCPU = median(ratios), busy.others(), busy.per1000(ours.items)
	out.ViewersThatDiffer = h.crowd.check(false) + raw.crowd.disagree()
	return out, nil
}

// endless runs W2b with a driver that never pauses, and a journal quota that is
// not lifted: viewers who cannot keep up fall behind and have to be served all
// the same.
func (c *FanoutConfig) endless(ctx context.Context, dir string) (out *FanoutStream, err error) {
	h, err := c.openHall(ctx, dir, "bench-stream-1", without(lifted, "journalBytesPerSecond"))
	if err != nil {
		return nil, err
	}
	closed := false
	defer func() {
		if !closed {
			_, e := h.close()
			err = errors.Join(err, e)
		}
	}()
	if err := h.fill(ctx, c.Viewers); err != nil {
		return nil, err
	}
	// Runs wait in the queue, so that one follows the other at once. The speaker
	// reads like everybody else.
	runs := 0
	input := func() error {
		runs++
		return h.seat.write(fmt.Sprintf(
			`{"type":"input","id":"e-%d","channel":"public","text":"Go on.","modality":"text","onBusy":"queue"}`, runs))
	}
	for range 6 {
		if err := input(); err != nil {
			return nil, err
		}
	}
	stop, ended := make(chan struct{}), make(chan error, 1)
	var speaker sync.WaitGroup
	speaker.Go(func() {
		for {
			select {
			case <-stop:
				ended <- nil
				return
			default:
			}
			raw, err := h.seat.read()
			for range strings.Count(string(raw), `"type":"completed"`) {
				err = errors.Join(err, input())
			}
			if err != nil {
				ended <- err
				return
			}
		}
	})
	part := c.Duration / 2
	pause := func(d time.Duration) error {
		select {
		case err := <-ended:
			ended <- err
			return err
		case <-time.After(d):
			return h.crowd.faulty()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	err = pause(part / 5)
	profiled := make(chan error, 1)
	go func() { profiled <- c.profile(h.server, "profile", "w2b-endless-cpu", part) }()
	var w window
	var busy busyness
	before, cpuErr := h.usage()
	w.items, w.frames, w.bytes = -h.crowd.items.Load(), -h.crowd.frames.Load(), -h.crowd.bytes.Load()
	began := time.Now()
	busy.begin()
	err = errors.Join(err, cpuErr, pause(part), <-profiled)
	w.elapsed = time.Since(began)
	w.items, w.frames, w.bytes = w.items+h.crowd.items.Load(), w.frames+h.crowd.frames.Load(), w.bytes+h.crowd.bytes.Load()
	after, cpuErr := h.usage()
	w.cpu = after - before
	busy.end(w.elapsed, w.cpu)
	close(stop)
	_ = h.seat.ws.NetConn().Close() // its reader stops
	speaker.Wait()                  // what went wrong before was returned by pause
	if err = errors.Join(err, cpuErr); err != nil {
		return nil, err
	}
	least, most := h.crowd.viewers[0].seen.Load(), uint64(0)
	for _, v := range h.crowd.viewers {
		n := v.seen.Load()
		least, most = min(least, n), max(most, n)
	}
	if _, err := h.close(); err != nil {
		return nil, err
	}
	closed = true
	if w.items == 0 {
		return nil, errors.New("nothing was delivered")
	}
	return &FanoutStream{
		Deltas: c.Stream, Runs: runs, PerSecond: w.perSecond(), ItemsPerFrame: float64(w.items) / float64(w.frames),
		CPUPer1000: w.cpuPer1000(), Lag: most - least, OthersCPU: busy.others(), ClientCPU: busy.per1000(w.items), ViewersThatDiffer: h.crowd.check(true),
	}, nil
}

// busyness adds up what else used the machine in windows of time.
type busyness struct {
	mine, machine  time.Duration
	other, elapsed float64
	client         time.Duration
}

func (b *busyness) begin() { b.mine, b.machine = since(ownCPU, 0), since(machineCPU, 0) }

// end ends a window in which the server used so much CPU.
func (b *busyness) end(elapsed, server time.Duration) {
	m := measured{elapsed: elapsed, server: server, client: since(ownCPU, b.mine), machine: since(machineCPU, b.machine)}
	b.other += m.others() * elapsed.Seconds()
	b.client += m.client
	b.elapsed += elapsed.Seconds()
}

func (b *busyness) others() float64 { return b.other / b.elapsed }

// per1000 is this process's CPU per 1,000 items of those windows, in seconds.
func (b *busyness) per1000(items int64) float64 { return b.client.Seconds() / float64(items) * 1000 }

func (f *FanoutStream) print(w io.Writer, label string) {
	figures := []figure{
		{"deliveries", "/s", f.PerSecond},
		{"items per frame", "", f.ItemsPerFrame},
		{"deltas per run", "", float64(f.Deltas)},
		{"server CPU per 1,000 deliveries", "s", f.CPUPer1000},
		{"client CPU per 1,000 deliveries", "s", f.ClientCPU},
		{"CPU of others, share of the machine", "", f.OthersCPU},
	}
	if f.RawPerSecond > 0 {
		figures = append(
			figures,
			figure{"commits per run", "", f.CommitsPerRun},
			figure{"baseline: raw gorilla, 16 items per frame", "/s", f.RawPerSecond},
			figure{"baseline: raw gorilla CPU per 1,000 deliveries", "s", f.RawCPUPer1000},
			figure{"baseline: raw gorilla, as many items per frame as here", "/s", f.RawOfSameFrames},
			figure{"against raw gorilla, 16 items per frame", "×", f.ToRaw},
		)
	} else {
		figures = append(figures, figure{"slowest viewer behind the fastest at the end", "items", float64(f.Lag)})
	}
	printFigures(w, label, append(figures, figure{"viewers that got something else (must be 0)", "", float64(f.ViewersThatDiffer)})...)
}
