package event

import (
	"encoding/binary"
	"errors"
	"time"
)

// The encoding of journaled records: a version byte, then fields. A field is a
// uvarint tag<<1|type and its value: type 0 a uvarint, type 1 a length and bytes.
// A zero value is not written; an unknown tag is skipped. It is the smallest
// encoding that keeps old records readable and needs only the standard library
// (the vocabulary imports nothing else): about a quarter of the bytes of JSON.

const codecVersion = 1

var (
	errShort   = errors.New("event: a record ends in the middle of a field")
	errVersion = errors.New("event: the record was written by a newer version of the program")
)

type encoder struct{ b []byte }

func (e *encoder) uint(tag int, v uint64) {
	if v != 0 {
		e.b = binary.AppendUvarint(e.b, uint64(tag)<<1)
		e.b = binary.AppendUvarint(e.b, v)
	}
}

func (e *encoder) bool(tag int, v bool) {
	if v {
		e.uint(tag, 1)
	}
}

func (e *encoder) str(tag int, s string) {
	if s != "" {
		e.b = binary.AppendUvarint(e.b, uint64(tag)<<1|1)
		e.b = binary.AppendUvarint(e.b, uint64(len(s)))
		e.b = append(e.b, s...)
	}
}

func (e *encoder) bytes(tag int, s []byte) {
	if len(s) != 0 {
		e.b = binary.AppendUvarint(e.b, uint64(tag)<<1|1)
		e.b = binary.AppendUvarint(e.b, uint64(len(s)))
		e.b = append(e.b, s...)
	}
}

// each writes one element of a repeated field, empty or not.
func (e *encoder) each(tag int, s string) {
	e.b = binary.AppendUvarint(e.b, uint64(tag)<<1|1)
	e.b = binary.AppendUvarint(e.b, uint64(len(s)))
	e.b = append(e.b, s...)
}

// time writes whole milliseconds since 1970; the zero time is not written.
func (e *encoder) time(tag int, t time.Time) {
	if !t.IsZero() {
		e.uint(tag, uint64(t.UnixMilli()))
	}
}

// begin opens a field of bytes and returns its place for end. What is written
// between the two is its value.
func (e *encoder) begin(tag int) (at int) {
	e.b = binary.AppendUvarint(e.b, uint64(tag)<<1|1)
	e.b = append(e.b, 0)
	return len(e.b) - 1
}

// end patches the length in: the bytes move by one for each byte of length
// beyond the first.
func (e *encoder) end(at int) {
	n := len(e.b) - at - 1
	if n < 0x80 {
		e.b[at] = byte(n)
		return
	}
	var l [binary.MaxVarintLen64]byte
	w := binary.PutUvarint(l[:], uint64(n))
	e.b = append(e.b, l[:w-1]...)
	copy(e.b[at+w:], e.b[at+1:at+1+n])
	copy(e.b[at:], l[:w])
}

func (e *encoder) disclosure(tag int, d Disclosure) {
	switch {
	case !d.Stated():
	case len(d.Participants) == 0:
		e.uint(tag, uint64(d.Kind))
	default:
		at := e.begin(tag)
		for _, p := range d.Participants {
			e.each(1, string(p))
		}
		e.end(at)
	}
}

func (e *encoder) endpoint(tag int, p Endpoint) {
	if p == (Endpoint{}) {
		return
	}
	at := e.begin(tag)
	e.uint(1, uint64(p.Kind))
	e.str(2, p.ID)
	e.end(at)
}

// field is one decoded field: u for type 0, b for type 1 (it aliases the record).
type field struct {
	tag int
	u   uint64
	b   []byte
}

func (f field) str() string { return string(f.b) }

func (f field) time() time.Time {
	if f.u == 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(f.u)).UTC()
}

func (f field) disclosure() (Disclosure, error) {
	if f.b == nil {
		return Disclosure{Kind: DisclosureKind(f.u)}, nil
	}
	var ids []ParticipantID
	err := fields(f.b, func(f field) error {
		if f.tag == 1 {
			ids = append(ids, ParticipantID(f.b))
		}
		return nil
	})
	return Disclosure{Kind: DiscloseParticipants, Participants: ids}, err
}

func (f field) endpoint() (p Endpoint, err error) {
	err = fields(f.b, func(f field) error {
		switch f.tag {
		case 1:
			p.Kind = EndpointKind(f.u)
		case 2:
			p.ID = f.str()
		}
		return nil
	})
	return p, err
}

// fields calls f for each field of b, in order.
func fields(b []byte, f func(field) error) error {
	for len(b) > 0 {
		head, n := binary.Uvarint(b)
		if n <= 0 {
			return errShort
		}
		b = b[n:]
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return errShort
		}
		b = b[n:]
		fd := field{tag: int(head >> 1)}
		if head&1 == 0 {
			fd.u = v
		} else {
			if v > uint64(len(b)) {
				return errShort
			}
			fd.b, b = b[:v:v], b[v:]
		}
		if err := f(fd); err != nil {
			return err
		}
	}
	return nil
}
