package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"time"
)

// ServeProbe answers a bench on a unix socket, from within the process that it
// measures: what memory the process has, and its profiles. It is started by the
// hidden commands bench serve and bench raw and by nothing else.
func ServeProbe(path string) (stop func() error, err error) {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/memory", func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("gc") != "" {
			// Twice: finalizers and pools let go of things only at the second.
			debug.FreeOSMemory()
			debug.FreeOSMemory()
		}
		_ = json.NewEncoder(w).Encode(readMemory()) // the bench notices when it is not there
	})
	ln, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen for the bench: %w", err)
	}
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	return func() error {
		err := srv.Close()
		if e := <-served; !errors.Is(e, http.ErrServerClosed) {
			err = errors.Join(err, e)
		}
		return err
	}, nil
}

// memory is what a process says of its own memory, in bytes, and its goroutines.
type memory struct {
	HeapInUse  uint64 // spans with at least one object
	HeapLive   uint64 // marked by the last collection
	Objects    uint64 // bytes of objects, dead ones included
	Stacks     uint64
	Goroutines int
	RSS        int64 `json:"-"` // as the system sees it, from outside
	Anonymous  int64 `json:"-"` // the part of RSS that is no file: without the program's own text
}

// readMemory does not stop the world.
func readMemory() memory {
	s := []metrics.Sample{
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"},
		{Name: "/memory/classes/heap/stacks:bytes"},
		{Name: "/gc/heap/live:bytes"},
	}
	metrics.Read(s)
	return memory{
		HeapInUse: s[0].Value.Uint64() + s[1].Value.Uint64(), Objects: s[0].Value.Uint64(), Stacks: s[2].Value.Uint64(),
		HeapLive: s[3].Value.Uint64(), Goroutines: runtime.NumGoroutine(),
	}
}

// ask gets a path of the probe behind a socket.
func ask(socket, path string) ([]byte, error) {
	c := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
	res, err := c.Get("http://probe" + path)
	if err != nil {
		return nil, fmt.Errorf("ask the process under test: %w", err)
	}
	defer func() { _ = res.Body.Close() }() // read to its end
	raw, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("it answered %s: %s", res.Status, bytes.TrimSpace(raw))
	}
	if err != nil {
		return nil, fmt.Errorf("ask the process under test for %s: %w", path, err)
	}
	return raw, nil
}

// memoryOf reads the memory of a process from inside and outside, after a
// collection that gives back what is free when gc is set.
func memoryOf(socket string, pid int, gc bool) (m memory, err error) {
	path := "/memory"
	if gc {
		path += "?gc=1"
	}
	raw, err := ask(socket, path)
	if err == nil {
		err = json.Unmarshal(raw, &m)
	}
	if err != nil {
		return m, err
	}
	f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/smaps_rollup")
	if err != nil {
		return m, fmt.Errorf("read the memory of the process: %w", err)
	}
	defer func() { _ = f.Close() }() // read only
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		name, rest, _ := strings.Cut(lines.Text(), ":")
		var to *int64
		switch name {
		case "Rss":
			to = &m.RSS
		case "Anonymous":
			to = &m.Anonymous
		default:
			continue
		}
		kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
		if err != nil {
			return m, fmt.Errorf("read the memory of the process: %w", err)
		}
		*to = kb << 10
	}
	if err := lines.Err(); err != nil {
		return m, fmt.Errorf("read the memory of the process: %w", err)
	}
	if m.RSS == 0 {
		return m, errors.New("the memory of the process is not in the form of /proc/PID/smaps_rollup")
	}
	return m, nil
}
