package parley

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"parley/actors"
	"parley/event"
	"parley/gateway"
	"parley/gateway/wire"
	"parley/persistence"
)

// Collector returns the runtime's figures for Prometheus. Register it once with
// a registry of the embedding product; `parley serve` does and serves them under
// its admin address. No label holds an id, a name or a text. What has to be
// asked for is read at each scrape; everything else is counted as it happens.
func (rt *Runtime) Collector() prometheus.Collector { return collector{rt} }

// collector is stateless; what it reads is safe for concurrent use.
type collector struct{ rt *Runtime }

// figure is one figure that is read at a scrape.
type figure struct {
	*prometheus.Desc
	kind prometheus.ValueType
}

func counter(name, help string, labels ...string) figure {
	return figure{prometheus.NewDesc(name, help, labels, nil), prometheus.CounterValue}
}

func gauge(name, help string, labels ...string) figure {
	return figure{prometheus.NewDesc(name, help, labels, nil), prometheus.GaugeValue}
}

// The figures of the rooms.
var (
	roomsAwake      = gauge("parley_rooms_awake", "Rooms held in memory; the others hibernate.")
	roomActivations = counter("parley_room_activations_total", "Rooms that woke up or came into being.")
	roomsFailed     = gauge("parley_rooms_failed", "Rooms out of service until the restart because they failed three times in a minute. "+
		"Above 0: keep the log, which names them and holds the stacks, and restart.")
	commitBytes  = counter("parley_commit_bytes_total", "Bytes of the durable batches of rooms, about, before compression.")
	refusals     = counter("parley_refusals_total", "Commands and frames refused, by the code that the client got and by who refused: a room or the gateway.", "code", "by")
	runsActive   = gauge("parley_runs_active", "Runs whose driver is at work.")
	attempts     = counter("parley_attempts_total", "Invocations of drivers; resumed ones go on with a run whose earlier attempt was lost.", "resumed")
	driversFails = counter("parley_driver_failures_total", "Drivers that returned an error, panicked or broke their contract. Their runs failed; the log has the kind.")
	abandoned    = gauge("parley_drivers_abandoned", "Drivers that were told to stop and have not returned. "+
		"Growing: a driver ignores its context; its agents get no more runs at 8 a room or 1,000 in all.")
	lateEvents = counter("parley_late_events_total", "Events of drivers that came after the end of their attempt and were dropped.")
	panics     = counter("parley_panics_total", "Panics that were contained, by place. Any is a fault in the program or in a driver: the log has its stack.", "place")
)

// The figures of the store.
var (
	storeBatches = counter("parley_store_batches_total", "Batches of rooms made durable. Divided by the count of parley_store_commit_seconds: how many share an fsync.")
	storeEntries = counter("parley_store_entries_total", "Entries made durable.")
	storeBytes   = counter("parley_store_written_bytes_total", "Bytes written to the log by commits, with keys and index rows, before compression.")
	storeRefused = counter("parley_store_refused_total", "Batches that were not written: fenced (another owner wrote; never with one process), disk_full, or failed (see the log).", "reason")
	storeQueued  = gauge("parley_store_queued_requests", "Requests that wait for a commit.")
	storeOldest  = gauge("parley_store_oldest_request_seconds", "How long the oldest unanswered request has waited. Growing: the disk hangs; at 30 s the process ends itself.")
	storeSize    = gauge("parley_store_size_bytes", "Size of the store on disk, its log included.")
	storeCache   = counter("parley_store_cache_reads_total", "Blocks asked of the store's cache, by result.", "result")
	diskFree     = gauge("parley_disk_free_ratio", "Free share of the disk that holds the data directory. At 0.05 new inputs are refused: free space before.")
	diskFull     = gauge("parley_disk_full", "1 while new inputs are refused for want of space. Free space; nothing needs a restart.")
)

// The figures of the gateway.
var (
	connections      = gauge("parley_connections_open", "Open connections.")
	connectedRooms   = gauge("parley_rooms_connected", "Rooms with connections.")
	connects         = counter("parley_connects_total", "Requests that became connections.")
	turnedAway       = counter("parley_connects_refused_total", "Requests refused before the upgrade, by code.", "code")
	closes           = counter("parley_closes_total", "Connections ended, by close code, its word and who ended it. 4421 slow_consumer: a client too slow to read; 4000 gap by a client: report it.", "code", "reason", "by")
	resumes          = counter("parley_resumes_total", "Cursors that clients came back with: resumed, or why the stream began anew.", "result")
	received         = counter("parley_received_bytes_total", "Bytes of frames received.")
	sentBytes        = counter("parley_sent_bytes_total", "Bytes of frames sent.")
	connectionsHeld  = gauge("parley_connections_held", "Connections that get nothing new before they acknowledge what they have.")
	feedOldestUnsent = gauge("parley_feed_oldest_unsent_seconds", "How long the connection that is held longest has been held. At 30 s it is closed as a slow consumer.")
)

