package gateway

import "parley/gateway/wire"

// pen writes the items of a feed. Items are small, many and let go at about the
// same time, so they share blocks of memory. Owned by one writer at a time; the
// Gateway keeps those that no writer has.
type pen struct {
	batch []byte   // memory of the frame being written
	block []byte   // items written here are kept; its rest is free
	items [][]byte // headers of items that are kept; its rest is free
	id    []byte
	once  []byte // an item that is not kept
	// entries are what was read last, and own the records of those that nobody
	// else looks at: their items are not kept.
	entries []*feedEntry
	own     [feedChunk]feedEntry
	owned   int // of own
	// nonces are random, read ahead; those from used on were not used yet.
	nonces [penNonces * wire.NonceSize]byte
	used   int
}

const (
	penBlock  = 4 << 10
	penItems  = 32
	penNonces = 32
)

func newPen() any {
	return &pen{
		batch: make([]byte, 0, 8<<10), id: make([]byte, 0, 64), once: make([]byte, 0, 512),
		entries: make([]*feedEntry, 0, feedChunk), used: penNonces,
	}
}

// cursor appends a fresh cursor of the present position of a connection.
func (p *pen) cursor(b []byte, c *conn, l *lens) []byte {
	if p.used == penNonces {
		c.g.random(p.nonces[:])
		p.used = 0
	}
	nonce := [wire.NonceSize]byte(p.nonces[p.used*wire.NonceSize:])
	p.used++
	return c.seal(b, l, c.pos, c.posAt, nonce)
}

// rest lets go of the entries that were read last.
func (p *pen) rest() {
	clear(p.entries[:cap(p.entries)])
	for i := range p.own[:p.owned] {
		p.own[i].Entry = nil
	}
	p.owned = 0
}

// item returns an entry as a viewer gets it, until the next call; nil when it
// does not.
func (p *pen) item(e *feedEntry, v wire.Viewer, s seal) []byte {
	as := v.Variant(e.Entry)
	if as == wire.Hidden {
		return nil
	}
	if as == wire.Own || !e.shared {
		p.id = s.keys.AppendEntryID(p.id[:0], s.inc, e.Seq)
		p.once = wire.AppendItem(p.once[:0], e.Entry, p.id, v, as)
		return p.once
	}
	if p := e.items[as].Load(); p != nil {
		return *p
	}
	if len(p.items) == cap(p.items) {
		p.items = make([][]byte, 0, penItems)
	}
	p.items = append(p.items, p.write(e, v, as, s))
	e.items[as].Store(&p.items[len(p.items)-1])
	return p.items[len(p.items)-1]
}

// write appends an item that is kept.
func (p *pen) write(e *feedEntry, v wire.Viewer, as wire.Variant, s seal) []byte {
	p.id = s.keys.AppendEntryID(p.id[:0], s.inc, e.Seq)
	if cap(p.block)-len(p.block) < penBlock/8 {
		p.block = make([]byte, 0, penBlock)
	}
	n := len(p.block)
	item := wire.AppendItem(p.block[n:], e.Entry, p.id, v, as)
	if len(item) <= cap(p.block)-n { // else it has got memory of its own
		p.block = p.block[:n+len(item)]
	}
	return item[:len(item):len(item)]
}
