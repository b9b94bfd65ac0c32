package bench

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Place says what a workload measures and where it leaves what.
type Place struct {
	Binary   string    // the binary under test; empty: this one
	Dir      string    // where its data goes; empty: a temporary directory
	Profiles string    // directory for CPU and heap profiles of the server; empty: none are taken
	Out      io.Writer // a line per figure; nil: nowhere
}

// open fills in what is not given and makes a directory for the run, which
// remove takes away.
func (p *Place) open(name string) (dir string, remove func() error, err error) {
	if p.Binary == "" {
		if p.Binary, err = os.Executable(); err != nil {
			return "", nil, fmt.Errorf("find the binary: %w", err)
		}
	}
	if p.Out == nil {
		p.Out = io.Discard
	}
	if dir, err = os.MkdirTemp(p.Dir, "parley-"+name+"-"); err != nil {
		return "", nil, fmt.Errorf("make a directory: %w", err)
	}
	return dir, func() error { return os.RemoveAll(dir) }, nil
}

// profile writes a profile of the server to Profiles: "profile" of the next
// seconds of CPU, or "heap". It does nothing when none are wanted.
func (p *Place) profile(s *server, kind, name string, d time.Duration) error {
	if p.Profiles == "" {
		return nil
	}
	query := "?gc=1"
	if kind == "profile" {
		query = fmt.Sprintf("?seconds=%d", max(1, int(d.Seconds())))
	}
	raw, err := s.probe("/debug/pprof/" + kind + query)
	if err == nil {
		err = os.MkdirAll(p.Profiles, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(p.Profiles, name+".pprof"), raw, 0o644)
	}
	if err != nil {
		return fmt.Errorf("take a profile: %w", err)
	}
	return nil
}

// result is what the results of all workloads begin with.
type result struct {
	Workload string            `json:"workload"`
	At       time.Time         `json:"at"`
	Machine  Machine           `json:"machine"`
	Lifted   map[string]string `json:"limitsLifted"`
}

func newResult(workload, dir string, limits map[string]string) result {
	return result{Workload: workload, At: time.Now().UTC().Truncate(time.Second), Machine: machine(dir), Lifted: limits}
}

// figure is one line of what a workload prints.
type figure struct {
	name, unit string
	value      float64
}

func printFigures(w io.Writer, label string, figures ...figure) {
	for _, f := range figures {
		_, _ = fmt.Fprintf(w, "%s  %-58s %12.6g %s\n", label, f.name, f.value, f.unit)
	}
}

// without returns limits except for some, which keep their defaults.
func without(limits map[string]string, names ...string) map[string]string {
	out := map[string]string{}
	for k, v := range limits {
		out[k] = v
	}
	for _, n := range names {
		delete(out, n)
	}
	return out
}

// openFiles makes sure that this process, and those that it starts, may have n
// files open.
func openFiles(n int) error {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return fmt.Errorf("read the limit of open files: %w", err)
	}
	if l.Cur >= uint64(n) {
		return nil
	}
	l.Cur = uint64(n)
	if l.Max < l.Cur {
		l.Max = l.Cur // only root may
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return fmt.Errorf("%d connections need %d open files and the limit cannot be raised to that (try ulimit -n): %w", n/2, n, err)
	}
	return nil
}

// settle joins an error with that of closing.
func settle(err *error, closing func() error) { *err = errors.Join(*err, closing()) }
