package room

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"parley/channel"
	"parley/event"
)

// ErrStale says that a message of a driver's shell concerns an attempt that is
// over. Nothing of it is taken.
var ErrStale = errors.New("room: the attempt is over")

// The bounds of what a room holds open.
const (
	MaxLanes = 1024
	MaxFocus = 256
)

// State is one room. See the package comment for who owns it.
type State struct {
	id          event.RoomID
	head        event.Seq
	at          time.Time // of the entry at head
	incarnation event.Incarnation
	created     bool
	config      event.RoomConfig
	focus       map[event.ParticipantID]event.AgentID
	// Invariant: lanes holds only lanes with open work, and byRun the open and
	// queued runs on them.
	lanes map[event.ChannelID]*channel.Lane
	byRun map[event.RunID]event.ChannelID
}

// New returns the state of a room that was never created.
func New(id event.RoomID) *State {
	return &State{id: id} // its maps are made when they are needed: most rooms are idle
}

// Head is the position of the last entry that was applied.
func (s *State) Head() event.Seq { return s.head }

// Exists reports whether the room was created.
func (s *State) Exists() bool { return s.created }

// Incarnation is the journal's mark; 0 before the room was created.
func (s *State) Incarnation() event.Incarnation { return s.incarnation }

// Agents returns the registered agents. The slice is not to be changed.
func (s *State) Agents() []event.Agent { return s.config.Agents }

// Apply moves the state on by one entry, the one at Head()+1, and returns the
// rows that the entry leaves in the room's history; they belong into its batch.
// An entry that Decide cannot have made is a panic.
func (s *State) Apply(e *event.Entry) []event.KeyedRow {
	if e.Seq != s.head+1 {
		panic(fmt.Sprintf("room: entry %d follows head %d", e.Seq, s.head))
	}
	if !s.created && e.Body.Kind() != event.KindRoom {
		panic(fmt.Sprintf("room: entry %d of kind %s precedes the room", e.Seq, e.Body.Kind()))
	}
	s.head = e.Seq
	if e.At.After(s.at) {
		s.at = e.At
	}
	switch x := e.Body.(type) {
	case *event.InputAdmitted:
		l := s.lane(e.Channel)
		rows := l.ApplyInput(e, x)
		put(&s.byRun, x.Run, e.Channel)
		return rows
	case *event.RunEvent:
		l := s.lanes[e.Channel]
		if l == nil {
			panic(fmt.Sprintf("room: entry %d is an event %s of run %s on a lane without work", e.Seq, x.Event.RunKind(), x.Run))
		}
		rows := l.ApplyRun(e, x)
		if l.Run(x.Run) == nil {
			delete(s.byRun, x.Run)
		}
		if l.Idle() {
			delete(s.lanes, e.Channel)
		}
		return rows
	case *event.RoomConfigured:
		s.created, s.config = true, x.Config
		if x.Incarnation != 0 {
			s.incarnation = x.Incarnation
		}
	case *event.FocusSet:
		if x.Agent == "" {
			delete(s.focus, x.Subject)
		} else {
			put(&s.focus, x.Subject, x.Agent)
		}
	case *event.Drained:
		for _, l := range s.lanes {
			if l.Open != nil && l.Open.Status == event.RunActive {
				l.Open.Drained = true
			}
		}
	default:
		panic(fmt.Sprintf("room: entry %d has the unknown body %T", e.Seq, e.Body))
	}
	return nil
}

// put sets a value in a map that may not have been made yet.
func put[K comparable, V any](m *map[K]V, k K, v V) {
	if *m == nil {
		*m = map[K]V{}
	}
	(*m)[k] = v
}

func (s *State) lane(ch event.ChannelID) *channel.Lane {
	l := s.lanes[ch]
	if l == nil {
		l = &channel.Lane{Channel: ch}
		put(&s.lanes, ch, l)
	}
	return l
}

// sorted returns the lanes with work in the order of their names, so that no
// order of a map reaches an output.
func (s *State) sorted() []*channel.Lane {
	return slices.SortedFunc(maps.Values(s.lanes), func(a, b *channel.Lane) int { return cmp.Compare(a.Channel, b.Channel) })
}

// working reports whether a driver should be at work for the run. A drained
// attempt was let go: nothing is taken from it until Recover starts the next.
func working(r *channel.Run) bool {
	return r.Status == event.RunActive && r.Blocked == "" && !r.Drained
}

