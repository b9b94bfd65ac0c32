package faultproxy

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// Mode is what a proxy does to the bytes of a connection.
type Mode int

// The modes.
const (
	Pass     Mode = iota // forwards at once
	Delay                // forwards each piece after Fault.Wait
	Trickle              // forwards Fault.Bytes at a time, with Fault.Wait before each
	HalfOpen             // forwards nothing and reads nothing more; both sides stay open
	Swallow              // forwards, but not the end of one side to the other
)

// String returns the mode's word.
func (m Mode) String() string {
	return [...]string{"pass", "delay", "trickle", "half-open", "swallow"}[m]
}

// Fault is a mode with its measures. The zero Fault passes.
type Fault struct {
	Mode  Mode
	Wait  time.Duration // of Delay and Trickle; 0: none
	Bytes int           // of Trickle; 0: 1
}

// Dial opens the connection to what stands behind a proxy. It has the shape of
// net.Dialer.DialContext.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// Proxy accepts connections and joins each to one that it dials. Safe for
// concurrent use; mu guards all that changes.
type Proxy struct {
	front  net.Listener
	dial   Dial
	work   sync.WaitGroup
	ctx    context.Context
	cancel context.CancelFunc

	mu     sync.Mutex
	future Fault
	links  map[*link]struct{}
	made   int
	closed bool
}

// link is one proxied connection. mu guards fault, changed and dead.
type link struct {
	near, far net.Conn

	mu      sync.Mutex
	fault   Fault
	changed chan struct{} // closed and replaced when fault changes or the link ends
	dead    bool
}

// piece is how many bytes are read, and at most held, at once.
const piece = 4 << 10

// New returns a proxy that accepts from front, which it closes in the end, and
// dials what stands behind it. It passes until it is told otherwise. Close it.
func New(front net.Listener, dial Dial) *Proxy {
	p := &Proxy{front: front, dial: dial, links: map[*link]struct{}{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.work.Go(p.accept)
	return p
}

func (p *Proxy) accept() {
	for {
		near, err := p.front.Accept()
		if err != nil {
			return // the listener was closed
		}
		p.work.Go(func() {
			far, err := p.dial(p.ctx, "tcp", p.front.Addr().String())
			if err != nil {
				near.Close()
				return
			}
			p.join(near, far)
		})
	}
}

func (p *Proxy) join(near, far net.Conn) {
	l := &link{near: near, far: far, changed: make(chan struct{})}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		l.end(false)
		return
	}
	l.fault = p.future
	p.links[l] = struct{}{}
	p.made++
	p.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { l.pump(near, far) })
	both.Go(func() { l.pump(far, near) })
	both.Wait()
	if l.present().Mode == Swallow {
		_, _ = l.wait(func(f Fault) bool { return f.Mode == Swallow }) // each side goes on believing in the other
	}
	l.end(false)
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

// Set has the fault apply to all connections, those that there are and those to come.
func (p *Proxy) Set(f Fault) {
	p.mu.Lock()
	p.future = f
	p.mu.Unlock()
	p.Present(f)
}

// Present has the fault apply to the connections that there are. Those to come
// are what Set said last.
func (p *Proxy) Present(f Fault) {
	for _, l := range p.list() {
		l.mu.Lock()
		l.fault = f
		l.wakeLocked()
		l.mu.Unlock()
	}
}

// Reset cuts all connections that there are. Over TCP both sides get a reset and
// what was on its way is lost.
func (p *Proxy) Reset() {
	for _, l := range p.list() {
		l.end(true)
	}
}

// Made returns how many connections there have been.
func (p *Proxy) Made() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.made
}

// Open returns how many connections there are.
func (p *Proxy) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// Close ends all connections and waits for the proxy's goroutines.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cancel()
	_ = p.front.Close()
	for _, l := range p.list() {
		l.end(false)
	}
	p.work.Wait()
}

func (p *Proxy) list() []*link {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]*link, 0, len(p.links))
	for l := range p.links {
		list = append(list, l)
	}
	return list
}

// end closes both sides; hard makes TCP reset them.
func (l *link) end(hard bool) {
	l.mu.Lock()
	l.dead = true
	l.wakeLocked()
	l.mu.Unlock()
	for _, c := range []net.Conn{l.near, l.far} {
		if t, ok := c.(interface{ SetLinger(int) error }); ok && hard {
			_ = t.SetLinger(0)
		}
		c.Close()
	}
}

func (l *link) wakeLocked() {
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *link) present() Fault {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fault
}

var errDead = errors.New("faultproxy: the link has ended")

// wait waits while the fault is such, and returns the one that is not.
func (l *link) wait(such func(Fault) bool) (Fault, error) {
	for {
		l.mu.Lock()
		f, changed, dead := l.fault, l.changed, l.dead
		l.mu.Unlock()
		if dead {
			return f, errDead
		}
		if !such(f) {
			return f, nil
		}
		<-changed
	}
}

// pump forwards one direction until it ends.
func (l *link) pump(from, to net.Conn) {
	buf := make([]byte, piece)
	for {
		n, err := from.Read(buf)
		if l.forward(to, buf[:n]) != nil {
			return
		}
		if err != nil {
			l.ended(to, err)
			return
		}
	}
}

// ended tells the other side that nothing more comes.
func (l *link) ended(to net.Conn, err error) {
	f, dead := l.wait(func(f Fault) bool { return f.Mode == HalfOpen })
	if dead != nil || f.Mode == Swallow {
		return
	}
	half, ok := to.(interface{ CloseWrite() error })
	if ok && errors.Is(err, io.EOF) {
		_ = half.CloseWrite()
		return
	}
	to.Close()
}

// forward writes a piece as the fault has it, which may change meanwhile.
func (l *link) forward(to net.Conn, b []byte) error {
	for len(b) > 0 {
		f, err := l.wait(func(f Fault) bool { return f.Mode == HalfOpen })
		if err != nil {
			return err
		}
		n := len(b)
		if f.Mode == Trickle {
			n = min(n, max(f.Bytes, 1))
		}
		if (f.Mode == Trickle || f.Mode == Delay) && f.Wait > 0 {
			if again, err := l.pause(f); err != nil {
				return err
			} else if again {
				continue
			}
		}
		if _, err := to.Write(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// pause waits as the fault has it. again says that the fault changed meanwhile.
func (l *link) pause(f Fault) (again bool, err error) {
	l.mu.Lock()
	changed, dead, same := l.changed, l.dead, l.fault == f
	l.mu.Unlock()
	if dead {
		return false, errDead
	}
	if !same {
		return true, nil
	}
	t := time.NewTimer(f.Wait)
	defer t.Stop()
	select {
	case <-t.C:
		return false, nil
	case <-changed:
		return true, nil
	}
}
