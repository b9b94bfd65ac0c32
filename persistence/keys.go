package persistence

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"time"

	"parley/event"
)

// The layout of the store. Every value starts with a version byte.
//
//	01 "format"                  format version of the directory
//	02 <room name>               number and incarnation of a room that exists
//	03 <room name>               the room's alarm, so that Alarms is one short scan
//	<room> 01 <position>         a block of entries of one batch, the last of them at that position
//	<room> 02                    the term of the room's owner
//	<room> 03                    the snapshot, preceded by its position
//	<room> 80+table <row id>     a history row
//
// <room> is the room's number, given when it is created and never used again.
// A name has up to 128 bytes and would be in every key of the write-ahead log
// and of the memtable; a number costs two or three. It also makes deletion one
// range tombstone that can never cover a later room of the same name.
//
// <room> and <position> are numbers in an ordered form of one length byte and
// as few big-endian bytes as needed. The length byte of <room> starts at 10, so
// that the three ranges before it need no prefix of their own. An entry's key
// has 6 bytes in the first 255 rooms up to position 65,535.
//
// The entries of a batch are written in blocks, not one by one: a key costs
// Pebble several times what the bytes behind it do, in the log, in the memtable
// and again in every compaction. A block is named by its last position, so that
// a seek to the position that is wanted finds the block that holds it.
//
// The head of a room is not a row: it is the position of its last block, or of
// the snapshot when no entry is left. A row for it would be written with every
// batch, which at one block per batch is a quarter of all keys.
const (
	spaceMeta  = 0x01
	spaceName  = 0x02
	spaceAlarm = 0x03
	spaceRoom  = 0x10 // + the number of bytes of the room's number, 1 to 8

	partEntry    = 0x01
	partTerm     = 0x02
	partSnapshot = 0x03
	partRows     = 0x80 // + event.Table, 1 to 127
)

// formatVersion is the layout above. A change that an older program would
// misread raises it. Version 1 had a key for each entry and was never released.
const formatVersion = 2

const valueVersion = 1

var formatKey = append([]byte{spaceMeta}, "format"...)

// roomNumber is the internal number of a room. Zero: the room does not exist.
type roomNumber uint64

// appendOrdered appends v so that the bytes sort as the numbers do.
func appendOrdered(b []byte, base byte, v uint64) []byte {
	n := (bits.Len64(v) + 7) / 8
	b = append(b, base+byte(n))
	for i := n - 1; i >= 0; i-- {
		b = append(b, byte(v>>(8*i)))
	}
	return b
}

// cutOrdered reads what appendOrdered wrote and returns what follows it.
func cutOrdered(b []byte, base byte) (v uint64, rest []byte, ok bool) {
	if len(b) == 0 || b[0] < base || b[0] > base+8 {
		return 0, nil, false
	}
	n := int(b[0] - base)
	if len(b) < 1+n {
		return 0, nil, false
	}
	for _, c := range b[1 : 1+n] {
		v = v<<8 | uint64(c)
	}
	return v, b[1+n:], true
}

func appendName(b []byte, space byte, room event.RoomID) []byte {
	return append(append(b, space), room...)
}

func appendRoom(b []byte, n roomNumber) []byte { return appendOrdered(b, spaceRoom, uint64(n)) }

func appendPart(b []byte, n roomNumber, part byte) []byte {
	return append(appendRoom(b, n), part)
}

// appendBlockKey appends the key of the block whose last entry is at a position.
func appendBlockKey(b []byte, n roomNumber, last event.Seq) []byte {
	return appendOrdered(appendPart(b, n, partEntry), 0, uint64(last))
}

func appendRowKey(b []byte, n roomNumber, k event.Key) []byte {
	return append(appendPart(b, n, partRows+byte(k.Table)), k.ID...)
}

