package wire

import (
	"strconv"
	"time"

	"parley/event"
)

// Server is a frame of a server: Ready, Subscribed, CaughtUp, Accepted, Done,
// Error, Ping or Goaway. The frames state and events are made by State and Batch.
type Server interface {
	// Append appends the frame as JSON.
	Append(b []byte) []byte
}

// Right is what a connection may do on a channel.
type Right struct {
	Channel event.ChannelID
	Can     []event.Scope
}

// Ready answers hello.
type Ready struct {
	Conn      string
	Sub       event.ParticipantID
	Resumed   bool
	Reason    Reset // why a cursor that was asked for was not resumed
	Cursor    string
	Can       []Right
	ExpiresIn int64 // seconds until the token expires
	PingMs    int64
	MaxFrame  int
	Window    int
}

// Subscribed says which channels of a subscribe the connection now has, or
// which a fresh token opened.
type Subscribed struct {
	Ref      string
	Channels []event.ChannelID
	Can      []Right
}

// CaughtUp says that the stream has reached the present for the first time.
type CaughtUp struct{ Cursor string }

// Accepted says that an input is durable.
type Accepted struct {
	ID        event.InputID
	Entry     string
	Run       event.RunID
	At        time.Time
	State     event.Admission
	Duplicate bool
}

// Done answers a request other than an input. Only the members of its request are written.
type Done struct {
	Ref       string
	Cancel    *event.CancelResult // of a cancel
	Refresh   bool                // of an auth: ExpiresIn and Can are written
	ExpiresIn int64               // seconds
	Can       []Right
}

// Error refuses a frame, or says what ends the connection.
type Error struct {
	Ref     string
	Code    Code
	Message string
	Run     string // the run in the way, for those who may see it
	RetryMs int64
	Fatal   bool
}

// Ping asks for a pong with the same T and carries a fresh cursor.
type Ping struct {
	Cursor string
	T      int64
}

// Goaway announces the end of the connection.
type Goaway struct {
	Reason  string
	AfterMs int64
}

// Append implements Server.
func (f Ready) Append(b []byte) []byte {
	b = append(b, `{"type":"ready","conn":`...)
	b = appendString(b, f.Conn)
	b = appendString(append(b, `,"sub":`...), f.Sub)
	b = strconv.AppendBool(append(b, `,"resumed":`...), f.Resumed)
	if f.Reason != "" {
		b = appendString(append(b, `,"reason":`...), f.Reason)
	}
	b = appendString(append(b, `,"cursor":`...), f.Cursor)
	b = appendRights(append(b, `,"can":`...), f.Can)
	b = strconv.AppendInt(append(b, `,"expiresIn":`...), f.ExpiresIn, 10)
	b = strconv.AppendInt(append(b, `,"pingMs":`...), f.PingMs, 10)
	b = strconv.AppendInt(append(b, `,"maxFrame":`...), int64(f.MaxFrame), 10)
	b = strconv.AppendInt(append(b, `,"window":`...), int64(f.Window), 10)
	return append(b, '}')
}

// Append implements Server.
func (f Subscribed) Append(b []byte) []byte {
	b = appendString(append(b, `{"type":"subscribed","ref":`...), f.Ref)
	b = append(b, `,"channels":[`...)
	for i, ch := range f.Channels {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, ch)
	}
	return append(appendRights(append(b, `],"can":`...), f.Can), '}')
}

// Append implements Server.
func (f CaughtUp) Append(b []byte) []byte {
	return append(appendString(append(b, `{"type":"caught_up","cursor":`...), f.Cursor), '}')
}

// Append implements Server.
func (f Accepted) Append(b []byte) []byte {
	b = appendString(append(b, `{"type":"accepted","id":`...), f.ID)
	b = appendString(append(b, `,"entry":`...), f.Entry)
	b = appendString(append(b, `,"run":`...), f.Run)
	b = appendTime(append(b, `,"at":`...), f.At)
	b = appendString(append(b, `,"state":`...), f.State.String())
	b = strconv.AppendBool(append(b, `,"duplicate":`...), f.Duplicate)
	return append(b, '}')
}

// Append implements Server.
func (f Done) Append(b []byte) []byte {
	b = appendString(append(b, `{"type":"done","ref":`...), f.Ref)
	if f.Cancel != nil {
		b = strconv.AppendBool(append(b, `,"canceled":`...), f.Cancel.Canceled)
		b = append(b, `,"status":`...)
		if f.Cancel.Status == 0 {
			b = append(b, "null"...)
		} else {
			b = appendString(b, f.Cancel.Status.String())
		}
	}
	if f.Refresh {
		b = strconv.AppendInt(append(b, `,"expiresIn":`...), f.ExpiresIn, 10)
		b = appendRights(append(b, `,"can":`...), f.Can)
	}
	return append(b, '}')
}

