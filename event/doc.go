// Package event is the vocabulary of Parley: ids, disclosure, access, final
// inputs, run events, the entries of a room's journal, the rows that index
// them, the commands a shell hands to a room and what a room answers.
//
// It decides nothing and does no I/O. Every other package speaks in its terms,
// so it imports none of them. Its values are plain data: whoever holds one owns
// it, and an Entry that was journaled is immutable and may be shared freely.
//
// It guarantees that what was encoded once stays readable: every encoding
// starts with a version byte, unknown members are skipped, unknown kinds are an
// error.
package event
