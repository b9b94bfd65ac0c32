package faultproxy_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"parley/internal/faultproxy"
	"parley/internal/wsconn"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// joined returns both ends of a proxied connection in memory.
func joined(t *testing.T) (p *faultproxy.Proxy, near, far net.Conn) {
	t.Helper()
	front, back := wsconn.Listen(0), wsconn.Listen(0)
	p = faultproxy.New(front, back.Dial)
	t.Cleanup(func() {
		p.Close()
		_ = back.Close()
	})
	near, err := front.Dial(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	if far, err = back.Accept(); err != nil {
		t.Fatal(err)
	}
	return p, near, far
}

func take(t *testing.T, c net.Conn, n int) []byte {
	t.Helper()
	b := make([]byte, n)
	if _, err := io.ReadFull(c, b); err != nil {
		t.Fatal(err)
	}
	return b
}

// silent asserts that nothing comes for a while, neither a byte nor the end.
func silent(t *testing.T, c net.Conn, d time.Duration) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(d))
	if n, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%d bytes and %v in %v", n, err, d)
	}
	_ = c.SetReadDeadline(time.Time{})
}

func TestTheFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, near, far := joined(t)
		defer near.Close()
		defer far.Close()
		took := func(want time.Duration, send int) {
			t.Helper()
			start := time.Now()
			text := bytes.Repeat([]byte("x"), send)
			go func() { _, _ = near.Write(text) }()
			if got := take(t, far, send); !bytes.Equal(got, text) {
				t.Errorf("got %q", got)
			}
			if d := time.Since(start); d != want {
				t.Errorf("%d bytes took %v, want %v", send, d, want)
			}
		}
		took(0, 100)
		p.Set(faultproxy.Fault{Mode: faultproxy.Delay, Wait: 3 * time.Second})
		took(3*time.Second, 100)
		p.Set(faultproxy.Fault{Mode: faultproxy.Trickle, Wait: time.Second, Bytes: 10})
		took(10*time.Second, 100)
		p.Set(faultproxy.Fault{Mode: faultproxy.Trickle, Wait: time.Second})
		took(4*time.Second, 4)
		p.Set(faultproxy.Fault{Mode: faultproxy.HalfOpen})
		if _, err := near.Write([]byte("kept")); err != nil {
			t.Fatal(err)
		}
		silent(t, far, time.Hour)
		p.Set(faultproxy.Fault{})
		if got := take(t, far, 4); string(got) != "kept" {
			t.Errorf("after the half-open time came %q", got)
		}
		if p.Made() != 1 || p.Open() != 1 {
			t.Errorf("%d made, %d open", p.Made(), p.Open())
		}
	})
}

func TestTheEndsOfASide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, near, far := joined(t)
		_ = near.(*wsconn.Conn).CloseWrite()
		if _, err := far.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the end of a side is not told: %v", err)
		}
		go func() { _, _ = far.Write([]byte("still")) }()
		take(t, near, 5)
		far.Close()
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the end of the other side is not told: %v", err)
		}
		near.Close()
		synctest.Wait()
		if p.Open() != 0 {
			t.Errorf("%d open", p.Open())
		}
	})
	synctest.Test(t, func(t *testing.T) {
		p, near, far := joined(t)
		p.Set(faultproxy.Fault{Mode: faultproxy.Swallow})
		go func() { _, _ = near.Write([]byte("last")) }()
		take(t, far, 4)
		near.Close()
		silent(t, far, time.Hour)
		if p.Open() != 1 {
			t.Errorf("%d open", p.Open())
		}
		p.Reset()
		if _, err := far.Read(make([]byte, 1)); err == nil {
			t.Error("still open after a reset")
		}
		far.Close()
	})
}

// Over TCP a reset is one.
func TestAResetOfTCP(t *testing.T) {
	back, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer back.Close()
	front, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := faultproxy.New(front, func(_ context.Context, network, _ string) (net.Conn, error) {
		return net.Dial(network, back.Addr().String())
	})
	defer p.Close()
	near, err := net.Dial("tcp", front.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	far, err := back.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	if _, err := near.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	take(t, far, 1)
	p.Reset()
	for _, c := range []net.Conn{near, far} {
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("got %v", err)
		}
	}
}
