package actors

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"parley/driver"
	"parley/event"
)

// nowhere is a Journal that accepts everything at once and keeps nothing but
// heads: what is left is the cost of this package and of package room.
type nowhere struct {
	mu      sync.Mutex
	heads   map[event.RoomID]event.Seq
	answers chan func(error)
	batches int
}

func newNowhere() *nowhere {
	n := &nowhere{heads: map[event.RoomID]event.Seq{}, answers: make(chan func(error), 1<<16)}
	go func() {
		for done := range n.answers {
			done(nil)
		}
	}()
	return n
}

func (n *nowhere) Append(b *event.Batch, done func(error)) {
	n.mu.Lock()
	n.heads[b.Room] = b.Expect + event.Seq(len(b.Entries))
	n.batches++
	n.mu.Unlock()
	n.answers <- done
}

func (n *nowhere) Recover(room event.RoomID) (event.Recovered, error) {
	return event.Recovered{Term: 1}, nil
}
func (n *nowhere) Row(event.RoomID, event.Key) (event.Row, error) { return nil, nil }
func (n *nowhere) Read(event.RoomID, event.Seq, event.Seq, int) ([]*event.Entry, error) {
	return nil, nil
}

func (n *nowhere) Transcript(event.RoomID, event.ChannelID, event.Seq, int, int) ([]event.TranscriptRow, error) {
	return nil, nil
}
func (n *nowhere) Head(event.RoomID) (event.Seq, error)            { return 0, nil }
func (n *nowhere) Alarms(func(event.RoomID, time.Time) bool) error { return nil }
func (n *nowhere) Writable() error                                 { return nil }

// turn is W1's driver: one progress, 20 deltas of 30 bytes, completed.
func turn(_ context.Context, _ *driver.Turn, out driver.Emitter) error {
	if err := out.Emit(event.Progress{Stage: "looking"}); err != nil {
		return err
	}
	delta := strings.Repeat("x", 30)
	for i := range 20 {
		if err := out.Emit(event.AssistantOutput{Output: "a", Delta: delta, Final: i == 19}); err != nil {
			return err
		}
	}
	return out.Emit(event.Completed{})
}

func benchSystem(b *testing.B, n *nowhere) *System {
	b.Helper()
	s, err := New(Config{
		Journal: n, Drivers: func(string) (driver.Driver, bool) { return driver.RunFunc(turn), true },
		JournalQuota: 1 << 30, IdleAfter: time.Hour,
	})
	if err != nil {
		b.Fatal(err)
	}
	if err := s.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	return s
}

func closeBench(b *testing.B, s *System, n *nowhere) {
	if err := s.Shutdown(context.Background()); err != nil {
		b.Error(err)
	}
	close(n.answers)
}

// BenchmarkTurn plays turns in a closed loop per room (W1 without sockets and disk).
func BenchmarkTurn(b *testing.B) {
	for _, rooms := range []int{1, 16, 128} {
		b.Run(fmt.Sprint("rooms=", rooms), func(b *testing.B) {
			n := newNowhere()
			s := benchSystem(b, n)
			for i := range rooms {
				if _, err := s.Ask(b.Context(), event.RoomID(fmt.Sprint("r", i)), event.Configure{Access: host(), Config: config()}); err != nil {
					b.Fatal(err)
				}
			}
			n.batches = 0
			b.ReportAllocs()
			b.ResetTimer()
			turns := make(chan int, b.N)
			for i := range b.N {
				turns <- i
			}
			close(turns)
			var wg sync.WaitGroup
			for i := range rooms {
				wg.Go(func() {
					id := event.RoomID(fmt.Sprint("r", i))
					moved := make(chan struct{}, 1)
					defer s.Follow(id, func(event.Seq) {
						select {
						case moved <- struct{}{}:
						default:
						}
					})()
					at := event.Seq(1)
					for k := range turns {
						s.Do(id, submit("public", event.InputID(fmt.Sprint("i", k))), func(_ event.Reply, err error) {
							if err != nil {
								b.Error(err)
							}
						})
						for end := at + 24; at < end; {
							es, _, _ := s.Read(id, at, 64)
							if at += event.Seq(len(es)); len(es) == 0 {
								<-moved
							}
						}
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			b.ReportMetric(float64(b.N)*24/b.Elapsed().Seconds(), "events/s")
			b.ReportMetric(float64(n.batches)/float64(b.N), "commits/turn")
			closeBench(b, s, n)
		})
	}
}

// BenchmarkIdleRoom measures the memory of a room that is awake and idle (W3).
func BenchmarkIdleRoom(b *testing.B) {
	n := newNowhere()
	s := benchSystem(b, n)
	const rooms = 10_000
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	before := heap()
	for b.Loop() {
		for i := range rooms {
			if _, err := s.Ask(b.Context(), event.RoomID(fmt.Sprint("r", i)), event.Configure{Access: host(), Config: config()}); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(heap()-before)/rooms, "B/room")
	closeBench(b, s, n)
}
