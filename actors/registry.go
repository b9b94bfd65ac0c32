package actors

import (
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"parley/event"
)

// registry knows which rooms are awake. It alone starts and stops room actors
// and keeps their addresses. One actor; it outlives Shutdown, so that whatever
// comes late is answered.
//
// A room stops in four steps: it asks to rest; the registry holds what arrives
// and tells it to; the room writes what hibernation needs and says that it
// rests, or that it is busy after all; the registry stops the actor and waits
// for its end. If something has arrived meanwhile, a new actor gets it in order.
type registry struct {
	sys   *System
	slots map[event.RoomID]*slot
	byPID map[string]*slot // by the id of the actor
	room  *actor.Props
	next  *roomActor // made by spawn for the producer of room

	alarms  *alarms
	timer   *time.Timer
	armed   time.Time
	scans   bool
	due     []event.RoomID // to be woken, the next one last
	waking  int            // woken from due and not settled yet
	closing bool           // Shutdown was called
	gone    bool           // and no room was left
}

// slot is one room that is awake.
type slot struct {
	id    event.RoomID
	pid   *actor.PID
	phase slotPhase
	held  []*request // while it is not open
	wakes bool       // it was woken from due and has not settled
	alarm time.Time  // its alarm once it rests
}

type slotPhase uint8

const (
	slotOpen     slotPhase = iota // the actor takes requests
	slotResting                   // it was told to rest
	slotStopping                  // it rests; its end is awaited
)

// The messages to the registry.
type (
	// wantsRest asks to stop; answered by restNow when nothing speaks against it.
	wantsRest struct{ pid *actor.PID }
	// rests says that the room can be stopped, or when busy, that it cannot.
	rests struct {
		pid   *actor.PID
		busy  bool
		alarm time.Time // zero: none
	}
	// settled says that a room woken from due has done what it was woken for.
	settled struct{ pid *actor.PID }
	// scanned is the result of reading the journal's alarms.
	scanned struct {
		due   []event.RoomID
		later *alarms
		err   error
	}
	alarmRings struct{}
	shutDown   struct{}
	abortRooms struct{}
)

func newRegistry(s *System) *registry {
	g := &registry{sys: s, slots: map[event.RoomID]*slot{}, byPID: map[string]*slot{}, alarms: newAlarms(s.cfg.AlarmsHeld)}
	// One Props for all rooms: the producer runs inside Spawn, on this actor.
	g.room = actor.PropsFromProducer(func() actor.Actor { return g.next },
		actor.WithSupervisor(stopOnFailure), actor.WithDispatcher(dispatcher{s.pool}))
	return g
}

// Receive implements actor.Actor. Whatever goes wrong with one message, the
// registry goes on: without it no room could be reached.
func (g *registry) Receive(ctx actor.Context) {
	defer func() {
		if v := recover(); v != nil {
			g.sys.logPanic(InRegistry, "panic in the registry of rooms", "", v)
		}
	}()
	switch m := ctx.Message().(type) {
	case *request:
		g.deliver(ctx, m)
	case wantsRest:
		if x := g.byPID[m.pid.Id]; x != nil && x.phase == slotOpen {
			x.phase = slotResting
			ctx.Send(x.pid, restNow{})
		}
	case rests:
		g.rests(ctx, m)
	case settled:
		g.settled(ctx, g.byPID[m.pid.Id])
	case *actor.Terminated:
		g.terminated(ctx, m.Who)
	case scanned:
		g.merge(ctx, m)
	case alarmRings:
		g.armed = time.Time{}
		g.ring(ctx)
	case shutDown:
		g.shutDown(ctx)
	case abortRooms:
		for _, x := range g.slots {
			ctx.Send(x.pid, abortNow{})
		}
	}
}

func (g *registry) deliver(ctx actor.Context, q *request) {
	if g.closing {
		g.sys.answer(q, nil, refuseShutdown())
		return
	}
	x := g.slots[q.room]
	if x == nil {
		x = g.spawn(ctx, q.room)
	}
	switch {
	case x.phase == slotOpen:
		ctx.Send(x.pid, q)
	case len(x.held) < g.sys.cfg.MaxQueued:
		x.held = append(x.held, q)
	default:
		g.sys.answer(q, nil, refuseBusy())
	}
}

func (g *registry) spawn(ctx actor.Context, id event.RoomID) *slot {
	g.next = newRoomActor(g.sys, id)
	pid := ctx.Spawn(g.room)
	g.next = nil
	x := &slot{id: id, pid: pid}
	g.slots[id], g.byPID[pid.Id] = x, x
	g.alarms.remove(id)
	g.sys.cfg.Observer.RoomsAwake(1)
	return x
}

func (g *registry) rests(ctx actor.Context, m rests) {
	x := g.byPID[m.pid.Id]
	if x == nil || x.phase == slotStopping {
		return
	}
	if m.busy {
		x.phase = slotOpen
		for _, q := range x.held {
			ctx.Send(x.pid, q)
		}
		x.held = nil
		if g.closing {
			ctx.Send(x.pid, drainNow{})
		}
		return
	}
	x.phase, x.alarm = slotStopping, m.alarm
	ctx.Stop(x.pid)
}

