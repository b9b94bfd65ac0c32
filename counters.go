package parley

import (
	"sync/atomic"
	"time"

	"parley/event"
	"parley/gateway/wire"
	"parley/persistence"
)

// counters counts what the rooms do, without ids or texts. Safe for concurrent use.
type counters struct {
	awake, loads, failedLoads, batches, entries, bytes, late, abandoned atomic.Int64
	waited                                                              atomic.Int64 // nanoseconds of batches in the journal
	refused                                                             [64]atomic.Int64
}

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
	c := rt.count
	out := Counters{
		RoomsAwake: c.awake.Load(), RoomsLoaded: c.loads.Load(), RoomLoadsFailed: c.failedLoads.Load(),
		Batches: c.batches.Load(), Entries: c.entries.Load(), Bytes: c.bytes.Load(),
		BatchSeconds: time.Duration(c.waited.Load()).Seconds(),
		LateEvents:   c.late.Load(), DriversAbandoned: c.abandoned.Load(), Store: rt.store.Metrics(),
	}
	for i := range c.refused {
		if n := c.refused[i].Load(); n > 0 {
			if out.Refused == nil {
				out.Refused = map[string]int64{}
			}
			out.Refused[string(wire.CodeOf(event.Reason(i)).Code)] = n
		}
	}
	return out
}

// RoomsAwake implements actors.Observer.
func (c *counters) RoomsAwake(delta int) { c.awake.Add(int64(delta)) }

// Committed implements actors.Observer.
func (c *counters) Committed(entries, bytes int, took time.Duration) {
	c.batches.Add(1)
	c.entries.Add(int64(entries))
	c.bytes.Add(int64(bytes))
	c.waited.Add(int64(took))
}

// Refused implements actors.Observer.
func (c *counters) Refused(why event.Reason) { c.refused[int(why)%len(c.refused)].Add(1) }

// Recovered implements actors.Observer.
func (c *counters) Recovered(ok bool, _ time.Duration) {
	if ok {
		c.loads.Add(1)
	} else {
		c.failedLoads.Add(1)
	}
}

// LateEvents implements actors.Observer.
func (c *counters) LateEvents(n int) { c.late.Add(int64(n)) }

// DriversAbandoned implements actors.Observer.
func (c *counters) DriversAbandoned(delta int) { c.abandoned.Add(int64(delta)) }
