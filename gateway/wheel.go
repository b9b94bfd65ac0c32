package gateway

import (
	"container/heap"
	"sync"
	"time"
)

// wheel is the one clock of the node's connections: a heap of instants and one
// goroutine that waits for the earliest. A timer of the runtime per connection
// would cost 200 bytes and its own wake-up each. Safe for concurrent use; mu
// guards the heap and the fields of the timers in it.
type wheel struct {
	mu   sync.Mutex
	heap timerHeap
	wake chan struct{} // capacity 1: a wake-up that is pending is enough
	quit chan struct{}
	done chan struct{}
}

// timer is one entry. fire runs on the wheel's goroutine and must not block.
type timer struct {
	at    time.Time
	index int // in the heap, from 1; 0 when it is not in it
	fire  func()
}

func newWheel() *wheel {
	w := &wheel{wake: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{})}
	go w.run()
	return w
}

// set moves t to an instant, whether it is set or not.
func (w *wheel) set(t *timer, at time.Time) {
	w.mu.Lock()
	t.at = at
	if t.index == 0 {
		heap.Push(&w.heap, t)
	} else {
		heap.Fix(&w.heap, t.index-1)
	}
	first := t.index == 1
	w.mu.Unlock()
	if first {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// earlier moves t to an instant unless it is set to an earlier one.
func (w *wheel) earlier(t *timer, at time.Time) {
	w.mu.Lock()
	keep := t.index != 0 && !at.Before(t.at)
	w.mu.Unlock()
	if !keep {
		w.set(t, at)
	}
}

// stop takes t out. Its fire may be running.
func (w *wheel) stop(t *timer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t.index != 0 {
		heap.Remove(&w.heap, t.index-1)
	}
}

func (w *wheel) close() {
	close(w.quit)
	<-w.done
}

func (w *wheel) run() {
	defer close(w.done)
	sleep := time.NewTimer(time.Hour)
	defer sleep.Stop()
	for {
		now := time.Now()
		var due *timer
		wait := time.Hour
		w.mu.Lock()
		if len(w.heap) > 0 {
			if wait = w.heap[0].at.Sub(now); wait <= 0 {
				due = heap.Pop(&w.heap).(*timer)
			}
		}
		w.mu.Unlock()
		if due != nil {
			due.fire()
			continue
		}
		sleep.Reset(wait)
		select {
		case <-sleep.C:
		case <-w.wake:
		case <-w.quit:
			return
		}
	}
}

type timerHeap []*timer

func (h timerHeap) Len() int           { return len(h) }
func (h timerHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }

func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i+1, j+1
}

func (h *timerHeap) Push(x any) {
	t := x.(*timer)
	t.index = len(*h) + 1
	*h = append(*h, t)
}

func (h *timerHeap) Pop() any {
	old := *h
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	t.index = 0
	return t
}
