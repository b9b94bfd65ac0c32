package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// FanoutConfig is W2: one room and many viewers.
type FanoutConfig struct {
	Place
	Viewers  int           // 0: 1,000
	Duration time.Duration // of each part, over all rounds; 0: 15 s
	Stream   int           // deltas of a run of W2b; 0: 1,000; at most 9,000
	Node     string        // directory where Node's ws is installed; empty: bench/node
	Only     string        // W2a or W2b; empty: both
}

// FanoutResult is W2 with its baselines. Deliveries are items, counted at the viewers.
type FanoutResult struct {
	result
	Viewers int           `json:"viewers"`
	Seconds float64       `json:"secondsPerPart"`
	Single  *FanoutSingle `json:"w2aOneEventAtATime,omitempty"`
	Stream  *FanoutStream `json:"w2bStreamOfRuns,omitempty"`
	Endless *FanoutStream `json:"w2bStreamWithoutEnd,omitempty"`
}

// FanoutSingle is W2a: a room's next event comes when all viewers have the last.
// The events are alternately an input that waits behind a run and the end of its
// run: one entry and one commit each.
type FanoutSingle struct {
	PerSecond         float64 `json:"deliveriesPerSecond"`
	EventP50Ms        float64 `json:"eventP50Ms"` // from the request until the last viewer has it
	EventP99Ms        float64 `json:"eventP99Ms"`
	CPUPer1000        float64 `json:"serverCPUSecondsPer1000Deliveries"`
	CommitsPerEvent   float64 `json:"commitsPerEvent"`
	BytesPerFrame     float64 `json:"bytesPerFrame"`
	RawPerSecond      float64 `json:"rawGorillaDeliveriesPerSecond"`
	RawCPUPer1000     float64 `json:"rawGorillaCPUSecondsPer1000Deliveries"`
	NodePerSecond     float64 `json:"nodeDeliveriesPerSecond"` // 0: not measured
	NodeCPUPer1000    float64 `json:"nodeCPUSecondsPer1000Deliveries"`
	ToRaw             float64 `json:"toRawGorilla"` // medians of the rounds' ratios
	ToNode            float64 `json:"toNode"`
	OthersCPU         float64 `json:"othersShareOfCPU"`
	ClientCPU         float64 `json:"clientCPUSecondsPer1000Deliveries"` // of the viewers, on the same cores
	ViewersThatDiffer int     `json:"viewersThatDiffer"`                 // must be 0
}

// FanoutStream is W2b. Of runs: a run streams without pause, and the next begins
// when all viewers have its end. Without end: a run follows the other, the
// viewers lag behind as they must, and the journal's quota of the room holds.
type FanoutStream struct {
	Deltas            int     `json:"deltasPerRun"`
	Runs              int     `json:"runs"`
	PerSecond         float64 `json:"deliveriesPerSecond"`
	ItemsPerFrame     float64 `json:"itemsPerFrame"`
	CPUPer1000        float64 `json:"serverCPUSecondsPer1000Deliveries"`
	CommitsPerRun     float64 `json:"commitsPerRun"`
	Lag               uint64  `json:"itemsBehindAtTheEnd,omitempty"`         // the slowest viewer, behind the fastest
	RawPerSecond      float64 `json:"rawGorillaBatchedDeliveriesPerSecond"`  // 16 items per frame
	RawOfSameFrames   float64 `json:"rawGorillaSameFramesDeliveriesPerSec"`  // as many items per frame as the server put
	RawCPUPer1000     float64 `json:"rawGorillaCPUSecondsPer1000Deliveries"` // of the first
	ToRaw             float64 `json:"toRawGorillaBatched"`                   // medians of the rounds' ratios
	OthersCPU         float64 `json:"othersShareOfCPU"`                      //
	ClientCPU         float64 `json:"clientCPUSecondsPer1000Deliveries"`     // of the viewers, on the same cores
	ViewersThatDiffer int     `json:"viewersThatDiffer"`                     // must be 0
}

// Bad reports whether viewers got different items.
func (r *FanoutResult) Bad() bool {
	return r.Single != nil && r.Single.ViewersThatDiffer > 0 || r.Stream != nil && r.Stream.ViewersThatDiffer > 0 ||
		r.Endless != nil && r.Endless.ViewersThatDiffer > 0
}

