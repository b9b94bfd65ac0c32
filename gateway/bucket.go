package gateway

import "time"

// bucket limits a rate: it is the time at which all that was taken is paid for
// (the generic cell rate algorithm). golang.org/x/time/rate cannot give back
// what was taken and used at once, which an exact duplicate gets; and this is
// 8 bytes. The zero bucket is full. Owned by whoever guards it.
type bucket struct{ paid int64 } // nanoseconds since 1970

// pace is the rate of a bucket: one each every, and burst at once.
type pace struct {
	every time.Duration
	burst int
}

func perSecond(n, burst int) pace { return pace{time.Second / time.Duration(n), burst} }

// take takes one, or tells how long to wait until there is one.
func (b *bucket) take(now time.Time, p pace) (wait time.Duration) {
	t := now.UnixNano()
	paid := max(b.paid, t) + int64(p.every)
	if ahead := paid - t - int64(p.burst)*int64(p.every); ahead > 0 {
		return time.Duration(ahead)
	}
	b.paid = paid
	return 0
}

// give gives one back.
func (b *bucket) give(p pace) { b.paid -= int64(p.every) }
