// Package bench measures a real server process on loopback and, in the same
// run, the limits that it is compared with: the disk's fdatasync, bare Pebble
// with the same bytes and the same number of commits, gorilla/websocket and
// Node's ws with nothing around them. It also kills such a process, cuts its
// connections and gives it bad neighbours, and compares what clients saw with
// what the journal holds.
//
//	W1 Turn        durable events, one client per room
//	W2 Fanout      one room and many viewers
//	W3 Idle        memory of connections and rooms that do nothing
//	W4 Activation  rooms that are woken, a start with open runs
//	W5 Storm       connections that are lost at once
//	W6 Kill        the process that is killed under load
//	W7 Soak        memory over a long time
//	W8 Neighbours  rooms beside those that misbehave
//
// It is an outsider: it starts the binary, speaks parley.v1 over sockets and
// reads what the binary's own commands print. The one thing of it that runs in
// the process under test is the probe (ServeProbe), which tells of memory and
// profiles; it listens on a unix socket and only where a bench asks for it.
// Ratios count; absolute figures of a shared machine drift.
package bench
