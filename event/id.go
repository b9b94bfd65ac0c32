package event

import "fmt"

// RoomID is the name of a room, the unit of state, placement and single-writer order.
type RoomID string

// ChannelID is the name of a lane inside a room. It is an isolation boundary, not a label.
type ChannelID string

// ParticipantID is the subject of an authenticated human or service.
type ParticipantID string

// AgentID names a conversational presence of a room.
type AgentID string

// RunID names one logical task of an agent. It correlates and never authorizes.
type RunID string

// InputID is the idempotency key of a final input, unique per (room, channel, speaker).
type InputID string

// OutputID names an output. A driver chooses logical ids, unique in its attempt;
// the runtime replaces them by opaque delivery ids, unique in the run (E3).
type OutputID string

// RequestID names a question that a run waits on (W1).
type RequestID string

// Seq is a position in a room's journal, dense from 1. Zero is the position before the first entry.
type Seq uint64

// Term is the owner's fence number in the journal. It rises with every activation of a room.
type Term uint64

// Incarnation marks a room's journal. It is random and changes only when the
// journal is restored from an older copy. Only the low 48 bits are used.
type Incarnation uint64

// MaxName is the greatest length of a room or channel name.
const MaxName = 128

// CheckName reports whether s can name a room or a channel: 1 to 128 of
// [A-Za-z0-9._:~-], compared whole.
func CheckName(s string) error {
	if s == "" || len(s) > MaxName {
		return fmt.Errorf("a name has 1 to %d characters, this one has %d", MaxName, len(s))
	}
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case c == '.', c == '_', c == ':', c == '~', c == '-':
		default:
			return fmt.Errorf("character %d of a name is not one of A-Z a-z 0-9 . _ : ~ -", i+1)
		}
	}
	return nil
}

// EndpointKind says what an Endpoint is.
type EndpointKind uint8

// The kinds of endpoint.
const (
	Participant EndpointKind = iota + 1
	AgentEndpoint
	Service
	Watcher
)

var endpointNames = [...]string{Participant: "participant", AgentEndpoint: "agent", Service: "service", Watcher: "watcher"}

// String returns the wire word of k.
func (k EndpointKind) String() string { return word(endpointNames[:], int(k)) }

// ParseEndpointKind returns the kind with that wire word.
func ParseEndpointKind(s string) (EndpointKind, bool) {
	return parse[EndpointKind](endpointNames[:], s)
}

// Endpoint is who said something: a participant, an agent, a service or a watcher.
type Endpoint struct {
	Kind EndpointKind
	ID   string
}

// Person returns the endpoint of a participant.
func Person(id ParticipantID) Endpoint { return Endpoint{Kind: Participant, ID: string(id)} }

func word(names []string, i int) string {
	if i > 0 && i < len(names) {
		return names[i]
	}
	return fmt.Sprintf("unknown(%d)", i)
}

func parse[T ~uint8](names []string, s string) (T, bool) {
	if s == "" {
		return 0, false
	}
	for i, n := range names {
		if n == s {
			return T(i), true
		}
	}
	return 0, false
}
