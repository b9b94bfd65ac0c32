// Package guide is the rules guide (D4): a driver that answers questions about
// a game from its manifest, by full-text search, and cites the rules it answers
// from as [rule-id]. It needs no network, no key and no language model.
//
// It is a retrieval of texts that the product wrote: it says nothing that is
// not in the manifest beside a few phrases of its own, takes no part in the
// game, and is no authority over it (N2). Its search and its phrases are for
// English.
//
// An attempt reports that it searches, decides, writes down in a checkpoint
// what it decided, and then streams its answer sentence by sentence, a few
// sentences to an output. When nothing in the manifest fits, or too much, it
// asks back and waits. An interrupted attempt goes by its checkpoint, and the
// ids of its outputs follow from their texts, so that a resumed one repeats
// nothing that was closed and loses nothing that was not (R2).
//
// A Guide is immutable after New and serves all rooms at once. It runs no
// goroutine outside of New.
package guide
