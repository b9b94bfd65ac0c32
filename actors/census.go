package actors

import (
	"sync"

	"parley/event"
)

// census counts the drivers that were abandoned because they ignore their
// context, and have not returned yet (C5). Safe for concurrent use; mu guards
// the maps and the total.
type census struct {
	perAgent, perNode int
	observer          Observer

	mu    sync.Mutex
	total int
	rooms map[event.RoomID]map[event.AgentID]int
}

func newCensus(perAgent, perNode int, o Observer) *census {
	return &census{perAgent: perAgent, perNode: perNode, observer: o, rooms: map[event.RoomID]map[event.AgentID]int{}}
}

func (c *census) abandoned(room event.RoomID, a event.AgentID) {
	c.mu.Lock()
	c.total++
	if c.rooms[room] == nil {
		c.rooms[room] = map[event.AgentID]int{}
	}
	c.rooms[room][a]++
	c.mu.Unlock()
	c.observer.DriversAbandoned(1)
}

func (c *census) returned(room event.RoomID, a event.AgentID) {
	c.mu.Lock()
	c.total--
	if c.rooms[room][a]--; c.rooms[room][a] == 0 {
		delete(c.rooms[room], a)
	}
	if len(c.rooms[room]) == 0 {
		delete(c.rooms, room)
	}
	c.mu.Unlock()
	c.observer.DriversAbandoned(-1)
}

// unresponsive returns the agents of a room that get no new runs: those with
// too many abandoned drivers, and once the node has too many, those with any.
func (c *census) unresponsive(room event.RoomID) map[event.AgentID]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out map[event.AgentID]bool
	for a, n := range c.rooms[room] {
		if n >= c.perAgent || c.total >= c.perNode {
			if out == nil {
				out = map[event.AgentID]bool{}
			}
			out[a] = true
		}
	}
	return out
}

// tally counts goroutines that a System started and waits for. Safe for
// concurrent use; mu guards n and idle.
type tally struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when n is 0; made by wait, nil when nobody waits
}

func (t *tally) add() {
	t.mu.Lock()
	t.n++
	t.mu.Unlock()
}

func (t *tally) done() {
	t.mu.Lock()
	if t.n--; t.n == 0 && t.idle != nil {
		close(t.idle)
		t.idle = nil
	}
	t.mu.Unlock()
}

// wait returns a channel that is closed once all are done.
func (t *tally) wait() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n == 0 {
		c := make(chan struct{})
		close(c)
		return c
	}
	if t.idle == nil {
		t.idle = make(chan struct{})
	}
	return t.idle
}
