package bench

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"golang.org/x/sys/unix"
)

// syncTime is the median of appending 4 KiB to a growing file and fdatasync, on
// the disk of dir.
func syncTime(dir string, times int) (p50 time.Duration, err error) {
	f, err := os.CreateTemp(dir, "sync")
	if err != nil {
		return 0, fmt.Errorf("measure the disk: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	block := make([]byte, 4096)
	took := make([]time.Duration, times)
	for i := range took {
		began := time.Now()
		if _, err := f.Write(block); err != nil {
			return 0, fmt.Errorf("measure the disk: %w", err)
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			return 0, fmt.Errorf("measure the disk: %w", err)
		}
		took[i] = time.Since(began)
	}
	return quantile(took, 0.5), nil
}

// shape is the load of a run as its store saw it.
type shape struct {
	writers int     // rooms that commit at the same time
	entries float64 // in a synced commit of one room, on average
	bytes   float64 // of such a commit, with keys and index rows
}

// bareOptions are those of the journal's store: the baseline is the engine
// without the program around it, not the engine with a 4 MiB memtable, which is
// Pebble's own default.
func bareOptions() *pebble.Options {
	o := &pebble.Options{
		Logger: quiet{}, CacheSize: 64 << 20, FormatMajorVersion: pebble.FormatTableFormatV6,
		MemTableSize: 64 << 20, MemTableStopWritesThreshold: 3, L0StopWritesThreshold: 1000,
		CompactionConcurrencyRange: func() (int, int) { return 1, max(1, runtime.GOMAXPROCS(0)-1) },
		WALMinSyncInterval:         func() time.Duration { return 0 },
	}
	o.ApplyCompressionSettings(func() pebble.DBCompressionSettings { return pebble.DBCompressionBalanced })
	return o
}

// bare is what bare Pebble did.
type bare struct {
	entriesPerSecond float64
	cpuPer1000       float64 // seconds of CPU per 1,000 entries, of writers and store together
}

// barePebble writes the same bytes as the run, with as many entries in a commit,
// to a bare Pebble store on the same disk: each writer commits and waits for its
// fsync, as a room does.
func barePebble(dir string, sh shape, d time.Duration) (res bare, err error) {
	path := filepath.Join(dir, "bare")
	defer func() { err = errors.Join(err, os.RemoveAll(path)) }()
	db, err := pebble.Open(path, bareOptions())
	if err != nil {
		return res, fmt.Errorf("open bare Pebble: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	before, err := ownCPU()
	if err != nil {
		return res, err
	}
	began := time.Now()
	end := began.Add(d)
	written := make([]int, sh.writers)
	failed := make([]error, sh.writers)
	var wg sync.WaitGroup
	for w := range sh.writers {
		wg.Go(func() { written[w], failed[w] = bareWriter(db, w, sh, end) })
	}
	wg.Wait()
	elapsed := time.Since(began)
	after, err := ownCPU()
	if err := errors.Join(append(failed, err)...); err != nil {
		return res, fmt.Errorf("write to bare Pebble: %w", err)
	}
	total := 0
	for _, n := range written {
		total += n
	}
	if total == 0 {
		return res, errors.New("bare Pebble wrote nothing")
	}
	res.entriesPerSecond = float64(total) / elapsed.Seconds()
	res.cpuPer1000 = (after - before).Seconds() / float64(total) * 1000
	return res, nil
}

// bareWriter commits until end and returns how many entries it wrote.
func bareWriter(db *pebble.DB, writer int, sh shape, end time.Time) (n int, err error) {
	const key, overhead = 16, 4 // of a record in a batch: its kind and two lengths
	value := make([]byte, max(8, int(sh.bytes/sh.entries)-key-overhead))
	for i := range value {
		value[i] = byte('a' + (i*7+writer)%23)
	}
	var keys [key]byte
	put64(keys[:], uint64(writer))
	due := 0.0
	for time.Now().Before(end) {
		b := db.NewBatch()
		was := n
		for due += sh.entries; due >= 1; due-- {
			n++
			put64(keys[8:], uint64(n))
			put64(value, uint64(n))
			if err := b.Set(keys[:], value, nil); err != nil {
				return n, errors.Join(err, b.Close())
			}
		}
		if n == was {
			if err := b.Close(); err != nil {
				return n, err
			}
			continue
		}
		if err := errors.Join(b.Commit(pebble.Sync), b.Close()); err != nil {
			return n, err
		}
	}
	return n, nil
}

// ownCPU is the CPU time of this process.
func ownCPU() (time.Duration, error) {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0, fmt.Errorf("read the CPU time: %w", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}

func put64(b []byte, v uint64) {
	for i := range min(8, len(b)) {
		b[i] = byte(v >> (56 - 8*i))
	}
}

// quiet drops Pebble's log.
type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf("bare Pebble: "+format, args...))
}
