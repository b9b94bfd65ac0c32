package actors

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"go.uber.org/zap"

	"parley/driver"
	"parley/event"
)

// Config is what a System is made of. Journal and Drivers are required; all
// else has a default, which a zero value means.
type Config struct {
	// Journal makes rooms durable.
	Journal Journal
	// Drivers returns the driver that a room's configuration names, and false
	// when this process has none of that name. Safe for concurrent use.
	Drivers func(name string) (driver.Driver, bool)
	// Logger gets ids, sizes, kinds and stacks, never what people or models
	// wrote; only at debug level it gets the errors of drivers. Default: none.
	Logger *zap.Logger
	// Clock tells the time. Default: the wall clock read once, advanced by the
	// machine's monotonic clock.
	Clock func() time.Time
	// Rand is where ids and tokens come from. Default: crypto/rand.
	Rand io.Reader
	// Fatal is called when the journal has not answered for StuckAfter. It logs,
	// ends the process, and does not return. Default: Logger.Fatal.
	Fatal func(msg string)
	// Observer counts. Default: nobody does.
	Observer Observer

	// IdleAfter is how long a room stays awake after its last command. Default 60 s.
	IdleAfter time.Duration
	// ShedAfter is how long after its last command an awake room lets go of what it
	// can read again: its latest entries, its view, its scratch memory. Default 5 s.
	ShedAfter time.Duration
	// CommitDeadline is after how long a caller is told that the outcome of his
	// command is not known. Default 5 s.
	CommitDeadline time.Duration
	// StuckAfter is after how long without an answer of the journal Fatal is
	// called; longer than CommitDeadline. Default 30 s.
	StuckAfter time.Duration
	// Grace is how long a driver may take to return after its context is done
	// (C5). Default 5 s.
	Grace time.Duration
	// DrainGrace bounds how long Shutdown waits for rooms and their drivers. Default 12 s.
	DrainGrace time.Duration
	// Retry is the pause before a room tries again what its surroundings did not
	// allow: a full disk, a failed load (then doubling, to 60 times as long). Default 1 s.
	Retry time.Duration

	// TailEntries and TailBytes bound what a room keeps in memory of its latest
	// entries for those who follow it. Defaults 256 and 256 KiB.
	TailEntries int
	TailBytes   int
	// MaxBatchEntries and MaxBatchBytes bound what one batch takes up. A single
	// decision that is larger is a batch of its own. Defaults 256 and 512 KiB.
	MaxBatchEntries int
	MaxBatchBytes   int
	// SnapshotEntries and SnapshotBytes are after how many entries, or bytes of
	// entries, a snapshot is written. Defaults 512 and 1 MiB.
	SnapshotEntries int
	SnapshotBytes   int
	// MaxSnapshot is the greatest size of a snapshot in bytes; a larger one is
	// left out. Default 1 MiB.
	MaxSnapshot int
	// MaxQueued is how many commands of one room may wait for a decision; more
	// are refused. Default 1,024.
	MaxQueued int
	// RecoverAtOnce is how many rooms whose alarm is due are woken at the same
	// time (R1). Default 32.
	RecoverAtOnce int
	// AlarmsHeld is about how many alarms of hibernated rooms are kept in
	// memory; later ones are read from the journal in time. Default 100,000.
	AlarmsHeld int
	// ContextRows and ContextBytes bound the transcript that a driver is given
	// (M2). Defaults 64 and 64 KiB.
	ContextRows  int
	ContextBytes int
	// EmitEvents and EmitBytes bound what one attempt may have emitted that is
	// not durable yet; then Emit waits (D1). Defaults 64 and 256 KiB.
	EmitEvents int
	EmitBytes  int
	// JournalQuota is how many bytes a second the drivers of one room may write,
	// averaged over QuotaWindow; then Emit waits. Defaults 256 KiB and 10 s.
	JournalQuota int
	QuotaWindow  time.Duration
	// AbandonedPerAgent (of one room) and AbandonedPerNode are how many drivers
	// that ignore their context are borne (C5). Defaults 8 and 1,000.
	AbandonedPerAgent int
	AbandonedPerNode  int

	// inApply is called before an entry moves a state on, for tests that panic
	// there; nil: nothing is.
	inApply func(room event.RoomID, e *event.Entry)
}

