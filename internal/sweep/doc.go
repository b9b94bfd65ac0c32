// Package sweep breaks the real stack at every point of a scripted life of a
// room and compares what is left with what was promised. It holds tests and
// nothing else.
//
// The stack is actors over persistence on a disk in memory, in a bubble of
// testing/synctest, so that a deadline is reached at once and the k-th operation
// of the disk means the same in most runs. The life ([script] in the tests) has
// a public and a private channel, narrowed disclosures, three speakers, queued
// and superseding inputs, a cancel, a deadline that fires, a question that is
// answered after the room hibernated and one that nobody answers, large
// checkpoints, snapshots, a restart in good order in the middle of an answer and
// a loss of power in the middle of another.
//
// What was promised is a ledger of what callers were answered and a follower of
// the feed has seen; package invariants and a replay through package room are the
// model. See [ledger] and [shot.verify] for what is compared.
//
// Three sweeps:
//
//   - The machine loses its power before each write operation and after each
//     promise, with half of the unsynced blocks on disk, and for a part of the
//     points once more while it recovers.
//   - Each operation of the disk fails once, in a process of its own, because a
//     failed fsync ends it.
//   - Each fsync of the log hangs for longer than a commit may take; then it ends
//     well, or the machine loses its power.
//
// "go test ./internal/sweep" takes a sample of each. The full forms:
//
//	go test ./internal/sweep -run Sweep -full -timeout 60m -v
//
// Flags: -full; -seed=N repeats a seed, which each test prints; -rounds=N plays
// the crash sweep with N seeds.
package sweep
