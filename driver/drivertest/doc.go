// Package drivertest is the conformance suite of drivers: what a room takes
// from a driver, and what it expects of one that is told to stop or is invoked
// again, as tests that an author runs on his own.
//
//	func TestMine(t *testing.T) {
//		drivertest.Run(t, func(t *testing.T) driver.Driver { return mine.New() },
//			drivertest.Case{Name: "question", Turn: driver.Turn{Text: "How do I win?"}})
//	}
//
// It is not a room: it keeps no journal, mints no tokens and voices nothing. It
// runs every case in a testing/synctest bubble, so that waiting costs no time;
// a driver that talks over a real socket needs an in-memory connection there.
//
// Run examines a case as follows.
//   - A whole attempt keeps the contract (E2, E6, E7, W1) and ends as the case says.
//   - Canceled at each event and in each pause, the driver returns within
//     [Grace] and sends nothing more.
//   - Interrupted at each event and invoked again with Resumed and the last
//     checkpoint, it closes no output under an id of a closed one with another
//     text, and what was closed in both attempts together is what an
//     uninterrupted attempt closes (R2).
//   - Several attempts at once do not disturb each other.
//   - Nothing runs on after the driver returned.
package drivertest
