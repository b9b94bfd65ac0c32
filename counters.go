package parley

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"parley/persistence"
)

// Counters is a short reading of what a runtime counted since New, for a program
// that runs one to measure it. Operators use Collector.
type Counters struct {
	Batches      int64               `json:"batches"` // durable batches of rooms
	Entries      int64               `json:"entries"` // in those batches
	Bytes        int64               `json:"bytes"`   // of those entries, about
	BatchSeconds float64             `json:"batchSeconds"`
	Store        persistence.Metrics `json:"store"`
}

// Counters reads the figures that Collector collects.
func (rt *Runtime) Counters() Counters {
	m := rt.metrics
	batches, seconds := totals(m.commitSeconds)
	_, entries := totals(m.commitEntries)
	return Counters{Batches: batches, Entries: int64(entries), Bytes: m.bytes.Load(), BatchSeconds: seconds, Store: rt.store.Metrics()}
}

// totals returns how many values a histogram has seen, and their sum.
func totals(h prometheus.Histogram) (n int64, sum float64) {
	var m dto.Metric
	if err := h.Write(&m); err != nil {
		return 0, 0 // never: a histogram of this process writes itself
	}
	return int64(m.GetHistogram().GetSampleCount()), m.GetHistogram().GetSampleSum()
}
