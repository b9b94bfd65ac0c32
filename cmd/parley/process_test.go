package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"parley/gateway/wire"
)

// patience is how long a test waits for what must happen. Nothing is asserted
// about it but that it is enough.
const patience = 30 * time.Second

// process is a server as a second process. Owned by the test's goroutine, but
// for logs.
type process struct {
	*testing.T
	dir     string
	address string // of clients
	admin   string
	cmd     *exec.Cmd
	token   string
	mu      sync.Mutex
	logs    bytes.Buffer  // guarded by mu
	up      chan struct{} // closed when it serves
	ended   chan struct{} // closed when it has ended
	exit    error         // set before ended is closed
}

// scripts are the drivers of the processes: quick answers at once, slow waits for
// an hour after a checkpoint, and long speaks for ten seconds.
const scripts = `drivers:
  quick:
    kind: script
    builtin: turn20
  slow:
    kind: script
    file: slow.yaml
  long:
    kind: script
    file: long.yaml
templates:
  - match: long-*
    create: participants
    room:
      agents:
        - {id: agent, label: Agent, role: custom, driver: long, version: "1"}
      fallbackAgentId: agent
  - match: slow-*
    create: participants
    room:
      agents:
        - {id: agent, label: Agent, role: custom, driver: slow, version: "1"}
      fallbackAgentId: agent
      channels:
        - {match: "**", onBusy: queue}
  - match: room-*
    create: participants
    room:
      agents:
        - {id: agent, label: Agent, role: custom, driver: quick, version: "1"}
      fallbackAgentId: agent
      channels:
        - {match: "**", onBusy: queue}
`

const slowScript = `replies:
  - name: slow
    steps:
      - say: {output: first, text: "One."}
      - checkpoint: {told: 1}
      - wait: 1h
      - say: {output: second, text: "Two."}
      - complete: {}
`

var longScript = `replies:
  - name: long
    steps:
      - say: {output: all, chunk: 5, every: 10ms, text: "` + strings.Repeat("word ", 1000) + `"}
      - complete: {}
`

// newProcess writes a configuration into a fresh directory, with data below it
// or where data says, and makes a token. Nothing runs yet.
func newProcess(t *testing.T, data string, settings string) *process {
	t.Helper()
	p := &process{T: t, dir: t.TempDir()}
	text := fmt.Sprintf("listen: 127.0.0.1:0\ndata: %s\nsecret: %s\nauth:\n  issuer: test\n  audience: test\n  keys:\n"+
		"    - {kid: k, alg: HS256, secret: %s}\n%sadmin: {listen: \"127.0.0.1:0\"}\nlimits: {connectionsPerSubject: 5000, inputsPerSecond: 100000, "+
		"inputBurst: 100000, framesPerSecond: 100000, createsPerMinute: 100000}\n%s",
		data, newSecret(), newSecret(), scripts, settings)
	for name, content := range map[string]string{"parley.yaml": text, "slow.yaml": slowScript, "long.yaml": longScript} {
		if err := os.WriteFile(filepath.Join(p.dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := p.command("token", "--config", p.config(), "--sub", "ann", "--room", "**", "--ttl", "1h")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	p.token = strings.TrimSpace(string(out))
	return p
}

func (p *process) config() string { return filepath.Join(p.dir, "parley.yaml") }

func (p *process) command(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), asMain+"=1")
	return cmd
}

// start starts the server and waits until it serves or ends.
func (p *process) start() (running bool) {
	p.Helper()
	p.mu.Lock()
	p.logs.Reset()
	p.mu.Unlock()
	p.cmd = p.command("serve", "--config", p.config())
	out, err := p.cmd.StderrPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		p.Fatal(err)
	}
	p.up, p.ended = make(chan struct{}), make(chan struct{})
	go p.read(out, p.up, p.ended)
	p.Cleanup(func() { // also when the test has failed before its end
		_ = p.cmd.Process.Kill()
		<-p.ended
	})
	select {
	case <-p.up:
		return true
	case <-p.ended:
		return false
	case <-time.After(patience):
		p.Fatalf("neither up nor ended: %s", p.log())
		return false
	}
}

// read takes the log of the process, its addresses from it, and its end.
func (p *process) read(out io.Reader, up, ended chan struct{}) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		p.mu.Lock()
		p.logs.Write(lines.Bytes())
		p.logs.WriteByte('\n')
		p.mu.Unlock()
		var l struct{ Msg, Address string }
		if json.Unmarshal(lines.Bytes(), &l) != nil {
			continue
		}
		switch l.Msg {
		case "serving metrics and pprof":
			p.admin = "http://" + l.Address
		case "serving":
			p.address = l.Address
			close(up)
		}
	}
	p.exit = p.cmd.Wait()
	close(ended)
}

func (p *process) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.logs.String()
}

func (p *process) signal(s os.Signal) {
	p.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.Fatal(err)
	}
}

// wait waits for the end of the process.
func (p *process) wait() error {
	p.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.Fatalf("it does not end: %s", p.log())
	}
	return p.exit
}

