package event

import (
	"encoding/binary"
	"errors"
	"time"
)

// Table is a kind of history row. Journaled: never renumber.
type Table uint8

// The tables of a room's history.
const (
	TableInput      Table = 1 // by channel, speaker and input id: what an exact retry is answered from (A5)
	TableRun        Table = 2 // by run id: the head of a run that ended or waits, and where its events lie
	TableTranscript Table = 3 // by channel and position: what was said (M1)
)

// Key names one row of a room's history. Comparable. The encoding of ID orders
// the rows of a table: transcript rows by channel, then position.
type Key struct {
	Table Table
	ID    string
}

// InputKey is the idempotency key of an input (A5).
func InputKey(ch ChannelID, speaker Endpoint, id InputID) Key {
	b := appendPart(nil, string(ch))
	b = append(b, byte(speaker.Kind))
	b = appendPart(b, speaker.ID)
	return Key{TableInput, string(append(b, id...))}
}

// RunKey is the key of a run's record.
func RunKey(id RunID) Key { return Key{TableRun, string(id)} }

// TranscriptKey is the key of the transcript row that an entry made.
func TranscriptKey(ch ChannelID, at Seq) Key {
	return Key{TableTranscript, string(binary.BigEndian.AppendUint64(appendPart(nil, string(ch)), uint64(at)))}
}

// TranscriptRange returns the bounds [lo, hi) of a channel's transcript keys up to and with position `to`.
func TranscriptRange(ch ChannelID, to Seq) (lo, hi Key) {
	return TranscriptKey(ch, 0), TranscriptKey(ch, to+1)
}

func appendPart(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// Row is a value of a room's history: *InputRow, *RunRow or *TranscriptRow.
type Row interface{ Table() Table }

// KeyedRow is a row with its key, to be written in the batch that changes it.
type KeyedRow struct {
	Key Key
	Row Row
}

// InputRow answers an exact retry of an input (A5).
type InputRow struct {
	Digest     [32]byte
	Disclosure Disclosure // that resulted from A2
	Entry      Seq
	At         time.Time
	Run        RunID
	State      Admission
}

// RunRow is the head of a run as of its admission, its last wait or its end.
// While a run is open its truth is the room's state; the row then tells where it began.
type RunRow struct {
	Run        RunID
	Channel    ChannelID
	Agent      AgentID
	Speaker    Endpoint
	Disclosure Disclosure
	Status     Status
	Attempt    uint32
	Sequence   uint64
	First      Seq // the run's events lie in [First, Last]
	Last       Seq // 0 while it is open
	Started    time.Time
	Ended      time.Time
	Reason     string
	Code       string
	Message    string
}

// TranscriptRow is an input or a closed recorded output (M1).
type TranscriptRow struct {
	Entry      Seq
	At         time.Time
	Speaker    Endpoint // the participant, or the agent of an output
	Disclosure Disclosure
	Run        RunID
	Input      InputID  // of an input row, and the input an output answers
	Output     OutputID // "" for an input row
	Modality   Modality // zero for an output
	Lang       string
	Text       string
}

// Table implements Row.
func (*InputRow) Table() Table { return TableInput }

// Table implements Row.
func (*RunRow) Table() Table { return TableRun }

// Table implements Row.
func (*TranscriptRow) Table() Table { return TableTranscript }

// Batch is everything that one flush of a room changes. A journal makes it
// durable as a whole or not at all.
type Batch struct {
	Room    RoomID
	Term    Term
	Expect  Seq // the position before the first entry; a mismatch means another owner
	Entries []*Entry
	Rows    []KeyedRow
	// Alarm, when not nil, replaces the room's alarm row. The zero time removes it.
	Alarm *time.Time
	// Snapshot, when not nil, replaces the room's snapshot, which stands at SnapshotAt.
	Snapshot   []byte
	SnapshotAt Seq
	// Incarnation is the journal's; written with the first batch.
	Incarnation Incarnation
}

// Recovered is what a journal holds of a room when it is activated. A room that
// was never created has Head 0 and no snapshot.
type Recovered struct {
	Term        Term // granted to this activation; greater than every earlier one
	Head        Seq
	Incarnation Incarnation
	Snapshot    []byte // encoded state at SnapshotAt, nil: none
	SnapshotAt  Seq
	Tail        []*Entry // (SnapshotAt, Head]
	Alarm       time.Time
}

// ErrFenced says that a batch did not follow the journal's head or came from an
// older term: another owner has the room. Nothing of the batch was written.
var ErrFenced = errors.New("another owner has written to the room's journal")

// ErrDiskFull says that the disk has too little free space for new commits.
// Nothing was written.
var ErrDiskFull = errors.New("the disk that holds the data directory is almost full; free some space, and the rooms go on by themselves")
