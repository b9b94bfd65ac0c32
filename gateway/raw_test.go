package gateway

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"parley/gateway/wire"
)

// The opcodes of WebSocket (RFC 6455, 5.2).
const (
	opMore   = 0x0
	opText   = 0x1
	opBinary = 0x2
	opClose  = 0x8
	opPing   = 0x9
	opPong   = 0xa

	fin  = 0x80
	rsv1 = 0x40
	rsv2 = 0x20
	rsv3 = 0x10
)

// raw is a client that writes WebSocket frames by hand, so that it can write
// what no library would. Owned by its test.
type raw struct {
	t  testing.TB
	c  net.Conn
	r  *bufio.Reader
	ok *http.Response // of the handshake
}

// plain returns a frame with the mask that changes nothing.
func plain(head byte, payload string) []byte { return masked(head, payload, [4]byte{}) }

// masked returns a frame of a client. The length has the shortest form.
func masked(head byte, payload string, key [4]byte) []byte {
	b := lengthOf(head, 0x80, len(payload))
	b = append(b, key[:]...)
	for i := range len(payload) {
		b = append(b, payload[i]^key[i%4])
	}
	return b
}

func lengthOf(head, mask byte, n int) []byte {
	switch {
	case n < 126:
		return []byte{head, mask | byte(n)}
	case n < 1<<16:
		return binary.BigEndian.AppendUint16([]byte{head, mask | 126}, uint16(n))
	}
	return binary.BigEndian.AppendUint64([]byte{head, mask | 127}, uint64(n))
}

func closeFrame(code int, reason string) []byte {
	return plain(fin|opClose, string(binary.BigEndian.AppendUint16(nil, uint16(code)))+reason)
}

// sized returns a frame of the protocol that changes nothing and has that many bytes.
func sized(n int) string {
	const head, tail = `{"type":"ack","n":0,"x":"`, `"}`
	return head + strings.Repeat("x", n-len(head)-len(tail)) + tail
}

// probe is a request, and probed its answer: the connection is alive and its
// frames are taken in order.
func probe(ref string) string { return `{"type":"cancel","ref":"` + ref + `","run":"none"}` }

// handshake returns the lines of a request that is upgraded; changes are of the
// form "Name: value", or "Name" to leave one out.
func handshake(path string, changes ...string) string {
	lines := []string{
		"Host: parley.example", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Protocol: " + wire.Subprotocol, "Origin: " + testOrigin,
	}
	for _, ch := range changes {
		name, value, found := strings.Cut(ch, ":")
		lines = slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(l, name+":") })
		if found {
			lines = append(lines, name+":"+value)
		}
	}
	return "GET " + path + " HTTP/1.1\r\n" + strings.Join(lines, "\r\n") + "\r\n\r\n"
}

// request sends a request as it is and returns the answer.
func (s *server) request(t testing.TB, text string) *raw {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(s.http.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, nil) //nolint:bodyclose // it reads from the socket, which is closed
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	return &raw{t: t, c: c, r: r, ok: resp}
}

// raw opens a connection that has not said hello.
func (s *server) raw(t testing.TB, room string, changes ...string) *raw {
	t.Helper()
	p := s.request(t, handshake("/v1/rooms/"+room+"/ws", changes...))
	if p.ok.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("the upgrade was refused with %d", p.ok.StatusCode)
	}
	return p
}

// rawLive opens a connection and reads it up to caught_up.
func (s *server) rawLive(t testing.TB, room, sub string) *raw {
	t.Helper()
	p := s.raw(t, room)
	p.write(plain(fin|opText, helloText(t, sub)))
	for {
		op, payload := p.frame()
		if op != opText {
			t.Fatalf("opcode %d before caught_up: %q", op, payload)
		}
		if strings.Contains(payload, `"type":"caught_up"`) {
			return p
		}
	}
}

func helloText(t testing.TB, sub string) string {
	return `{"type":"hello","token":"` + mint(t, player(sub)) + `","channels":["public"]}`
}

// write sends bytes. A server that has closed meanwhile is no fault here: what it said is read.
func (p *raw) write(frames ...[]byte) {
	for _, b := range frames {
		_, _ = p.c.Write(b)
	}
}