// withDefaults returns c with its zero members replaced.
func (c Config) withDefaults() Config {
	or(&c.IdleAfter, 60*time.Second)
	or(&c.ShedAfter, 5*time.Second)
	or(&c.CommitDeadline, 5*time.Second)
	or(&c.StuckAfter, 30*time.Second)
	or(&c.Grace, 5*time.Second)
	or(&c.DrainGrace, 12*time.Second)
	or(&c.Retry, time.Second)
	or(&c.TailEntries, 256)
	or(&c.TailBytes, 256<<10)
	or(&c.MaxBatchEntries, 256)
	or(&c.MaxBatchBytes, 512<<10)
	or(&c.SnapshotEntries, 512)
	or(&c.SnapshotBytes, 1<<20)
	or(&c.MaxSnapshot, 1<<20)
	or(&c.MaxQueued, 1024)
	or(&c.RecoverAtOnce, 32)
	or(&c.AlarmsHeld, 100_000)
	or(&c.ContextRows, 64)
	or(&c.ContextBytes, 64<<10)
	or(&c.EmitEvents, 64)
	or(&c.EmitBytes, 256<<10)
	or(&c.JournalQuota, 256<<10)
	or(&c.QuotaWindow, 10*time.Second)
	or(&c.AbandonedPerAgent, 8)
	or(&c.AbandonedPerNode, 1000)
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	if c.Clock == nil {
		start := time.Now()
		c.Clock = func() time.Time { return start.Add(time.Since(start)) }
	}
	if c.Rand == nil {
		c.Rand = rand.Reader
	}
	if c.Fatal == nil {
		log := c.Logger
		c.Fatal = func(msg string) { log.Fatal(msg) }
	}
	if c.Observer == nil {
		c.Observer = silent{}
	}
	return c
}

func or[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// Validate reports all that is wrong at once, each with its key, its value and
// what is allowed.
func (c Config) Validate() error {
	var errs []error
	bad := func(key string, value any, allowed string) {
		errs = append(errs, fmt.Errorf("%s: %v: %s", key, value, allowed))
	}
	if c.Journal == nil {
		bad("Journal", c.Journal, "is required")
	}
	if c.Drivers == nil {
		bad("Drivers", "nil", "is required")
	}
	c = c.withDefaults()
	for _, d := range []struct {
		key string
		d   time.Duration
	}{
		{"IdleAfter", c.IdleAfter},
		{"ShedAfter", c.ShedAfter},
		{"CommitDeadline", c.CommitDeadline},
		{"Grace", c.Grace},
		{"DrainGrace", c.DrainGrace},
		{"Retry", c.Retry},
		{"QuotaWindow", c.QuotaWindow},
	} {
		if d.d < 0 {
			bad(d.key, d.d, "must be 0 (the default) or more")
		}
	}
	if c.StuckAfter <= c.CommitDeadline {
		bad("StuckAfter", c.StuckAfter, "must be longer than CommitDeadline")
	}
	for _, n := range []struct {
		key string
		n   int
	}{
		{"TailEntries", c.TailEntries},
		{"TailBytes", c.TailBytes},
		{"MaxBatchEntries", c.MaxBatchEntries},
		{"MaxBatchBytes", c.MaxBatchBytes},
		{"SnapshotEntries", c.SnapshotEntries},
		{"SnapshotBytes", c.SnapshotBytes},
		{"MaxSnapshot", c.MaxSnapshot},
		{"MaxQueued", c.MaxQueued},
		{"RecoverAtOnce", c.RecoverAtOnce},
		{"AlarmsHeld", c.AlarmsHeld},
		{"ContextRows", c.ContextRows},
		{"ContextBytes", c.ContextBytes},
		{"EmitEvents", c.EmitEvents},
		{"EmitBytes", c.EmitBytes},
		{"JournalQuota", c.JournalQuota},
		{"AbandonedPerAgent", c.AbandonedPerAgent},
		{"AbandonedPerNode", c.AbandonedPerNode},
	} {
		if n.n < 0 {
			bad(n.key, n.n, "must be 0 (the default) or more")
		}
	}
	return errors.Join(errs...)
}

// randomness hands out fresh random values. Safe for concurrent use; mu guards
// the members below it. It reads ahead: one read of the source serves 64 inputs.
// The lock spans that read because a source of randomness does not wait.
type randomness struct {
	src io.Reader

	mu     sync.Mutex
	block  [64 * 16]byte
	unused []byte // of block: what was read and not handed out
}

func newRandomness(r io.Reader) *randomness { return &randomness{src: r} }

// next panics when the source fails: nothing can be decided without it.
func (r *randomness) next() (v [16]byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.unused) < len(v) {
		n, err := io.ReadAtLeast(r.src, r.block[:], len(v))
		if err != nil {
			panic("actors: the source of randomness failed")
		}
		r.unused = r.block[:n]
	}
	r.unused = r.unused[copy(v[:], r.unused):]
	return v
}
