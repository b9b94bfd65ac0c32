// Package audience holds what arrives at a client against what its viewer may
// see. It holds tests and nothing else.
//
// The stack is the real one: gateway over actors over persistence, on a disk and
// a network in memory, in a bubble of testing/synctest, so that time stands still
// while anybody is at work. Agents are answered for by [play], which does what
// an input's text says: deltas of several outputs with audiences of their own,
// progress, checkpoints, questions, decisions, failures, pauses.
//
// Two tests draw their rooms with pgregory.net/rapid:
//
//   - The two journals (twin): one script is played in two rooms that differ in
//     what one viewer may not see, namely other channels, other audiences on its
//     own channels, other people's focus and connections, and how many hidden
//     entries lie between visible ones. The viewer must get the same frames at
//     the same instants with the same bytes, but for the values of random ids,
//     whose lengths and whose recurrences must agree. What it tries on hidden
//     things (cancel, continue, speak, subscribe, address) must be answered as
//     for things that are not there.
//   - What arrives (world): viewers with drawn claims connect, leave, resume
//     from any cursor they were given, change tokens and channels, read slowly or
//     not at all, and speak, while a host speaks and reconfigures and the server
//     restarts. The journal is read afterwards and compared with every frame:
//     each session must hold exactly what its lens shows, in order, once, numbered
//     densely, each item with the members that its viewer is due; each cursor must
//     cover what was delivered and skip nothing; the state must be the fold of the
//     journal to its position; a client's fold over all its sessions must be what
//     a fresh client is told; and no word that only hidden entries hold may be in
//     any byte of any frame.
//
// Within a channel its readers may learn that something happened, so the two
// journals never differ in whether a lane is busy when the viewer or a visible
// speaker uses it. Frames are compared at instants of their own: of two commits
// at the same instant it is scheduling, not content, that decides whether a
// frame or two are made of them.
//
// Two fixed pairs stand beside them: a replay over more hidden entries than a
// writer looks at in one go, and a viewer that tries everything on hidden runs of
// every status.
//
// "go test ./internal/audience" takes a sample. The full form, about a quarter of
// an hour on two cores, and the repetition of a failure are rapid's; a seed
// repeats the script, while ids are random each time:
//
//	go test ./internal/audience -rapid.checks=5000 -timeout 60m -v
//	go test ./internal/audience -run World -rapid.seed=N
package audience
