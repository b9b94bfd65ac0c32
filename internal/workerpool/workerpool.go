// Package workerpool runs short tasks on goroutines that are used again.
//
// It is not a limit: a task never waits for a free goroutine, it gets a new one.
// What it saves is the growth of stacks. A new goroutine begins with 2 KB, and a
// task that needs more has its stack copied once or twice each time; a few
// goroutines that wait for the next task keep theirs. Actors and the gateway
// start one for every flush, attempt and burst of frames.
//
// On two busy cores the benchmark BenchmarkTurn of package actors went from 118
// to 80 µs per turn at 1 room and from 123 to 110 at 128; with 4 goroutines a
// core instead of 32 it gained nothing at 128.
package workerpool

import (
	"runtime"
	"sync/atomic"
)

// Pool is a set of goroutines that wait for tasks. Safe for concurrent use.
type Pool struct {
	work chan func() // without capacity: taken by one who waits, or by nobody
	quit chan struct{}
	idle atomic.Int32
	keep int32
}

// New makes a pool that keeps at most 32 idle goroutines a core. Close it.
func New() *Pool {
	return &Pool{work: make(chan func()), quit: make(chan struct{}), keep: int32(32 * runtime.GOMAXPROCS(0))}
}

// Go runs a task on another goroutine. It does not block.
func (p *Pool) Go(task func()) {
	select {
	case p.work <- task:
	default:
		go p.run(task)
	}
}

func (p *Pool) run(task func()) {
	for {
		task()
		if p.idle.Add(1) > p.keep {
			p.idle.Add(-1)
			return
		}
		select {
		case task = <-p.work:
			p.idle.Add(-1)
		case <-p.quit:
			p.idle.Add(-1)
			return
		}
	}
}

// Close lets the waiting goroutines end. A task that comes after that gets a
// goroutine of its own. It is called once.
func (p *Pool) Close() { close(p.quit) }
