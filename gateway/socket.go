package gateway

import (
	"bufio"
	"net"
	"net/http"
	"time"
)

// socket moves a write deadline only when that matters. The library sets it with
// every frame, which takes a tenth of what a small frame costs; a deadline that
// is at most slack too early serves as well, if it still leaves half of the time
// that was asked for. Guarded by the lock under which the library writes.
type socket struct {
	*net.TCPConn // embedded whole, so that the library still writes with one system call
	slack        time.Duration
	until        time.Time // the deadline in force; zero: none
}

// SetWriteDeadline implements net.Conn.
func (s *socket) SetWriteDeadline(t time.Time) error {
	if late := t.Sub(s.until); !t.IsZero() && !s.until.IsZero() && late >= 0 && late < s.slack {
		// A close frame has less time than a frame of items, and comes when nothing has been
		// written for long: what is in force may be over, or about to be.
		if now := time.Now(); s.until.Sub(now) >= t.Sub(now)/2 {
			return nil
		}
	}
	s.until = t
	return s.TCPConn.SetWriteDeadline(t)
}

// hijacker hands the library a socket for its connection. Other connections,
// such as those with TLS, it hands over as they are.
type hijacker struct {
	http.ResponseWriter
	slack time.Duration
}

// Hijack implements http.Hijacker.
func (h hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if tcp, ok := conn.(*net.TCPConn); ok {
		conn = &socket{TCPConn: tcp, slack: h.slack}
	}
	return conn, rw, err
}
