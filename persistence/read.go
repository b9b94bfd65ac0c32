package persistence

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"go.uber.org/zap"

	"parley/event"
)

// maxReadBytes bounds the stored size of what one Read returns.
const maxReadBytes = 1 << 20

// Row returns the history row with that key, or nil when there is none.
func (s *Store) Row(room event.RoomID, k event.Key) (event.Row, error) {
	v, n, err := s.existing(room)
	if err != nil {
		return nil, err
	}
	defer s.views.release(v)
	if n == 0 {
		return nil, nil
	}
	var row event.Row
	_, err = v.get(appendRowKey(nil, n, k), func(raw []byte) (err error) {
		row, err = event.DecodeRow(raw)
		if err == nil && row.Table() != k.Table {
			err = errValue
		}
		return err
	})
	if err != nil {
		return nil, readError(room, fmt.Sprintf("a row of table %d", k.Table), err)
	}
	return row, nil
}

// Read returns the entries at positions after+1 to `to`, in order, as far as
// they are durable; at most max of them and 1 MiB of stored form, but never none
// when there is one. A max of zero or less bounds by bytes alone. A room that
// does not exist has no entries. Errors: ErrDamaged when an entry is missing or
// unreadable, with its position.
func (s *Store) Read(room event.RoomID, after, to event.Seq, max int) ([]*event.Entry, error) {
	v, n, err := s.existing(room)
	if err != nil {
		return nil, err
	}
	defer s.views.release(v)
	if n == 0 || to <= after {
		return nil, nil
	}
	return v.entries(room, n, after, to, max, maxReadBytes)
}

// Head returns the position of the room's last durable entry; zero for a room
// that does not exist.
func (s *Store) Head(room event.RoomID) (event.Seq, error) {
	v, n, err := s.existing(room)
	if err != nil {
		return 0, err
	}
	defer s.views.release(v)
	if n == 0 {
		return 0, nil
	}
	return v.head(room, n)
}

// Transcript returns the newest durable transcript rows of a channel that lie
// before a position, oldest first: at most maxRows of them and maxBytes of
// stored form. It stops at the first row that would exceed a bound; a bound of
// zero or less lets nothing through. Position zero stands for the end.
func (s *Store) Transcript(room event.RoomID, ch event.ChannelID, before event.Seq, maxRows, maxBytes int) ([]event.TranscriptRow, error) {
	v, n, err := s.existing(room)
	if err != nil {
		return nil, err
	}
	defer s.views.release(v)
	if n == 0 {
		return nil, nil
	}
	rows, err := v.transcript(n, ch, before, maxRows, maxBytes)
	if err != nil {
		return nil, readError(room, "the transcript", err)
	}
	return rows, nil
}

// Alarms calls yield for each room that has an alarm, with its time in whole
// milliseconds, until yield returns false. An alarm that cannot be read is due. yield must not call Close.
func (s *Store) Alarms(yield func(room event.RoomID, at time.Time) bool) error {
	return s.scan(spaceAlarm, "alarms", func(room event.RoomID, raw []byte) (bool, error) {
		at, err := decodeAlarm(raw)
		if err != nil { // one room's damage is not the others'
			s.log.Error("the alarm of a room is damaged; it counts as due", zap.String("room", string(room)))
			at = time.UnixMilli(0).UTC()
		}
		return yield(room, at), nil
	})
}

// Rooms calls yield for each room that exists, in the order of their names,
// until yield returns false. yield must not call Close.
func (s *Store) Rooms(yield func(room event.RoomID) bool) error {
	return s.scan(spaceName, "rooms", func(room event.RoomID, _ []byte) (bool, error) {
		return yield(room), nil
	})
}

