package persistence

import (
	"fmt"
	"time"

	"parley/event"
)

// request is one thing for the committer. It is handed on by value; what it
// points to belongs to the committer until done is called.
type request struct {
	kind  requestKind
	room  *room
	since time.Time
	batch *event.Batch // of an append
	enc   *encoded     // of an append: the values of its blocks and rows
	grant *grant       // of a recovery: where the answer goes
	err   error        // why nothing is to be written; known before the committer saw it
	done  func(error)
}

type requestKind uint8

const (
	requestAppend requestKind = iota
	requestGrant
	requestDelete
)

// grant is the committer's answer to a recovery.
type grant struct {
	num  roomNumber
	inc  event.Incarnation
	head event.Seq
	term event.Term
	view *view // as of the grant; for the receiver to release
}

// encoded holds the stored forms of a batch's blocks of entries, then of its
// rows, one after the other. Encoding happens in Append, so that the one
// committer does not do it for all rooms. Owned by the request that it belongs
// to; recycled.
type encoded struct {
	blocks blockWriter
	lasts  []event.Seq // of each block
	starts []int       // of each value
}

// encode checks a batch and encodes it.
func (e *encoded) encode(b *event.Batch) (err error) {
	// A kind without an encoding is a fault of one room's code: it must not end
	// the others. What the panic holds could be content and is left out.
	at := 0
	defer func() {
		if recover() != nil {
			err = fmt.Errorf("room %s: entry or row %d of a batch cannot be encoded", b.Room, at)
		}
	}()
	e.blocks.buf, e.blocks.n = e.blocks.buf[:0], 0
	e.lasts, e.starts = e.lasts[:0], e.starts[:0]
	for i, en := range b.Entries {
		if want := b.Expect + 1 + event.Seq(i); en.Seq != want {
			return fmt.Errorf("room %s: a batch holds entry %d where %d belongs", b.Room, en.Seq, want)
		}
		if e.blocks.add(en) {
			e.lasts, e.starts = append(e.lasts, 0), append(e.starts, e.blocks.start)
		}
		e.lasts[len(e.lasts)-1] = en.Seq
		at++
	}
	for i := range b.Rows {
		k := b.Rows[i].Key
		if k.Table == 0 || k.Table >= 0x80 {
			return fmt.Errorf("room %s: a batch holds a row of table %d; tables are 1 to 127", b.Room, k.Table)
		}
		e.starts = append(e.starts, len(e.blocks.buf))
		e.blocks.buf = event.AppendRow(e.blocks.buf, b.Rows[i].Row)
		at++
	}
	return nil
}

// value returns the i-th value.
func (e *encoded) value(i int) []byte {
	to := len(e.blocks.buf)
	if i+1 < len(e.starts) {
		to = e.starts[i+1]
	}
	return e.blocks.buf[e.starts[i]:to]
}

// maxRecycled is the greatest buffer that is kept for later batches.
const maxRecycled = 64 << 10

func (s *Store) encoding() *encoded {
	if e, ok := s.encodings.Get().(*encoded); ok {
		return e
	}
	return &encoded{}
}

func (s *Store) recycle(e *encoded) {
	if e != nil && cap(e.blocks.buf) <= maxRecycled {
		s.encodings.Put(e)
	}
}

// size is about how many bytes the request adds to a commit.
func (r *request) size() int {
	n := 64
	if r.enc != nil {
		n += len(r.enc.blocks.buf)
	}
	if r.batch != nil {
		n += len(r.batch.Snapshot)
	}
	return n
}
