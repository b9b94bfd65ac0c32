package parley

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"parley/actors"
	"parley/event"
)

// metrics counts what the rooms do, without ids or texts: each thing in one
// place, from which Collector and Counters read. What happens with every batch
// costs a few atomic additions and no memory. Safe for concurrent use.
type metrics struct {
	awake, activations, failed            atomic.Int64
	started, resumed, over                atomic.Int64 // attempts
	driverFailures, lateEvents, abandoned atomic.Int64
	bytes                                 atomic.Int64     // of durable batches, about
	refused                               [64]atomic.Int64 // by event.Reason
	panics                                [actors.Places]atomic.Int64

	commitSeconds, commitEntries, storeCommitSeconds, feedLag prometheus.Histogram
	recoveries                                                [2]prometheus.Histogram // failed, ok
}

// secondsBuckets go from 50 µs, which a fast disk needs for an fsync, to 50 s,
// after which the process has ended itself.
var secondsBuckets = prometheus.ExponentialBucketsRange(50e-6, 50, 19)

func newMetrics() *metrics {
	histogram := func(name, help string, buckets []float64, labels prometheus.Labels) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets, ConstLabels: labels})
	}
	recovery := func(result string) prometheus.Histogram {
		return histogram("parley_recovery_seconds", "Loads of a room from its journal, at an activation or after a fault, by result. "+
			"Failed: the log names the room and what is wrong; the room is tried again by itself.",
			secondsBuckets, prometheus.Labels{"result": result})
	}
	return &metrics{
		commitSeconds: histogram("parley_commit_seconds", "Time from a room's decision until its batch is durable, which everybody in the room waits for. "+
			"Much above parley_store_commit_seconds: the node commits more than the disk takes.", secondsBuckets, nil),
		commitEntries: histogram("parley_commit_entries", "Entries per durable batch of a room. Their sum is all entries.",
			prometheus.ExponentialBuckets(1, 2, 9), nil),
		storeCommitSeconds: histogram("parley_store_commit_seconds", "Group commits of the store, each one write to the log and one fsync. "+
			"Rising: the disk is slow or shared.", secondsBuckets, nil),
		feedLag: histogram("parley_feed_lag_seconds", "Age of the oldest item of a frame when it goes to a connection that had caught up, counted from its decision. "+
			"Above parley_commit_seconds: clients acknowledge late, or the processors are busy.", secondsBuckets, nil),
		recoveries: [2]prometheus.Histogram{recovery("failed"), recovery("ok")},
	}
}

// RoomsAwake implements actors.Observer.
func (m *metrics) RoomsAwake(delta int) {
	m.awake.Add(int64(delta))
	m.activations.Add(int64(max(0, delta)))
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
	result := 0
	if ok {
		result = 1
	}
	m.recoveries[result].Observe(took.Seconds())
}

// RoomFailed implements actors.Observer.
func (m *metrics) RoomFailed() { m.failed.Add(1) }

// AttemptStarted implements actors.Observer.
func (m *metrics) AttemptStarted(resumed bool) {
	m.started.Add(1)
	if resumed {
		m.resumed.Add(1)
	}
}

// AttemptOver implements actors.Observer.
func (m *metrics) AttemptOver() { m.over.Add(1) }

// DriverFailed implements actors.Observer.
func (m *metrics) DriverFailed() { m.driverFailures.Add(1) }

// LateEvents implements actors.Observer.
func (m *metrics) LateEvents(n int) { m.lateEvents.Add(int64(n)) }

// DriversAbandoned implements actors.Observer.
func (m *metrics) DriversAbandoned(delta int) { m.abandoned.Add(int64(delta)) }

// Panicked implements actors.Observer.
func (m *metrics) Panicked(where actors.Place) { m.panics[where%actors.Places].Add(1) }

// storeCommitted is the observer of the store.
func (m *metrics) storeCommitted(took time.Duration) { m.storeCommitSeconds.Observe(took.Seconds()) }

// sent is the observer of the gateway.
func (m *metrics) sent(lag time.Duration) { m.feedLag.Observe(max(0, lag.Seconds())) }
