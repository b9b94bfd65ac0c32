package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

// IdleConfig is W3: what connections and rooms cost that do nothing.
type IdleConfig struct {
	Place
	Connections int           // 0: 5,000
	Rooms       []int         // over how many rooms they are spread, one measurement each; empty: 50 and Connections
	Resident    int           // rooms that are awake without a connection; 0: 10,000, negative: not measured
	Hibernated  int           // rooms that are in the store only; 0: 100,000, negative: not measured
	Sleep       time.Duration // after which a room without commands hibernates; 0: 60 s, the server's default
	Forget      time.Duration // after which the server forgets a subject that left a room; 0: 120 s, its default
}

// IdleResult is W3. Memory is RSS after a collection that gives back what is
// free, less that of the same process before; KB are 1,000 bytes.
type IdleResult struct {
	result
	Connections  []IdleConnections `json:"connections"`
	RawPerConn   float64           `json:"rawGorillaKBPerConnection"` // with read buffers of 1 KiB and pooled write buffers
	RawHeap      float64           `json:"rawGorillaHeapKBPerConnection"`
	RawStacks    float64           `json:"rawGorillaStackKBPerConnection"`
	RawRoutines  float64           `json:"rawGorillaGoroutinesPerConnection"`
	Resident     *IdleRooms        `json:"residentRooms,omitempty"`
	Hibernated   *IdleRooms        `json:"hibernatedRooms,omitempty"`
	EmptyRSSMega float64           `json:"emptyServerRSSMegabytes"`
}

// IdleConnections is W3 of connections that are caught up, each of a subject of
// its own. Awake is some seconds after the last came in, Asleep once the rooms
// have hibernated and the connections are all there is.
type IdleConnections struct {
	Count  int       `json:"count"`
	Rooms  int       `json:"rooms"`
	Awake  Footprint `json:"perConnectionRoomsAwake"`
	Asleep Footprint `json:"perConnectionRoomsAsleep"`
}

// IdleRooms is W3 of rooms without connections. A server remembers for two
// minutes who visited a room; Awake is without that, AwakeVisited with it.
// GivenBack is what a room that goes to sleep gives back. Asleep is what is left
// in the process that made the rooms, once it has forgotten their visitors;
// Reopened what a process has that has only opened their store.
type IdleRooms struct {
	Count         int       `json:"count"`
	SecondsToMake float64   `json:"secondsToMake"`
	Awake         Footprint `json:"perRoomAwake"`
	AwakeVisited  Footprint `json:"perRoomAwakeAndVisited"`
	GivenBack     Footprint `json:"perRoomGivenBackAtSleep"`
	Asleep        Footprint `json:"perRoomAsleep"`
	Reopened      Footprint `json:"perRoomReopened"`
	WereAwake     int       `json:"roomsAwakeWhenMeasuredAwake"`  // fewer than Count: the figures of awake rooms are too low
	StayedAwake   int       `json:"roomsAwakeWhenMeasuredAsleep"` // more than 0: those of rooms that sleep are too high
}

// Footprint is memory per thing, in KB of 1,000 bytes, and goroutines.
type Footprint struct {
	RSS        float64 `json:"rssKB"`
	Anonymous  float64 `json:"anonymousKB"` // RSS without mapped files
	HeapInUse  float64 `json:"heapInUseKB"`
	Stacks     float64 `json:"stackKB"`
	Goroutines float64 `json:"goroutines"`
}

// per is the growth from one reading to another, by n.
func per(from, to memory, n int) Footprint {
	kb := func(a, b int64) float64 { return float64(b-a) / float64(n) / 1000 }
	return Footprint{
		RSS: kb(from.RSS, to.RSS), Anonymous: kb(from.Anonymous, to.Anonymous), HeapInUse: kb(int64(from.HeapInUse), int64(to.HeapInUse)),
		Stacks: kb(int64(from.Stacks), int64(to.Stacks)), Goroutines: float64(to.Goroutines-from.Goroutines) / float64(n),
	}
}

func (f Footprint) less(o Footprint) Footprint {
	return Footprint{
		RSS: f.RSS - o.RSS, Anonymous: f.Anonymous - o.Anonymous, HeapInUse: f.HeapInUse - o.HeapInUse,
		Stacks: f.Stacks - o.Stacks, Goroutines: f.Goroutines - o.Goroutines,
	}
}

