// Package wire is the protocol parley.v1 as data: the frames of clients and
// servers, the items of the stream, cursors, entry ids, error and close codes.
//
// It reads and writes bytes and decides nothing else: it opens no socket, reads
// no clock, draws no randomness (nonces come in) and knows no connection.
// Everything in it is a value, or immutable after it was made, so all of it is
// safe for concurrent use.
//
// It guarantees: a client frame that DecodeClient lets through is well formed
// in every member (no duplicate names, no lone surrogates, no forbidden control
// characters, no wrong types); an item written for a viewer holds only what E9
// and its disclosure allow that viewer; every code that can appear on the wire
// stands in one table, and that table is documented in docs/PROTOCOL.md.
package wire
