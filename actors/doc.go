// Package actors is the shell around package room: it gives each room an actor
// that waits on its behalf for the journal, the clock, the callers and the
// drivers, and lets it hibernate when nobody needs it.
//
// It is not where rules live: what an input changes is decided by room.State,
// and this package only carries inputs to it and what follows from them to the
// journal and the world. It knows no socket and no disk: the gateway calls a
// System, and the System writes through a Journal.
//
// State has three owners. The registry actor owns which rooms are awake: it
// alone starts and stops them and keeps their addresses, holds what arrives
// while one stops, and hands it over in order. A room actor owns its
// room.State, its pending inputs and its one batch in flight. A run actor, a
// child of its room, owns one attempt of one driver: the goroutine, its cancel
// and its grace.
//
// It guarantees: nothing computed from a state leaves before that state is
// durable; a caller's commands are decided in the order in which he gave them,
// and each is answered exactly once; whatever a caller, a driver or a disk does
// stalls its own room at most; a room of which anything is in doubt is dropped
// from memory and recovered from its journal.
package actors
