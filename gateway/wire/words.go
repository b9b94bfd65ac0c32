package wire

// Subprotocol is the WebSocket subprotocol that both ends must name. A breaking
// change of anything in this package is a new one.
const Subprotocol = "parley.v1"

// The types of the frames that a client sends.
const (
	TypeHello     = "hello"
	TypeAuth      = "auth"
	TypeSubscribe = "subscribe"
	TypeInput     = "input"
	TypeFocus     = "focus"
	TypeCancel    = "cancel"
	TypeAck       = "ack"
	TypePong      = "pong"
)

// The types of the frames that a server sends.
const (
	TypeReady      = "ready"
	TypeState      = "state"
	TypeSubscribed = "subscribed"
	TypeEvents     = "events"
	TypeCaughtUp   = "caught_up"
	TypeAccepted   = "accepted"
	TypeDone       = "done"
	TypeError      = "error"
	TypePing       = "ping"
	TypeGoaway     = "goaway"
)

// ClientTypes are the types of frames that the protocol gives to clients, in
// the order of its description. A server answers one that it has no rules for,
// like one that is not listed, with the error unknown_type.
var ClientTypes = []string{
	TypeHello, TypeAuth, TypeSubscribe, TypeInput, TypeFocus, TypeCancel, "interrupt", "activity", "speech.report",
	"cue.ack", "approve", "vote.cast", TypeAck, TypePong, "cue.issue", "room.set", "revision", "interaction.send",
	"action.result",
}

// ServerTypes are the types of frames that the protocol gives to servers.
var ServerTypes = []string{
	TypeReady, TypeState, TypeSubscribed, TypeEvents, TypeCaughtUp, TypeAccepted, TypeDone, "live", "speech.start",
	"speech.segment", "speech.stop", "cue", TypeError, TypePing, TypeGoaway, "action.proposed",
}

// The kinds of item.
const (
	KindInput    = "input"
	KindRunEvent = "run.event"
	KindRoom     = "room"
)

// ItemKinds are the kinds of item of an events frame.
var ItemKinds = []string{
	KindInput, KindRunEvent, "caption", "speech.settled", "interaction", "interaction.limited", "vote", KindRoom,
}

// The types of the body of an item of kind room.
const (
	RoomConfigured = "configured" // the room was created or changed
	RoomFocus      = "focus"      // a participant chose the agent it speaks to by default
	RoomDrained    = "drained"    // the attempts in flight were stopped in good order; host scope
)

// From says where a stream begins that does not resume.
type From string

// The beginnings.
const (
	FromTail  From = "tail"  // now; the default
	FromStart From = "start" // the oldest entry that is retained
)

// Reset says why a cursor was not resumed.
type Reset string

// The reasons. Empty means that no cursor was given, or that it was resumed.
const (
	ResetCursorInvalid      Reset = "cursor_invalid"
	ResetCursorExpired      Reset = "cursor_expired"
	ResetIncarnationChanged Reset = "incarnation_changed"
	ResetChannelsChanged    Reset = "channels_changed"
)

// Resets are all reasons for which a cursor is not resumed.
var Resets = []Reset{ResetCursorInvalid, ResetCursorExpired, ResetIncarnationChanged, ResetChannelsChanged}

// GoawayRestarting is the reason of a goaway before the server stops.
const GoawayRestarting = "restarting"

// The bounds of frames, in bytes or items.
const (
	MaxClientFrame  = 64 << 10 // of a client's frame once it is authenticated
	MaxHelloFrame   = 8 << 10  // of a client's frame before ready
	MaxItem         = 24 << 10 // of an item
	MaxBatch        = 64       // items of one events frame
	DefaultMaxFrame = 32 << 10 // of a server's frame when hello names none
	MinMaxFrame     = 28 << 10 // least that hello.maxFrame can ask for: one item, every byte escaped, and its envelope
	LargestMaxFrame = 64 << 10 // most that hello.maxFrame can ask for
	MaxChannels     = 256      // channels of one connection
	MaxRef          = 128      // of a client's ref, session, client and the like
)
