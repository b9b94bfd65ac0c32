package actors

import (
	"cmp"
	"container/heap"
	"slices"
	"time"

	"parley/event"
)

// alarm is when a hibernated room wants to be woken.
type alarm struct {
	room event.RoomID
	at   int64 // Unix milliseconds
	pos  int   // in the heap
}

// alarms holds the alarms of hibernated rooms, about limit of them: of more it
// keeps the earliest, and the horizon from which on the journal is to be asked
// again. Owned by the registry actor.
type alarms struct {
	limit int
	heap  alarmHeap
	by    map[event.RoomID]*alarm
	// horizon is when the alarms that were left out begin; 0: none was.
	// Invariant: every alarm of a hibernated room that is earlier is in the heap.
	horizon int64
}

func newAlarms(limit int) *alarms {
	return &alarms{limit: limit, by: map[event.RoomID]*alarm{}}
}

// set adds a room's alarm, or makes it earlier. That it never makes one later
// costs at most a needless waking, and lets the answer of a scan come at any time.
func (a *alarms) set(room event.RoomID, at time.Time) {
	ms := at.UnixMilli()
	if x := a.by[room]; x != nil {
		if ms < x.at {
			x.at = ms
			heap.Fix(&a.heap, x.pos)
		}
		return
	}
	if a.horizon != 0 && ms >= a.horizon {
		return
	}
	x := &alarm{room: room, at: ms}
	a.by[room] = x
	heap.Push(&a.heap, x)
	if len(a.heap) > 2*a.limit {
		a.trim()
	}
}

// trim keeps the earliest limit alarms.
func (a *alarms) trim() {
	slices.SortFunc(a.heap, func(x, y *alarm) int { return cmp.Compare(x.at, y.at) })
	a.horizon = a.heap[a.limit].at
	for _, x := range a.heap[a.limit:] {
		delete(a.by, x.room)
	}
	clear(a.heap[a.limit:])
	a.heap = a.heap[:a.limit]
	for i, x := range a.heap { // what is sorted is a heap
		x.pos = i
	}
}

// remove forgets a room that is awake and minds its own time.
func (a *alarms) remove(room event.RoomID) {
	if x := a.by[room]; x != nil {
		delete(a.by, room)
		heap.Remove(&a.heap, x.pos)
	}
}

// due takes out the rooms whose time has come, the earliest first.
func (a *alarms) due(now time.Time) []event.RoomID {
	var out []event.RoomID
	for ms := now.UnixMilli(); len(a.heap) > 0 && a.heap[0].at <= ms; {
		x := heap.Pop(&a.heap).(*alarm)
		delete(a.by, x.room)
		out = append(out, x.room)
	}
	return out
}

// rescan reports whether the journal is to be asked for later alarms, and then
// forgets the horizon.
func (a *alarms) rescan(now time.Time) bool {
	if a.horizon == 0 || now.UnixMilli() < a.horizon {
		return false
	}
	a.horizon = 0
	return true
}

// next is when due or rescan has something to do; the zero time is never.
func (a *alarms) next() time.Time {
	var ms int64
	if len(a.heap) > 0 {
		ms = a.heap[0].at
	}
	if a.horizon != 0 && (ms == 0 || a.horizon < ms) {
		ms = a.horizon
	}
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// scan reads the alarms of a journal: all that are due, latest first, and about
// limit of the later ones.
func scan(j Journal, now time.Time, limit int) (due []event.RoomID, later *alarms, err error) {
	type row struct {
		room event.RoomID
		at   time.Time
	}
	var rows []row
	later = newAlarms(limit)
	err = j.Alarms(func(room event.RoomID, at time.Time) bool {
		if at.After(now) {
			later.set(room, at)
		} else {
			rows = append(rows, row{room, at})
		}
		return true
	})
	slices.SortFunc(rows, func(x, y row) int {
		if c := y.at.Compare(x.at); c != 0 {
			return c
		}
		return cmp.Compare(x.room, y.room)
	})
	for _, r := range rows {
		due = append(due, r.room)
	}
	return due, later, err
}

type alarmHeap []*alarm

func (h alarmHeap) Len() int           { return len(h) }
func (h alarmHeap) Less(i, j int) bool { return h[i].at < h[j].at }
func (h alarmHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].pos, h[j].pos = i, j
}

func (h *alarmHeap) Push(x any) {
	a := x.(*alarm)
	a.pos = len(*h)
	*h = append(*h, a)
}

func (h *alarmHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return x
}
