package persistence

import (
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"parley/event"
)

// delta is a typical entry: some 100 bytes when encoded.
func delta(at event.Seq) *event.Entry {
	return &event.Entry{
		Seq: at, At: time.UnixMilli(1_800_000_000_000 + int64(at)).UTC(), Channel: "public", Disclosure: event.ToRoom(),
		Body: &event.RunEvent{
			Run: "r_0192f0c2a4", Agent: "guide", Input: "0192f0c2-7b1e-7c55", Attempt: 1, Sequence: uint64(at), N: uint64(at),
			Logical: "answer",
			Event:   event.AssistantOutput{Output: "o_8Jx2", Delta: "thirty bytes of spoken answer ", Purpose: event.Answer, History: event.Record},
		},
	}
}

const entriesPerBatch = 4

// BenchmarkAppend measures rooms that append batches of four entries, each room
// one batch at a time, and then bare Pebble with the same entries in the same
// number of synced commits. One operation is one entry.
func BenchmarkAppend(b *testing.B) {
	for _, n := range []int{1, 128, 512} {
		b.Run(fmt.Sprintf("rooms=%d", n), func(b *testing.B) {
			batches := max(b.N/entriesPerBatch/n, 1)
			cpu := cpuTime(b)
			m, took := appendFromRooms(b, n, batches)
			cpu = cpuTime(b) - cpu
			bare := appendBare(b, int(m.Entries), int(m.Commits))
			b.ReportMetric(float64(m.Entries)/took.Seconds(), "entries/s")
			b.ReportMetric(float64(m.Commits)/took.Seconds(), "commits/s")
			b.ReportMetric(float64(m.Entries)/float64(m.Commits), "entries/commit")
			b.ReportMetric(float64(m.Entries)/bare.Seconds(), "bare-entries/s")
			b.ReportMetric(bare.Seconds()/took.Seconds(), "of-bare")
			b.ReportMetric(float64(cpu.Microseconds())/float64(m.Entries), "cpu-µs/entry")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func appendFromRooms(b *testing.B, n, batches int) (Metrics, time.Duration) {
	s, err := Open(Config{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	var before Metrics
	var wg, ready sync.WaitGroup
	start := make(chan struct{})
	ready.Add(n)
	for i := range n {
		wg.Go(func() {
			room := event.RoomID(fmt.Sprintf("table-%04d", i))
			r, err := s.Recover(room)
			if err != nil {
				b.Error(err)
			}
			ready.Done()
			<-start
			head := r.Head
			done := make(chan error, 1)
			for range batches {
				batch := &event.Batch{Room: room, Term: r.Term, Expect: head, Incarnation: 7}
				for range entriesPerBatch {
					head++
					batch.Entries = append(batch.Entries, delta(head))
				}
				s.Append(batch, func(err error) { done <- err })
				if err := <-done; err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	ready.Wait()
	before = s.Metrics()
	b.ResetTimer()
	t := time.Now()
	close(start)
	wg.Wait()
	took := time.Since(t)
	b.StopTimer()
	m := s.Metrics()
	m.Commits -= before.Commits
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	return m, took
}

func appendBare(b *testing.B, entries, commits int) time.Duration {
	s := &Store{cfg: Config{Dir: b.TempDir()}.withDefaults()}
	s.log, s.disk = s.cfg.Logger, newDiskWatch(s.cfg)
	if err := s.openFiles(); err != nil {
		b.Fatal(err)
	}
	val := event.AppendEntry(nil, delta(1))
	var key []byte
	t := time.Now()
	for i, done := 1, 0; i <= commits; i++ {
		wb := s.db.NewBatch()
		for ; done < entries*i/commits; done++ {
			key = appendBlockKey(key[:0], 1, event.Seq(done))
			if err := wb.Set(key, val, nil); err != nil {
				b.Fatal(err)
			}
		}
		if err := wb.Commit(pebble.Sync); err != nil {
			b.Fatal(err)
		}
		if err := wb.Close(); err != nil {
			b.Fatal(err)
		}
	}
	took := time.Since(t)
	if err := s.closeFiles(); err != nil {
		b.Fatal(err)
	}
	return took
}

// cpuTime returns what the process has used of the processors.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// fill makes rooms of n entries each, with a snapshot near the end, as a run of
// the product leaves them.
func fill(b *testing.B, s *Store, rooms, n int) {
	b.Helper()
	var wg sync.WaitGroup
	limit := make(chan struct{}, 256)
	for i := range rooms {
		limit <- struct{}{}
		wg.Go(func() {
			defer func() { <-limit }()
			o := own(b, s, event.RoomID(fmt.Sprintf("table-%06d", i)))
			for o.head < event.Seq(n) {
				batch := o.batch(min(256, n-int(o.head)))
				if int(o.head) == n && n > 20 {
					batch.Snapshot, batch.SnapshotAt = make([]byte, 2000), o.head-20
				}
				if err := appendWait(s, batch); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func benchStore(b *testing.B) *Store {
	s, err := Open(Config{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	return s
}

// BenchmarkReads measures the reads of a room of 10,000 entries, warm.
func BenchmarkReads(b *testing.B) {
	s := benchStore(b)
	const n = 10_000
	fill(b, s, 4, n)
	const room = event.RoomID("table-000001")
	for name, f := range map[string]func(i int) error{
		"row": func(i int) error {
			_, err := s.Row(room, event.TranscriptKey("public", event.Seq(i%n+1)))
			return err
		},
		"missing-row": func(i int) error {
			_, err := s.Row(room, event.InputKey("public", event.Person("ann"), event.InputID(fmt.Sprint(i))))
			return err
		},
		"head": func(int) error {
			_, err := s.Head(room)
			return err
		},
		"last-entry": func(int) error {
			_, err := s.Read(room, n-1, n, 1)
			return err
		},
		"100-entries": func(i int) error {
			_, err := s.Read(room, event.Seq(i%(n-100)), n, 100)
			return err
		},
		"transcript-50": func(int) error {
			_, err := s.Transcript(room, "public", 0, 50, 64<<10)
			return err
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if err := f(i); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkRecover measures activations, 128 at a time, of rooms that are not in
// memory: of a hundred entries, and one of a hundred thousand among them.
func BenchmarkRecover(b *testing.B) {
	for _, entries := range []int{100, 100_000} {
		b.Run(fmt.Sprintf("entries=%d", entries), func(b *testing.B) {
			s, err := Open(Config{Dir: b.TempDir(), idleRooms: 1})
			if err != nil {
				b.Fatal(err)
			}
			rooms := 200_000 / entries
			fill(b, s, rooms, entries)
			b.ResetTimer()
			var wg sync.WaitGroup
			limit := make(chan struct{}, 128)
			for i := range b.N {
				limit <- struct{}{}
				wg.Go(func() {
					defer func() { <-limit }()
					if _, err := s.Recover(event.RoomID(fmt.Sprintf("table-%06d", i%rooms))); err != nil {
						b.Error(err)
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			if err := s.Close(); err != nil {
				b.Error(err)
			}
		})
	}
}