func (g *registry) terminated(ctx actor.Context, pid *actor.PID) {
	x := g.byPID[pid.Id]
	if x == nil {
		return
	}
	delete(g.byPID, pid.Id)
	delete(g.slots, x.id)
	g.sys.cfg.Observer.RoomsAwake(-1)
	if x.phase != slotStopping {
		g.sys.log.Error("a room's actor ended by itself", zap.String("room", string(x.id)))
	}
	if len(x.held) > 0 {
		y := g.spawn(ctx, x.id)
		for _, q := range x.held {
			ctx.Send(y.pid, q)
		}
	} else if !x.alarm.IsZero() && !g.closing {
		g.alarms.set(x.id, x.alarm)
		g.arm(ctx)
	}
	g.settled(ctx, x)
	g.ended()
}

// settled lets the next room wake in the place of one that was woken from due.
func (g *registry) settled(ctx actor.Context, x *slot) {
	if x != nil && x.wakes {
		x.wakes = false
		g.waking--
		g.wake(ctx)
	}
}

// wake starts rooms that are due, RecoverAtOnce at a time. A room that is awake
// already minds its own time.
func (g *registry) wake(ctx actor.Context) {
	for g.waking < g.sys.cfg.RecoverAtOnce && len(g.due) > 0 {
		id := g.due[len(g.due)-1]
		g.due = g.due[:len(g.due)-1]
		if g.slots[id] == nil {
			g.spawn(ctx, id).wakes = true
			g.waking++
		}
	}
	if len(g.due) == 0 {
		g.due = nil
	}
}

func (g *registry) merge(ctx actor.Context, m scanned) {
	g.scans = false
	if g.closing {
		return
	}
	if m.err != nil {
		g.sys.log.Error("the alarms of the journal could not be read", zap.Error(m.err))
		g.alarms.horizon = g.sys.cfg.Clock().Add(g.sys.cfg.Retry).UnixMilli()
	} else {
		slices.Reverse(m.due)
		g.due = append(g.due, m.due...)
		for _, a := range m.later.heap {
			if g.slots[a.room] == nil {
				g.alarms.set(a.room, time.UnixMilli(a.at))
			}
		}
		if h := m.later.horizon; h != 0 && (g.alarms.horizon == 0 || h < g.alarms.horizon) {
			g.alarms.horizon = h
		}
		g.wake(ctx)
	}
	g.arm(ctx)
}

// ring wakes the rooms whose alarm has come.
func (g *registry) ring(ctx actor.Context) {
	if g.closing {
		return
	}
	now := g.sys.cfg.Clock()
	g.due = append(g.due, g.alarms.due(now)...)
	if !g.scans && g.alarms.rescan(now) {
		g.scans = true
		g.scan(ctx.Self(), now)
	}
	g.wake(ctx)
	g.arm(ctx)
}

func (g *registry) scan(self *actor.PID, now time.Time) {
	s := g.sys
	s.work.add()
	go func() {
		defer s.work.done()
		due, later, err := scan(s.cfg.Journal, now, s.cfg.AlarmsHeld)
		s.root.Send(self, scanned{due: due, later: later, err: err})
	}()
}

// arm sets the one timer for all hibernated rooms.
func (g *registry) arm(ctx actor.Context) {
	next := g.alarms.next()
	if next.IsZero() || g.closing || !g.armed.IsZero() && !next.Before(g.armed) {
		return
	}
	g.armed = next
	d := max(0, next.Sub(g.sys.cfg.Clock()))
	if g.timer == nil {
		self, root := ctx.Self(), g.sys.root
		g.timer = time.AfterFunc(d, func() { root.Send(self, alarmRings{}) })
	} else {
		g.timer.Reset(d)
	}
}

func (g *registry) shutDown(ctx actor.Context) {
	g.closing, g.due = true, nil
	if g.timer != nil {
		g.timer.Stop()
	}
	for _, x := range g.slots {
		for _, q := range x.held {
			g.sys.answer(q, nil, refuseShutdown())
		}
		x.held = nil
		if x.phase == slotOpen {
			ctx.Send(x.pid, drainNow{})
		}
	}
	g.ended()
}

// ended tells Shutdown when the last room has stopped.
func (g *registry) ended() {
	if g.closing && !g.gone && len(g.slots) == 0 {
		g.gone = true
		close(g.sys.down)
	}
}

// logPanic counts a panic and logs it by its type and stack, never by its value: that may
// hold what people say.
func (s *System) logPanic(where Place, msg string, room event.RoomID, v any) {
	s.cfg.Observer.Panicked(where)
	s.log.Error(msg, zap.String("room", string(room)), zap.String("type", fmt.Sprintf("%T", v)),
		zap.ByteString("stack", debug.Stack()))
}

func refuseShutdown() error {
	return event.Refuse(event.Unavailable, "the server is shutting down; connect again and send it anew with the same id")
}

func refuseBusy() error {
	r := event.Refuse(event.Unavailable, "too many commands wait for this room; send it again with the same id")
	r.Retry = time.Second
	return r
}
