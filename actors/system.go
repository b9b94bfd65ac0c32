package actors

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"parley/event"
	"parley/internal/workerpool"
)

// System runs the rooms of a process. Safe for concurrent use.
type System struct {
	cfg      Config
	log      *zap.Logger
	engine   *actor.ActorSystem
	root     *actor.RootContext
	registry *actor.PID
	feeds    feeds
	census   *census
	rand     *randomness
	pool     *workerpool.Pool
	work     tally         // drivers at work, loads and scans
	down     chan struct{} // closed by the registry when no room is left after Shutdown
	aborted  chan struct{} // closed when Shutdown gives up waiting

	shutdown sync.Once
	result   error         // of Shutdown
	stopped  chan struct{} // closed once result is set
}

// New makes a System. Nothing is started but an actor that waits; call Start
// once, and Shutdown when done.
func New(c Config) (*System, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("actors: the configuration is not usable:\n%w", err)
	}
	c = c.withDefaults()
	s := &System{
		cfg: c, log: c.Logger, rand: newRandomness(c.Rand),
		pool:    workerpool.New(),
		census:  newCensus(c.AbandonedPerAgent, c.AbandonedPerNode, c.Observer),
		down:    make(chan struct{}),
		aborted: make(chan struct{}),
		stopped: make(chan struct{}),
	}
	// The engine's own log lines hold messages, and messages hold what people
	// say. What matters of them is logged here.
	s.engine = actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger {
		return slog.New(slog.DiscardHandler)
	}))
	s.root = s.engine.Root
	s.registry = s.root.Spawn(actor.PropsFromProducer(func() actor.Actor { return newRegistry(s) },
		actor.WithSupervisor(stopOnFailure), actor.WithDispatcher(dispatcher{s.pool})))
	return s, nil
}

// stopOnFailure stops a child whose Receive panicked although it recovers
// itself: a restarted instance would know nothing.
var stopOnFailure = actor.NewOneForOneStrategy(0, 0, func(any) actor.Directive { return actor.StopDirective })

// Start reads the journal's alarms and begins to wake the rooms that are due,
// the latest first, a bounded number at a time (R1). It returns when they are
// known; commands of all rooms are served meanwhile.
func (s *System) Start(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	due, later, err := scan(s.cfg.Journal, s.cfg.Clock(), s.cfg.AlarmsHeld)
	if err != nil {
		return fmt.Errorf("actors: reading the alarms of the journal: %w", err)
	}
	s.root.Send(s.registry, scanned{due: due, later: later})
	return nil
}

// Do hands a command to a room, which is woken if need be. Commands of one
// caller for one room are decided in their order. The answer is a reply or an
// error, which is an *event.Refusal; done is called with it exactly once, from
// an actor's goroutine, when all it was computed from is durable. It must not
// block. After Shutdown every command is refused as Unavailable.
func (s *System) Do(room event.RoomID, cmd event.Command, done func(event.Reply, error)) {
	s.root.Send(s.registry, &request{room: room, cmd: cmd, done: done})
}

// Ask is Do for a caller that waits. When ctx ends first, its error is returned
// and the outcome of the command is not known.
func (s *System) Ask(ctx context.Context, room event.RoomID, cmd event.Command) (event.Reply, error) {
	type answer struct {
		reply event.Reply
		err   error
	}
	c := make(chan answer, 1)
	s.Do(room, cmd, func(r event.Reply, err error) { c <- answer{r, err} })
	select {
	case a := <-c:
		return a.reply, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// View returns what there is to see of a room at its durable head, if somebody
// has asked the room for it since it last changed; else nil, and an
// event.ReadView has to go through Do. So a thousand resumes cost one message.
func (s *System) View(room event.RoomID) *event.View {
	f := s.feeds.find(room)
	if f == nil {
		return nil
	}
	v, t := f.view.Load(), f.tail.Load()
	if v == nil || t == nil || v.Head != t.head {
		return nil
	}
	return v
}

// Follow calls moved with the durable head of a room whenever it has moved,
// until stop is called; a call under way may still end after that. moved must
// not block. A room that hibernates stays followed. Follow first, then Read:
// nothing is told about what was there before.
func (s *System) Follow(room event.RoomID, moved func(head event.Seq)) (stop func()) {
	return s.feeds.follow(room, moved)
}

// Read returns at most max durable entries of a room after a position, in
// order, and the durable head; none only when the position is at the head or
// beyond it. It wakes no room. The entries are shared and must not be changed.
func (s *System) Read(room event.RoomID, after event.Seq, max int) ([]*event.Entry, event.Seq, error) {
	t := s.tail(room)
	if t == nil {
		head, err := s.cfg.Journal.Head(room)
		if err != nil {
			return nil, 0, fmt.Errorf("actors: reading the head of room %s: %w", room, err)
		}
		// A room that hibernates has nothing in flight, so its head is durable.
		// If it woke up in between, it has published the head that bounds us.
		if t = s.tail(room); t == nil {
			t = &tail{head: head}
		}
	}
	if es, ok := t.after(after, max); ok {
		return es, t.head, nil
	}
	es, err := s.cfg.Journal.Read(room, after, t.head, max)
	if err != nil {
		return nil, 0, fmt.Errorf("actors: reading room %s after %d: %w", room, after, err)
	}
	return es, t.head, nil
}

func (s *System) tail(room event.RoomID) *tail {
	if f := s.feeds.find(room); f != nil {
		return f.tail.Load()
	}
	return nil
}

// Shutdown refuses new commands, lets the attempts in flight go in good order,
// waits for their drivers, hibernates every room, and answers every command
// that was given. After DrainGrace, or when ctx ends, it gives up waiting and
// reports what was left; what is durable stays so. Later calls wait for the
// first and return its error.
func (s *System) Shutdown(ctx context.Context) error {
	s.shutdown.Do(func() {
		s.result = s.drain(ctx)
		s.pool.Close()
		s.engine.Shutdown() // stops no actor; a second call would panic
		close(s.stopped)
	})
	<-s.stopped
	return s.result
}

func (s *System) drain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.DrainGrace)
	defer cancel()
	s.root.Send(s.registry, shutDown{})
	select {
	case <-s.down:
	case <-ctx.Done():
		return s.abort()
	}
	select {
	case <-s.work.wait():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("actors: some reads of the journal did not end in time")
	}
}

// abort takes the rooms down without waiting for what they wait for. Only a
// room that is inside a call of the journal cannot be reached.
func (s *System) abort() error {
	close(s.aborted)
	s.root.Send(s.registry, abortRooms{})
	t := time.NewTimer(s.cfg.Retry)
	defer t.Stop()
	select {
	case <-s.down:
		return fmt.Errorf("actors: some rooms did not come to rest in time; they are recovered at the next start")
	case <-t.C:
		return fmt.Errorf("actors: some rooms do not answer; they are recovered at the next start")
	}
}

// request is a command on its way. It is answered exactly once, by whoever
// holds it.
type request struct {
	mayBeLate
	room event.RoomID
	cmd  event.Command
	done func(event.Reply, error)
}

// answer gives a request its answer. What the caller's function does wrong is
// its own affair.
func (s *System) answer(q *request, reply event.Reply, err error) {
	defer func() {
		if v := recover(); v != nil {
			s.logPanic(InCallback, "panic in a caller's function", q.room, v)
		}
	}()
	if err != nil {
		reply = nil
		if r, ok := event.AsRefusal(err); ok {
			s.cfg.Observer.Refused(r.Reason)
		}
	}
	q.done(reply, err)
}
