package wsconn

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

func TestBytesArriveWholeThroughASmallBuffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := Pipe(7)
		want := bytes.Repeat([]byte("parley "), 1000)
		go func() {
			if n, err := a.Write(want); n != len(want) || err != nil {
				t.Errorf("wrote %d, %v", n, err)
			}
			_ = a.CloseWrite()
		}()
		got, err := io.ReadAll(b)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("read %d bytes, %v", len(got), err)
		}
		if _, err := b.Write([]byte("x")); err != nil {
			t.Errorf("the other direction ended too: %v", err)
		}
	})
}

func TestDeadlinesEndAWaitThatHasBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := Pipe(1)
		start := time.Now()
		go func() {
			time.Sleep(time.Second)
			_ = a.SetReadDeadline(time.Now().Add(time.Second))
		}()
		if _, err := a.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != 2*time.Second {
			t.Errorf("read ended with %v after %v", err, time.Since(start))
		}
		_ = b.SetWriteDeadline(time.Now().Add(time.Second))
		if n, err := b.Write([]byte("ab")); n != 1 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("write ended with %d, %v", n, err)
		}
	})
}

func TestCloseEndsBothSides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := Pipe(1)
		go func() { _ = a.Close() }()
		if _, err := b.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the other side read %v", err)
		}
		if _, err := b.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("the other side wrote %v", err)
		}
		if _, err := a.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("this side read %v", err)
		}
	})
}

func TestListenerEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := Listen(0)
		go func() {
			c, err := l.Accept()
			if err != nil {
				t.Error(err)
				return
			}
			c.Close()
			_ = l.Close()
		}()
		if _, err := l.Dial(context.Background(), "", ""); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if _, err := l.Dial(context.Background(), "", ""); !errors.Is(err, net.ErrClosed) {
			t.Errorf("dial after the end: %v", err)
		}
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("accept after the end: %v", err)
		}
	})
}
