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
			key = appendEntryKey(key[:0], 1, event.Seq(done))
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
