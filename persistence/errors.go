package persistence

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2"

	"parley/event"
)

// The reasons for which a data directory or a call is refused. Each error that
// carries one is one sentence that tells an operator what to do.
var (
	// ErrLocked says that another process has the data directory open.
	ErrLocked = errors.New("the data directory is in use by another process; stop it, or choose another directory")
	// ErrNewer says that a newer version of the program wrote the data directory. Nothing was changed.
	ErrNewer = errors.New("the data directory was written by a newer version of the program; use that version")
	// ErrOlder says that the data directory has a layout from before the first release. Nothing was changed.
	ErrOlder = errors.New("the data directory was written by a version from before the first release, which this program cannot read; start with a new directory")
	// ErrDamaged says that something that was durable is missing or unreadable.
	ErrDamaged = errors.New("the data directory is damaged; restore it from a backup")
	// ErrNoSpace says that the disk is too full for the start. Nothing was changed.
	ErrNoSpace = errors.New("the disk that holds the data directory is full; free some space and start again")
	// ErrClosed says that the Store was closed before the call. Nothing was written.
	ErrClosed = errors.New("the journal is closed")
)

// openError makes one clear sentence of what Pebble says when it cannot open.
func openError(dir string, err error) error {
	switch {
	case err == nil:
		return nil
	case pebble.IsCorruptionError(err), errors.Is(err, pebble.ErrDBDoesNotExist),
		// The directory is there and locked, so a file that is missing was lost.
		errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%s: %w (%s)", dir, ErrDamaged, line(err))
	// Pebble has no sentinel for a directory of a newer format.
	case strings.Contains(err.Error(), "written in unknown format major version"):
		return fmt.Errorf("%s: %w (%s)", dir, ErrNewer, line(err))
	}
	return fmt.Errorf("open the data directory %s: %w", dir, err)
}

// line returns the first line of an error's text; Pebble adds others.
func line(err error) string {
	first, _, _ := strings.Cut(err.Error(), "\n")
	return first
}

// lockError tells a lock that another holds from a lock that cannot be taken.
func lockError(dir string, err error) error {
	// The lock is refused with EAGAIN or EACCES by the system, and with a text
	// of Pebble's own when this very process holds it. A directory without the
	// right to write gives EACCES too, but as an error with a path.
	var path *os.PathError
	held := errors.Is(err, syscall.EAGAIN) ||
		errors.Is(err, syscall.EACCES) && !errors.As(err, &path) ||
		strings.Contains(err.Error(), "lock held by current process")
	if held {
		return fmt.Errorf("%s: %w", dir, ErrLocked)
	}
	return fmt.Errorf("lock the data directory %s: %w", dir, err)
}

// damaged says where a room's journal is damaged and how, never with what content.
func damaged(room event.RoomID, at event.Seq, format string, args ...any) error {
	return fmt.Errorf("room %s, position %d: %w: %w", room, at, ErrDamaged, fmt.Errorf(format, args...))
}

// readError wraps an error of the store. A damaged block is damage of the room that it was read for.
func readError(room event.RoomID, what string, err error) error {
	if pebble.IsCorruptionError(err) && !errors.Is(err, ErrDamaged) {
		return fmt.Errorf("room %s: read %s: %w (%s)", room, what, ErrDamaged, line(err))
	}
	return fmt.Errorf("room %s: read %s: %w", room, what, err)
}
