package parley

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"parley/event"
	"parley/gateway/wire"
	"parley/persistence"
)

// Counters is a reading of what a runtime counted since New.
type Counters struct {
	RoomsAwake       int64               `json:"roomsAwake"`
	RoomsLoaded      int64               `json:"roomsLoaded"`
	RoomLoadsFailed  int64               `json:"roomLoadsFailed"`
	Batches          int64               `json:"batches"` // durable batches of rooms
	Entries          int64               `json:"entries"` // in those batches
	Bytes            int64               `json:"bytes"`   // of those entries, about
	BatchSeconds     float64             `json:"batchSeconds"`
	LateEvents       int64               `json:"lateEvents"` // dropped after the end of their attempt
	DriversAbandoned int64               `json:"driversAbandoned"`
	Refused          map[string]int64    `json:"refused,omitempty"` // by the name of the reason
	Store            persistence.Metrics `json:"store"`
}

// Counters reads the counters.
func (rt *Runtime) Counters() Counters {
	m := rt.metrics
	commits, seconds := totals(m.commitSeconds)
	_, entries := totals(m.commitEntries)
	loaded, _ := totals(m.recovered)
	failed, _ := totals(m.recoveriesFailed)
	out := Counters{
		RoomsAwake: m.awake.Load(), RoomsLoaded: loaded, RoomLoadsFailed: failed,
		Batches: commits, Entries: int64(entries), Bytes: m.bytes.Load(), BatchSeconds: seconds,
		LateEvents: m.lateEvents.Load(), DriversAbandoned: m.abandoned.Load(), Store: rt.store.Metrics(),
	}
	for i := range m.refused {
		if n := m.refused[i].Load(); n > 0 {
			if out.Refused == nil {
				out.Refused = map[string]int64{}
			}
			out.Refused[string(wire.CodeOf(event.Reason(i)).Code)] = n
		}
	}
	return out
}

// totals returns how many values a histogram has seen, and their sum.
func totals(h prometheus.Histogram) (n int64, sum float64) {
	var m dto.Metric
	if err := h.Write(&m); err != nil {
		return 0, 0 // a histogram of this process writes
	}
	return int64(m.GetHistogram().GetSampleCount()), m.GetHistogram().GetSampleSum()
}
