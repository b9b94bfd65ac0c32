// Package client talks to one room of a Parley server over parley.v1: it reads
// the room's journaled items in order and hands final inputs over until each is
// durable.
//
// A [Machine] holds every rule and touches neither socket, timer, storage nor
// clock; a [Client] is the shell that carries it over a WebSocket. Another
// transport can carry the same machine. It is not a model of the room: what the
// items add up to is the product's business.
//
// A Client is safe for concurrent use; its machine is owned by the goroutine of
// [Client.Run]. The product's handler runs on a goroutine of its own, one call
// at a time, so that a handler that takes its time stops neither pings nor
// inputs.
//
// It guarantees: an item is handled at most once in the life of a Client, and
// the cursor moves only past what the handler has returned from (K3), so that
// across lives every item is handled at least once; a gap in the numbers is
// never skipped; nothing of a run is delivered after its terminal (K4); an input
// is kept until it was accepted or refused, and its caller learns which (K7).
package client
