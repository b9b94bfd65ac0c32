package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/gorilla/websocket"
)

// peer is a process of a baseline. It ends with its standard input, so that it
// cannot outlive the bench. Owned by one goroutine.
type peer struct {
	name    string
	cmd     *exec.Cmd
	in      io.Closer
	addr    string
	socket  string // of its probe; empty: it has none
	log     bytes.Buffer
	crowd   *crowd
	control *websocket.Conn
}

// startPeer starts a process that prints its address when it is ready.
func startPeer(name, socket, program string, args ...string) (p *peer, err error) {
	p = &peer{name: name, socket: socket, cmd: exec.Command(program, args...)}
	p.cmd.Stderr = &p.log
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w: %s", name, err, p.log.String()), p.stop())
	}
	p.addr = strings.TrimSpace(line)
	return p, nil
}

// rawPeer starts gorilla/websocket with nothing around it.
func rawPeer(binary, dir string) (*peer, error) {
	home, err := os.MkdirTemp(dir, "raw")
	if err != nil {
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	socket := filepath.Join(home, "probe")
	return startPeer("raw gorilla", socket, binary, "bench", "raw", "--probe", socket)
}

// errNoNode says that the baseline of Node cannot be measured here, and why.
var errNoNode = errors.New("not measured")

// nodePeer starts the broadcast of Node's ws, which is installed in dir.
func nodePeer(dir string) (*peer, error) {
	program, err := exec.LookPath("node")
	if err != nil {
		return nil, fmt.Errorf("%w: there is no node on the PATH", errNoNode)
	}
	if _, err := os.Stat(filepath.Join(dir, "node_modules", "ws")); err != nil {
		return nil, fmt.Errorf("%w: ws is not installed; run npm install in %s, or name the directory with --node", errNoNode, dir)
	}
	return startPeer("Node ws", "", program, filepath.Join(dir, "broadcast.mjs"))
}

// stop ends the process.
func (p *peer) stop() error {
	if err := p.in.Close(); err != nil {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	late := time.AfterFunc(20*time.Second, func() { _ = p.cmd.Process.Kill() }) // Wait tells
	defer late.Stop()
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("%s stopped with %w: %s", p.name, err, p.log.String())
	}
	return nil
}

// audience has n viewers and the control connection enter.
func (p *peer) audience(ctx context.Context, n int) (err error) {
	p.crowd = newCrowd()
	url := "ws://" + p.addr + "/v1/rooms/bench-all/ws"
	err = p.crowd.joinPolled(ctx, n, func(int) (string, string, error) { return url, "none", nil })
	if err == nil {
		p.control, err = dialWith(ctx, &dialer, url, "none")
	}
	if err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	return nil
}

// send has the peer send so many frames to all; with items, of those.
func (p *peer) send(cursor string, items []string, frames int) error {
	raw, err := json.Marshal(order{Type: "broadcast", Cursor: cursor, Items: items, Frames: frames})
	if err == nil {
		err = p.control.WriteMessage(websocket.TextMessage, raw)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	return nil
}

// dismiss has everybody leave, and stops the process.
func (p *peer) dismiss() (err error) {
	if p.control != nil {
		_ = p.control.Close() // done with
	}
	if p.crowd != nil {
		err = p.crowd.leave()
	}
	return errors.Join(err, p.stop())
}

func (p *peer) usage() (time.Duration, error) {
	cpu, _, err := usageOf(p.cmd.Process.Pid)
	return cpu, err
}
