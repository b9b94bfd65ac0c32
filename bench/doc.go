// Package bench measures a real server process on loopback and, in the same
// run, the limits that it is compared with: the disk's fdatasync and bare Pebble
// with the same bytes and the same number of commits. It also kills such a
// process under load and compares what clients saw with what the journal holds.
//
// It is an outsider: it starts the binary, speaks parley.v1 over sockets and
// reads what the binary's own commands print. Nothing here runs in the product.
// Ratios count; absolute figures of a shared machine drift.
package bench
