package event

import (
	"encoding/json"
	"time"
)

// Status is where a run stands. The words are wire words.
type Status uint8

// The statuses of a run. Queued, Active and WaitingForInput are not terminal.
const (
	RunQueued Status = iota + 1
	RunActive
	RunWaiting
	RunCompleted
	RunCanceledStatus
	RunDeadlineExceeded
	RunFailedStatus
)

var statusNames = [...]string{
	RunQueued: "queued", RunActive: "active", RunWaiting: "waiting_for_input", RunCompleted: "completed",
	RunCanceledStatus: "canceled", RunDeadlineExceeded: "deadline_exceeded", RunFailedStatus: "failed",
}

// String returns the wire word of s.
func (s Status) String() string { return word(statusNames[:], int(s)) }

// ParseStatus returns the status with that wire word.
func ParseStatus(s string) (Status, bool) { return parse[Status](statusNames[:], s) }

// Terminal reports whether s is final and immutable.
func (s Status) Terminal() bool { return s >= RunCompleted }

// Purpose is what an output is for.
type Purpose uint8

// The purposes.
const (
	Answer Purpose = iota + 1
	Question
	ProgressText
)

var purposeNames = [...]string{Answer: "answer", Question: "question", ProgressText: "progress"}

// String returns the wire word of p.
func (p Purpose) String() string { return word(purposeNames[:], int(p)) }

// ParsePurpose returns the purpose with that wire word.
func ParsePurpose(s string) (Purpose, bool) { return parse[Purpose](purposeNames[:], s) }

// History says whether an output enters the transcript.
type History uint8

// The histories. The default is Ephemeral for ProgressText, else Record (E2).
const (
	Record History = iota + 1
	Ephemeral
)

var historyNames = [...]string{Record: "record", Ephemeral: "ephemeral"}

// String returns the wire word of h.
func (h History) String() string { return word(historyNames[:], int(h)) }

// ParseHistory returns the history with that wire word.
func ParseHistory(s string) (History, bool) { return parse[History](historyNames[:], s) }

// RunBody is what happened in a run: what its driver sent, or what the runtime
// says of it. The concrete types are listed below; each has one wire word.
type RunBody interface {
	// RunKind returns the kind of the event.
	RunKind() RunKind
}

// RunKind is the kind of a RunBody.
type RunKind uint8

// The kinds of run event, with the wire words of spec 2. Journaled: never renumber.
const (
	KindProgress         RunKind = 1
	KindAssistantOutput  RunKind = 2
	KindCheckpoint       RunKind = 3
	KindInputRequested   RunKind = 4
	KindDecision         RunKind = 5
	KindCompleted        RunKind = 6
	KindAttemptStarted   RunKind = 7
	KindRunCanceled      RunKind = 8
	KindDeadlineExceeded RunKind = 9
	KindRunFailed        RunKind = 10
	KindRunBlocked       RunKind = 11
)

var runKindNames = [...]string{
	KindProgress: "progress", KindAssistantOutput: "assistant_output", KindCheckpoint: "checkpoint",
	KindInputRequested: "input_requested", KindDecision: "decision", KindCompleted: "completed",
	KindAttemptStarted: "attempt_started", KindRunCanceled: "run_canceled",
	KindDeadlineExceeded: "deadline_exceeded", KindRunFailed: "run_failed",
	KindRunBlocked: "run_blocked",
}

// String returns the wire word of k.
func (k RunKind) String() string { return word(runKindNames[:], int(k)) }

// ParseRunKind returns the kind with that wire word.
func ParseRunKind(s string) (RunKind, bool) { return parse[RunKind](runKindNames[:], s) }

// Progress is a fact about the work, never a promise and never reasoning.
type Progress struct {
	Stage   string // stable key, required, at most 64 bytes
	Current *int64
	Total   *int64
	Unit    string
	Message string
}

