package persistence

import (
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// orderedFS makes the directory durable before a marker is put into it. A marker
// names the file that counts, such as the newest manifest; Pebble creates both
// and then syncs the directory once, so that after a loss of power the marker
// may be there without the file, and the store could not be opened again. A
// marker moves a few times after each start, so the fsync costs nothing that is
// seen. Safe for concurrent use, as the file system below it is.
type orderedFS struct{ vfs.FS }

// Create implements vfs.FS.
func (o orderedFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if strings.HasPrefix(o.PathBase(name), "marker.") {
		if err := syncDir(o.FS, o.PathDir(name)); err != nil {
			return nil, err
		}
	}
	return o.FS.Create(name, category)
}

// Unwrap implements vfs.FS.
func (o orderedFS) Unwrap() vfs.FS { return o.FS }