// chopped sends bytes in pieces of n, each a write of its own.
func (p *raw) chopped(n int, frames ...[]byte) {
	for piece := range slices.Chunk(slices.Concat(frames...), n) {
		p.write(piece)
	}
}

// read reads one frame of the server and holds it to the rules: not masked, no
// reserved bits, not in parts, the length in its shortest form, text valid UTF-8.
func (p *raw) read() (op byte, payload string, err error) {
	var head [2]byte
	if _, err := io.ReadFull(p.r, head[:]); err != nil {
		return 0, "", err
	}
	n := uint64(head[1] & 0x7f)
	switch n {
	case 126:
		var l [2]byte
		if _, err := io.ReadFull(p.r, l[:]); err != nil {
			return 0, "", err
		}
		n = uint64(binary.BigEndian.Uint16(l[:]))
	case 127:
		var l [8]byte
		if _, err := io.ReadFull(p.r, l[:]); err != nil {
			return 0, "", err
		}
		n = binary.BigEndian.Uint64(l[:])
	}
	op = head[0] & 0xf
	if head[0]&0xf0 != fin || head[1]&0x80 != 0 || n > wire.LargestMaxFrame || op >= 8 && n > 125 ||
		!bytes.HasPrefix(lengthOf(head[0], 0, int(n)), head[:]) {
		p.t.Fatalf("the server breaks WebSocket: %x with %d bytes", head, n)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(p.r, b); err != nil {
		return 0, "", fmt.Errorf("half a frame: %w", err)
	}
	if op == opText && (!json.Valid(b) || !utf8.Valid(b)) || op == opClose && n > 2 && !utf8.Valid(b[2:]) || op == opClose && n == 1 {
		p.t.Fatalf("the server sends %q", b)
	}
	return op, string(b), nil
}

func (p *raw) frame() (op byte, payload string) {
	p.t.Helper()
	op, payload, err := p.read()
	if err != nil {
		p.t.Fatalf("read: %v", err)
	}
	return op, payload
}

// end reads up to the close frame, which must be followed by nothing, and
// returns its code (0: none came; 1005: it has none) and the text frames before.
func (p *raw) end() (code int, reason string, texts []string) {
	p.t.Helper()
	for {
		op, payload, err := p.read()
		switch {
		case err != nil:
			if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() || errors.Is(err, io.ErrUnexpectedEOF) {
				p.t.Fatalf("the connection was not ended: %v", err)
			}
			return 0, "", texts
		case op == opText:
			texts = append(texts, payload)
		case op == opClose:
			code = 1005
			if len(payload) >= 2 {
				code, reason = int(binary.BigEndian.Uint16([]byte(payload))), payload[2:]
			}
			if half, ok := p.c.(interface{ CloseWrite() error }); ok {
				_ = half.CloseWrite() // a server that has closed waits a moment for its peer
			}
			if n, err := p.r.Read(make([]byte, 1)); n > 0 {
				p.t.Fatalf("something follows the close frame (%v)", err)
			} else if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
				p.t.Fatal("the socket stays open after the close frame")
			}
			return code, reason, texts
		}
	}
}

// goesOn probes the connection and returns the pongs before the answer.
func (p *raw) goesOn(ref string) (pongs []string) {
	p.t.Helper()
	p.write(plain(fin|opText, probe(ref)))
	for {
		op, payload := p.frame()
		switch {
		case op == opPong:
			pongs = append(pongs, payload)
		case op == opClose:
			p.t.Fatalf("closed with %x", payload)
		case strings.Contains(payload, `"type":"done"`) && strings.Contains(payload, `"`+ref+`"`):
			return pongs
		}
	}
}

func dialTCP(t testing.TB, s *server) (net.Conn, error) {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(s.http.URL, "http://"))
	if err == nil {
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(patience))
	}
	return c, err
}

// waitUntil lets other goroutines go on until something is so. It depends on no
// speed: only a failure takes its whole patience.
func waitUntil(t testing.TB, so func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !so(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatal("it never came to be so")
		}
	}
}