// Idle runs W3.
func Idle(ctx context.Context, c IdleConfig) (res *IdleResult, err error) {
	orDefault(&c.Connections, 5000)
	if len(c.Rooms) == 0 {
		c.Rooms = []int{min(50, c.Connections), c.Connections}
	}
	orDefault(&c.Resident, 10_000)
	orDefault(&c.Hibernated, 100_000)
	orDefault(&c.Sleep, time.Minute)
	orDefault(&c.Forget, 2*time.Minute)
	if err := openFiles(2*c.Connections + 1000); err != nil {
		return nil, err
	}
	dir, remove, err := c.open("idle")
	if err != nil {
		return nil, err
	}
	defer settle(&err, remove)
	res = &IdleResult{result: newResult("W3 idle", dir, lifted)}
	for _, rooms := range c.Rooms {
		part, empty, err := c.connections(ctx, dir, rooms)
		if err != nil {
			return nil, fmt.Errorf("%d connections in %d rooms: %w", c.Connections, rooms, err)
		}
		res.Connections = append(res.Connections, part)
		res.EmptyRSSMega = float64(empty.RSS) / (1 << 20)
		part.print(c.Out)
	}
	if err := c.raw(ctx, dir, res); err != nil {
		return nil, err
	}
	if c.Resident > 0 {
		if res.Resident, err = c.rooms(ctx, dir, c.Resident, false); err != nil {
			return nil, fmt.Errorf("%d resident rooms: %w", c.Resident, err)
		}
		res.Resident.printResident(c.Out)
	}
	if c.Hibernated > 0 {
		if res.Hibernated, err = c.rooms(ctx, dir, c.Hibernated, true); err != nil {
			return nil, fmt.Errorf("%d hibernated rooms: %w", c.Hibernated, err)
		}
		res.Hibernated.printHibernated(c.Out)
	}
	return res, nil
}

// warm starts a server and uses it a little, so that what is made once for all
// is there before anything is counted. It returns the memory of that.
func (c *IdleConfig) warm(ctx context.Context, dir string) (s *server, empty memory, err error) {
	home, err := os.MkdirTemp(dir, "server")
	if err != nil {
		return nil, empty, fmt.Errorf("make a directory: %w", err)
	}
	if s, err = newServer(ctx, c.Binary, home); err != nil {
		return nil, empty, err
	}
	if _, err := s.start(ctx); err != nil {
		return nil, empty, err
	}
	empty, err = c.use(ctx, s)
	if err != nil {
		err = errors.Join(err, s.kill())
	}
	return s, empty, err
}

// use has a few visitors come and go, and reads the memory.
func (c *IdleConfig) use(ctx context.Context, s *server) (memory, error) {
	for range 8 {
		// New ids each time: an input that is known is not answered again.
		v, err := sit(ctx, s, "bench-warm", fmt.Sprint("w", time.Now().UnixNano()))
		if err != nil {
			return memory{}, err
		}
		if _, err := v.turn(); err != nil {
			return memory{}, errors.Join(err, v.ws.Close())
		}
		_ = v.ws.Close() // done with
	}
	if err := rest(ctx, min(2*time.Second, c.Sleep)); err != nil { // of those connections, too
		return memory{}, err
	}
	return s.memory(true)
}

func rest(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *IdleConfig) connections(ctx context.Context, dir string, rooms int) (out IdleConnections, empty memory, err error) {
	s, empty, err := c.warm(ctx, dir)
	if err != nil {
		return out, empty, err
	}
	crowd := newCrowd()
	defer func() {
		err = errors.Join(err, crowd.leave())
		_, stopErr := s.stop()
		err = errors.Join(err, stopErr)
	}()
	err = crowd.join(ctx, c.Connections, func(i int) (string, string, error) {
		token, err := s.tokenOf(fmt.Sprint("viewer-", i))
		return s.url(fmt.Sprint("bench-i-", i%rooms)), token, err
	})
	if err != nil {
		return out, empty, err
	}
	if err := rest(ctx, min(4*time.Second, c.Sleep/2)); err != nil {
		return out, empty, err
	}
	awake, err := s.memory(true)
	if err != nil {
		return out, empty, err
	}
	if err := rest(ctx, c.Sleep+c.Sleep/8); err != nil {
		return out, empty, err
	}
	asleep, err := s.memory(true)
	if err == nil {
		err = c.profile(s, "heap", fmt.Sprintf("w3-%d-rooms-heap", rooms), 0)
	}
	n := c.Connections
	return IdleConnections{Count: n, Rooms: rooms, Awake: per(empty, awake, n), Asleep: per(empty, asleep, n)}, empty, err
}

