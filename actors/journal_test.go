package actors

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"parley/event"
)

// memJournal is a Journal in memory. Like the real one it encodes what it is
// given, makes a batch readable before it is durable, fences by term and
// position, and lets Recover wait for what is outstanding. Safe for concurrent
// use; mu guards all below it.
type memJournal struct {
	mu      sync.Mutex
	changed *sync.Cond
	rooms   map[event.RoomID]*memRoom
	appends int // batches so far
	// fate decides what becomes of the k-th batch, from 0. Called without mu.
	fate     func(k int, b *event.Batch) fate
	full     error                    // of Writable
	loadErr  func(event.RoomID) error // of Recover
	loadWait func(event.RoomID) <-chan struct{}
	reads    int // calls of Read and Transcript
}

// fate is what becomes of a batch. The zero value makes it durable at once.
type fate struct {
	after time.Duration   // the answer takes that long
	hold  <-chan struct{} // the answer waits for it
	err   error           // the answer
	lost  bool            // with err: it was not written after all
}

type memRoom struct {
	term        event.Term
	head        event.Seq
	durable     event.Seq
	incarnation event.Incarnation
	snapshot    []byte
	snapshotAt  event.Seq
	entries     [][]byte
	rows        map[event.Key][]byte
	alarm       time.Time
	outstanding int
	recovers    int
}

func newMemJournal() *memJournal {
	j := &memJournal{rooms: map[event.RoomID]*memRoom{}}
	j.changed = sync.NewCond(&j.mu)
	return j
}

func (j *memJournal) room(id event.RoomID) *memRoom {
	r := j.rooms[id]
	if r == nil {
		r = &memRoom{rows: map[event.Key][]byte{}}
		j.rooms[id] = r
	}
	return r
}

// crash returns what a restart would find: of each room what is durable.
// Batches still outstanding are lost.
func (j *memJournal) crash() *memJournal {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := newMemJournal()
	for id, r := range j.rooms {
		if r.outstanding > 0 {
			panic("crash with a batch outstanding: let it answer first")
		}
		c := *r
		c.entries, c.rows = slices.Clone(r.entries), maps.Clone(r.rows)
		n.rooms[id] = &c
	}
	return n
}

