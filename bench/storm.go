package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"
)

// StormConfig is W5: very many connections are lost at once and come back.
type StormConfig struct {
	Place
	Connections int           // 0: 5,000
	Rooms       int           // over which they are spread; 0: 50
	Losses      int           // how often all connections are reset; 0: 3, negative: never
	Kills       int           // how often the server is killed instead; 0: 1, negative: never
	Pace        time.Duration // between the turns of a room, which go on all the time; 0: 2 s
	Calm        time.Duration // between storms; 0: 3 s
}

// StormResult is W5. Connections come back at once, all together, with the
// cursor of the last frame that they handled.
type StormResult struct {
	result
	Connections int          `json:"connections"`
	Rooms       int          `json:"rooms"`
	PaceMs      float64      `json:"millisecondsBetweenTurnsOfARoom"`
	Storms      []StormRound `json:"storms"`
	Items       int          `json:"itemsDelivered"`
	Lost        int          `json:"itemsLost"`                    // must be 0
	Doubled     int          `json:"itemsDoubled"`                 // must be 0
	Differ      int          `json:"connectionsThatSawOtherItems"` // must be 0: the same number of items, but others or in another order
	Faults      []string     `json:"faults"`                       // must be none
}

// StormRound is one storm.
type StormRound struct {
	Kind          string  `json:"kind"`              // reset or kill
	ReadyMs       float64 `json:"readyMs,omitempty"` // of the server that was started after a kill
	CaughtUpP50Ms float64 `json:"caughtUpP50Ms"`     // from the loss (after a kill: from ready)
	CaughtUpMaxMs float64 `json:"caughtUpMaxMs"`     // of the last connection
	Dials         int     `json:"dialsRepeated"`     // connections that had to be tried again
	ServerCPU     float64 `json:"serverCPUSeconds"`  // from the loss until the last was caught up
	TurnMaxMs     float64 `json:"turnOfARoomMaxMs"`  // of the rooms' own turns that ended meanwhile
}

// Bad reports whether anything was lost or doubled, or a connection ended by itself.
func (r *StormResult) Bad() bool { return r.Lost+r.Doubled+r.Differ+len(r.Faults) > 0 }

// storm is one run of W5. up is held for writing while there is no server.
type storm struct {
	config StormConfig
	server *server
	crowd  *crowd
	up     sync.RWMutex
	stormy atomic.Bool // connections may end
	dials  atomic.Int64
	back   chan time.Time // when a viewer was caught up again; room for all
	over   atomic.Bool    // speakers stop

	mu    sync.Mutex // guards what follows
	turns []time.Duration
	fault []string
}

// Storm runs W5.
func Storm(ctx context.Context, c StormConfig) (res *StormResult, err error) {
	orDefault(&c.Connections, 5000)
	orDefault(&c.Rooms, min(50, c.Connections))
	orDefault(&c.Losses, 3)
	orDefault(&c.Kills, 1)
	orDefault(&c.Pace, 2*time.Second)
	orDefault(&c.Calm, 3*time.Second)
	if err := openFiles(2*c.Connections + 1000); err != nil {
		return nil, err
	}
	dir, remove, err := c.open("storm")
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
	w := &storm{config: c, server: s, crowd: newCrowd(), back: make(chan time.Time, c.Connections)}
	w.crowd.sums = true
	res = &StormResult{
		result: newResult("W5 storm", dir, lifted), Connections: c.Connections, Rooms: c.Rooms, PaceMs: ms(c.Pace), Faults: []string{},
	}
	if err := w.run(ctx, res); err != nil {
		err = errors.Join(err, s.kill())
		_ = w.crowd.leave() // that the connections are lost says nothing now
		return nil, err
	}
	if _, err := s.stop(); err != nil {
		return nil, err
	}
	journal, err := s.replay(ctx)
	if err != nil {
		return nil, err
	}
	res.judge(w.crowd.viewers, journal)
	res.Faults = append(res.Faults, w.fault...)
	res.print(c.Out)
	return res, nil
}

func stormRoom(i int) string { return fmt.Sprint("bench-s-", i) }