// Outstanding returns the effects that should be under way: a StartAttempt for
// each run with a driver at work. A shell that lost its own state carries them out again.
func (s *State) Outstanding(time.Time) []Effect {
	var out []Effect
	for _, l := range s.sorted() {
		if r := l.Open; working(r) {
			if a, ok := s.config.Agent(r.Agent); ok {
				out = append(out, start(l.Channel, r, a, s.head))
			}
		}
	}
	return out
}

// Wake is the earliest instant at which the state wants a Tick or a Recover; the
// zero time is never. While a run is active it is the time of the last entry,
// so that a restart looks at the room at once.
func (s *State) Wake() time.Time {
	var wake time.Time
	for _, l := range s.lanes {
		at := l.Open.NextTick()
		if l.Open.Status == event.RunActive && l.Open.Blocked == "" {
			at = s.at
		}
		wake = earlier(wake, at)
	}
	return wake
}

// NextTick is the earliest deadline or expiry; the zero time is never. A shell
// that holds the room awake sets its timer by it.
func (s *State) NextTick() time.Time {
	var next time.Time
	for _, l := range s.lanes {
		next = earlier(next, l.Open.NextTick())
	}
	return next
}

// Active reports whether a driver should be at work: such a room is not let go.
func (s *State) Active() bool {
	for _, l := range s.lanes {
		if working(l.Open) {
			return true
		}
	}
	return false
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// View returns what there is to see.
func (s *State) View() *event.View {
	v := &event.View{
		Room: s.id, Incarnation: s.incarnation, Head: s.head, At: s.at,
		Phase: s.config.Phase, Fallback: s.config.FallbackAgent, Agents: s.config.Agents,
	}
	for _, p := range slices.Sorted(maps.Keys(s.focus)) {
		v.Focus = append(v.Focus, event.FocusView{Subject: p, Agent: s.focus[p]})
	}
	type placed struct {
		first event.Seq
		view  event.RunView
	}
	var runs []placed
	for _, l := range s.lanes {
		for _, r := range l.Runs() {
			runs = append(runs, placed{r.First, r.View(l.Channel)})
		}
	}
	slices.SortFunc(runs, func(a, b placed) int { return cmp.Compare(a.first, b.first) })
	for _, r := range runs {
		v.Runs = append(v.Runs, r.view)
	}
	return v
}

// snapshot is the stored form of a State. Journaled: members are only added.
type snapshot struct {
	Head        event.Seq         `json:"head"`
	At          time.Time         `json:"at"`
	Incarnation event.Incarnation `json:"incarnation"`
	Created     bool              `json:"created"`
	Config      event.RoomConfig  `json:"config"`
	Focus       map[string]string `json:"focus,omitempty"`
	Lanes       []*channel.Lane   `json:"lanes,omitempty"`
}

const snapshotVersion = 1

// Snapshot encodes the state: a version byte, then JSON.
func (s *State) Snapshot() []byte {
	sn := snapshot{
		Head: s.head, At: s.at, Incarnation: s.incarnation, Created: s.created, Config: s.config, Lanes: s.sorted(),
	}
	if len(s.focus) > 0 {
		sn.Focus = map[string]string{}
		for p, a := range s.focus {
			sn.Focus[string(p)] = string(a)
		}
	}
	raw, err := json.Marshal(sn)
	if err != nil {
		panic(fmt.Sprintf("room: a state does not encode: %T", err))
	}
	return append([]byte{snapshotVersion}, raw...)
}

// Restore returns the state that a Snapshot encodes.
func Restore(id event.RoomID, raw []byte) (*State, error) {
	if len(raw) == 0 || raw[0] != snapshotVersion {
		return nil, fmt.Errorf("room: the snapshot was written by another version of the program")
	}
	var sn snapshot
	if err := json.Unmarshal(raw[1:], &sn); err != nil {
		return nil, fmt.Errorf("room: the snapshot is damaged: %T", err)
	}
	s := New(id)
	s.head, s.at, s.incarnation, s.created, s.config = sn.Head, sn.At.UTC(), sn.Incarnation, sn.Created, sn.Config
	for p, a := range sn.Focus {
		put(&s.focus, event.ParticipantID(p), event.AgentID(a))
	}
	for _, l := range sn.Lanes {
		if l == nil || l.Open == nil {
			return nil, fmt.Errorf("room: the snapshot is damaged: a lane without an open run")
		}
		put(&s.lanes, l.Channel, l)
		for _, r := range l.Runs() {
			put(&s.byRun, r.ID, l.Channel)
		}
	}
	return s, nil
}
