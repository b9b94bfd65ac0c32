package event

import "time"

// Command is what a shell asks of a room. The room decides it, and what it
// answers leaves only once everything that it was computed from is durable.
// Concrete types: Open, Submit, CancelRun, SetFocus, Configure, ReadView, GetRun.
type Command interface{ command() }

// Open makes sure that the room exists. With Template set, a room that does not
// exist is created from it; without, it is refused as NotFound.
type Open struct {
	By       ParticipantID
	Template *RoomConfig
}

// Submit admits a final input (A1–A7). Answered by a Receipt.
type Submit struct {
	Access  Access
	Channel ChannelID
	As      Endpoint // zero: the subject itself; naming another needs host scope
	Input   FinalInput
	Digest  [32]byte // of the input's canonical form as received (A5)
}

// CancelRun ends a run on the caller's word (C1). Answered by a CancelResult.
type CancelRun struct {
	Access Access
	Run    RunID
	Reason string // host scope only; empty: the default word
}

// SetFocus changes the subject's own focus; an empty Agent removes it. Answered by Done.
type SetFocus struct {
	Access Access
	Agent  AgentID
}

// Configure creates the room or replaces its configuration; host scope. Answered by Done.
type Configure struct {
	Access Access
	Config RoomConfig
}

// ReadView asks for the View at the durable head. Answered by a *View.
type ReadView struct{}

// GetRun asks for the record of one run that the caller may see (R6). Answered by a RunResult.
type GetRun struct {
	Access Access
	Run    RunID
}

func (Open) command()      {}
func (Submit) command()    {}
func (CancelRun) command() {}
func (SetFocus) command()  {}
func (Configure) command() {}
func (ReadView) command()  {}
func (GetRun) command()    {}

// Reply is what a room answers to a command that it did not refuse: Receipt,
// CancelResult, Done, *View or RunResult.
type Reply interface{ reply() }

// Receipt says that an input is durable. An exact retry gets the same receipt
// with Duplicate set (A5).
type Receipt struct {
	Input       InputID
	Entry       Seq
	Incarnation Incarnation
	Run         RunID
	At          time.Time
	State       Admission
	Duplicate   bool
}

// CancelResult says whether this call ended the run, and how the run stands.
// Status is 0 for a run that is unknown to the caller.
type CancelResult struct {
	Canceled bool
	Status   Status
}

// Done answers a command that has nothing else to say. Head is the room's position.
type Done struct {
	Head        Seq
	Incarnation Incarnation
}

// RunResult is one run as of Head: RunView while it is open, RunRow once it ended.
type RunResult struct {
	Head   Seq
	Record RunRow
	Open   *RunView // nil once it ended
}

func (Receipt) reply()      {}
func (CancelResult) reply() {}
func (Done) reply()         {}
func (*View) reply()        {}
func (RunResult) reply()    {}
