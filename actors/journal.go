package actors

import (
	"time"

	"parley/event"
)

// Journal makes rooms durable. It is safe for concurrent use. A batch may be
// readable before it is durable, so the callers in this package bound every
// read by a head that they know to be durable.
type Journal interface {
	// Recover takes a room over: it waits for a batch of that room that is still
	// outstanding, and for all it reads to be durable, and grants a new term. It
	// blocks. Instead of a snapshot that cannot be read it returns none; what the
	// tail then lacks is there to be read.
	Recover(room event.RoomID) (event.Recovered, error)
	// Append makes a batch durable as a whole or not at all. It does not block;
	// done is called once, from another goroutine, and does not block either. An
	// error that is neither event.ErrFenced nor event.ErrDiskFull leaves open
	// whether the batch was written. A batch without entries replaces only the
	// alarm and the snapshot. The journal does not change b.
	Append(b *event.Batch, done func(error))
	// Row returns a row of a room's history; nil without an error when there is none.
	Row(room event.RoomID, k event.Key) (event.Row, error)
	// Read returns entries of (after, to], in order: at most max, but never none
	// when there is one.
	Read(room event.RoomID, after, to event.Seq, max int) ([]*event.Entry, error)
	// Transcript returns the newest rows of a channel before a position, at most
	// maxRows of at most maxBytes together.
	Transcript(room event.RoomID, ch event.ChannelID, before event.Seq, maxRows, maxBytes int) ([]event.TranscriptRow, error)
	// Head returns the position of a room's last entry; 0 for a room that was never created.
	Head(room event.RoomID) (event.Seq, error)
	// Alarms calls yield for each room with an alarm until it returns false, in any order.
	Alarms(yield func(room event.RoomID, at time.Time) bool) error
	// Writable returns why new batches are refused at the moment, nil when they
	// are not. It does not block. The text is for the people who are refused.
	Writable() error
}
