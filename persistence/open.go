package persistence

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"

	"parley/event"
)

// Open opens the data directory, and creates it when it is missing. What a
// crash left in the log is durable when Open returns. Errors: what Validate
// says; ErrLocked; ErrNewer; ErrOlder; ErrDamaged; ErrNoSpace; or what the system says.
func Open(cfg Config) (*Store, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configuration of the journal: %w", err)
	}
	cfg = cfg.withDefaults()
	s := &Store{
		cfg:   cfg,
		log:   cfg.Logger,
		disk:  newDiskWatch(cfg),
		rooms: rooms{byName: map[event.RoomID]*room{}, max: cfg.idleRooms},
	}
	s.work.L = &s.mu
	if err := s.openFiles(); err != nil {
		return nil, err
	}
	last, err := s.check()
	if err == nil {
		err = s.setReady()
	}
	if err != nil {
		return nil, errors.Join(err, s.closeFiles())
	}
	s.opened.Store(true)
	s.views = newViews(s.db.NewSnapshot())
	s.disk.sample()
	go s.disk.run()
	s.startCommitter(last + 1)
	return s, nil
}

// openFiles takes the directory's lock first, to tell a directory in use from a
// damaged one.
func (s *Store) openFiles() (err error) {
	fs, dir := s.cfg.disk(), s.cfg.Dir
	if err := fs.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("create the data directory %s: %w", dir, err)
	}
	if s.lock, err = pebble.LockDirectory(dir, fs); err != nil {
		return lockError(dir, err)
	}
	if err := s.spaceToOpen(); err != nil {
		return errors.Join(err, s.lock.Close())
	}
	s.db, err = openPebble(dir, s.options())
	if err != nil && errors.Is(openError(dir, err), ErrDamaged) && s.clearUnfinished() == nil {
		s.log.Warn("the data directory was not made completely; it is made anew")
		s.db, err = openPebble(dir, s.options())
	}
	if err != nil {
		return errors.Join(openError(dir, err), s.lock.Close())
	}
	return nil
}

// openSlack is what Pebble's own files take at a start beside the log, in bytes.
const openSlack = 256 << 10

// spaceToOpen refuses a disk on which Pebble could not write what is in its log
// into a table. It would try for ever, some hundred times a second, and Open
// would not return.
func (s *Store) spaceToOpen() error {
	fs, dir := s.cfg.disk(), s.cfg.Dir
	u, err := fs.GetDiskUsage(dir)
	if err != nil || u.TotalBytes == 0 {
		return nil // a file system that cannot say is tried
	}
	names, err := fs.List(dir)
	if err != nil {
		return fmt.Errorf("list the data directory %s: %w", dir, err)
	}
	need := uint64(openSlack)
	for _, n := range names {
		if strings.HasSuffix(n, ".log") {
			info, err := fs.Stat(fs.PathJoin(dir, n))
			if err != nil {
				return fmt.Errorf("look at the log in %s: %w", dir, err)
			}
			need += uint64(info.Size())
		}
	}
	if u.AvailBytes < need {
		return fmt.Errorf("%s: %w (its log needs %d KiB to be replayed, %d KiB are free)", dir, ErrNoSpace, need>>10, u.AvailBytes>>10)
	}
	return nil
}

// openPebble makes an error of a panic: Pebble panics when it cannot sync the
// directory.
func openPebble(dir string, o *pebble.Options) (db *pebble.DB, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the engine panicked: %v", p)
		}
	}()
	return pebble.Open(dir, o)
}

func (s *Store) closeFiles() error {
	if err := errors.Join(s.db.Close(), s.lock.Close()); err != nil {
		return fmt.Errorf("close the data directory %s: %w", s.cfg.Dir, err)
	}
	return nil
}

func (s *Store) options() *pebble.Options {
	o := &pebble.Options{
		FS:   orderedFS{s.cfg.disk()},
		Lock: s.lock,
		// A directory that was complete and has lost its markers is damaged, and
		// must never be taken for a new one.
		ErrorIfNotExists: s.ready(),
		CacheSize:        s.cfg.CacheBytes,
		Logger:           &pebbleLogger{log: s.log, fatally: func(err error) { s.fatal("pebble cannot go on", err) }},
		// Named, not the newest: a new version of the library must not change
		// the directory so that the program before it cannot read it.
		FormatMajorVersion: pebble.FormatTableFormatV6,
		EventListener:      s.listen(),
		// A greater memtable means fewer and greater flushes: 64 MiB took 3.1 µs
		// of processor time per entry where 16 MiB took 4.4. The price is memory
		// under load, and up to a second more at the start after a crash.
		MemTableSize:                64 << 20,
		MemTableStopWritesThreshold: 3,
		// Past this many sublevels Pebble stops all writers. Slower reads are
		// the smaller evil.
		L0StopWritesThreshold:      1000,
		CompactionConcurrencyRange: func() (int, int) { return 1, max(1, runtime.GOMAXPROCS(0)-1) },
		// An artificial pause between fsyncs doubled the median commit.
		WALMinSyncInterval: func() time.Duration { return 0 },
	}
	if s.cfg.FS == nil {
		o.WithFSDefaults() // the checks for slow disks
	}
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	o.ApplyCompressionSettings(func() pebble.DBCompressionSettings { return pebble.DBCompressionBalanced })
	if s.cfg.tune != nil {
		s.cfg.tune(o)
	}
	return o
}

// check reads or writes the directory's format version and returns the greatest
// number of a room.
func (s *Store) check() (last roomNumber, err error) {
	raw, closer, err := s.db.Get(formatKey)
	switch {
	case errors.Is(err, pebble.ErrNotFound):
		return 0, s.stamp()
	case err != nil:
		return 0, openError(s.cfg.Dir, err)
	}
	version, err := decodeNumber(raw)
	if err = errors.Join(err, closer.Close()); err != nil {
		return 0, fmt.Errorf("%s: %w: the format version: %w", s.cfg.Dir, ErrDamaged, err)
	}
	switch {
	case version > formatVersion:
		return 0, fmt.Errorf("%s: %w (its format is %d, this program reads up to %d)", s.cfg.Dir, ErrNewer, version, formatVersion)
	case version < formatVersion:
		return 0, fmt.Errorf("%s: %w (its format is %d, this program reads from %d)", s.cfg.Dir, ErrOlder, version, formatVersion)
	}
	it, err := s.db.NewIter(bounds(roomsBounds()))
	if err != nil {
		return 0, openError(s.cfg.Dir, err)
	}
	if it.Last() {
		n, _, ok := cutOrdered(it.Key(), spaceRoom)
		if !ok {
			err = fmt.Errorf("%w: a key of unknown form", ErrDamaged)
		}
		last = roomNumber(n)
	}
	return last, errors.Join(err, openError(s.cfg.Dir, errors.Join(it.Error(), it.Close())))
}

// stamp writes the format version into a new directory.
func (s *Store) stamp() error {
	it, err := s.db.NewIter(nil)
	if err != nil {
		return openError(s.cfg.Dir, err)
	}
	empty := !it.First()
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		return openError(s.cfg.Dir, err)
	}
	if !empty {
		return fmt.Errorf("%s: %w: it holds data without a format version", s.cfg.Dir, ErrDamaged)
	}
	return s.db.Set(formatKey, appendNumber(nil, formatVersion), pebble.Sync)
}
