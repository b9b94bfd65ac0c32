package event

import "time"

// Entry is one durable record of a room's journal. Immutable once made.
type Entry struct {
	Seq        Seq
	At         time.Time // room time, UTC, whole milliseconds; never falls within a journal
	Channel    ChannelID // "" for what concerns the whole room
	Disclosure Disclosure
	Body       Body
}

// Body is what an entry records: *InputAdmitted, *RunEvent, *RoomConfigured, *FocusSet or *Drained.
type Body interface{ Kind() Kind }

// Kind is the kind of an entry's body. Journaled: never renumber.
type Kind uint8

// The kinds of entry.
const (
	KindInput   Kind = 1
	KindRun     Kind = 2
	KindRoom    Kind = 3
	KindFocus   Kind = 4
	KindDrained Kind = 5
)

var kindNames = [...]string{KindInput: "input", KindRun: "run.event", KindRoom: "room", KindFocus: "focus", KindDrained: "drained"}

// String returns a word for k: for the kinds that clients see, the wire word.
func (k Kind) String() string { return word(kindNames[:], int(k)) }

// InputAdmitted is the transcript row of an input and its index (A4, A5). The
// entry's disclosure is the one that resulted from A2.
type InputAdmitted struct {
	Input    InputID
	Speaker  Endpoint
	By       ParticipantID // the host that named the speaker; "" when the speaker spoke
	Text     string
	Modality Modality
	Lang     string
	EndedAt  time.Time
	Agent    AgentID
	Run      RunID
	State    Admission
	Digest   [32]byte // of the input as received, for A5
	// Budget is how long the run may work from its start (C3). Zero: no deadline.
	Budget time.Duration
	// RunDisclosure is what the run may show at most: the input's, narrowed by
	// the agent's visibility and, on continuation, by what the run had before.
	RunDisclosure Disclosure
	AgentVersion  string
	Recovery      Recovery
}

// RunEvent is an event of a run with its dense per-run sequence (E1).
type RunEvent struct {
	Run      RunID
	Agent    AgentID
	Input    InputID // the input that the attempt works on
	Attempt  uint32  // 0 for a run that was canceled while queued
	Sequence uint64  // from 1, dense in the run; for host scope only
	N        uint64  // the number the driver's shell gave it in its attempt; 0 for the runtime's own (R5)
	Logical  OutputID
	Runtime  bool // delivery.origin is runtime rather than driver (E3)
	Event    RunBody
}

// RoomConfigured creates the room (first entry) or replaces its configuration (N0).
type RoomConfigured struct {
	Config RoomConfig
	By     ParticipantID
	// Incarnation is set by the entry that creates the room.
	Incarnation Incarnation
}

// FocusSet makes an agent the one a participant speaks to by default (A3). An
// empty Agent removes the focus.
type FocusSet struct {
	Subject ParticipantID
	Agent   AgentID
}

// Drained says that the active attempts were stopped in good order, so that the
// recovery that follows does not count as a failure (R1).
type Drained struct{}

// Kind implements Body.
func (*InputAdmitted) Kind() Kind { return KindInput }

// Kind implements Body.
func (*RunEvent) Kind() Kind { return KindRun }

// Kind implements Body.
func (*RoomConfigured) Kind() Kind { return KindRoom }

// Kind implements Body.
func (*FocusSet) Kind() Kind { return KindFocus }

// Kind implements Body.
func (*Drained) Kind() Kind { return KindDrained }
