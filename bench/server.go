package bench

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// lifted names the limits that the server of a bench runs with, because one
// client stands for many here. Every result lists them.
var lifted = map[string]string{
	"connectionsPerSubject": "1000000", "connectionsPerAddress": "1000000", "inputsPerSecond": "1000000",
	"inputBurst": "1000000", "framesPerSecond": "1000000", "createsPerMinute": "1000000",
	"journalBytesPerSecond": "1073741824",
}

// server is a process of the binary under test, with its data directory. Owned
// by one goroutine.
type server struct {
	binary, dir, addr string
	cmd               *exec.Cmd
	log               bytes.Buffer // of the last process; whole after it has ended
	token             string
}

//go:embed slow.yaml
var slowScript []byte

const serverConfig = `listen: %s
data: data
secret: %s
auth:
  issuer: bench
  audience: bench
  keys:
    - kid: bench
      alg: HS256
      secret: %s
drivers:
  turn:
    kind: script
    builtin: turn20
  slow:
    kind: script
    file: slow.yaml
templates:
  - match: bench-slow-*
    create: participants
    room:
      agents:
        - {id: agent, label: Agent, role: custom, driver: slow, version: "1"}
      fallbackAgentId: agent
  - match: bench-*
    create: participants
    room:
      agents:
        - {id: agent, label: Agent, role: custom, driver: turn, version: "1"}
      fallbackAgentId: agent
limits:
%s
log:
  level: error
`

// newServer writes a configuration into dir and makes a token; nothing runs yet.
func newServer(ctx context.Context, binary, dir string) (*server, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("find a free port: %w", err)
	}
	s := &server{binary: binary, dir: dir, addr: ln.Addr().String()}
	if err := ln.Close(); err != nil {
		return nil, fmt.Errorf("let the port go: %w", err)
	}
	var limits strings.Builder
	for _, k := range sortedKeys(lifted) {
		fmt.Fprintf(&limits, "  %s: %s\n", k, lifted[k])
	}
	text := fmt.Sprintf(serverConfig, s.addr, secret(), secret(), limits.String())
	if err := os.WriteFile(s.config(), []byte(text), 0o600); err != nil {
		return nil, fmt.Errorf("write the server's configuration: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "slow.yaml"), slowScript, 0o600); err != nil {
		return nil, fmt.Errorf("write the server's script: %w", err)
	}
	out, err := s.run(ctx, "token", "--config", s.config(), "--sub", "bench", "--room", "bench-*", "--ttl", "24h")
	if err != nil {
		return nil, err
	}
	s.token = strings.TrimSpace(string(out))
	return s, nil
}

func (s *server) config() string   { return filepath.Join(s.dir, "parley.yaml") }
func (s *server) counters() string { return filepath.Join(s.dir, "counters.json") }

func secret() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return base64.StdEncoding.EncodeToString(b[:])
}

// run runs a command of the binary to its end.
func (s *server) run(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, s.binary, args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", strings.Join(args[:2], " "), err, strings.TrimSpace(errs.String()))
	}
	return out, nil
}

// start starts the process and waits until it lets clients in. It returns how
// long that took.
func (s *server) start(ctx context.Context) (time.Duration, error) {
	s.log.Reset()
	s.cmd = exec.Command(s.binary, "serve", "--config", s.config())
	s.cmd.Env = append(os.Environ(), "PARLEY_COUNTERS="+s.counters())
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	began := time.Now()
	if err := s.cmd.Start(); err != nil {
		return 0, fmt.Errorf("start the server: %w", err)
	}
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for time.Since(began) < time.Minute {
		res, err := http.Get("http://" + s.addr + "/readyz")
		if err == nil {
			_ = res.Body.Close() // nothing of it is used
			if res.StatusCode == http.StatusOK {
				return time.Since(began), nil
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, errors.Join(context.Cause(ctx), s.kill())
		}
	}
	return 0, errors.Join(fmt.Errorf("the server is not ready after a minute"), s.kill())
}

// kill ends the process as kill -9 does. The error says that it had ended by itself.
func (s *server) kill() error {
	if err := s.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("kill the server: %w (its log: %s)", err, s.log.String())
	}
	err := s.cmd.Wait()
	if status, ok := s.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signal() == syscall.SIGKILL {
		return nil
	}
	return fmt.Errorf("the server had ended before it was killed: %w (its log: %s)", err, s.log.String())
}

// stop ends the process in good order and returns what it counted.
func (s *server) stop() (counters, error) {
	var c counters
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return c, fmt.Errorf("stop the server: %w", err)
	}
	if err := s.cmd.Wait(); err != nil {
		return c, fmt.Errorf("the server stopped with %w: %s", err, s.log.String())
	}
	raw, err := os.ReadFile(s.counters())
	if err == nil {
		err = json.Unmarshal(raw, &c)
	}
	if err != nil {
		return c, fmt.Errorf("read the server's counters: %w", err)
	}
	return c, nil
}

// counters is what the server counted; see parley.Counters.
type counters struct {
	Batches int64 `json:"batches"`
	Entries int64 `json:"entries"`
	Bytes   int64 `json:"bytes"`
	Store   struct {
		Commits int64
		Batches int64
		Bytes   int64 // of those batches, with keys and index rows
	} `json:"store"`
}

// usage is the process's CPU time and resident memory.
func (s *server) usage() (cpu time.Duration, rss int64, err error) {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(s.cmd.Process.Pid) + "/stat")
	if err != nil {
		return 0, 0, fmt.Errorf("read the server's CPU time: %w", err)
	}
	_, rest, ok := bytes.Cut(raw, []byte(") ")) // the name may hold spaces
	f := strings.Fields(string(rest))
	if !ok || len(f) < 22 {
		return 0, 0, errors.New("the server's CPU time is not in the form of /proc/PID/stat")
	}
	ticks := int64(0)
	for _, i := range []int{11, 12} { // utime, stime
		n, err := strconv.ParseInt(f[i], 10, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("read the server's CPU time: %w", err)
		}
		ticks += n
	}
	pages, err := strconv.ParseInt(f[21], 10, 64)
	if err != nil {
		return 0, 0, fmt.Errorf("read the server's memory: %w", err)
	}
	return time.Duration(ticks) * time.Second / hertz, pages * int64(os.Getpagesize()), nil
}

const hertz = 100 // USER_HZ of every Linux that Go runs on

// machineCPU is the CPU time of all that ran on this machine since it started,
// what its host took from it included.
func machineCPU() (time.Duration, error) {
	raw, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, fmt.Errorf("read the machine's CPU time: %w", err)
	}
	line, _, _ := bytes.Cut(raw, []byte("\n"))
	f := strings.Fields(string(line))
	if len(f) < 9 || f[0] != "cpu" {
		return 0, errors.New("the machine's CPU time is not in the form of /proc/stat")
	}
	ticks := int64(0)
	for _, i := range []int{1, 2, 3, 6, 7, 8} { // user, nice, system, irq, softirq, steal
		n, err := strconv.ParseInt(f[i], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read the machine's CPU time: %w", err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / hertz, nil
}