func (j *memJournal) Recover(id event.RoomID) (event.Recovered, error) {
	j.mu.Lock()
	loadErr, loadWait := j.loadErr, j.loadWait
	j.mu.Unlock()
	if loadWait != nil {
		if c := loadWait(id); c != nil {
			<-c
		}
	}
	if loadErr != nil {
		if err := loadErr(id); err != nil {
			return event.Recovered{}, err
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	r := j.room(id)
	for r.outstanding > 0 {
		j.changed.Wait()
	}
	r.recovers++
	r.term++
	rec := event.Recovered{
		Term: r.term, Head: r.head, Incarnation: r.incarnation, Snapshot: slices.Clone(r.snapshot),
		SnapshotAt: r.snapshotAt, Alarm: r.alarm,
	}
	var err error
	rec.Tail, err = r.read(r.snapshotAt, r.head, int(r.head))
	return rec, err
}

func (r *memRoom) read(after, to event.Seq, max int) ([]*event.Entry, error) {
	var out []*event.Entry
	for at := after + 1; at <= min(to, r.head) && len(out) < max; at++ {
		e, err := event.DecodeEntry(at, r.entries[at-1])
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, nil
}

func (j *memJournal) Append(b *event.Batch, done func(error)) {
	j.mu.Lock()
	k := j.appends
	j.appends++
	decide := j.fate
	j.mu.Unlock()
	var f fate
	if decide != nil {
		f = decide(k, b)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	r := j.room(b.Room)
	if b.Term != r.term || b.Expect != r.head {
		f = fate{err: event.ErrFenced, lost: true, after: f.after, hold: f.hold}
	}
	if !f.lost {
		r.write(b)
	}
	r.outstanding++
	go func() {
		if f.hold != nil {
			<-f.hold
		}
		if f.after > 0 {
			time.Sleep(f.after)
		}
		j.mu.Lock()
		if !f.lost {
			r.durable = max(r.durable, b.Expect+event.Seq(len(b.Entries)))
		}
		r.outstanding--
		j.changed.Broadcast()
		j.mu.Unlock()
		done(f.err)
	}()
}

func (r *memRoom) write(b *event.Batch) {
	for i, e := range b.Entries {
		if e.Seq != b.Expect+event.Seq(i)+1 {
			panic(fmt.Sprintf("entry %d of a batch after %d has position %d", i, b.Expect, e.Seq))
		}
		r.entries = append(r.entries, event.AppendEntry(nil, e))
	}
	r.head = b.Expect + event.Seq(len(b.Entries))
	for _, row := range b.Rows {
		r.rows[row.Key] = event.AppendRow(nil, row.Row)
	}
	if b.Alarm != nil {
		r.alarm = *b.Alarm
	}
	if b.Snapshot != nil {
		r.snapshot, r.snapshotAt = slices.Clone(b.Snapshot), b.SnapshotAt
	}
	if b.Incarnation != 0 {
		r.incarnation = b.Incarnation
	}
}

func (j *memJournal) Row(id event.RoomID, k event.Key) (event.Row, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	raw, ok := j.room(id).rows[k]
	if !ok {
		return nil, nil
	}
	return event.DecodeRow(raw)
}

func (j *memJournal) Read(id event.RoomID, after, to event.Seq, max int) ([]*event.Entry, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.reads++
	return j.room(id).read(after, to, max)
}

func (j *memJournal) Transcript(id event.RoomID, ch event.ChannelID, before event.Seq, maxRows, maxBytes int) ([]event.TranscriptRow, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.reads++
	lo, hi := event.TranscriptRange(ch, before-1)
	var out []event.TranscriptRow
	for k, raw := range j.room(id).rows {
		if k.Table != event.TableTranscript || k.ID < lo.ID || k.ID >= hi.ID {
			continue
		}
		row, err := event.DecodeRow(raw)
		if err != nil {
			return nil, err
		}
		out = append(out, *row.(*event.TranscriptRow))
	}
	slices.SortFunc(out, func(a, b event.TranscriptRow) int { return cmp.Compare(a.Entry, b.Entry) })
	bytes := 0
	for i := len(out) - 1; i >= 0; i-- {
		if bytes += len(out[i].Text); len(out)-i > maxRows || bytes > maxBytes {
			return out[i+1:], nil
		}
	}
	return out, nil
}

func (j *memJournal) Head(id event.RoomID) (event.Seq, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.room(id).head, nil
}

func (j *memJournal) Alarms(yield func(event.RoomID, time.Time) bool) error {
	j.mu.Lock()
	alarms := map[event.RoomID]time.Time{}
	for id, r := range j.rooms {
		if !r.alarm.IsZero() {
			alarms[id] = r.alarm
		}
	}
	j.mu.Unlock()
	for id, at := range alarms {
		if !yield(id, at) {
			return nil
		}
	}
	return nil
}

func (j *memJournal) Writable() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.full
}

// set changes the journal's behaviour while rooms use it.
func (j *memJournal) set(f func(*memJournal)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	f(j)
}

// all returns what is durable of a room.
func (j *memJournal) all(id event.RoomID) []*event.Entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	r := j.room(id)
	es, err := r.read(0, r.durable, int(r.durable))
	if err != nil {
		panic(err)
	}
	return es
}

// kinds returns the durable entries of a room as words.
func (j *memJournal) kinds(id event.RoomID) []string {
	var out []string
	for _, e := range j.all(id) {
		w := e.Body.Kind().String()
		if x, ok := e.Body.(*event.RunEvent); ok {
			w = fmt.Sprintf("%s/%d", x.Event.RunKind(), x.Attempt)
		}
		out = append(out, w)
	}
	return out
}

var errDisk = errors.New("the disk said no")
