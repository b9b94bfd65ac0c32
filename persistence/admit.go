package persistence

import (
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"parley/event"
)

// admit adds to wb what the request changes, or says why it changes nothing.
func (c *committer) admit(wb *pebble.Batch, r *request, full bool) error {
	if r.err != nil {
		return r.err
	}
	switch r.kind {
	case requestAppend:
		return c.append(wb, r, full)
	case requestGrant:
		c.grant(wb, r, full)
	case requestDelete:
		c.delete(wb, r.room)
	}
	return nil
}

func (c *committer) append(wb *pebble.Batch, r *request, full bool) error {
	b, rm := r.batch, r.room
	switch {
	case b.Expect != rm.head, b.Term == 0, rm.term != 0 && b.Term != rm.term:
		return fmt.Errorf("room %s: the batch follows position %d in term %d, the journal is at %d in term %d: %w",
			rm.name, b.Expect, b.Term, rm.head, rm.term, event.ErrFenced)
	case full:
		return event.ErrDiskFull
	case rm.num == 0 && len(b.Entries) == 0:
		return fmt.Errorf("room %s: a batch without entries cannot create a room", rm.name)
	case b.Snapshot != nil && b.SnapshotAt > b.Expect+event.Seq(len(b.Entries)):
		return fmt.Errorf("room %s: a snapshot at %d is ahead of its batch", rm.name, b.SnapshotAt)
	}
	if rm.num == 0 {
		rm.num, rm.inc = c.next, b.Incarnation
		c.next++
		c.putName(wb, rm)
		// Its owner may have been granted the term before the record was last
		// dropped from memory, so the batch's is the room's.
		rm.term = b.Term
		c.terms = max(c.terms, b.Term)
		c.putTerm(wb, rm)
	} else if b.Incarnation != 0 && b.Incarnation != rm.inc {
		rm.inc = b.Incarnation
		c.putName(wb, rm)
	}
	for i, last := range r.enc.lasts {
		c.key = appendBlockKey(c.key[:0], rm.num, last)
		c.put(wb, r.enc.value(i))
	}
	for i := range b.Rows {
		c.key = appendRowKey(c.key[:0], rm.num, b.Rows[i].Key)
		c.put(wb, r.enc.value(len(r.enc.lasts)+i))
	}
	if b.Snapshot != nil {
		c.putSnapshot(wb, rm, b)
	}
	if b.Alarm != nil {
		c.putAlarm(wb, rm, *b.Alarm)
	}
	rm.head += event.Seq(len(b.Entries))
	return nil
}

// grant makes the asker the owner of the room. The row with its term is also
// the sync barrier: once its commit is done, so is everything written before it.
// A room that does not exist has nothing to guard; and on a full disk nothing is
// written, since then nothing is outstanding either and no owner can append.
func (c *committer) grant(wb *pebble.Batch, r *request, full bool) {
	rm := r.room
	rm.term = max(c.terms, rm.term) + 1
	c.terms = rm.term
	if rm.num != 0 && !full {
		c.putTerm(wb, rm)
	}
	*r.grant = grant{num: rm.num, inc: rm.inc, head: rm.head, term: rm.term}
}

// delete removes a room. Its owner, whom nobody tells, is fenced: it expects a
// position beyond zero, and whoever creates the room again has a newer term.
func (c *committer) delete(wb *pebble.Batch, rm *room) {
	if rm.num == 0 {
		return
	}
	lo, hi := roomBounds(rm.num)
	must(wb.DeleteRange(lo, hi, nil))
	must(wb.Delete(appendName(nil, spaceName, rm.name), nil))
	must(wb.Delete(appendName(nil, spaceAlarm, rm.name), nil))
	rm.num, rm.inc, rm.head = 0, 0, 0
}

func (c *committer) putName(wb *pebble.Batch, rm *room) {
	c.key = appendName(c.key[:0], spaceName, rm.name)
	c.val = nameValue{rm.num, rm.inc}.append(c.val[:0])
	c.put(wb, c.val)
}

func (c *committer) putTerm(wb *pebble.Batch, rm *room) {
	c.key = appendPart(c.key[:0], rm.num, partTerm)
	c.val = appendNumber(c.val[:0], uint64(rm.term))
	c.put(wb, c.val)
}

func (c *committer) putSnapshot(wb *pebble.Batch, rm *room, b *event.Batch) {
	c.key = appendPart(c.key[:0], rm.num, partSnapshot)
	c.val = appendSnapshotHead(c.val[:0], b.SnapshotAt)
	op := wb.SetDeferred(len(c.key), len(c.val)+len(b.Snapshot))
	copy(op.Key, c.key)
	copy(op.Value[copy(op.Value, c.val):], b.Snapshot)
	must(op.Finish())
}

func (c *committer) putAlarm(wb *pebble.Batch, rm *room, at time.Time) {
	c.key = appendName(c.key[:0], spaceAlarm, rm.name)
	if at.IsZero() {
		must(wb.Delete(c.key, nil))
		return
	}
	c.val = appendAlarm(c.val[:0], at)
	c.put(wb, c.val)
}

func (c *committer) put(wb *pebble.Batch, val []byte) { must(wb.Set(c.key, val, nil)) }

// must holds for writes into a batch in memory: they fail only when the batch
// is used wrongly.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
