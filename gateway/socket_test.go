package gateway

import (
	"net"
	"testing"
	"time"
)

// What is written to a peer that reads nothing ends at the deadline, or at most
// slack before it, whatever deadlines came before.
func TestASocketsWriteDeadlineIsNeverLateAndLittleEarly(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	raw, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	s := &socket{TCPConn: raw.(*net.TCPConn), slack: time.Hour}
	set := func(at time.Time) {
		t.Helper()
		if err := s.SetWriteDeadline(at); err != nil {
			t.Fatal(err)
		}
	}
	start := time.Now()
	set(start.Add(2 * time.Hour))
	set(start.Add(2*time.Hour + 59*time.Minute))
	if want := start.Add(2 * time.Hour); !s.until.Equal(want) {
		t.Errorf("a little later: in force is %v after the start", s.until.Sub(start))
	}
	set(start.Add(3*time.Hour + time.Minute))
	if want := start.Add(3*time.Hour + time.Minute); !s.until.Equal(want) {
		t.Errorf("much later: in force is %v after the start", s.until.Sub(start))
	}
	set(start.Add(time.Minute))
	if want := start.Add(time.Minute); !s.until.Equal(want) {
		t.Errorf("earlier: in force is %v after the start", s.until.Sub(start))
	}
	set(start.Add(-time.Second))
	set(start.Add(2 * time.Second))
	if want := start.Add(2 * time.Second); !s.until.Equal(want) {
		t.Errorf("after one that is over: in force is %v after the start", s.until.Sub(start))
	}
	set(start.Add(40 * time.Minute))
	set(start.Add(90 * time.Minute))
	if want := start.Add(90 * time.Minute); !s.until.Equal(want) {
		t.Errorf("after one with less than half of the time: in force is %v after the start", s.until.Sub(start))
	}
	set(time.Time{})
	if !s.until.IsZero() {
		t.Error("a deadline is in force after none was asked for")
	}
	set(start.Add(-time.Second))
	if _, err := s.Write([]byte("x")); !isTimeout(err) {
		t.Errorf("after its deadline a write gives %v", err)
	}
	set(start.Add(time.Hour))
	if _, err := s.Write([]byte("x")); err != nil {
		t.Errorf("with a new deadline a write gives %v", err)
	}
}