// blockLast reads the position of its last entry out of a block's key.
func blockLast(key []byte) (event.Seq, bool) {
	_, rest, ok := cutOrdered(key, spaceRoom)
	if !ok || len(rest) == 0 || rest[0] != partEntry {
		return 0, false
	}
	at, rest, ok := cutOrdered(rest[1:], 0)
	return event.Seq(at), ok && len(rest) == 0
}

// spaceBounds returns the bounds of one of the ranges before the rooms.
func spaceBounds(space byte) (lo, hi []byte) { return []byte{space}, []byte{space + 1} }

// roomsBounds returns the bounds of the data of all rooms.
func roomsBounds() (lo, hi []byte) { return []byte{spaceRoom}, []byte{spaceRoom + 9} }

// roomBounds returns the bounds of all that is kept of a room beside its name and alarm.
func roomBounds(n roomNumber) (lo, hi []byte) { return appendRoom(nil, n), appendRoom(nil, n+1) }

// blockBounds returns the bounds of the blocks that hold the room's entries from
// position `from` on; the first may begin before it.
func blockBounds(n roomNumber, from event.Seq) (lo, hi []byte) {
	return appendBlockKey(nil, n, from), appendPart(nil, n, partEntry+1)
}

var errValue = errors.New("a record does not have the form it was written in")

// nameValue is what the store keeps of the existence of a room.
type nameValue struct {
	num roomNumber
	inc event.Incarnation
}

func (v nameValue) append(b []byte) []byte {
	b = binary.AppendUvarint(append(b, valueVersion), uint64(v.num))
	return binary.AppendUvarint(b, uint64(v.inc))
}

func decodeName(raw []byte) (v nameValue, err error) {
	var num, inc uint64
	if err := decodeUvarints(raw, &num, &inc); err != nil {
		return nameValue{}, err
	}
	if num == 0 {
		return nameValue{}, errValue
	}
	return nameValue{roomNumber(num), event.Incarnation(inc)}, nil
}

func appendNumber(b []byte, v uint64) []byte {
	return binary.AppendUvarint(append(b, valueVersion), v)
}

func decodeNumber(raw []byte) (v uint64, err error) {
	err = decodeUvarints(raw, &v)
	return v, err
}

// An alarm is kept in whole milliseconds, rounded down: an early firing does no
// harm, a late one would.
func appendAlarm(b []byte, at time.Time) []byte {
	return binary.AppendVarint(append(b, valueVersion), at.UnixMilli())
}

func decodeAlarm(raw []byte) (time.Time, error) {
	raw, err := cutVersion(raw)
	if err != nil {
		return time.Time{}, err
	}
	ms, n := binary.Varint(raw)
	if n <= 0 {
		return time.Time{}, errValue
	}
	return time.UnixMilli(ms).UTC(), nil
}

// appendSnapshotHead appends what precedes the bytes of a snapshot.
func appendSnapshotHead(b []byte, at event.Seq) []byte { return appendNumber(b, uint64(at)) }

// cutSnapshot returns the position of a stored snapshot and its bytes, which alias raw.
func cutSnapshot(raw []byte) (event.Seq, []byte, error) {
	raw, err := cutVersion(raw)
	if err != nil {
		return 0, nil, err
	}
	at, n := binary.Uvarint(raw)
	if n <= 0 {
		return 0, nil, errValue
	}
	return event.Seq(at), raw[n:], nil
}

func cutVersion(raw []byte) ([]byte, error) {
	switch {
	case len(raw) == 0 || raw[0] == 0:
		return nil, errValue
	case raw[0] > valueVersion:
		return nil, fmt.Errorf("a record of version %d; this program reads up to %d", raw[0], valueVersion)
	}
	return raw[1:], nil
}

func decodeUvarints(raw []byte, vs ...*uint64) error {
	raw, err := cutVersion(raw)
	if err != nil {
		return err
	}
	for _, v := range vs {
		var n int
		if *v, n = binary.Uvarint(raw); n <= 0 {
			return errValue
		}
		raw = raw[n:]
	}
	return nil
}