// run lets the connections in, has the storms pass, and lets everybody go once
// all have what there is.
func (w *storm) run(ctx context.Context, res *StormResult) error {
	c := w.config
	var speakers sync.WaitGroup
	defer speakers.Wait()
	defer w.over.Store(true)
	speakerOf := make([]*seat, c.Rooms)
	for i := range c.Rooms {
		seat, err := sit(ctx, w.server, stormRoom(i), "s")
		if err == nil {
			_, err = seat.turn() // the viewers begin after it
		}
		if err != nil {
			return err
		}
		speakerOf[i] = seat
	}
	if err := w.enter(ctx); err != nil {
		return err
	}
	for i, seat := range speakerOf {
		speakers.Go(func() { w.speak(ctx, seat, time.Duration(i)*c.Pace/time.Duration(c.Rooms)) })
	}
	for i := range max(0, c.Losses) + max(0, c.Kills) {
		if err := rest(ctx, c.Calm); err != nil {
			return err
		}
		round, err := w.pass(ctx, i >= max(0, c.Losses), i)
		if err != nil {
			return err
		}
		res.Storms = append(res.Storms, round)
	}
	if err := rest(ctx, c.Calm); err != nil {
		return err
	}
	w.over.Store(true)
	speakers.Wait()
	// Everybody gets the rest; then nothing comes any more.
	for before, still := int64(-1), 0; still < 5; still++ {
		if now := w.crowd.items.Load(); now != before {
			before, still = now, 0
		}
		if err := rest(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
	return w.crowd.leave()
}

// enter has the viewers connect; each comes back when it is lost in a storm.
func (w *storm) enter(ctx context.Context) error {
	c := w.config
	c0 := w.crowd
	failed := make(chan error, c.Connections)
	slots := make(chan struct{}, 64)
	var wg sync.WaitGroup
	for i := range c.Connections {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			token, err := w.server.tokenOf(fmt.Sprint("viewer-", i))
			if err != nil {
				failed <- err
				return
			}
			v := &viewer{crowd: c0, url: w.server.url(stormRoom(i % c.Rooms)), room: stormRoom(i % c.Rooms), token: token, session: fmt.Sprint("viewer-", i)}
			if err := v.connect(ctx); err != nil {
				failed <- err
				return
			}
			c0.mu.Lock()
			c0.viewers = append(c0.viewers, v)
			c0.mu.Unlock()
			c0.wg.Go(func() { w.stay(ctx, v) })
		})
	}
	wg.Wait()
	close(failed)
	return <-failed // nil when there was none
}

// stay reads, and comes back after each storm, until everybody leaves.
func (w *storm) stay(ctx context.Context, v *viewer) {
	for {
		err := v.next()
		if err == nil {
			continue
		}
		_ = v.ws.Close() // it is over
		if w.crowd.ends() || ctx.Err() != nil {
			return
		}
		if !w.stormy.Load() {
			w.note(fmt.Sprintf("%s: a connection ended by itself: %v", v.room, err))
		}
		for {
			v.state.Store(int32(down))
			w.up.RLock() // a server is there
			err = v.connect(ctx)
			w.up.RUnlock()
			if err == nil {
				break
			}
			if w.crowd.ends() {
				return
			}
			if errors.Is(err, errNotResumed) || w.dials.Add(1) > int64(100*w.config.Connections) || ctx.Err() != nil {
				w.note(fmt.Sprintf("%s: a connection did not come back: %v", v.room, err))
				return
			}
			_ = rest(ctx, time.Duration(20+rand.IntN(80))*time.Millisecond) // connect tells when it is over
		}
		if w.stormy.Load() {
			w.back <- time.Now()
		}
	}
}

func (w *storm) note(fault string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.fault) < 5 {
		w.fault = append(w.fault, fault)
	}
}

// speak has a room go on: a turn every pace, whatever happens.
func (w *storm) speak(ctx context.Context, c *seat, after time.Duration) {
	_ = rest(ctx, after) // the loop looks itself
	for !w.over.Load() && ctx.Err() == nil {
		t, err := c.turn()
		if err != nil {
			if !w.stormy.Load() {
				w.note(fmt.Sprintf("%s: its speaker: %v", c.room, err))
			}
			_ = c.ws.Close() // it is over
			w.up.RLock()     // a server is there
			next, err := sit(ctx, w.server, c.room, "s")
			w.up.RUnlock()
			if err != nil {
				w.note(fmt.Sprintf("%s: its speaker did not come back: %v", c.room, err))
				return
			}
			next.turns = c.turns
			c = next
			continue
		}
		w.mu.Lock()
		w.turns = append(w.turns, t.whole)
		w.mu.Unlock()
		_ = rest(ctx, w.config.Pace-t.whole) // the loop looks itself
	}
	_ = c.ws.Close() // done with
}