// Append implements Server.
func (f Error) Append(b []byte) []byte {
	b = append(b, `{"type":"error"`...)
	if f.Ref != "" {
		b = appendString(append(b, `,"ref":`...), f.Ref)
	}
	b = appendString(append(b, `,"code":`...), f.Code)
	b = appendString(append(b, `,"message":`...), f.Message)
	if f.Run != "" {
		b = appendString(append(b, `,"run":`...), f.Run)
	}
	if f.RetryMs > 0 {
		b = strconv.AppendInt(append(b, `,"retryMs":`...), f.RetryMs, 10)
	}
	b = strconv.AppendBool(append(b, `,"fatal":`...), f.Fatal)
	return append(b, '}')
}

// Append implements Server.
func (f Ping) Append(b []byte) []byte {
	b = appendString(append(b, `{"type":"ping","cursor":`...), f.Cursor)
	return append(strconv.AppendInt(append(b, `,"t":`...), f.T, 10), '}')
}

// Append implements Server.
func (f Goaway) Append(b []byte) []byte {
	b = appendString(append(b, `{"type":"goaway","reason":`...), f.Reason)
	return append(strconv.AppendInt(append(b, `,"afterMs":`...), f.AfterMs, 10), '}')
}

// appendRights writes an object by channel; the order is the caller's.
func appendRights(b []byte, rights []Right) []byte {
	b = append(b, '{')
	for i, r := range rights {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendString(b, r.Channel), ':', '[')
		for j, s := range r.Can {
			if j > 0 {
				b = append(b, ',')
			}
			b = appendString(b, s)
		}
		b = append(b, ']')
	}
	return append(b, '}')
}

// appendTime writes a time in UTC with milliseconds.
func appendTime(b []byte, t time.Time) []byte {
	t = t.UTC()
	// Only this layout has a fast path in package time: a third of the cost of
	// one with milliseconds, which are put before its Z.
	b = t.AppendFormat(append(b, '"'), time.RFC3339)
	ms := t.Nanosecond() / 1e6
	return append(b[:len(b)-1], '.', byte('0'+ms/100), byte('0'+ms/10%10), byte('0'+ms%10), 'Z', '"')
}

// Batch collects the items of one events frame. The zero Batch is empty. Owned
// by the connection's writer; Reset lets its memory be used again.
type Batch struct {
	buf   []byte
	items int
	at    int // where the items begin; what comes before is room for the head
}

// batchHead is the room that the head of a frame can take at most:
// {"type":"events","n":<20 digits>,"cursor":"<64>","items":[
const batchHead = 128

// Reset makes the batch empty, with buf as its memory.
func (f *Batch) Reset(buf []byte) {
	if cap(buf) < batchHead {
		buf = make([]byte, 0, 4096)
	}
	*f = Batch{buf: buf[:batchHead]}
}

// Len returns the number of items.
func (f *Batch) Len() int { return f.items }

// Fits reports whether an item of that size still fits into a frame of at most
// maxFrame bytes. An item always fits into an empty batch.
func (f *Batch) Fits(size, maxFrame int) bool {
	return f.items == 0 || f.items < MaxBatch && len(f.buf)+size+3 <= maxFrame
}

// Add adds an item that AppendItem wrote.
func (f *Batch) Add(item []byte) {
	if f.items > 0 {
		f.buf = append(f.buf, ',')
	}
	f.buf = append(f.buf, item...)
	f.items++
}

// Frame returns the whole frame. n is the number of its first item. The result
// shares the memory of the batch, which Buffer gives back.
func (f *Batch) Frame(n uint64, cursor []byte) []byte {
	var head [batchHead]byte
	b := append(head[:0], `{"type":"events","n":`...)
	b = strconv.AppendUint(b, n, 10)
	b = append(b, `,"cursor":"`...)
	b = append(b, cursor...)
	b = append(b, `","items":[`...)
	f.at = batchHead - len(b)
	copy(f.buf[f.at:], b)
	f.buf = append(f.buf, ']', '}')
	return f.buf[f.at:]
}

// Buffer returns the batch's memory, for the next Reset.
func (f *Batch) Buffer() []byte { return f.buf[:0] }
