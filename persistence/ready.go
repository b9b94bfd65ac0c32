package persistence

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// readyFile stands in a data directory that was made completely. A crash while
// Pebble makes its first files can leave some of them without the others; since
// no Open has returned, nothing can have been acknowledged in such a directory,
// and it is made anew instead of being called damaged.
const readyFile = "PARLEY"

// Exists reports whether dir is a data directory that was made completely.
func Exists(dir string) bool {
	_, err := vfs.Default.Stat(vfs.Default.PathJoin(dir, readyFile))
	return err == nil
}

func (s *Store) ready() bool {
	_, err := s.cfg.disk().Stat(s.cfg.disk().PathJoin(s.cfg.Dir, readyFile))
	return err == nil
}

// setReady puts the mark, once the directory holds its format version.
func (s *Store) setReady() error {
	if s.ready() {
		return nil
	}
	fs, dir := s.cfg.disk(), s.cfg.Dir
	f, err := fs.Create(fs.PathJoin(dir, readyFile), vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("mark the data directory %s as complete: %w", dir, err)
	}
	_, err = f.Write([]byte("The data directory of a Parley server. Copy it as a whole, while no server has it.\n"))
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = syncDir(fs, dir)
	}
	if err != nil {
		return fmt.Errorf("mark the data directory %s as complete: %w", dir, err)
	}
	return nil
}

// maxUnfinishedLog is more than the log of a directory that is still being made
// can hold, which is its format version and nothing else, in bytes.
const maxUnfinishedLog = 1 << 10

// unfinished begins the names of files that were put aside.
const unfinished = "unfinished-"

// clearUnfinished puts aside what an Open that never returned has left, under
// names that Pebble does not read. It refuses when the directory was complete once,
// or holds a table or a log with more than the first record.
func (s *Store) clearUnfinished() error {
	fs, dir := s.cfg.disk(), s.cfg.Dir
	names, err := fs.List(dir)
	if err != nil {
		return err
	}
	var made []string
	for _, n := range names {
		if strings.HasPrefix(n, unfinished) {
			continue
		}
		if strings.HasSuffix(n, ".log") {
			if info, err := fs.Stat(fs.PathJoin(dir, n)); err != nil || info.Size() > maxUnfinishedLog {
				return errors.New("the directory holds a log")
			}
		}
		switch {
		case n == readyFile || strings.HasSuffix(n, ".sst"):
			return errors.New("the directory was complete")
		case strings.HasPrefix(n, "MANIFEST-"), strings.HasPrefix(n, "OPTIONS-"), strings.HasPrefix(n, "marker."),
			strings.HasPrefix(n, "temporary."), strings.HasSuffix(n, ".log"), strings.HasSuffix(n, ".dbtmp"):
			made = append(made, n)
		}
	}
	for _, n := range made {
		if err := fs.Rename(fs.PathJoin(dir, n), fs.PathJoin(dir, unfinished+n)); err != nil {
			return err
		}
	}
	return syncDir(fs, dir)
}

func syncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
