package persistence

import (
	"encoding/binary"

	"parley/event"
)

// The bounds of a block. One read of an entry in the middle walks over those
// before it, so a block is not as large as a batch may be. A larger entry is a
// block of its own.
const (
	maxBlock      = 128 // entries; the count is one byte
	maxBlockBytes = 32 << 10
)

// A block is a run of entries of one batch: version byte, their number in one
// byte, then each with its length before it. blockWriter appends blocks to buf.
// Owned by the encoded that it belongs to.
type blockWriter struct {
	buf   []byte
	one   []byte // scratch
	start int    // of the open block in buf
	n     int    // its entries; 0: no block is open
}

// add appends an entry, to the open block if it has room. It reports whether
// that begins a block, so that the one before it is closed.
func (w *blockWriter) add(en *event.Entry) (begins bool) {
	w.one = event.AppendEntry(w.one[:0], en)
	begins = w.n == 0 || w.n == maxBlock || len(w.buf)-w.start+len(w.one) > maxBlockBytes
	if begins {
		w.start, w.n = len(w.buf), 0
		w.buf = append(w.buf, valueVersion, 0)
	}
	w.n++
	w.buf[w.start+1] = byte(w.n)
	w.buf = append(binary.AppendUvarint(w.buf, uint64(len(w.one))), w.one...)
	return begins
}

// block is what is left of one that is being read.
type block struct {
	rest []byte
	n    int // entries in rest
}

func openBlock(raw []byte) (block, error) {
	raw, err := cutVersion(raw)
	if err != nil || len(raw) == 0 || raw[0] == 0 {
		return block{}, errValue
	}
	return block{rest: raw[1:], n: int(raw[0])}, nil
}

// next returns the stored form of the next entry. It aliases the block.
func (b *block) next() ([]byte, error) {
	size, k := binary.Uvarint(b.rest)
	if b.n == 0 || k <= 0 || size > uint64(len(b.rest)-k) {
		return nil, errValue
	}
	raw := b.rest[k : k+int(size)]
	b.rest = b.rest[k+int(size):]
	if b.n--; b.n == 0 && len(b.rest) > 0 {
		return nil, errValue
	}
	return raw, nil
}