// raw measures the baseline.
func (c *IdleConfig) raw(ctx context.Context, dir string, res *IdleResult) (err error) {
	p, err := rawPeer(c.Binary, dir)
	if err != nil {
		return err
	}
	p.crowd = newCrowd()
	defer settle(&err, p.dismiss)
	join := func(c *crowd, n int) error {
		return c.join(ctx, n, func(int) (string, string, error) { return "ws://" + p.addr + "/bench-idle-1", "none", nil })
	}
	few := newCrowd()
	if err := errors.Join(join(few, 8), few.leave(), rest(ctx, time.Second)); err != nil {
		return err
	}
	pid := p.cmd.Process.Pid
	empty, err := memoryOf(p.socket, pid, true)
	if err != nil {
		return err
	}
	if err := errors.Join(join(p.crowd, c.Connections), rest(ctx, 2*time.Second)); err != nil {
		return err
	}
	full, err := memoryOf(p.socket, pid, true)
	if err != nil {
		return err
	}
	f := per(empty, full, c.Connections)
	res.RawPerConn, res.RawHeap, res.RawStacks, res.RawRoutines = f.RSS, f.HeapInUse, f.Stacks, f.Goroutines
	printFigures(c.Out, "W3",
		figure{"baseline: raw gorilla, tuned, per idle connection", "KB", f.RSS},
		figure{"baseline: raw gorilla, heap in use per connection", "KB", f.HeapInUse})
	return nil
}

// rooms makes rooms by visiting them, and measures them awake, asleep and, when
// asked for, from another process that opens their store.
func (c *IdleConfig) rooms(ctx context.Context, dir string, n int, reopen bool) (out *IdleRooms, err error) {
	s, empty, err := c.warm(ctx, dir)
	if err != nil {
		return nil, err
	}
	running := true
	defer func() {
		if running {
			_, e := s.stop()
			err = errors.Join(err, e)
		}
	}()
	began := time.Now()
	if err := visit(ctx, s, n); err != nil {
		return nil, err
	}
	out = &IdleRooms{Count: n, SecondsToMake: time.Since(began).Seconds()}
	if err := rest(ctx, min(2*time.Second, c.Sleep/8)); err != nil {
		return nil, err
	}
	awake, err := s.memory(true)
	if err != nil {
		return nil, err
	}
	if out.WereAwake, err = s.roomsAwake(); err != nil {
		return nil, err
	}
	if err := c.profile(s, "heap", fmt.Sprintf("w3-%d-awake-heap", n), 0); err != nil {
		return nil, err
	}
	// The rooms sleep, but who visited them is still known.
	if err := rest(ctx, c.Sleep+c.Sleep/8); err != nil {
		return nil, err
	}
	visited, err := s.memory(true)
	if err != nil {
		return nil, err
	}
	if err := rest(ctx, c.Forget-c.Sleep); err != nil {
		return nil, err
	}
	asleep, err := s.memory(true)
	if err == nil {
		out.StayedAwake, err = s.roomsAwake()
	}
	if err == nil {
		err = c.profile(s, "heap", fmt.Sprintf("w3-%d-asleep-heap", n), 0)
	}
	if err != nil {
		return nil, err
	}
	out.AwakeVisited, out.GivenBack, out.Asleep = per(empty, awake, n), per(visited, awake, n), per(empty, asleep, n)
	out.Awake = out.AwakeVisited.less(per(asleep, visited, n))
	_, err = s.stop()
	running = false
	if err != nil || !reopen {
		return out, err
	}
	// What a process takes that has opened this store, less one with a store of a room.
	other, _, err := c.warm(ctx, dir)
	if err != nil {
		return nil, err
	}
	if _, err := other.stop(); err != nil {
		return nil, err
	}
	read := func(s *server) (m memory, err error) {
		if _, err := s.start(ctx); err != nil {
			return m, err
		}
		m, err = c.use(ctx, s)
		_, stopErr := s.stop()
		return m, errors.Join(err, stopErr)
	}
	// The first process to open a store replays its log; what that leaves in memory
	// is the store's and not the rooms'.
	var one, many memory
	for range 2 {
		if one, err = read(other); err == nil {
			many, err = read(s)
		}
		if err != nil {
			return nil, err
		}
	}
	out.Reopened = per(one, many, n)
	return out, err
}

