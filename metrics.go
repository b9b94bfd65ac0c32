package parley

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"parley/actors"
	"parley/event"
)

// metrics counts what the rooms and the gateway do, without ids or texts: each
// thing in one place, from which Collector and Counters read. Safe for
// concurrent use.
type metrics struct {
	awake, activations, failed                atomic.Int64
	started, resumed, atWork                  atomic.Int64
	driverFailures, lateEvents, abandoned     atomic.Int64
	bytes                                     atomic.Int64 // of durable batches, about
	refused                                   [64]atomic.Int64
	panics                                    [actors.Places]atomic.Int64
	commitSeconds, commitEntries              prometheus.Histogram
	recovered, recoveriesFailed, storeCommits prometheus.Histogram
	feedLag                                   prometheus.Histogram
}

// RoomsAwake implements actors.Observer.
func (m *metrics) RoomsAwake(delta int) {
	m.awake.Add(int64(delta))
	if delta > 0 {
		m.activations.Add(int64(delta))
	}
}

// Committed implements actors.Observer.
func (m *metrics) Committed(entries, bytes int, took time.Duration) {
	m.commitEntries.Observe(float64(entries))
	m.commitSeconds.Observe(took.Seconds())
	m.bytes.Add(int64(bytes))
}

// Refused implements actors.Observer.
func (m *metrics) Refused(why event.Reason) { m.refused[int(why)%len(m.refused)].Add(1) }

// Recovered implements actors.Observer.
func (m *metrics) Recovered(ok bool, took time.Duration) {
	if ok {
		m.recovered.Observe(took.Seconds())
	} else {
		m.recoveriesFailed.Observe(took.Seconds())
	}
}

// RoomFailed implements actors.Observer.
func (m *metrics) RoomFailed() { m.failed.Add(1) }

// AttemptStarted implements actors.Observer.
func (m *metrics) AttemptStarted(resumed bool) {
	m.atWork.Add(1)
	m.started.Add(1)
	if resumed {
		m.resumed.Add(1)
	}
}

// AttemptOver implements actors.Observer.
func (m *metrics) AttemptOver() { m.atWork.Add(-1) }

// DriverFailed implements actors.Observer.
func (m *metrics) DriverFailed() { m.driverFailures.Add(1) }

// LateEvents implements actors.Observer.
func (m *metrics) LateEvents(n int) { m.lateEvents.Add(int64(n)) }

// DriversAbandoned implements actors.Observer.
func (m *metrics) DriversAbandoned(delta int) { m.abandoned.Add(int64(delta)) }

// Panicked implements actors.Observer.
func (m *metrics) Panicked(where actors.Place) { m.panics[where%actors.Places].Add(1) }

// Committed implements persistence.Observer.
func (m *metrics) GroupCommitted(took time.Duration) { m.storeCommits.Observe(took.Seconds()) }

// Buckets of durations from 50 µs to 50 s: an fsync of a fast disk is at their
// beginning, a disk that hangs at their end.
var secondsBuckets = prometheus.ExponentialBucketsRange(50e-6, 50, 19)

func newMetrics() *metrics {
	h := func(name, help string, buckets []float64, labels prometheus.Labels) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets, ConstLabels: labels})
	}
	return &metrics{
		commitSeconds:    h("parley_commit_seconds", "x", secondsBuckets, nil),
		commitEntries:    h("parley_commit_entries", "x", prometheus.ExponentialBuckets(1, 2, 9), nil),
		recovered:        h("parley_recovery_seconds", "x", secondsBuckets, prometheus.Labels{"result": "ok"}),
		recoveriesFailed: h("parley_recovery_seconds", "x", secondsBuckets, prometheus.Labels{"result": "failed"}),
		storeCommits:     h("parley_store_commit_seconds", "x", secondsBuckets, nil),
		feedLag:          h("parley_feed_lag_seconds", "x", secondsBuckets, nil),
	}
}
