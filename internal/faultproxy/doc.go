// Package faultproxy is a proxy of byte streams that does what networks do: it
// delays, trickles, stops forwarding while both sides stay open, resets, and
// swallows the end of one side. It is for tests of both ends of a connection,
// over TCP or over internal/wsconn in a testing/synctest bubble, where the times
// in which an end notices are exact.
//
// It knows nothing of what it carries, and invents or drops no byte but those
// that a reset cuts off: like a network, it can make a stream late or short,
// never wrong. All of it is safe for concurrent use. It owns the connections
// that it accepted and dialled, and each has two goroutines, which Close waits
// for.
//
// Its tests run the real client against the real runtime through it. The long
// form, with a seed of its own for each round:
//
//	go test ./internal/faultproxy/ -run Random -rounds 200
package faultproxy
