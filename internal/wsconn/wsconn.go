// Package wsconn is a network in memory, for tests of both ends of a WebSocket
// in a testing/synctest bubble, where real sockets cannot be: a listener, and
// connections with bounded buffers, deadlines and half-close, as TCP has them.
//
// It is not a socket: nothing is lost, delayed or reordered, and a closed
// connection never resets what the other side has not read yet. All of it is
// safe for concurrent use; each direction of a connection is guarded by its own
// lock. It guarantees that every wait is one that synctest sees as idle.
package wsconn

import (
	"context"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// DefaultBuffer is how many bytes one direction holds before writing blocks.
const DefaultBuffer = 64 << 10

// Listener accepts connections that Dial made. Implements net.Listener.
type Listener struct {
	buffer int
	accept chan net.Conn
	once   sync.Once
	closed chan struct{}
}

// Listen returns a listener whose connections hold buffer bytes in each
// direction; 0 is DefaultBuffer.
func Listen(buffer int) *Listener {
	if buffer == 0 {
		buffer = DefaultBuffer
	}
	return &Listener{buffer: buffer, accept: make(chan net.Conn), closed: make(chan struct{})}
}

// Dial connects to the listener. It has the shape of websocket.Dialer.NetDialContext;
// the network and the address are ignored.
func (l *Listener) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := Pipe(l.buffer)
	select {
	case l.accept <- server:
		return client, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accept:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. Connections that were made stay open.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr { return addr{} }

type addr struct{}

func (addr) Network() string { return "memory" }
func (addr) String() string  { return "192.0.2.1:1" } // of the range for documentation

// Conn is one end of a connection. Implements net.Conn.
type Conn struct{ in, out *stream }

// Pipe returns both ends of a connection.
func Pipe(buffer int) (a, b *Conn) {
	x, y := newStream(buffer), newStream(buffer)
	return &Conn{in: x, out: y}, &Conn{in: y, out: x}
}

// Read implements net.Conn.
func (c *Conn) Read(p []byte) (int, error) { return c.in.read(p) }

// Write implements net.Conn.
func (c *Conn) Write(p []byte) (int, error) { return c.out.write(p) }

// CloseWrite ends what the other side reads, and leaves this side reading.
func (c *Conn) CloseWrite() error {
	c.out.change(func() { c.out.ended = true })
	return nil
}

// Close implements net.Conn.
func (c *Conn) Close() error {
	c.out.change(func() { c.out.ended = true })
	c.in.change(func() { c.in.gone = true })
	return nil
}

// LocalAddr implements net.Conn.
func (c *Conn) LocalAddr() net.Addr { return addr{} }

// RemoteAddr implements net.Conn.
func (c *Conn) RemoteAddr() net.Addr { return addr{} }

// SetDeadline implements net.Conn.
func (c *Conn) SetDeadline(t time.Time) error {
	_ = c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.in.change(func() { c.in.readBy = t })
	return nil
}

// SetWriteDeadline implements net.Conn.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.out.change(func() { c.out.writeBy = t })
	return nil
}

// stream is one direction. mu guards all of it.
type stream struct {
	limit int

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at every change
	buf     []byte
	ended   bool // by the writer: what is in buf is the rest
	gone    bool // by the reader: nobody will read it
	readBy  time.Time
	writeBy time.Time
}

func newStream(limit int) *stream { return &stream{limit: limit, changed: make(chan struct{})} }

func (s *stream) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	s.wakeLocked()
}

func (s *stream) wakeLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// waitLocked waits for a change or the deadline. It gives the lock up meanwhile.
func (s *stream) waitLocked(by time.Time) error {
	changed := s.changed
	var late <-chan time.Time
	if !by.IsZero() {
		left := time.Until(by)
		if left <= 0 {
			return os.ErrDeadlineExceeded
		}
		t := time.NewTimer(left)
		defer t.Stop()
		late = t.C
	}
	s.mu.Unlock()
	defer s.mu.Lock()
	select {
	case <-changed:
	case <-late: // the caller finds the deadline passed
	}
	return nil
}

func (s *stream) read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.gone:
			return 0, net.ErrClosed
		case len(s.buf) > 0:
			n := copy(p, s.buf)
			s.buf = s.buf[n:]
			s.wakeLocked()
			return n, nil
		case s.ended:
			return 0, io.EOF
		case len(p) == 0:
			return 0, nil
		}
		if err := s.waitLocked(s.readBy); err != nil {
			return 0, err
		}
	}
}

func (s *stream) write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	done := 0
	for {
		switch {
		case s.gone || s.ended:
			return done, io.ErrClosedPipe
		case done == len(p):
			return done, nil
		}
		if room := s.limit - len(s.buf); room > 0 {
			n := min(room, len(p)-done)
			s.buf = append(s.buf, p[done:done+n]...)
			done += n
			s.wakeLocked()
			continue
		}
		if err := s.waitLocked(s.writeBy); err != nil {
			return done, err
		}
	}
}
