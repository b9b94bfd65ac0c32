package room

import (
	"errors"
	"time"

	"parley/event"
)

// ErrStale says that a message of a driver's shell concerns an attempt that is
// over. Nothing of it is taken.
var ErrStale = errors.New("room: the attempt is over")

// State is one room. See the package comment for who owns it.
type State struct {
}

// New returns the state of a room that was never created.
func New(id event.RoomID) *State { panic("soon") }

// Restore returns the state that a Snapshot encodes.
func Restore(id event.RoomID, snapshot []byte) (*State, error) { panic("soon") }

// Snapshot encodes the state, with a version byte.
func (s *State) Snapshot() []byte { panic("soon") }

// Head is the position of the last entry that was applied.
func (s *State) Head() event.Seq { panic("soon") }

// Exists reports whether the room was created.
func (s *State) Exists() bool { panic("soon") }

// Incarnation is the journal's mark; 0 before the room was created.
func (s *State) Incarnation() event.Incarnation { panic("soon") }

// Needs names the history rows that Decide must see for this input; at most 16.
func (s *State) Needs(in Input) []event.Key { panic("soon") }

// Decide says what follows from an input. It does not change s. An error is an
// *event.Refusal, or ErrStale.
func (s *State) Decide(in Input, f Facts) (Decision, error) { panic("soon") }

// Apply moves the state on by one entry, the one at Head()+1, and returns the
// rows that the entry leaves in the room's history; they belong into its batch.
// An entry that Decide cannot have made is a panic.
func (s *State) Apply(e *event.Entry) []event.KeyedRow { panic("soon") }

// Outstanding returns the effects that should be under way: a StartAttempt for
// each active run. A shell that lost its own state carries them out again.
func (s *State) Outstanding(now time.Time) []Effect { panic("soon") }

// Wake is the earliest instant at which the state wants a Tick or a Recover; the
// zero time is never. While a run is active it is the time of the last entry,
// so that a restart looks at the room at once.
func (s *State) Wake() time.Time { panic("soon") }

// NextTick is the earliest deadline or expiry; the zero time is never. A shell
// that holds the room awake sets its timer by it.
func (s *State) NextTick() time.Time { panic("soon") }

// View returns what there is to see.
func (s *State) View() *event.View { panic("soon") }
