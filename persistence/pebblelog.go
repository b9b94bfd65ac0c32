package persistence

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"go.uber.org/zap"
)

// pebbleLogger is what Pebble logs to. Its texts hold file names, sizes and
// system errors, never values. Safe for concurrent use.
type pebbleLogger struct {
	log     *zap.Logger
	errors  limiter
	fatally func(error)
}

// Infof drops what Pebble tells of its daily work.
func (l *pebbleLogger) Infof(string, ...any) {}

// Errorf logs a fault that Pebble could live with.
func (l *pebbleLogger) Errorf(format string, args ...any) {
	if n, ok := l.errors.allow(); ok {
		l.log.Error("pebble reports an error", zap.String("detail", fmt.Sprintf(format, args...)), zap.Int("suppressed", n))
	}
}

// Fatalf ends the process. Pebble calls it after a failed fsync of its log or
// manifest and would report the commit as good if it returned.
func (l *pebbleLogger) Fatalf(format string, args ...any) { l.fatally(fmt.Errorf(format, args...)) }

// maxOpenRetries is how many background errors Open bears. Pebble writes what a
// crash left in the log into a table before it opens, and tries that again for
// ever: on a disk that takes nothing Open would neither return nor say why.
const maxOpenRetries = 100

// listen returns what takes Pebble's events that an operator should know.
func (s *Store) listen() *pebble.EventListener {
	log, disk := s.log, s.disk
	var background, damage, slow limiter
	report := func(l *limiter, msg string, field zap.Field) {
		if n, ok := l.allow(); ok {
			log.Error(msg, field, zap.Int("suppressed", n))
		}
	}
	return &pebble.EventListener{
		// Pebble retries a failed flush at once: 40,000 of these came in 3 s.
		BackgroundError: func(err error) {
			msg := "pebble failed in the background"
			if errors.Is(err, syscall.ENOSPC) {
				msg = "the disk is full; pebble tries again until there is space"
				disk.hurry()
			}
			report(&background, msg, zap.String("error", line(err)))
			if !s.opened.Load() && s.retries.Add(1) > maxOpenRetries {
				s.fatal("the store cannot be opened on a disk that takes no writes", err)
			}
		},
		// Without this Pebble would end the process over one unreadable block,
		// and with it every room. The read that met it returns an error.
		DataCorruption: func(i pebble.DataCorruptionInfo) {
			report(&damage, "a file of the store is damaged", zap.String("path", i.Path))
		},
		DiskSlow: func(i pebble.DiskSlowInfo) {
			report(&slow, "the disk is slow", zap.Duration("took", i.Duration))
		},
		LowDiskSpace: func(pebble.LowDiskSpaceInfo) { disk.hurry() },
	}
}

// limiter lets one line through in ten seconds. Safe for concurrent use; mu guards the rest.
type limiter struct {
	mu         sync.Mutex
	last       time.Time
	suppressed int
}

// allow reports whether to log now, and how many lines were left out since the last one.
func (l *limiter) allow() (suppressed int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if !l.last.IsZero() && now.Sub(l.last) < 10*time.Second {
		l.suppressed++
		return 0, false
	}
	suppressed, l.last, l.suppressed = l.suppressed, now, 0
	return suppressed, true
}
