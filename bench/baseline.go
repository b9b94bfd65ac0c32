package bench

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"golang.org/x/sys/unix"
)

// syncTimes appends 4 KiB to a growing file and does an fdatasync, on the disk
// of dir, and returns how long each took.
func syncTimes(dir string, times int) (took []time.Duration, err error) {
	f, err := os.CreateTemp(dir, "sync")
	if err != nil {
		return nil, fmt.Errorf("measure the disk: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	block := make([]byte, 4096)
	for range times {
		began := time.Now()
		if _, err := f.Write(block); err != nil {
			return nil, fmt.Errorf("measure the disk: %w", err)
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			return nil, fmt.Errorf("measure the disk: %w", err)
		}
		took = append(took, time.Since(began))
	}
	return took, nil
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

// bare is a bare Pebble store to which writers commit as the rooms of a run do:
// the same bytes, as many entries in a commit, each commit waited for. Owned by
// one goroutine.
type bare struct {
	db      *pebble.DB
	shape   shape
	written []int // entries by writer
}

func openBare(dir string, sh shape) (*bare, error) {
	db, err := pebble.Open(filepath.Join(dir, "bare"), bareOptions())
	if err != nil {
		return nil, fmt.Errorf("open bare Pebble: %w", err)
	}
	return &bare{db: db, shape: sh, written: make([]int, sh.writers)}, nil
}

// run commits for a while and returns entries per second and seconds of CPU per
// 1,000 entries, of writers and store together.
func (b *bare) run(d time.Duration) (perSecond, cpuPer1000 float64, err error) {
	total := 0
	for _, n := range b.written {
		total -= n
	}
	before, err := ownCPU()
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	end := began.Add(d)
	failed := make([]error, b.shape.writers)
	var wg sync.WaitGroup
	for w := range b.shape.writers {
		wg.Go(func() { failed[w] = b.write(w, end) })
	}
	wg.Wait()
	elapsed := time.Since(began)
	after, err := ownCPU()
	if err := errors.Join(append(failed, err)...); err != nil {
		return 0, 0, fmt.Errorf("write to bare Pebble: %w", err)
	}
	for _, n := range b.written {
		total += n
	}
	return float64(total) / elapsed.Seconds(), (after - before).Seconds() / float64(total) * 1000, nil
}

// write has one writer commit until end, and at least once.
func (b *bare) write(writer int, end time.Time) error {
	const key, overhead = 16, 4 // of a record in a batch: its kind and two lengths
	value := make([]byte, max(8, int(b.shape.bytes/b.shape.entries)-key-overhead))
	// Half of it cannot be compressed, about as in entries, with their ids and texts.
	random := rand.New(rand.NewPCG(uint64(writer), 1))
	for i := range value {
		value[i] = 'a'
		if i%2 == 0 {
			value[i] = byte(random.Uint32())
		}
	}
	var keys [key]byte
	put64(keys[:], uint64(writer))
	n := &b.written[writer]
	due := 0.0
	for more := true; more; more = time.Now().Before(end) {
		batch := b.db.NewBatch()
		for due += max(1, b.shape.entries); due >= 1; due-- {
			*n++
			put64(keys[8:], uint64(*n))
			put64(value, uint64(*n))
			if err := batch.Set(keys[:], value, nil); err != nil {
				return errors.Join(err, batch.Close())
			}
		}
		if err := errors.Join(batch.Commit(pebble.Sync), batch.Close()); err != nil {
			return err
		}
	}
	return nil
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
