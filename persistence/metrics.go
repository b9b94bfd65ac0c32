package persistence

import (
	"errors"
	"sync/atomic"
	"time"

	"parley/event"
)

// Metrics counts what a Store did since it was opened. Plain numbers, as of one
// moment each but not all of the same.
type Metrics struct {
	Commits    uint64        // synced commits
	Batches    uint64        // batches that were made durable; Batches/Commits of them share an fsync
	Entries    uint64        // entries in these batches
	Bytes      uint64        // written to the log by commits, before compression
	CommitTime time.Duration // spent in commits, fsync included; CommitTime/Commits is their mean
	Fenced     uint64        // batches refused with event.ErrFenced
	DiskFull   uint64        // batches refused with event.ErrDiskFull
	Failed     uint64        // requests that failed for another reason

	Queued int // requests that wait for a commit
	Rooms  int // rooms with a record in memory
	// OldestOutstanding is how long the oldest request that is not answered has
	// been on its way. Zero: none is. When it grows without end, the disk hangs.
	OldestOutstanding time.Duration

	DiskAvailable uint64 // free bytes of the disk that holds the directory, as of the last second
	DiskTotal     uint64 // its size; zero when the system does not say
	Full          bool   // new commits are refused for want of space

	DiskBytes uint64 // size of the store on disk, the log included
	CacheHit  uint64 // blocks found in the cache
	CacheMiss uint64 // blocks read from the disk
}

// counters is safe for concurrent use.
type counters struct {
	commits, batches, entries, bytes, nanos, fenced, diskFull, failed atomic.Uint64
}

func (c *counters) commit(bytes int, took time.Duration) {
	c.commits.Add(1)
	c.bytes.Add(uint64(bytes))
	c.nanos.Add(uint64(took))
}

func (c *counters) request(r *request) {
	switch {
	case errors.Is(r.err, event.ErrFenced):
		c.fenced.Add(1)
	case errors.Is(r.err, event.ErrDiskFull):
		c.diskFull.Add(1)
	case r.err != nil:
		c.failed.Add(1)
	case r.batch != nil:
		c.batches.Add(1)
		c.entries.Add(uint64(len(r.batch.Entries)))
	}
}

// Metrics returns the counters as they stand. After Close the sizes of the store are zero.
func (s *Store) Metrics() Metrics {
	c := &s.counters
	m := Metrics{
		Commits:    c.commits.Load(),
		Batches:    c.batches.Load(),
		Entries:    c.entries.Load(),
		Bytes:      c.bytes.Load(),
		CommitTime: time.Duration(c.nanos.Load()),
		Fenced:     c.fenced.Load(),
		DiskFull:   c.diskFull.Load(),
		Failed:     c.failed.Load(),

		DiskAvailable: s.disk.avail.Load(),
		DiskTotal:     s.disk.total.Load(),
		Full:          s.disk.full.Load(),
	}
	s.mu.Lock()
	m.Queued = len(s.queue)
	m.Rooms = len(s.rooms.byName)
	var oldest time.Time
	if len(s.queue) > 0 {
		oldest = s.queue[0].since
	}
	for i := range s.groups {
		if t := s.groups[i].since; !t.IsZero() && (oldest.IsZero() || t.Before(oldest)) {
			oldest = t
		}
	}
	s.mu.Unlock()
	if !oldest.IsZero() {
		m.OldestOutstanding = time.Since(oldest)
	}
	if v := s.views.acquire(); v != nil { // keeps Close from going on meanwhile
		defer s.views.release(v)
		p := s.db.Metrics()
		m.DiskBytes = p.DiskSpaceUsage()
		m.CacheHit, m.CacheMiss = uint64(p.BlockCache.Hits), uint64(p.BlockCache.Misses)
	}
	return m
}
