package persistence

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/zap"
)

// Config says where a Store lives and how it behaves. Zero members mean the default.
type Config struct {
	// Dir is the data directory. It is created when missing and belongs to one
	// process at a time. Required.
	Dir string
	// FS is the file system that holds Dir. Nil: the machine's disk.
	FS vfs.FS
	// Logger takes what an operator should know: never text of people or models.
	// Nil: nothing is logged.
	Logger *zap.Logger
	// Fatal ends the process after a failure beyond which nothing written could
	// be relied on, above all a failed fsync. It must not return. Nil: log,
	// flush the log and exit with ExitFatal.
	Fatal func(msg string)
	// MinFreePercent is the share of the disk that must be free for new commits,
	// 1 to 99. Zero: 5.
	MinFreePercent int
	// Observer is told how long each group commit took, from its first check to
	// the end of its fsync. It is called from one goroutine and must not block.
	// Nil: nobody is.
	Observer func(took time.Duration)
	// CacheBytes is the memory that caches blocks of the store, at most. Zero: 64 MiB.
	CacheBytes int64

	// tune changes Pebble's options, for tests.
	tune func(*pebble.Options)
	// idleRooms is how many rooms without outstanding work keep their record in
	// memory. Zero: 16,384, which takes about 4 MB.
	idleRooms int
}

// The defaults of a Config.
const (
	DefaultMinFreePercent = 5
	DefaultCacheBytes     = 64 << 20

	defaultIdleRooms = 16 << 10
)

// ExitFatal is the exit status of a process that Config.Fatal's default ends:
// an input/output error in the words of sysexits.
const ExitFatal = 74

// Validate reports all that is wrong at once, each with its key, its value and what is allowed.
func (c Config) Validate() error {
	var errs []error
	bad := func(key string, value any, allowed string) {
		errs = append(errs, fmt.Errorf("%s: %v: %s", key, value, allowed))
	}
	if c.Dir == "" {
		bad("Dir", `""`, "must be the path of the data directory")
	}
	if c.MinFreePercent < 0 || c.MinFreePercent > 99 {
		bad("MinFreePercent", c.MinFreePercent, "must be 1 to 99, or 0 for the default, 5")
	}
	if c.CacheBytes < 0 {
		bad("CacheBytes", c.CacheBytes, "must be a number of bytes, or 0 for the default, 64 MiB")
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	if c.MinFreePercent == 0 {
		c.MinFreePercent = DefaultMinFreePercent
	}
	if c.CacheBytes == 0 {
		c.CacheBytes = DefaultCacheBytes
	}
	if c.Observer == nil {
		c.Observer = func(time.Duration) {}
	}
	if c.idleRooms == 0 {
		c.idleRooms = defaultIdleRooms
	}
	if c.Fatal == nil {
		log := c.Logger
		c.Fatal = func(string) {
			_ = log.Sync() // nobody is left to tell
			os.Exit(ExitFatal)
		}
	}
	return c
}

// disk returns the file system.
func (c Config) disk() vfs.FS {
	if c.FS != nil {
		return c.FS
	}
	return vfs.Default
}