// Fanout runs W2.
func Fanout(ctx context.Context, c FanoutConfig) (res *FanoutResult, err error) {
	orDefault(&c.Viewers, 1000)
	orDefault(&c.Duration, 15*time.Second)
	orDefault(&c.Stream, streamed)
	orDefault(&c.Node, filepath.Join("bench", "node"))
	if c.Stream > 9000 {
		return nil, fmt.Errorf("a run of %d deltas: an attempt may send at most 10,000 events", c.Stream)
	}
	if err := openFiles(6*c.Viewers + 1000); err != nil {
		return nil, err
	}
	dir, remove, err := c.open("fanout")
	if err != nil {
		return nil, err
	}
	defer settle(&err, remove)
	res = &FanoutResult{result: newResult("W2 fanout", dir, lifted), Viewers: c.Viewers, Seconds: c.Duration.Seconds()}
	if c.Only != "W2b" {
		if res.Single, err = c.single(ctx, dir); err != nil {
			return nil, fmt.Errorf("W2a: %w", err)
		}
		res.Single.print(c.Out)
	}
	if c.Only != "W2a" {
		if res.Stream, err = c.stream(ctx, dir); err != nil {
			return nil, fmt.Errorf("W2b: %w", err)
		}
		res.Stream.print(c.Out, "W2b runs   ")
		if res.Endless, err = c.endless(ctx, dir); err != nil {
			return nil, fmt.Errorf("W2b without end: %w", err)
		}
		res.Endless.print(c.Out, "W2b endless")
	}
	return res, nil
}

// hall is a server with one room full of viewers. Owned by one goroutine.
type hall struct {
	server *server
	crowd  *crowd
	seat   *seat // of whoever makes things happen
	room   string
}