// pass has one storm pass: all viewers lose their connections, with the server
// or without, and the time is taken until the last is caught up again.
func (w *storm) pass(ctx context.Context, kill bool, number int) (r StormRound, err error) {
	r.Kind = "reset"
	w.dials.Store(0)
	w.mu.Lock()
	w.turns = nil
	w.mu.Unlock()
	w.stormy.Store(true)
	defer w.stormy.Store(false)
	before, _, err := w.server.usage()
	if err != nil {
		return r, err
	}
	profiled := make(chan error, 1)
	began := time.Now()
	if kill {
		r.Kind = "kill"
		w.up.Lock()
		err = w.server.kill()
		if err == nil {
			var ready time.Duration
			ready, err = w.server.start(ctx)
			r.ReadyMs = ms(ready)
		}
		w.up.Unlock()
		if err != nil {
			return r, err
		}
		before, began = 0, time.Now()
		profiled <- nil
	} else {
		go func() {
			profiled <- w.config.profile(w.server, "profile", fmt.Sprintf("w5-cpu-%d", number), 2*time.Second)
		}()
		w.crowd.mu.Lock()
		for _, v := range w.crowd.viewers {
			reset(v.ws)
		}
		w.crowd.mu.Unlock()
	}
	var took []time.Duration
	late := time.NewTimer(2 * time.Minute)
	defer late.Stop()
	look := time.NewTicker(200 * time.Millisecond)
	defer look.Stop()
	for len(took) < w.config.Connections {
		select {
		case at := <-w.back:
			took = append(took, at.Sub(began))
		case <-look.C: // one that did not come back would be waited for in vain
			w.mu.Lock()
			faults := strings.Join(w.fault, "; ")
			w.mu.Unlock()
			if faults != "" {
				return r, fmt.Errorf("a storm ended badly: %s", faults)
			}
		case <-late.C:
			return r, fmt.Errorf("%d of %d connections were caught up after two minutes", len(took), w.config.Connections)
		case <-ctx.Done():
			return r, context.Cause(ctx)
		}
	}
	after, _, err := w.server.usage()
	r.CaughtUpP50Ms, r.CaughtUpMaxMs = ms(quantile(took, 0.5)), ms(quantile(took, 1))
	r.Dials, r.ServerCPU = int(w.dials.Load()), (after - before).Seconds()
	w.mu.Lock()
	r.TurnMaxMs = ms(quantile(w.turns, 1))
	w.mu.Unlock()
	return r, errors.Join(err, <-profiled)
}

// reset drops a connection as a failing network does: the server gets a reset
// instead of an end.
func reset(ws *websocket.Conn) {
	if tcp, ok := ws.NetConn().(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // closing is all that matters
	}
	_ = ws.NetConn().Close() // it is to be lost
}

// judge holds what every viewer got against the journal: all that it shows after
// the first turn of the room, each once and in order. The viewers have ended.
func (r *StormResult) judge(viewers []*viewer, journal map[string][]entry) {
	type whole struct {
		count int
		sum   uint64
	}
	want := map[string]whole{}
	for room, entries := range journal {
		var w whole
		begun := false
		for i := range entries {
			e := &entries[i]
			if begun && !e.hidden() {
				w.count++
				w.sum = addID(w.sum, e.ID)
			}
			begun = begun || terminal(e.Type)
		}
		want[room] = w
	}
	for _, v := range viewers {
		w, got := want[v.room], int(v.total)
		r.Items += got
		switch {
		case got < w.count:
			r.Lost += w.count - got
		case got > w.count:
			r.Doubled += got - w.count
		case v.sum != w.sum:
			r.Differ++
		}
	}
}

func (r *StormResult) print(w io.Writer) {
	for _, s := range r.Storms {
		label := fmt.Sprintf("W5 %d connections, %s", r.Connections, s.Kind)
		if s.Kind == "kill" {
			printFigures(w, label, figure{"server ready again", "ms", s.ReadyMs})
		}
		printFigures(w, label,
			figure{"caught up p50", "ms", s.CaughtUpP50Ms},
			figure{"all caught up", "ms", s.CaughtUpMaxMs},
			figure{"dials repeated", "", float64(s.Dials)},
			figure{"server CPU until all were caught up", "s", s.ServerCPU},
			figure{"longest turn of a room meanwhile", "ms", s.TurnMaxMs})
	}
	printFigures(w, "W5",
		figure{"items delivered", "", float64(r.Items)},
		figure{"items lost (must be 0)", "", float64(r.Lost)},
		figure{"items doubled (must be 0)", "", float64(r.Doubled)},
		figure{"connections that saw other items (must be 0)", "", float64(r.Differ)},
		figure{"other faults (must be 0)", "", float64(len(r.Faults))})
	for _, f := range r.Faults {
		_, _ = fmt.Fprintf(w, "W5 fault: %s\n", f)
	}
}
