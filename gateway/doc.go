// Package gateway is the door of the rooms: WebSocket connections of the
// protocol parley.v1, their authentication, limits and feeds.
//
// It decides nothing about rooms: it hands commands to them and shows what they
// made durable, to those who may see it by their present claims. It holds no
// durable state; a connection that ends takes nothing with it but its place.
//
// Goroutines: each connection has one that reads. One that writes exists only
// while there is something to write. All waiting for time is on one wheel with
// one goroutine for the whole node. The state of a connection is guarded by its
// own lock, the registry of connections by the Gateway's; no lock is held
// during a call to a room, a socket or the logger.
//
// It guarantees: a viewer gets exactly the entries that event.Access.Sees lets
// it see, in journal order, each once per connection, numbered densely; a
// connection that reads slowly costs a bounded amount of memory and loses
// nothing, or is closed before its socket blocks; nothing a client sends can
// stall a room or another connection.
package gateway
