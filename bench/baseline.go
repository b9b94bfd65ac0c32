package bench

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
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

// shape is the load of a run as a store sees it.
type shape struct {
	writers int     // rooms that commit at the same time
	entries float64 // a synced commit of one room holds, on average
	bytes   float64 // of an entry with its share of rows
}

// barePebble writes the same entries, with as many of them in a commit, to a bare
// Pebble store: each writer commits and waits for its fsync, as a room does. It
// returns entries per second.
func barePebble(dir string, sh shape, d time.Duration) (perSecond float64, err error) {
	path := filepath.Join(dir, "bare")
	defer func() { err = errors.Join(err, os.RemoveAll(path)) }()
	db, err := pebble.Open(path, &pebble.Options{Logger: quiet{}})
	if err != nil {
		return 0, fmt.Errorf("open bare Pebble: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var written atomic.Int64
	var failed atomic.Pointer[error]
	end := time.Now().Add(d)
	began := time.Now()
	var wg sync.WaitGroup
	for w := range sh.writers {
		wg.Go(func() {
			value := make([]byte, max(1, int(sh.bytes)-16))
			for i := range value {
				value[i] = byte('a' + (i*7+w)%23)
			}
			var seq uint64
			var due float64
			for time.Now().Before(end) {
				due += sh.entries
				b := db.NewBatch()
				n := 0
				for ; due >= 1; due-- {
					seq++
					key := make([]byte, 16)
					put64(key, uint64(w))
					put64(key[8:], seq)
					put64(value, seq)
					if err := b.Set(key, value, nil); err != nil {
						failed.Store(&err)
						return
					}
					n++
				}
				if n == 0 {
					continue
				}
				if err := b.Commit(pebble.Sync); err != nil {
					failed.Store(&err)
					return
				}
				written.Add(int64(n))
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return 0, fmt.Errorf("write to bare Pebble: %w", *err)
	}
	return float64(written.Load()) / time.Since(began).Seconds(), nil
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
