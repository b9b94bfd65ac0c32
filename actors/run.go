package actors

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"parley/driver"
	"parley/event"
	"parley/room"
)

// runActor is one attempt of one driver: it starts the driver's goroutine,
// cancels it, and abandons it when it does not obey (C5). A child of its room;
// it stops itself once the room has ended the attempt and the driver has
// returned or was abandoned. What the driver says does not pass through it.
type runActor struct {
	sys   *System
	room  event.RoomID
	start room.StartAttempt
	out   *emitter

	ctx      context.Context
	cancel   context.CancelCauseFunc
	grace    *time.Timer // runs from the end of the attempt to the return of the driver
	ended    bool        // the room has ended the attempt
	returned bool        // the driver's goroutine is over
	// fate decides once whether the driver returned or was abandoned. It is
	// shared with the driver's goroutine.
	fate atomic.Int32
}

const (
	running int32 = iota
	hasReturned
	wasAbandoned
)

// The messages to a run actor.
type (
	// endAttempt says that the room takes nothing more of the attempt.
	endAttempt struct {
		mayBeLate
		cause room.StopCause
	}
	// driverReturned is the last act of the driver's goroutine.
	driverReturned struct{ mayBeLate }
	// graceOver says that the driver had its time.
	graceOver struct{ mayBeLate }
)

// mayBeLate marks a message that may come after the end of its actor, so that
// the engine does not log it.
type mayBeLate struct{}

// IgnoreDeadLetterLogging is what the engine looks for.
func (mayBeLate) IgnoreDeadLetterLogging() {}

func newRunActor(sys *System, id event.RoomID, start room.StartAttempt, out *emitter) *runActor {
	a := &runActor{sys: sys, room: id, start: start, out: out}
	a.ctx, a.cancel = context.WithCancelCause(context.Background())
	return a
}

// log names the attempt. It is made when there is something to say, which there
// seldom is.
func (a *runActor) log() *zap.Logger {
	return a.sys.log.With(zap.String("room", string(a.room)), zap.String("run", string(a.start.Run)),
		zap.Uint32("attempt", a.start.Attempt), zap.String("agent", string(a.start.Agent.ID)))
}

// Receive implements actor.Actor.
func (a *runActor) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *actor.Started:
		a.sys.work.add()
		a.sys.cfg.Observer.AttemptStarted(a.start.Resumed)
		self := ctx.Self()
		a.sys.pool.Go(func() { a.drive(self) })
	case endAttempt:
		a.end(ctx, m.cause)
	case driverReturned:
		a.returned = true
		if a.ended {
			ctx.Stop(ctx.Self())
		}
	case graceOver:
		a.abandon()
		ctx.Stop(ctx.Self())
	case *actor.Stopping:
		// The room is taken down around this attempt.
		a.end(ctx, room.Drained)
		a.abandon()
	case *actor.Stopped:
		if a.grace != nil {
			a.grace.Stop()
		}
	}
}

func (a *runActor) end(ctx actor.Context, cause room.StopCause) {
	if a.ended {
		return
	}
	a.ended = true
	a.out.close(causes[cause].emit)
	a.cancel(causes[cause].ctx)
	if a.returned {
		ctx.Stop(ctx.Self())
		return
	}
	self := ctx.Self()
	a.grace = time.AfterFunc(a.sys.cfg.Grace, func() { a.sys.root.Send(self, graceOver{}) })
}

// abandon gives the driver up. Its goroutine is no longer waited for; that it
// is still there is counted until it returns.
func (a *runActor) abandon() {
	if !a.fate.CompareAndSwap(running, wasAbandoned) {
		return
	}
	a.log().Warn("driver abandoned: it did not return after its context was done")
	a.sys.cfg.Observer.AttemptOver()
	a.sys.census.abandoned(a.room, a.start.Agent.ID)
	a.sys.work.done()
}

// drive is the driver's goroutine.
func (a *runActor) drive(self *actor.PID) {
	failed := true
	defer func() {
		// Also reached by runtime.Goexit, which leaves failed set.
		if v := recover(); v != nil {
			failed = true
			a.sys.cfg.Observer.Panicked(InDriver)
			a.log().Error("driver panicked", zap.String("type", fmt.Sprintf("%T", v)), zap.ByteString("stack", debug.Stack()))
		}
		if failed && a.ctx.Err() == nil {
			a.sys.cfg.Observer.DriverFailed()
		}
		a.out.finish(failed)
		if !a.fate.CompareAndSwap(running, hasReturned) {
			a.sys.census.returned(a.room, a.start.Agent.ID)
			return
		}
		a.sys.cfg.Observer.AttemptOver()
		a.sys.root.Send(self, driverReturned{})
		a.sys.work.done()
	}()
	failed = a.invoke() != nil
}

// invoke calls the driver; an error of it is logged here.
func (a *runActor) invoke() error {
	d, ok := a.sys.cfg.Drivers(a.start.Agent.Driver)
	if !ok {
		a.log().Error("no driver of that name", zap.String("driver", a.start.Agent.Driver))
		return errNoDriver
	}
	turn, err := a.turn()
	if err != nil {
		a.log().Error("an attempt could not read its context", zap.Error(err))
		return err
	}
	switch d := d.(type) {
	case driver.Runner:
		err = d.Run(a.ctx, turn, a.out)
	case driver.Responder:
		var decision *event.Decision
		if decision, err = d.Respond(a.ctx, turn); err == nil && decision != nil {
			err = a.out.Emit(*decision) // E5
		}
	default:
		err = driver.Check(a.start.Agent.Driver, d)
	}
	if err != nil && a.ctx.Err() == nil {
		// E4: the text of a driver's error may hold what people or models said.
		a.log().Warn("driver failed", zap.String("type", fmt.Sprintf("%T", err)), zap.Int("length", len(err.Error())))
		a.log().Debug("driver failed", zap.Error(err))
	}
	return err
}

var errNoDriver = errors.New("actors: no driver of that name")
