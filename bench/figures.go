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
)

// Machine is what the figures were taken on.
type Machine struct {
	CPUs int    `json:"cpus"`
	CPU  string `json:"cpu"`
	OS   string `json:"os"`
	Go   string `json:"go"`
}

func machine() Machine {
	m := Machine{CPUs: runtime.NumCPU(), OS: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version()}
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

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
