package persistence

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"go.uber.org/goleak"

	"parley/event"
)

func TestMain(m *testing.M) {
	if child() {
		return
	}
	goleak.VerifyTestMain(m)
}

var seedFlag = flag.Uint64("seed", 0, "seed of the random tests; 0: a new one each time")

// random returns a source of randomness and prints its seed when the test fails.
func random(t *testing.T) *rand.Rand {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("run with -seed=%d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 0))
}

// open opens a store on fs that the test closes at its end.
func open(t testing.TB, fs vfs.FS) *Store {
	t.Helper()
	s, err := Open(Config{Dir: "data", FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil && !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
	return s
}

func closeStore(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// entryAt makes an entry that tells its room and position.
func entryAt(room event.RoomID, at event.Seq) *event.Entry {
	return &event.Entry{
		Seq: at, At: time.UnixMilli(1_800_000_000_000).UTC().Add(time.Duration(at) * time.Millisecond),
		Channel: "public", Disclosure: event.ToRoom(),
		Body: &event.FocusSet{Subject: event.ParticipantID(room), Agent: event.AgentID(fmt.Sprintf("guide-%d", at))},
	}
}

// rowFor makes the transcript row that belongs to an entry.
func rowFor(room event.RoomID, at event.Seq, text string) event.KeyedRow {
	return event.KeyedRow{
		Key: event.TranscriptKey("public", at),
		Row: &event.TranscriptRow{
			Entry: at, At: time.UnixMilli(1_800_000_000_000).UTC(), Speaker: event.Person("ann"),
			Disclosure: event.ToRoom(), Input: event.InputID(room), Modality: event.Text, Text: text,
		},
	}
}

// owner appends to one room as its actor would.
type owner struct {
	s    *Store
	room event.RoomID
	term event.Term
	head event.Seq
}

// own recovers a room and returns its new owner.
func own(t testing.TB, s *Store, room event.RoomID) *owner {
	t.Helper()
	r, err := s.Recover(room)
	if err != nil {
		t.Fatal(err)
	}
	return &owner{s: s, room: room, term: r.Term, head: r.Head}
}

// batch makes the owner's next batch, of n entries each with a transcript row,
// and counts it as written.
func (o *owner) batch(n int) *event.Batch {
	b := &event.Batch{Room: o.room, Term: o.term, Expect: o.head, Incarnation: 7}
	for range n {
		o.head++
		b.Entries = append(b.Entries, entryAt(o.room, o.head))
		b.Rows = append(b.Rows, rowFor(o.room, o.head, "said"))
	}
	return b
}

// write appends n entries and waits.
func (o *owner) write(t testing.TB, n int) {
	t.Helper()
	if err := appendWait(o.s, o.batch(n)); err != nil {
		t.Fatal(err)
	}
}

func appendWait(s *Store, b *event.Batch) error {
	done := make(chan error, 1)
	s.Append(b, func(err error) { done <- err })
	return <-done
}

// wantEntries fails unless got are the entries (after, to] of the room.
func wantEntries(t testing.TB, room event.RoomID, got []*event.Entry, after, to event.Seq) {
	t.Helper()
	if len(got) != int(to-after) {
		t.Fatalf("room %s: %d entries, want %d", room, len(got), to-after)
	}
	for i, en := range got {
		if want := entryAt(room, after+1+event.Seq(i)); !reflect.DeepEqual(en, want) {
			t.Fatalf("room %s: entry %d is %+v, want %+v", room, want.Seq, en, want)
		}
	}
}

func wantHead(t testing.TB, s *Store, room event.RoomID, want event.Seq) {
	t.Helper()
	if head, err := s.Head(room); err != nil || head != want {
		t.Fatalf("room %s: head %d, %v; want %d", room, head, err, want)
	}
}

func roomNames(t testing.TB, s *Store) (names []event.RoomID) {
	t.Helper()
	if err := s.Rooms(func(r event.RoomID) bool { names = append(names, r); return true }); err != nil {
		t.Fatal(err)
	}
	return names
}

func alarms(t testing.TB, s *Store) map[event.RoomID]time.Time {
	t.Helper()
	all := map[event.RoomID]time.Time{}
	if err := s.Alarms(func(r event.RoomID, at time.Time) bool { all[r] = at; return true }); err != nil {
		t.Fatal(err)
	}
	return all
}

// isSync reports whether an operation is an fsync, of whatever kind.
func isSync(op errorfs.Op) bool {
	switch op.Kind {
	case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
		return true
	}
	return false
}

// logSyncs is a switch for the fsyncs of the log: they pass, hang, or fail.
type logSyncs struct {
	mu   sync.Mutex
	gate chan struct{} // closed: they pass
	err  error
	hung int
}

func newLogSyncs(fs vfs.FS) (*logSyncs, vfs.FS) {
	l := &logSyncs{gate: make(chan struct{})}
	close(l.gate)
	return l, errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if !isSync(op) || !strings.HasSuffix(op.Path, ".log") {
			return nil
		}
		l.mu.Lock()
		gate := l.gate
		l.mu.Unlock()
		select {
		case <-gate:
		default:
			l.mu.Lock()
			l.hung++
			l.mu.Unlock()
			<-gate
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.err
	}))
}

func (l *logSyncs) hang() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gate = make(chan struct{})
}

// release lets hung and later fsyncs end with err. A second call does nothing.
func (l *logSyncs) release(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.gate:
	default:
		l.err = err
		close(l.gate)
	}
}

func (l *logSyncs) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hung
}

// fatality stands for the end of the process: it ends the goroutine that met it.
type fatality struct {
	once sync.Once
	met  chan string // of one
}

func newFatality() *fatality { return &fatality{met: make(chan string, 1)} }

func (f *fatality) Fatal(msg string) {
	f.once.Do(func() { f.met <- msg })
	runtime.Goexit()
}