// get returns the status and the body of a page; 0 when there is no answer, which
// fails the test.
func (p *process) get(url string) (int, string) {
	p.Helper()
	res, err := http.Get(url)
	if err != nil {
		p.Error(err)
		return 0, ""
	}
	body, err := io.ReadAll(res.Body)
	if err = errors.Join(err, res.Body.Close()); err != nil {
		p.Error(err)
	}
	return res.StatusCode, string(body)
}

// metrics scrapes the admin address: the figures by name with labels.
func (p *process) metrics() map[string]float64 {
	p.Helper()
	status, body := p.get(p.admin + "/metrics")
	if status != http.StatusOK {
		p.Fatalf("/metrics: %d %s", status, body)
	}
	out := map[string]float64{}
	for line := range strings.Lines(body) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if strings.HasPrefix(line, "#") || !ok {
			continue
		}
		if i := strings.LastIndex(line, "} "); i >= 0 {
			key, value = line[:i+1], strings.TrimSpace(line[i+2:])
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			p.Fatalf("%q: %v", line, err)
		}
		out[key] = v
	}
	return out
}

// until scrapes until a figure is as wanted.
func (p *process) until(key string, want float64) {
	p.Helper()
	var got float64
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if got = p.metrics()[key]; got == want {
			return
		}
	}
	p.Errorf("%s = %v, want %v; the log: %s", key, got, want, p.log())
}

// seat is a client of one room.
type seat struct {
	*testing.T
	ws  *websocket.Conn
	n   uint64
	now time.Time // of the last frame
}

// frame is what the tests look at in a frame of the server.
type frame struct {
	Type, Code, ID, Message string
	N                       uint64
	AfterMs, RetryMs        int64
	T                       int64
	Duplicate               bool
	Items                   []struct {
		Kind string
		Body struct {
			Type     string
			OutputID string
		}
	}
}

var errTurnedAway = errors.New("turned away with 503")

// sit connects to a room; one that is closing makes errTurnedAway.
func (p *process) sit(room, session string) (*seat, error) {
	d := websocket.Dialer{Subprotocols: []string{wire.Subprotocol}, HandshakeTimeout: patience}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ws, res, err := d.DialContext(ctx, "ws://"+p.address+"/v1/rooms/"+room+"/ws", http.Header{"Authorization": {"Bearer " + p.token}}) //nolint:bodyclose // the dialer keeps the body in memory
	if err != nil {
		if res != nil && res.StatusCode == http.StatusServiceUnavailable {
			return nil, errTurnedAway
		}
		return nil, err
	}
	s := &seat{T: p.T, ws: ws}
	if err := ws.WriteJSON(map[string]any{"type": "hello", "session": session, "from": "tail", "channels": []string{"public"}}); err != nil {
		return nil, err
	}
	for {
		f, err := s.read()
		if err != nil {
			return nil, errors.Join(err, ws.Close())
		}
		if f.Type == "caught_up" {
			return s, nil
		}
	}
}

// mustSit is sit for a server that lets everybody in.
func (p *process) mustSit(room, session string) *seat {
	p.Helper()
	s, err := p.sit(room, session)
	if err != nil {
		p.Fatalf("%s: %v; the log: %s", room, err, p.log())
	}
	p.Cleanup(func() { _ = s.ws.Close() }) // and until then it is held
	return s
}

// read reads a frame, and answers what only needs an answer.
func (s *seat) read() (frame, error) {
	for {
		var f frame
		if err := s.ws.SetReadDeadline(time.Now().Add(patience)); err != nil {
			return f, err
		}
		if err := s.ws.ReadJSON(&f); err != nil {
			return f, err
		}
		s.now = time.Now()
		switch f.Type {
		case "ping":
			if err := s.ws.WriteJSON(map[string]any{"type": "pong", "t": f.T}); err != nil {
				return f, err
			}
			continue
		case "events":
			if f.N != s.n+1 {
				return f, fmt.Errorf("items begin at %d after %d", f.N, s.n)
			}
			s.n += uint64(len(f.Items))
			// A server that has closed does not read it any more; the read says why.
			_ = s.ws.WriteJSON(map[string]any{"type": "ack", "n": s.n})
		}
		return f, nil
	}
}

// say sends an input.
func (s *seat) say(id string) error {
	return s.ws.WriteJSON(map[string]any{"type": "input", "id": id, "channel": "public", "text": "What is this?", "modality": "text"})
}

// answer reads until an input is answered: an empty code is accepted.
func (s *seat) answer(id string) (code string, duplicate bool, err error) {
	for {
		f, err := s.read()
		switch {
		case err != nil:
			return "", false, err
		case f.Type == "accepted" && f.ID == id:
			return "", f.Duplicate, nil
		case f.Type == "error":
			return f.Code, false, nil
		}
	}
}

// turn says something and reads until the run has ended.
func (s *seat) turn(id string) error {
	if err := s.say(id); err != nil {
		return err
	}
	for {
		f, err := s.read()
		if err != nil {
			return err
		}
		if f.Type == "error" {
			return fmt.Errorf("%s was answered with %s", id, f.Code)
		}
		for _, i := range f.Items {
			if i.Body.Type == "completed" {
				return nil
			}
		}
	}
}