// openHall starts a server, and has a speaker and the viewers enter the room.
func (c *FanoutConfig) openHall(ctx context.Context, dir, room string, limits map[string]string) (h *hall, err error) {
	home, err := os.MkdirTemp(dir, "server")
	if err != nil {
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	s, err := newServerWith(ctx, c.Binary, home, limits, c.Stream)
	if err != nil {
		return nil, err
	}
	if _, err := s.start(ctx); err != nil {
		return nil, err
	}
	h = &hall{server: s, crowd: newCrowd(), room: room}
	if h.seat, err = sit(ctx, s, room, "f"); err != nil {
		return nil, errors.Join(err, s.kill())
	}
	return h, nil
}

func (h *hall) fill(ctx context.Context, viewers int) error {
	return h.crowd.joinPolled(ctx, viewers, func(i int) (string, string, error) {
		token, err := h.server.tokenOf(fmt.Sprint("viewer-", i))
		return h.server.url(h.room), token, err
	})
}

// close has everybody leave and stops the server.
func (h *hall) close() (counters, error) {
	_ = h.seat.ws.Close() // done with
	err := h.crowd.leave()
	n, stopErr := h.server.stop()
	return n, errors.Join(err, stopErr)
}

// peers starts the baselines. Node's is nil when it cannot be.
func (c *FanoutConfig) peers(ctx context.Context, dir string, node bool) (raw, ws *peer, err error) {
	if raw, err = rawPeer(c.Binary, dir); err != nil {
		return nil, nil, err
	}
	if err := raw.audience(ctx, c.Viewers); err != nil {
		return nil, nil, errors.Join(err, raw.dismiss())
	}
	if !node {
		return raw, nil, nil
	}
	ws, err = nodePeer(c.Node)
	if errors.Is(err, errNoNode) {
		_, err = fmt.Fprintf(c.Out, "W2a  baseline: Node ws: %v\n", err)
		return raw, nil, err
	}
	if err == nil {
		if err = ws.audience(ctx, c.Viewers); err != nil {
			err = errors.Join(err, ws.dismiss())
		}
	}
	if err != nil {
		return nil, nil, errors.Join(err, raw.dismiss())
	}
	return raw, ws, nil
}

// window is what was delivered in a window of time.
type window struct {
	items, frames, bytes int64
	elapsed              time.Duration
	cpu                  time.Duration // of the process that sent
	took                 []time.Duration
}

func (w *window) add(o window) {
	w.items += o.items
	w.frames += o.frames
	w.bytes += o.bytes
	w.elapsed += o.elapsed
	w.cpu += o.cpu
	w.took = append(w.took, o.took...)
}

func (w *window) perSecond() float64 { return float64(w.items) / w.elapsed.Seconds() }
func (w *window) cpuPer1000() float64 {
	return w.cpu.Seconds() / float64(max(1, w.items)) * 1000
}

// closedLoop has step make the same number of items happen again and again, each
// time when all viewers have what came before.
func closedLoop(ctx context.Context, d time.Duration, c *crowd, cpu func() (time.Duration, error), items int, step func() error) (w window, err error) {
	before, err := cpu()
	if err != nil {
		return w, err
	}
	w.items, w.frames, w.bytes = -c.items.Load(), -c.frames.Load(), -c.bytes.Load()
	goal := c.items.Load()
	began := time.Now()
	for at := began; at.Sub(began) < d; {
		goal += int64(items) * int64(len(c.viewers))
		if err := step(); err != nil {
			return w, err
		}
		if err := c.await(ctx, goal); err != nil {
			return w, err
		}
		now := time.Now()
		w.took = append(w.took, now.Sub(at))
		at = now
	}
	w.elapsed = time.Since(began)
	after, err := cpu()
	w.cpu = after - before
	w.items, w.frames, w.bytes = w.items+c.items.Load(), w.frames+c.frames.Load(), w.bytes+c.bytes.Load()
	return w, err
}

func (h *hall) usage() (time.Duration, error) {
	cpu, _, err := h.server.usage()
	return cpu, err
}

// single runs W2a.
func (c *FanoutConfig) single(ctx context.Context, dir string) (out *FanoutSingle, err error) {
	h, err := c.openHall(ctx, dir, "bench-hold-1", lifted)
	if err != nil {
		return nil, err
	}
	out = &FanoutSingle{}
	closed := false
	defer func() {
		if !closed {
			_, e := h.close()
			err = errors.Join(err, e)
		}
	}()
	p := &prompter{seat: h.seat}
	if err := p.begin(); err != nil { // the run behind which the others wait
		return nil, err
	}
	if err := h.fill(ctx, c.Viewers); err != nil {
		return nil, err
	}
	raw, node, err := c.peers(ctx, dir, true)
	if err != nil {
		return nil, err
	}
	defer settle(&err, raw.dismiss)
	if node != nil {
		defer settle(&err, node.dismiss)
	}
	if err := errors.Join(p.next(), p.next()); err != nil {
		return nil, err
	}
	if err := h.crowd.await(ctx, 2*int64(c.Viewers)); err != nil {
		return nil, err
	}
	items, cursor, err := h.crowd.sample()
	if err != nil {
		return nil, err
	}
	if err := errors.Join(raw.send(cursor, items[:1], 0), nodeSend(node, cursor, items[:1])); err != nil {
		return nil, err
	}
	var ours, theirs, js window
	var toRaw, toNode []float64
	part := c.Duration / rounds
	var busy busyness
	for i := range rounds {
		profiled := make(chan error, 1)
		if i == 0 {
			go func() { profiled <- c.profile(h.server, "profile", "w2a-cpu", part) }()
		} else {
			profiled <- nil
		}
		busy.begin()
		w, err := closedLoop(ctx, part, h.crowd, h.usage, 1, p.next)
		busy.end(w.elapsed, w.cpu)
		if err = errors.Join(err, <-profiled); err != nil {
			return nil, err
		}
		ours.add(w)
		r, err := closedLoop(ctx, part, raw.crowd, raw.usage, 1, func() error { return raw.send("", nil, 1) })
		if err != nil {
			return nil, err
		}
		theirs.add(r)
		toRaw = append(toRaw, w.perSecond()/r.perSecond())
		if node != nil {
			n, err := closedLoop(ctx, part, node.crowd, node.usage, 1, func() error { return node.send("", nil, 1) })
			if err != nil {
				return nil, err
			}
			js.add(n)
			toNode = append(toNode, w.perSecond()/n.perSecond())
		}
	}
	count, err := h.close()
	closed = true
	if err != nil {
		return nil, err
	}
	*out = FanoutSingle{
		PerSecond: ours.perSecond(), EventP50Ms: ms(quantile(ours.took, 0.5)), EventP99Ms: ms(quantile(ours.took, 0.99)),
		CPUPer1000: ours.cpuPer1000(), BytesPerFrame: float64(ours.bytes) / float64(ours.frames),
		// The room's creation and the start of the first run are not counted.
		CommitsPerEvent: float64(count.Batches-3) / max(1, float64(p.events)),
		RawPerSecond:    theirs.perSecond(), RawCPUPer1000: theirs.cpuPer1000(), ToRaw: median(toRaw),
		OthersCPU: busy.others(), ClientCPU: busy.per1000(ours.items), ViewersThatDiffer: h.crowd.check(false) + raw.crowd.disagree(),
	}
	if node != nil {
		out.NodePerSecond, out.NodeCPUPer1000, out.ToNode = js.perSecond(), js.cpuPer1000(), median(toNode)
		out.ViewersThatDiffer += node.crowd.disagree()
	}
	return out, nil
}

// since is how much a reading of CPU time has grown; a reading that fails now
// did not fail before, and grows nothing.
func since(read func() (time.Duration, error), before time.Duration) time.Duration {
	now, err := read()
	if err != nil {
		return 0
	}
	return now - before
}

func nodeSend(p *peer, cursor string, items []string) error {
	if p == nil {
		return nil
	}
	return p.send(cursor, items, 0)
}

// disagree counts the viewers with another number of items than the first. They
// may be at work.
func (c *crowd) disagree() (n int) {
	for _, v := range c.viewers {
		if v.seen.Load() != c.viewers[0].seen.Load() {
			n++
		}
	}
	return n
}

// prompter makes one event happen at a time: an input that waits behind the run
// of another, and then its cancellation. Owned by one goroutine.
type prompter struct {
	seat   *seat
	inputs int
	events int
	run    string // of the input that waits; empty: none does
}

// begin starts the run that holds the channel, and waits until it has begun.
func (p *prompter) begin() error {
	if err := p.input(); err != nil {
		return err
	}
	for {
		raw, err := p.seat.read()
		if err != nil {
			return fmt.Errorf("begin: %w", err)
		}
		if strings.Contains(string(raw), `"type":"progress"`) {
			return nil
		}
	}
}

func (p *prompter) input() error {
	p.inputs++
	return p.seat.write(fmt.Sprintf(
		`{"type":"input","id":"p-%d","channel":"public","text":"Tell me what happens next.","modality":"text","onBusy":"queue"}`, p.inputs))
}

// next makes one event happen and returns when the server has answered.
func (p *prompter) next() error {
	p.events++
	want := `{"type":"done"`
	var err error
	if p.run == "" {
		want = `{"type":"accepted"`
		err = p.input()
	} else {
		err = p.seat.write(fmt.Sprintf(`{"type":"cancel","ref":"c-%d","run":"%s"}`, p.inputs, p.run))
	}
	for err == nil {
		var raw []byte
		if raw, err = p.seat.read(); err != nil || !strings.HasPrefix(string(raw), want) {
			continue
		}
		var f frame
		if err = json.Unmarshal(raw, &f); err == nil {
			if p.run != "" {
				f.Run = ""
			}
			p.run = f.Run
			return nil
		}
	}
	return fmt.Errorf("event %d: %w", p.events, err)
}

// sample returns the items and the cursor of the last frame of a viewer, for the
// baselines to send the same bytes. All viewers have what they are to get.
func (c *crowd) sample() (items []string, cursor string, err error) {
	for _, v := range c.viewers {
		if len(v.last) > 0 {
			for _, i := range v.last {
				items = append(items, string(i))
			}
			return items, string(v.cursor), nil
		}
	}
	return nil, "", errors.New("no viewer has got anything to take a sample of")
}

func (f *FanoutSingle) print(w io.Writer) {
	printFigures(w, "W2a",
		figure{"deliveries", "/s", f.PerSecond},
		figure{"event until its last viewer has it, p50", "ms", f.EventP50Ms},
		figure{"event until its last viewer has it, p99", "ms", f.EventP99Ms},
		figure{"server CPU per 1,000 deliveries", "s", f.CPUPer1000},
		figure{"client CPU per 1,000 deliveries", "s", f.ClientCPU},
		figure{"commits per event", "", f.CommitsPerEvent},
		figure{"bytes per frame", "B", f.BytesPerFrame},
		figure{"CPU of others, share of the machine", "", f.OthersCPU},
		figure{"baseline: raw gorilla, a writer per connection", "/s", f.RawPerSecond},
		figure{"baseline: raw gorilla CPU per 1,000 deliveries", "s", f.RawCPUPer1000},
		figure{"baseline: Node ws (0: not measured)", "/s", f.NodePerSecond},
		figure{"baseline: Node ws CPU per 1,000 deliveries", "s", f.NodeCPUPer1000},
		figure{"against raw gorilla", "×", f.ToRaw},
		figure{"against Node ws", "×", f.ToNode},
		figure{"viewers that got something else (must be 0)", "", float64(f.ViewersThatDiffer)},
	)
}
