package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Machine is what the figures were taken on. It names no host and no path.
type Machine struct {
	CPUs   int    `json:"cpus"`
	CPU    string `json:"cpu"`
	OS     string `json:"os"`
	Kernel string `json:"kernel"`
	Disk   string `json:"disk"` // the file system that holds the data
	Go     string `json:"go"`
}

// machine describes this one, as far as it says what it is, and the disk of dir.
func machine(dir string) Machine {
	m := Machine{CPUs: runtime.NumCPU(), OS: runtime.GOOS + "/" + runtime.GOARCH, Disk: fileSystem(dir), Go: runtime.Version()}
	if raw, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel, _, _ = strings.Cut(strings.TrimSpace(string(raw)), "-") // what follows names a build
	}
	raw, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return m // not on this system
	}
	for line := range bytes.Lines(raw) {
		if name, ok := bytes.CutPrefix(line, []byte("model name")); ok {
			m.CPU = strings.TrimSpace(strings.TrimLeft(string(name), "\t :"))
			break
		}
	}
	return m
}

// fileSystem names what holds a directory: where it is memory, becoming durable costs nothing.
func fileSystem(dir string) string {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return "unknown"
	}
	switch s.Type {
	case unix.EXT4_SUPER_MAGIC:
		return "ext4"
	case unix.XFS_SUPER_MAGIC:
		return "xfs"
	case unix.BTRFS_SUPER_MAGIC:
		return "btrfs"
	case unix.OVERLAYFS_SUPER_MAGIC:
		return "overlayfs"
	case unix.TMPFS_MAGIC:
		return "tmpfs, in memory: figures of durability say nothing"
	}
	return fmt.Sprintf("type %#x", s.Type)
}

// Write writes a result as JSON, to be read by people as well.
func Write(path string, result any) error {
	raw, err := json.MarshalIndent(result, "", "  ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if err == nil {
		err = os.WriteFile(path, append(raw, '\n'), 0o644)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write the results to %s", path), err)
	}
	return nil
}

// quantile returns the q-quantile of times, which it sorts; 0 of none.
func quantile(times []time.Duration, q float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	return times[min(len(times)-1, int(q*float64(len(times))))]
}

// median returns the middle of values, which it sorts.
func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