// AssistantOutput is one delta of one named message (E2).
//
// A driver sets Output to its logical id and may leave Purpose and History zero;
// in the journal Output is the delivery id and both are resolved.
type AssistantOutput struct {
	Output        OutputID
	Delta         string // at most MaxDelta bytes; may be empty with Final
	Final         bool   // closes the message
	Purpose       Purpose
	History       History
	Audience      Disclosure // asked by the driver; the entry's disclosure is what was granted (E7)
	Interruptible *bool
	Lang          string
	Spoken        string // what to voice instead of Delta
}

// Checkpoint is product recovery state: plain JSON of at most MaxCheckpoint bytes (E6).
type Checkpoint struct{ Value json.RawMessage }

// InputRequested pauses the run for the next input of its speaker (W1).
// The runtime mints Token and names the Speaker who is asked, so that a reader of
// the entry alone knows whom the token is for (E9); ExpiresAt zero means the room's wait.
type InputRequested struct {
	Request   RequestID
	Token     string
	ExpiresAt time.Time
	Speaker   Endpoint
}

// Utterance is one finished message of a Decision.
type Utterance struct {
	Text     string
	Audience Disclosure
	Lang     string
}

// Decision is what a one-shot driver answers (E5). Its utterances follow it in
// the journal as outputs.
type Decision struct{ Utterances []Utterance }

// Completed ends a run well.
type Completed struct{}

// AttemptStarted says that the driver is being invoked. Resumed is true after a
// recovery and false for a first attempt and for a continuation (W2, R1).
type AttemptStarted struct{ Resumed bool }

// RunCanceled ends a run on somebody's word.
type RunCanceled struct {
	Reason string // a stable word, such as superseded_by_new_input or canceled_by_host
	By     ParticipantID
}

// DeadlineExceeded ends a run at its deadline, or at the end of a wait.
type DeadlineExceeded struct{}

// RunFailed ends a run that could not go on. Both members are public (E4).
type RunFailed struct{ Code, Message string }

// RunBlocked says that the run cannot go on until somebody acts; it stays open.
type RunBlocked struct {
	Step   string // the step in the way, "" for none
	Reason string // a stable word, such as agent_version_unregistered
}

// RunKind implements RunBody.
func (RunBlocked) RunKind() RunKind { return KindRunBlocked }

// RunKind implements RunBody.
func (Progress) RunKind() RunKind { return KindProgress }

// RunKind implements RunBody.
func (AssistantOutput) RunKind() RunKind { return KindAssistantOutput }

// RunKind implements RunBody.
func (Checkpoint) RunKind() RunKind { return KindCheckpoint }

// RunKind implements RunBody.
func (InputRequested) RunKind() RunKind { return KindInputRequested }

// RunKind implements RunBody.
func (Decision) RunKind() RunKind { return KindDecision }

// RunKind implements RunBody.
func (Completed) RunKind() RunKind { return KindCompleted }

// RunKind implements RunBody.
func (AttemptStarted) RunKind() RunKind { return KindAttemptStarted }

// RunKind implements RunBody.
func (RunCanceled) RunKind() RunKind { return KindRunCanceled }

// RunKind implements RunBody.
func (DeadlineExceeded) RunKind() RunKind { return KindDeadlineExceeded }

// RunKind implements RunBody.
func (RunFailed) RunKind() RunKind { return KindRunFailed }

// The bounds of what a driver sends (E6).
const (
	MaxDelta         = 4 << 10
	MaxCheckpoint    = 256 << 10
	MaxAttemptEvents = 10_000
	MaxAttemptBytes  = 8 << 20
)

// The public words of runs that end badly (E4, C1, R1).
const (
	ReasonSuperseded       = "superseded_by_new_input"
	ReasonCanceled         = "canceled_by_participant"
	ReasonCanceledByHost   = "canceled_by_host"
	ReasonInterrupted      = "interrupted"
	ReasonAgentReplaced    = "agent_replaced"
	CodeProcessingFailed   = "run_processing_failed"
	CodeAttemptsExhausted  = "attempts_exhausted"
	CodeDriverUnresponsive = "driver_unresponsive"
	CodeRecoveryRefused    = "recovery_refused"
	BlockedAgentVersion    = "agent_version_unregistered"
)