// visit has a visitor enter n rooms, each for the first time, and leave again.
func visit(ctx context.Context, s *server, n int) error {
	return inTurn(n, func(i int) error { return visitOne(ctx, s, fmt.Sprint("bench-r-", i)) })
}

// inTurn calls f with 0 to n-1, 32 at a time, and returns the first error it finds.
func inTurn(n int, f func(i int) error) error {
	next := make(chan int)
	const visitors = 32
	failed := make(chan error, visitors)
	var wg sync.WaitGroup
	for range visitors {
		wg.Go(func() {
			for i := range next {
				if err := f(i); err != nil {
					failed <- err
					for range next { // so that whoever hands them out goes on
					}
					return
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
	close(failed)
	return <-failed // nil when there was none
}

func visitOne(ctx context.Context, s *server, room string) error {
	v := &viewer{crowd: newCrowd(), url: s.url(room), token: s.token, session: "visitor"}
	if err := v.connect(ctx); err != nil {
		return err
	}
	// A close frame first, so that the server is the one whose port lingers.
	err := v.ws.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""))
	if err != nil {
		return errors.Join(fmt.Errorf("leave %s: %w", room, err), v.ws.Close())
	}
	for err == nil {
		err = v.next()
	}
	_ = v.ws.Close() // the server has closed it
	return nil
}

func (c *IdleConnections) print(w io.Writer) {
	label := fmt.Sprintf("W3 %d connections in %d rooms", c.Count, c.Rooms)
	printFigures(w, label,
		figure{"RSS per connection, rooms awake", "KB", c.Awake.RSS},
		figure{"heap in use per connection, rooms awake", "KB", c.Awake.HeapInUse},
		figure{"stacks per connection, rooms awake", "KB", c.Awake.Stacks},
		figure{"RSS per connection, rooms asleep", "KB", c.Asleep.RSS},
		figure{"heap in use per connection, rooms asleep", "KB", c.Asleep.HeapInUse},
		figure{"stacks per connection, rooms asleep", "KB", c.Asleep.Stacks},
		figure{"goroutines per connection", "", c.Asleep.Goroutines})
}

func (r *IdleRooms) printResident(w io.Writer) {
	printFigures(w, fmt.Sprintf("W3 %d rooms without connection", r.Count),
		figure{"made and visited in", "s", r.SecondsToMake},
		figure{"awake when they were measured", "", float64(r.WereAwake)},
		figure{"RSS per resident room", "KB", r.Awake.RSS},
		figure{"RSS per resident room, with what its visitor left", "KB", r.AwakeVisited.RSS},
		figure{"heap in use per resident room", "KB", r.Awake.HeapInUse},
		figure{"heap in use given back when it goes to sleep", "KB", r.GivenBack.HeapInUse},
		figure{"RSS per room once asleep", "KB", r.Asleep.RSS},
		figure{"heap in use per room once asleep", "KB", r.Asleep.HeapInUse})
}

func (r *IdleRooms) printHibernated(w io.Writer) {
	printFigures(w, fmt.Sprintf("W3 %d hibernated rooms", r.Count),
		figure{"made and visited in", "s", r.SecondsToMake},
		figure{"awake all the same when they were measured (should be 0)", "", float64(r.StayedAwake)},
		figure{"RSS per room, in the process that made them", "KB", r.Asleep.RSS},
		figure{"heap in use per room, in the process that made them", "KB", r.Asleep.HeapInUse},
		figure{"RSS per room, in one that opened their store", "KB", r.Reopened.RSS},
		figure{"heap in use per room, in one that opened their store", "KB", r.Reopened.HeapInUse})
}
