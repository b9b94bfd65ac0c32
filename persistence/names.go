package persistence

import (
	"sync"

	"parley/event"
)

// maxNames is how many rooms' numbers are kept in memory, about 100 bytes each.
const maxNames = 1 << 16

// names remembers what the store keeps of the existence of rooms, so that a
// read costs one look-up in Pebble instead of two. What it says of a room that
// exists stays true until the room is deleted: a number is never used again,
// and reads through an older view find nothing under a newer number. Safe for
// concurrent use; mu guards the members below it.
type names struct {
	mu      sync.RWMutex
	of      map[event.RoomID]nameValue
	deleted uint64 // how often forget was called
}

// find returns what is remembered of a room, and the count of deletions, which
// keep wants back.
func (ns *names) find(room event.RoomID) (name nameValue, deleted uint64) {
	ns.mu.RLock()
	defer ns.mu.RUnlock()
	return ns.of[room], ns.deleted
}

// keep remembers what was read after find had said deleted. What may be of a
// room that was deleted since is not kept.
func (ns *names) keep(room event.RoomID, name nameValue, deleted uint64) {
	if name.num == 0 {
		return
	}
	ns.mu.Lock()
	defer ns.mu.Unlock()
	if ns.deleted != deleted {
		return
	}
	if ns.of == nil || len(ns.of) >= maxNames {
		ns.of = map[event.RoomID]nameValue{} // the rooms in use are back soon
	}
	ns.of[room] = name
}

// forget is called when the deletion of a room is readable.
func (ns *names) forget(room event.RoomID) {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	delete(ns.of, room)
	ns.deleted++
}

// existing opens the newest view and finds a room in it; a zero number says
// that it does not exist. The caller releases the view when err is nil.
func (s *Store) existing(room event.RoomID) (v *view, n roomNumber, err error) {
	name, deleted := s.names.find(room)
	if v = s.views.acquire(); v == nil {
		return nil, 0, ErrClosed
	}
	if name.num == 0 {
		if name, err = v.room(room); err != nil {
			s.views.release(v)
			return nil, 0, err
		}
		s.names.keep(room, name, deleted)
	}
	return v, name.num, nil
}
