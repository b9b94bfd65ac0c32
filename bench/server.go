package bench

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
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
	admin             string // address of its metrics
	cmd               *exec.Cmd
	log               bytes.Buffer // of the last process; whole after it has ended
	token             string
	key               []byte // signs tokens
}

//go:embed slow.yaml
var slowScript []byte

// holdScript begins and then waits; hangScript heeds nothing, not even the end
// of its attempt; streamScript says as many deltas as it is told to, without pause.
const (
	holdScript = `replies:
  - name: hold
    steps:
      - progress: held
      - wait: 24h
`
	hangScript = `replies:
  - name: hang
    steps:
      - hang: 24h
`
	streamScript = `replies:
  - name: stream
    steps:
      - repeat:
          times: %d
          steps:
            - say: {output: answer, final: false, text: "and then the tide came in again "}
      - say: {output: answer, text: "at last."}
`
)

const serverConfig = `listen: %s
admin: {listen: "%s"}
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
%stemplates:
%s  - match: bench-*
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

const scriptConfig = `  %[1]s:
    kind: script
    file: %[1]s.yaml
`

const templateConfig = `  - match: bench-%[1]s-*
    create: participants
    room:
      deadline: 24h
      agents:
        - {id: agent, label: Agent, role: custom, driver: %[1]s, version: "1"}
      fallbackAgentId: agent
`

// streamed is how many deltas a room bench-stream-* says when nothing else is told.
const streamed = 1000

// newServer writes a configuration into dir and makes a token; nothing runs yet.
func newServer(ctx context.Context, binary, dir string) (*server, error) {
	return newServerWith(ctx, binary, dir, lifted, streamed)
}

// newServerWith is newServer with other limits and another length of streams.
// Rooms bench-X-* with X of slow, hold, hang and stream have the agent of that
// script; other rooms bench-* have the turn that servers are measured with.
func newServerWith(ctx context.Context, binary, dir string, limits map[string]string, deltas int) (*server, error) {
	s := &server{binary: binary, dir: dir}
	for _, addr := range []*string{&s.addr, &s.admin} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		*addr = ln.Addr().String()
		defer func() { _ = ln.Close() }() // nobody has connected
	}
	var list, drivers, templates strings.Builder
	for _, k := range sortedKeys(limits) {
		fmt.Fprintf(&list, "  %s: %s\n", k, limits[k])
	}
	for name, script := range map[string]string{
		"slow": string(slowScript), "hold": holdScript, "hang": hangScript, "stream": fmt.Sprintf(streamScript, deltas),
	} {
		fmt.Fprintf(&drivers, scriptConfig, name)
		fmt.Fprintf(&templates, templateConfig, name)
		if err := os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(script), 0o600); err != nil {
			return nil, fmt.Errorf("write the server's script: %w", err)
		}
	}
	signing := secret()
	var err error
	if s.key, err = base64.StdEncoding.DecodeString(signing); err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	text := fmt.Sprintf(serverConfig, s.addr, s.admin, secret(), signing, drivers.String(), templates.String(), list.String())
	if err := os.WriteFile(s.config(), []byte(text), 0o600); err != nil {
		return nil, fmt.Errorf("write the server's configuration: %w", err)
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
func (s *server) socket() string   { return filepath.Join(s.dir, "probe") }

// tokenOf returns the server's token for another subject.
func (s *server) tokenOf(subject string) (string, error) {
	parts := strings.Split(s.token, ".")
	if len(parts) != 3 {
		return "", errors.New("the token is not a JWT")
	}
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	claims := map[string]json.RawMessage{}
	if err == nil {
		err = json.Unmarshal(raw, &claims)
	}
	if err == nil {
		claims["sub"], err = json.Marshal(subject)
	}
	if err == nil {
		raw, err = json.Marshal(claims)
	}
	if err != nil {
		return "", fmt.Errorf("make a token: %w", err)
	}
	signed := parts[0] + "." + base64.RawURLEncoding.EncodeToString(raw)
	mac := hmac.New(sha256.New, s.key)
	_, _ = mac.Write([]byte(signed)) // never fails (hash.Hash)
	return signed + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil)), nil
}

// probe asks the process for a path of its probe.
func (s *server) probe(path string) ([]byte, error) { return ask(s.socket(), path) }

// roomsAwake is how many rooms the server's metrics say are awake.
func (s *server) roomsAwake() (int, error) {
	res, err := http.Get("http://" + s.admin + "/metrics")
	if err != nil {
		return 0, fmt.Errorf("read the server's metrics: %w", err)
	}
	defer func() { _ = res.Body.Close() }() // nothing more of it is used
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), "parley_rooms_awake "); ok {
			n, err := strconv.ParseFloat(value, 64)
			return int(n), err
		}
	}
	return 0, errors.Join(errors.New("the server's metrics do not tell how many rooms are awake"), lines.Err())
}

// memory reads the process's memory, after a collection when gc is set.
func (s *server) memory(gc bool) (memory, error) { return memoryOf(s.socket(), s.cmd.Process.Pid, gc) }

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
	if err := os.Remove(s.socket()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, fmt.Errorf("start the server: %w", err) // what a killed process left would be in the way
	}
	s.cmd = exec.Command(s.binary, "bench", "serve", "--config", s.config(), "--probe", s.socket())
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
	return usageOf(s.cmd.Process.Pid)
}

func usageOf(pid int) (cpu time.Duration, rss int64, err error) {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
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