// Describe implements prometheus.Collector.
func (c collector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	m := c.rt.metrics
	for _, h := range []prometheus.Histogram{m.commitSeconds, m.commitEntries, m.storeCommitSeconds, m.feedLag, m.recoveries[0], m.recoveries[1]} {
		h.Collect(ch)
	}
	stats := c.rt.gate.Stats()
	put := func(f figure, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(f.Desc, f.kind, v, labels...)
	}
	collectRooms(m, stats, put)
	collectStore(c.rt.store.Metrics(), put)
	collectGateway(stats, put)
}

// put hands a figure to the collector's caller.
type put func(f figure, v float64, labels ...string)

func collectRooms(m *metrics, s gateway.Stats, put put) {
	put(roomsAwake, float64(m.awake.Load()))
	put(roomActivations, float64(m.activations.Load()))
	put(roomsFailed, float64(m.failed.Load()))
	put(commitBytes, float64(m.bytes.Load()))
	byRoom := map[wire.Code]int64{}
	for i := range m.refused {
		byRoom[wire.CodeOf(event.Reason(i)).Code] += m.refused[i].Load()
	}
	for _, info := range wire.Codes {
		put(refusals, float64(byRoom[info.Code]), string(info.Code), "room")
		put(refusals, float64(s.Refused[info.Code]), string(info.Code), "gateway")
	}
	over := m.over.Load() // first, so that the difference is never below zero
	started, resumed := m.started.Load(), m.resumed.Load()
	put(runsActive, float64(started-over))
	put(attempts, float64(started-resumed), "false")
	put(attempts, float64(resumed), "true")
	put(driversFails, float64(m.driverFailures.Load()))
	put(abandoned, float64(m.abandoned.Load()))
	put(lateEvents, float64(m.lateEvents.Load()))
	for p := range actors.Places {
		put(panics, float64(m.panics[p].Load()), p.String())
	}
	put(panics, float64(s.Panics), "connection")
}

func collectStore(m persistence.Metrics, put put) {
	put(storeBatches, float64(m.Batches))
	put(storeEntries, float64(m.Entries))
	put(storeBytes, float64(m.Bytes))
	put(storeRefused, float64(m.Fenced), "fenced")
	put(storeRefused, float64(m.DiskFull), "disk_full")
	put(storeRefused, float64(m.Failed), "failed")
	put(storeQueued, float64(m.Queued))
	put(storeOldest, m.OldestOutstanding.Seconds())
	put(storeSize, float64(m.DiskBytes))
	put(storeCache, float64(m.CacheHit), "hit")
	put(storeCache, float64(m.CacheMiss), "miss")
	if m.DiskTotal > 0 {
		put(diskFree, float64(m.DiskAvailable)/float64(m.DiskTotal))
	}
	full := 0.0
	if m.Full {
		full = 1
	}
	put(diskFull, full)
}

func collectGateway(s gateway.Stats, put put) {
	put(connections, float64(s.Connections))
	put(connectedRooms, float64(s.Rooms))
	put(connects, float64(s.Connects))
	for code, n := range s.TurnedAway {
		put(turnedAway, float64(n), string(code))
	}
	for code, n := range s.Closed {
		put(closes, float64(n), strconv.Itoa(int(code)), code.Word(), "server")
	}
	for code, n := range s.Left {
		switch code {
		case gateway.LeftSilent:
			put(closes, float64(n), "none", "none", "client")
		case gateway.LeftOther:
			put(closes, float64(n), "other", "other", "client")
		default:
			put(closes, float64(n), strconv.Itoa(int(code)), code.Word(), "client")
		}
	}
	put(resumes, float64(s.Resumed), "resumed")
	for why, n := range s.Reset {
		put(resumes, float64(n), string(why))
	}
	put(received, float64(s.BytesIn))
	put(sentBytes, float64(s.BytesOut))
	put(connectionsHeld, float64(s.Held))
	put(feedOldestUnsent, s.HeldFor.Seconds())
}