// scan goes through a range whose keys are room names.
func (s *Store) scan(space byte, what string, f func(room event.RoomID, raw []byte) (bool, error)) error {
	v := s.views.acquire()
	if v == nil {
		return ErrClosed
	}
	defer s.views.release(v)
	it, err := v.iter(spaceBounds(space))
	if err != nil {
		return fmt.Errorf("read the %s: %w", what, err)
	}
	for ok := it.First(); ok; ok = it.Next() {
		more, err := f(event.RoomID(it.Key()[1:]), it.Value())
		if err != nil {
			return errors.Join(err, it.Close())
		}
		if !more {
			break
		}
	}
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		return fmt.Errorf("read the %s: %w", what, err)
	}
	return nil
}

// room returns what the store keeps of the room's existence; a zero number when
// it does not exist.
func (v *view) room(room event.RoomID) (name nameValue, err error) {
	_, err = v.get(appendName(nil, spaceName, room), func(raw []byte) (err error) {
		name, err = decodeName(raw)
		return err
	})
	if err != nil {
		return nameValue{}, readError(room, "its name", err)
	}
	return name, nil
}

// head returns the position of the last entry, or of the snapshot when no entry is left.
func (v *view) head(room event.RoomID, n roomNumber) (event.Seq, error) {
	it, err := v.iter(blockBounds(n, 0))
	if err != nil {
		return 0, readError(room, "its head", err)
	}
	at, found, form := event.Seq(0), it.Last(), true
	if found {
		at, form = blockLast(it.Key())
	}
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		return 0, readError(room, "its head", err)
	}
	if !form {
		return 0, damaged(room, 0, "a key of unknown form")
	}
	if !found {
		at, _, err = v.snapshot(room, n, false)
	}
	return at, err
}

// snapshot returns the room's snapshot and its position; with content false,
// the position only. Without a snapshot the position is zero and the bytes nil.
func (v *view) snapshot(room event.RoomID, n roomNumber, content bool) (at event.Seq, snap []byte, err error) {
	_, err = v.get(appendPart(nil, n, partSnapshot), func(raw []byte) error {
		a, b, err := cutSnapshot(raw)
		at = a
		if content && err == nil {
			snap = append([]byte{}, b...)
		}
		return err
	})
	if err != nil {
		return 0, nil, readError(room, "its snapshot", err)
	}
	return at, snap, nil
}

// entries returns the entries in (after, to]. It reads on to the entry after the
// last one wanted, if there is one, so that a gap at the end is found too.
func (v *view) entries(room event.RoomID, n roomNumber, after, to event.Seq, maxEntries, maxBytes int) ([]*event.Entry, error) {
	it, err := v.iter(blockBounds(n, after+1))
	if err != nil {
		return nil, readError(room, "entries", err)
	}
	entries, err := collect(it, room, after, to, maxEntries, maxBytes)
	if failed := errors.Join(it.Error(), it.Close()); failed != nil {
		return nil, readError(room, "entries", failed)
	}
	return entries, err
}

func collect(it *pebble.Iterator, room event.RoomID, after, to event.Seq, maxEntries, maxBytes int) ([]*event.Entry, error) {
	var entries []*event.Entry
	bytes, whole := 0, false
	for ok := it.First(); ok && after < to; ok = it.Next() {
		last, form := blockLast(it.Key())
		if !form {
			return nil, damaged(room, after+1, "a key of unknown form")
		}
		b, err := openBlock(it.Value())
		if err != nil || event.Seq(b.n) > last {
			return nil, damaged(room, after+1, "the block of entries up to %d is unreadable", last)
		}
		at := last - event.Seq(b.n) + 1
		// The first block may begin before what was asked for, a later one not.
		if at > after+1 || whole && at != after+1 {
			return nil, damaged(room, after+1, "the entry is missing; the next one is at %d", at)
		}
		whole = true
		for ; at <= min(last, to); at++ {
			raw, err := b.next()
			if err != nil {
				return nil, damaged(room, at, "the block of entries up to %d is unreadable", last)
			}
			if at <= after {
				continue
			}
			bytes += len(raw)
			if len(entries) > 0 && (len(entries) == maxEntries || bytes > maxBytes) {
				return entries, nil
			}
			en, err := event.DecodeEntry(at, raw)
			if err != nil {
				return nil, damaged(room, at, "the entry is unreadable: %w", err)
			}
			entries = append(entries, en)
			after = at
		}
	}
	return entries, nil
}

