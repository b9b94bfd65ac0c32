package bench

import (
	"errors"
	"fmt"
	"io"
	"net"

	"golang.org/x/sys/unix"
)

// poller reads the sockets of many viewers on one goroutine, as an event loop
// does, and takes WebSocket frames apart itself. A goroutine per connection and
// its wake-up for each frame costs as much as sending the frame: with the viewers
// on the cores of the server it was 10 of 24 µs per delivery, and hid what the
// server costs. Owned by its goroutine once it runs.
type poller struct {
	crowd   *crowd
	epoll   int
	viewers map[int32]*viewer // by descriptor
	buf     []byte
}

// poll hands the crowd's viewers, who are all caught up and are sent nothing at
// the moment, to a poller.
func (c *crowd) poll() (err error) {
	p := &poller{crowd: c, viewers: map[int32]*viewer{}, buf: make([]byte, 64<<10)}
	if p.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("make a poller: %w", err)
	}
	for _, v := range c.viewers {
		if err := p.adopt(v); err != nil {
			return errors.Join(err, p.close())
		}
	}
	c.wg.Go(func() {
		if err := errors.Join(p.run(), p.close()); err != nil {
			c.fault(err)
		}
	})
	return nil
}

// adopt takes a viewer's socket from the runtime's own poller, which would wake
// up for it as well.
func (p *poller) adopt(v *viewer) error {
	tcp, ok := v.ws.NetConn().(*net.TCPConn)
	if !ok {
		return errors.New("a viewer's connection is not of TCP")
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return fmt.Errorf("take a socket over: %w", err)
	}
	var fd int
	var dupErr error
	err = raw.Control(func(own uintptr) { fd, dupErr = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 0) })
	if err = errors.Join(err, dupErr); err == nil {
		err = tcp.Close()
	}
	if err == nil {
		v.fd, v.buf = fd, v.buf[:0]
		p.viewers[int32(fd)] = v
		err = unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
	}
	if err != nil {
		return fmt.Errorf("take a socket over: %w", err)
	}
	return nil
}

// run reads until the crowd leaves.
func (p *poller) run() error {
	events := make([]unix.EpollEvent, 256)
	for !p.crowd.ends() {
		n, err := unix.EpollWait(p.epoll, events, 100)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("wait for frames: %w", err)
		}
		for _, e := range events[:n] {
			v := p.viewers[e.Fd]
			if err := p.read(v); err != nil {
				return fmt.Errorf("%s: %w", v.url, err)
			}
		}
	}
	return nil
}

// read takes what a socket has, and handles the frames that are whole.
func (p *poller) read(v *viewer) error {
	n, err := unix.Read(v.fd, p.buf)
	switch {
	case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR):
		return nil
	case err != nil:
		return err
	case n == 0:
		return io.ErrUnexpectedEOF
	}
	data := p.buf[:n]
	if len(v.buf) > 0 { // the beginning of a frame is there from before
		v.buf = append(v.buf, data...)
		data = v.buf
	}
	for {
		payload, rest, err := cutFrame(data)
		if err != nil {
			return err
		}
		if payload == nil {
			v.buf = append(v.buf[:0], data...) // data may lie in it, further on
			return nil
		}
		if err := v.handle(payload); err != nil {
			return err
		}
		data = rest
	}
}

// close closes the sockets.
func (p *poller) close() error {
	for fd := range p.viewers {
		_ = unix.Close(int(fd)) // done with
	}
	return unix.Close(p.epoll)
}

// cutFrame cuts the first frame of a server off its stream; nil when it is not
// whole yet. Servers under test send whole messages of text without a mask.
func cutFrame(data []byte) (payload, rest []byte, err error) {
	if len(data) < 2 {
		return nil, data, nil
	}
	const finText = 0x81
	if data[0] != finText {
		return nil, nil, fmt.Errorf("a frame begins with %#x, which is not a whole text", data[0])
	}
	size, at := int(data[1]), 2
	switch {
	case size > 127:
		return nil, nil, errors.New("a server's frame is masked")
	case size == 127:
		at = 10
	case size == 126:
		at = 4
	}
	if len(data) < at {
		return nil, data, nil
	}
	if at > 2 {
		size = 0
		for _, b := range data[2:at] {
			size = size<<8 | int(b)
		}
	}
	if size < 0 || size > 1<<20 {
		return nil, nil, fmt.Errorf("a frame of %d bytes", size)
	}
	if len(data)-at < size {
		return nil, data, nil
	}
	return data[at : at+size], data[at+size:], nil
}

// writeRaw writes a small frame of text, with the mask 0, to a socket.
func writeRaw(fd int, text string) error {
	if len(text) > 125 {
		return errors.New("a viewer only sends small frames")
	}
	b := append(make([]byte, 0, 131), 0x81, 0x80|byte(len(text)), 0, 0, 0, 0)
	n, err := unix.Write(fd, append(b, text...))
	if err == nil && n != len(b)+len(text) {
		err = io.ErrShortWrite
	}
	return err
}
