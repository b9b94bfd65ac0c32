package event

import "time"

// View is what there is to see of a room at one position: plain data, each part
// with its channel and disclosure. The gateway filters it like entries.
// Immutable and shared by all who asked at the same head.
type View struct {
	Room        RoomID
	Incarnation Incarnation
	Head        Seq
	At          time.Time // of the entry at Head
	Phase       string
	Fallback    AgentID
	Agents      []Agent
	Focus       []FocusView
	Runs        []RunView // open runs, in the order in which they were admitted
}

// FocusView is one participant's focus, seen by that participant and the host.
type FocusView struct {
	Subject ParticipantID
	Agent   AgentID
}

// RunView is an open run with the text so far of its outputs.
type RunView struct {
	Run        RunID
	Channel    ChannelID
	Agent      AgentID
	Speaker    Endpoint
	Input      InputID
	Disclosure Disclosure
	Status     Status
	Attempt    uint32
	Sequence   uint64
	Deadline   time.Time // zero: none, or the clock stands still
	Outputs    []OutputView
	// Waiting is set while the run waits. The token is for the speaker asked and the host.
	Waiting *InputRequested
}

// OutputView is an output of an open run. Text is complete when Final.
type OutputView struct {
	Output     OutputID
	Purpose    Purpose
	History    History
	Disclosure Disclosure
	Text       string
	Final      bool
}
