package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// load is a client in each of a number of rooms. Owned by one goroutine.
type load struct {
	server *server
	seats  []*seat
}

// measured is what a load did in a window of time. The zero value is of no time.
type measured struct {
	items          float64
	firsts, wholes []time.Duration // of each turn that ended in it: to the first delta, to the end
	elapsed        time.Duration
	server, client time.Duration // CPU
	machine        time.Duration // CPU of everything that ran, these two included
}

// others is the share of the machine's CPU that went to neither server nor
// client: what disturbed the figures, the kernel's work for them included.
func (m *measured) others() float64 {
	return max(0, (m.machine-m.server-m.client).Seconds()/m.elapsed.Seconds()/float64(runtime.NumCPU()))
}

func (m *measured) add(o measured) {
	m.items += o.items
	m.firsts, m.wholes = append(m.firsts, o.firsts...), append(m.wholes, o.wholes...)
	m.elapsed += o.elapsed
	m.server += o.server
	m.client += o.client
	m.machine += o.machine
}

// enter has a client enter each room and take one turn. The load is to be left
// also after an error.
func enter(ctx context.Context, s *server, rooms int) (*load, error) {
	l := &load{server: s}
	for i := range rooms {
		c, err := sit(ctx, s, fmt.Sprintf("bench-%d", i), "t")
		if err != nil {
			return l, err
		}
		l.seats = append(l.seats, c)
		if _, err := c.turn(); err != nil {
			return l, err
		}
	}
	return l, nil
}

func (l *load) leave() {
	for _, c := range l.seats {
		_ = c.ws.Close() // done with
	}
}

// instant is a reading of everything that a window is measured by.
type instant struct {
	at                      time.Time
	items                   int64
	server, client, machine time.Duration
}

func (l *load) read() (i instant, err error) {
	if i.server, _, err = l.server.usage(); err != nil {
		return i, err
	}
	if i.client, err = ownCPU(); err != nil {
		return i, err
	}
	if i.machine, err = machineCPU(); err != nil {
		return i, err
	}
	for _, c := range l.seats {
		i.items += c.total.Load()
	}
	i.at = time.Now()
	return i, nil
}

// run has all clients take turns in a closed loop, and measures a window of d.
// It begins after a fifth of that, so that starting is not in it, and ends
// before the clients stop, so that stopping is not either.
func (l *load) run(ctx context.Context, d time.Duration) (m measured, err error) {
	var window, over atomic.Bool
	ended := make(chan struct{}, 1) // a turn in the window, or a failure; full: one was
	tell := func() {
		select {
		case ended <- struct{}{}:
		default:
		}
	}
	type result struct {
		firsts, wholes []time.Duration
		err            error
	}
	results := make([]result, len(l.seats))
	var wg sync.WaitGroup
	for i, c := range l.seats {
		wg.Go(func() {
			r := &results[i]
			for !over.Load() {
				t, err := c.turn()
				if err != nil {
					r.err = err
					tell()
					return
				}
				if window.Load() {
					r.firsts, r.wholes = append(r.firsts, t.first), append(r.wholes, t.whole)
					tell()
				}
			}
		})
	}
	pause := func(d time.Duration) {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
	pause(d / 5)
	from, fromErr := l.read()
	window.Store(true)
	pause(d)
	select { // on a machine that is too busy the window grows until something is in it
	case <-ended:
	case <-ctx.Done():
	}
	to, toErr := l.read()
	window.Store(false)
	over.Store(true)
	wg.Wait()
	err = errors.Join(fromErr, toErr, ctx.Err())
	for _, r := range results {
		m.firsts, m.wholes = append(m.firsts, r.firsts...), append(m.wholes, r.wholes...)
		err = errors.Join(err, r.err)
	}
	m.items, m.elapsed = float64(to.items-from.items), to.at.Sub(from.at)
	m.server, m.client, m.machine = to.server-from.server, to.client-from.client, to.machine-from.machine
	return m, err
}
