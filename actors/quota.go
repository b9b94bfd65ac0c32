package actors

import (
	"sync"
	"time"
)

// quota bounds what the drivers of one room write to the journal: rate bytes a
// second, averaged over a window, so that a burst of rate × window is free.
// Safe for concurrent use; mu guards level and at. The room charges it, the
// emitters of its attempts wait by it.
type quota struct {
	rate  int64 // bytes a second
	burst int64

	mu    sync.Mutex
	level int64 // bytes charged and not yet worn off
	at    time.Time
}

func newQuota(rate int, window time.Duration) *quota {
	return &quota{rate: int64(rate), burst: int64(rate) * int64(window/time.Millisecond) / 1000}
}

// charge counts n bytes that were written at now.
func (q *quota) charge(n int, now time.Time) {
	q.mu.Lock()
	q.wear(now)
	q.level += int64(n)
	q.mu.Unlock()
}

// wait returns how long a driver has to wait before it may send more; 0: it may now.
func (q *quota) wait(now time.Time) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.wear(now)
	if q.level <= q.burst {
		return 0
	}
	return time.Duration((q.level-q.burst)*1000/q.rate+1) * time.Millisecond
}

func (q *quota) wear(now time.Time) {
	d := now.Sub(q.at)
	if d <= 0 {
		return
	}
	// Beyond an hour everything has worn off, and the product cannot overflow.
	q.level = max(0, q.level-q.rate*min(d, time.Hour).Milliseconds()/1000)
	q.at = now
}
