package persistence

import (
	"container/list"
	"errors"
	"fmt"

	"parley/event"
)

// room is what the committer must know of a room to take its next batch: a
// cache of what the store holds, kept while requests for the room are on their
// way and for a while after.
type room struct {
	name event.RoomID

	// Guarded by the mu of the rooms that it belongs to.
	holds   int           // requests that are not answered yet
	loaded  bool          // the members below are filled in
	waiting []request     // what came before that, in order
	place   *list.Element // in rooms.all

	// Owned by the committer once loaded.
	num  roomNumber // zero: the room does not exist
	inc  event.Incarnation
	head event.Seq // of the last batch that was accepted; durable when its commit is
	// term is the owner's. Zero: unknown, because the room does not exist and
	// was not recovered since it was loaded.
	//
	// For a room that exists it equals the term in the store, unless it was
	// granted on a full disk.
	term event.Term
}

// rooms holds the records of the rooms in use and of the max rooms used last.
// Its methods are called with the Store's mu held, which guards it.
type rooms struct {
	byName map[event.RoomID]*room
	all    list.List // of *room, those used last at the back
	max    int
}

// hold returns the room's record and keeps it until release is called as often.
func (rs *rooms) hold(name event.RoomID) *room {
	rm := rs.byName[name]
	if rm == nil {
		rm = &room{name: name}
		rm.place = rs.all.PushBack(rm)
		rs.byName[name] = rm
	}
	rm.holds++
	return rm
}

func (rs *rooms) release(rm *room) {
	rm.holds--
	if rm.place == nil { // dropped
		return
	}
	rs.all.MoveToBack(rm.place)
	// With no request on its way the committer does not touch the rest of rm.
	if rm.holds == 0 && rm.num == 0 && rm.term == 0 {
		rs.drop(rm)
	}
	// A few at a time, so that many rooms in use never make this a long search.
	for range 4 {
		if rs.all.Len() <= rs.max {
			return
		}
		oldest := rs.all.Front().Value.(*room)
		if oldest.holds == 0 {
			rs.drop(oldest)
		} else {
			rs.all.MoveToBack(oldest.place)
		}
	}
}

// drop forgets a record. The next request for its room loads it anew.
func (rs *rooms) drop(rm *room) {
	rs.all.Remove(rm.place)
	rm.place = nil
	delete(rs.byName, rm.name)
}

// load fills in a room's record and queues what waits for it. The record is
// loaded away from the committer, so that a slow read delays one room only.
//
// The view is newer than every answered request for the room, since there was
// no record of it, and nothing is on its way, since all waits for this.
func (s *Store) load(rm *room) {
	defer s.loads.Done()
	v := s.views.acquire()
	err := v.load(rm)
	s.views.release(v)

	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range rm.waiting {
		r.err = errors.Join(r.err, err)
		s.enqueue(r)
	}
	rm.waiting = nil
	rm.loaded = err == nil
	if err != nil {
		s.rooms.drop(rm)
	}
}

func (v *view) load(rm *room) error {
	name, err := v.room(rm.name)
	if err != nil || name.num == 0 {
		return err
	}
	var term uint64
	ok, err := v.get(appendPart(nil, name.num, partTerm), func(raw []byte) (err error) {
		term, err = decodeNumber(raw)
		return err
	})
	if err == nil && !ok {
		err = fmt.Errorf("%w: the term is missing", ErrDamaged)
	}
	if err != nil {
		return readError(rm.name, "the term", err)
	}
	head, err := v.head(rm.name, name.num)
	if err != nil {
		return err
	}
	rm.num, rm.inc, rm.head, rm.term = name.num, name.inc, head, event.Term(term)
	return nil
}
