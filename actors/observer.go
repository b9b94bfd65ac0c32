package actors

import (
	"time"

	"parley/event"
)

// Observer is told what happens, as numbers. It is safe for concurrent use and
// does not block.
type Observer interface {
	// RoomsAwake changes the number of rooms that are held in memory; +1 is an
	// activation.
	RoomsAwake(delta int)
	// Committed reports a durable batch: how many entries, how many bytes about,
	// and how long the journal took.
	Committed(entries, bytes int, took time.Duration)
	// Refused reports a command that was not accepted.
	Refused(why event.Reason)
	// Recovered reports an attempt to load a room from its journal.
	Recovered(ok bool, took time.Duration)
	// RoomFailed reports a room that is given up until the process restarts.
	RoomFailed()
	// AttemptStarted reports that a driver is invoked; resumed says that an
	// earlier attempt of its run was lost (R1). AttemptOver reports that it has
	// returned or was abandoned.
	AttemptStarted(resumed bool)
	AttemptOver()
	// DriverFailed reports a driver that returned an error, panicked or broke its
	// contract.
	DriverFailed()
	// LateEvents reports events of drivers that came after the end of their
	// attempt and were dropped.
	LateEvents(n int)
	// DriversAbandoned changes the number of drivers that ignore their context (C5).
	DriversAbandoned(delta int)
	// Panicked reports a panic that was contained.
	Panicked(where Place)
}

// Place is where a panic was contained.
type Place uint8

// The places, and what each costs.
const (
	InDriver   Place = iota // a driver: its run fails
	InDecision              // a decision: that input is refused
	InRoom                  // Apply or the commit path: the room is recovered
	InLoad                  // the replay of a journal: the room stays out of service
	InView                  // a view: those who asked for it are refused
	InCallback              // a function of a caller or a follower: nothing
	InRegistry              // the registry: one message is lost
	Places                  // how many there are
)

// String returns a word that serves as a label.
func (p Place) String() string {
	if p < Places {
		return [Places]string{"driver", "decision", "room", "load", "view", "callback", "registry"}[p]
	}
	return "unknown"
}

// silent is the Observer of a System that has none.
type silent struct{}

func (silent) RoomsAwake(int)                    {}
func (silent) Committed(int, int, time.Duration) {}
func (silent) Refused(event.Reason)              {}
func (silent) Recovered(bool, time.Duration)     {}
func (silent) RoomFailed()                       {}
func (silent) AttemptStarted(bool)               {}
func (silent) AttemptOver()                      {}
func (silent) DriverFailed()                     {}
func (silent) LateEvents(int)                    {}
func (silent) DriversAbandoned(int)              {}
func (silent) Panicked(Place)                    {}