func (v *view) transcript(n roomNumber, ch event.ChannelID, before event.Seq, maxRows, maxBytes int) ([]event.TranscriptRow, error) {
	last := before - 1
	if before == 0 {
		last = 1<<63 - 1
	}
	lo, hi := event.TranscriptRange(ch, last)
	it, err := v.iter(appendRowKey(nil, n, lo), appendRowKey(nil, n, hi))
	if err != nil {
		return nil, err
	}
	var rows []event.TranscriptRow
	for ok := it.Last(); ok && len(rows) < maxRows; ok = it.Prev() {
		raw := it.Value()
		if maxBytes -= len(raw); maxBytes < 0 {
			break
		}
		row, err := event.DecodeRow(raw)
		t, is := row.(*event.TranscriptRow)
		if err == nil && !is {
			err = errValue
		}
		if err != nil {
			return nil, errors.Join(ErrDamaged, err, it.Close())
		}
		rows = append(rows, *t)
	}
	slices.Reverse(rows)
	return rows, errors.Join(it.Error(), it.Close())
}

// maxTail is how many entries recovered returns. A room writes its snapshot long
// before it has so many after it; where there are more it was lost, and a room
// of a million entries must not fill the memory of the others.
const maxTail = 4096

// recovered reads what the journal holds of a room as of the grant.
func (v *view) recovered(room event.RoomID, g *grant, log *zap.Logger) (event.Recovered, error) {
	r := event.Recovered{Term: g.term, Head: g.head, Incarnation: g.inc}
	if g.num == 0 {
		return r, nil
	}
	at, snapshot, err := v.snapshot(room, g.num, true)
	if errors.Is(err, ErrDamaged) {
		// It only spares reading: the owner replays what lies before the tail.
		log.Error("the snapshot of a room is damaged; its entries are read instead", zap.String("room", string(room)), zap.Error(err))
		return r, v.alarm(room, &r, log)
	}
	if err != nil {
		return event.Recovered{}, err
	}
	r.SnapshotAt, r.Snapshot = at, snapshot
	if r.SnapshotAt > r.Head {
		return event.Recovered{}, damaged(room, r.SnapshotAt, "the snapshot is ahead of the last entry, %d", r.Head)
	}
	if r.Head-r.SnapshotAt <= maxTail {
		if r.Tail, err = v.tail(room, g.num, r.SnapshotAt, r.Head); err != nil {
			return event.Recovered{}, err
		}
	}
	return r, v.alarm(room, &r, log)
}

// alarm reads a room's alarm. One that is damaged is due: the worst that an
// early alarm does is to wake its room, which writes a new one.
func (v *view) alarm(room event.RoomID, r *event.Recovered, log *zap.Logger) error {
	_, err := v.get(appendName(nil, spaceAlarm, room), func(raw []byte) (err error) {
		r.Alarm, err = decodeAlarm(raw)
		return err
	})
	if errors.Is(err, ErrDamaged) {
		log.Error("the alarm of a room is damaged; it counts as due", zap.String("room", string(room)))
		r.Alarm = time.UnixMilli(0).UTC()
		return nil
	}
	if err != nil {
		return readError(room, "its alarm", err)
	}
	return nil
}

// tail returns all entries in (after, head], whatever their size: an owner
// cannot do with a part of them.
func (v *view) tail(room event.RoomID, n roomNumber, after, head event.Seq) ([]*event.Entry, error) {
	if after == head {
		return nil, nil
	}
	tail, err := v.entries(room, n, after, head, 0, 1<<62)
	if err == nil && after+event.Seq(len(tail)) != head {
		err = damaged(room, after+event.Seq(len(tail))+1, "the entry is missing")
	}
	return tail, err
}
