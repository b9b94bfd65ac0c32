// Package room holds the rules of a room: what an input, an event of a driver,
// a wish to cancel or the passing of time changes, decided from plain data.
//
// It is not an actor and not a store: it never waits, reads no clock, draws no
// randomness and does no I/O. Whoever drives it (package actors, or a test)
// hands it an Input with the time and the facts it asked for with Needs, writes
// the Entries of the Decision to the journal, Applies them, and carries out the
// effects once they are durable.
//
// A State is owned by one goroutine. It holds only what is open and bounded;
// history lives in the journal and in the rows that Apply returns. It
// guarantees: the same entries give the same state, from nothing or from any
// snapshot; Decide changes nothing and depends on nothing but its arguments;
// what Decide lets through, Apply accepts.
package room

import (
	"time"

	"parley/event"
)

// Input is one thing for a room to decide.
type Input struct {
	// Now is the shell's clock. The room's time is the later of Now and its last entry's.
	Now time.Time
	// Rand is fresh randomness, from which ids are made.
	Rand [16]byte
	// Msg is an event.Command, or one of Emit, Ended, Tick, Recover, Drain.
	Msg any
}

// Emit is the N-th event that a driver sent in an attempt, N from 1.
type Emit struct {
	Run     event.RunID
	Attempt uint32
	N       uint64
	Event   event.RunBody
}

// Ended says that the driver of an attempt returned. Failed tells an error or a
// panic from a clean end (E4); N is one more than that of its last event.
type Ended struct {
	Run     event.RunID
	Attempt uint32
	N       uint64
	Failed  bool
}

// Tick says that the instant of Wake has come. Early or late ticks do no harm.
type Tick struct{}

// Recover is decided once after an activation that found active runs in the
// journal: each gets its next attempt, or ends (R1).
type Recover struct{}

// Drain says that the shell stops in good order; the attempts in flight are let go (R1).
type Drain struct{}

// Facts is what a decision may know beside the state.
type Facts struct {
	// Rows has the rows of Needs that exist.
	Rows map[event.Key]event.Row
	// Ambient is what the shell knows and never journals.
	Ambient Ambient
}

// Ambient is the unjournaled part of the facts. Every law of the room holds for any value.
type Ambient struct {
	// Unresponsive names the agents of which too many drivers ignore their
	// context; their new runs fail (C5).
	Unresponsive map[event.AgentID]bool
	// Missing names the agents of the room whose driver this process does not
	// have: they answer nobody, and their recovered runs are blocked (R1).
	Missing map[event.AgentID]bool
}

// Decision is what follows from an input. The zero Decision changes nothing.
type Decision struct {
	Entries []*event.Entry // to be journaled in this order, as one
	Reply   event.Reply    // for the caller, once the entries are durable; nil for the messages of this package
	After   []Effect       // once the entries are durable; at least once
	// Fault says what a driver did wrong. Its run failed by Entries; its emitter is told.
	Fault error
}

// Effect is work for the shell: StartAttempt or StopAttempt.
type Effect interface{ effect() }

// StartAttempt invokes an agent's driver. (Run, Attempt) is its identity: a
// second one for an attempt that is running is to be ignored.
type StartAttempt struct {
	Run        event.RunID
	Attempt    uint32
	Channel    event.ChannelID
	Agent      event.Agent
	Resumed    bool
	Speaker    event.Endpoint
	Input      event.InputID
	Root       event.InputID
	Text       string
	Modality   event.Modality
	Lang       string
	Disclosure event.Disclosure
	Deadline   time.Time // zero: none
	Continues  event.RequestID
	// CheckpointAt is the position of the run's last checkpoint entry; 0: none.
	CheckpointAt event.Seq
	// ContextTo bounds the transcript handed to the driver: rows before this position.
	ContextTo event.Seq
}

// StopAttempt tells the driver of an attempt to stop. Cause is why: Canceled,
// DeadlinePassed, Faulted, Drained or Finished.
type StopAttempt struct {
	Run     event.RunID
	Attempt uint32
	Cause   StopCause
}

// StopCause is why an attempt is stopped.
type StopCause uint8

// The causes.
const (
	Canceled StopCause = iota + 1
	DeadlinePassed
	Faulted
	Drained
	Finished // the run ended or waits by the driver's own event; nothing more is taken
)

func (StartAttempt) effect() {}
func (StopAttempt) effect()  {}

// String returns the word for a log line.
func (c StopCause) String() string {
	return [...]string{"unknown", "canceled", "deadline", "faulted", "drained", "finished"}[min(c, Finished)]
}
