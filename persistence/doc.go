// Package persistence is the journal of rooms on an embedded Pebble store: the
// entries of every room, the rows that index them, one snapshot and one alarm
// per room. One directory, one process, one open Store.
//
// It decides nothing about rooms. It does not know what an entry means, keeps
// no room in memory beyond a small record of its head and its owner's term, and
// never interprets a snapshot.
//
// All writes of the node pass through one committer. It gathers what is queued,
// checks each batch against the head and the term of its room, merges the
// accepted ones into one Pebble batch, waits until that is on disk, and then
// answers. What a Store guarantees:
//
//   - A batch is durable as a whole or not at all, and done(nil) is called only
//     once it is.
//   - Batches of one room are written in the order of their Append calls.
//   - A batch whose expected position or term is not the room's is refused with
//     event.ErrFenced and leaves no trace.
//   - Reads see what is durable and nothing else. Pebble shows a batch before
//     its fsync is done, so every read goes through a view that is replaced
//     only after the fsync.
//   - When the disk is almost full, new batches are refused with
//     event.ErrDiskFull before anything is written, and reads go on.
//   - After an fsync has failed nothing is known of what followed it. The
//     process ends (Config.Fatal) and finds out at its next start.
//
// A Store is safe for concurrent use. Each struct in it says who owns it.
package persistence
