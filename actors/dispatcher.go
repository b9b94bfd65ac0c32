package actors

import "parley/internal/workerpool"

// dispatcher runs the actors that have messages. The engine's own starts a
// goroutine each time a mailbox becomes busy.
type dispatcher struct{ pool *workerpool.Pool }

// Schedule implements actor.Dispatcher. It does not block.
func (d dispatcher) Schedule(fn func()) { d.pool.Go(fn) }

// Throughput implements actor.Dispatcher: after so many messages an actor lets
// others run.
func (dispatcher) Throughput() int { return 300 }
