package sweep

import (
	"bytes"
	"io"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

const dir = "data"

// syncTime is how long an fsync of the log takes: longer than everything else,
// so that inputs gather meanwhile as they do on a real disk.
const syncTime = time.Millisecond

// disk is a file system in memory whose operations can be watched and refused.
// Safe for concurrent use; mu guards before.
type disk struct {
	mem *vfs.MemFS

	mu     sync.Mutex
	before func(errorfs.Op) error // called before each operation; nil: nothing is watched
}

func newDisk(mem *vfs.MemFS, before func(errorfs.Op) error) *disk {
	return &disk{mem: mem, before: before}
}

// fs returns the file system to open a store on. While the store is opened and
// closed the log is synced without a pause: Pebble then holds its lock, and in a
// bubble time stands still while anybody waits for one.
func (d *disk) fs(alive func() bool) vfs.FS {
	return errorfs.Wrap(d.mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		// The pause comes first: what is answered during it, is answered before the fsync.
		if isLogSync(op) && alive() {
			time.Sleep(syncTime)
		}
		d.mu.Lock()
		before := d.before
		d.mu.Unlock()
		// The look at the free space comes each second and touches no file.
		if before == nil || op.Kind == errorfs.OpGetDiskUsage {
			return nil
		}
		return before(op)
	}))
}

// unwatch lets all later operations pass.
func (d *disk) unwatch() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.before = nil
}

func isWrite(op errorfs.Op) bool { return op.Kind.ReadOrWrite() == errorfs.OpIsWrite }

func isSync(op errorfs.Op) bool {
	switch op.Kind {
	case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
		return true
	}
	return false
}

func isLogSync(op errorfs.Op) bool { return isSync(op) && strings.HasSuffix(op.Path, ".log") }

// crash returns the disk as a loss of power leaves it, with that share of the
// blocks that were not synced.
func crash(mem *vfs.MemFS, percent int, rng *rand.Rand) *vfs.MemFS {
	return mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng})
}

// image is the content of a data directory by file name.
type image map[string][]byte

// read returns the files of a disk; none when the directory is not there.
func read(mem *vfs.MemFS) (image, error) {
	out := image{}
	names, err := mem.List(dir)
	if err != nil {
		return out, nil //nolint:nilerr // a directory that was not made yet
	}
	for _, n := range names {
		f, err := mem.Open(path.Join(dir, n))
		if err != nil {
			return nil, err
		}
		var b bytes.Buffer
		_, err = io.Copy(&b, io.Reader(f))
		if err != nil {
			return nil, err
		}
		if err := f.Close(); err != nil {
			return nil, err
		}
		out[n] = b.Bytes()
	}
	return out, nil
}

// mem returns a disk with these files, all of them synced.
func (i image) mem() (*vfs.MemFS, error) {
	mem := vfs.NewCrashableMem()
	if err := mem.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	for _, n := range slices.Sorted(maps.Keys(i)) {
		f, err := mem.Create(path.Join(dir, n), vfs.WriteCategoryUnspecified)
		if err != nil {
			return nil, err
		}
		if _, err := f.Write(i[n]); err != nil {
			return nil, err
		}
		if err := f.Sync(); err != nil {
			return nil, err
		}
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
	for _, d := range []string{dir, ""} {
		f, err := mem.OpenDir(d)
		if err != nil {
			return nil, err
		}
		if err := f.Sync(); err != nil {
			return nil, err
		}
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
	return mem, nil
}

// tear says what became of the unsynced part of the log in a crash.
type tear int

const (
	clean tear = iota // all of the log was synced
	lost              // nothing unsynced is left
	kept              // all of it is left
	torn              // a part of it
)

func (t tear) String() string { return [...]string{"clean", "lost", "kept", "torn"}[t] }

// tearOf compares the logs of a crashed disk with those before and those that
// are synced.
func tearOf(crashed, all, synced *vfs.MemFS) (tear, error) {
	var logs [3][]byte
	for i, mem := range []*vfs.MemFS{crashed, all, synced} {
		img, err := read(mem)
		if err != nil {
			return clean, err
		}
		for _, n := range slices.Sorted(maps.Keys(img)) {
			if strings.HasSuffix(n, ".log") {
				logs[i] = append(append(logs[i], n...), bytes.TrimRight(img[n], "\x00")...)
			}
		}
	}
	switch {
	case bytes.Equal(logs[1], logs[2]):
		return clean, nil
	case bytes.Equal(logs[0], logs[2]):
		return lost, nil
	case bytes.Equal(logs[0], logs[1]):
		return kept, nil
	}
	return torn, nil
}
