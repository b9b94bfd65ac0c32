package gateway

import (
	"encoding/binary"
	"sync"
	"time"

	"parley/event"
	"parley/room"
)

// coreRooms is Rooms over the real rules with a journal in memory: one
// goroutine for all rooms, entries durable at once. Drivers are played by the
// test with emit. Close it.
type coreRooms struct {
	work chan func()
	done chan struct{}

	mu    sync.Mutex
	rooms map[event.RoomID]*coreRoom
	hold  map[event.RoomID]bool // commands of the room are never answered
	draws uint64
	asked int  // commands that were decided
	shows bool // View answers
}

type coreRoom struct {
	state     *room.State
	rows      map[event.Key]event.Row
	journal   []*event.Entry
	durable   event.Seq
	followers map[int]func(event.Seq)
	next      int
	n         map[event.RunID]uint64
}

func newCoreRooms() *coreRooms {
	f := &coreRooms{
		work: make(chan func(), 1024), done: make(chan struct{}),
		rooms: map[event.RoomID]*coreRoom{}, hold: map[event.RoomID]bool{},
	}
	go func() {
		defer close(f.done)
		for w := range f.work {
			w()
		}
	}()
	return f
}

func (f *coreRooms) Close() {
	close(f.work)
	<-f.done
}

func (f *coreRooms) room(id event.RoomID) *coreRoom {
	r := f.rooms[id]
	if r == nil {
		r = &coreRoom{
			state: room.New(id), rows: map[event.Key]event.Row{}, followers: map[int]func(event.Seq){},
			n: map[event.RunID]uint64{},
		}
		f.rooms[id] = r
	}
	return r
}

func (f *coreRooms) Do(id event.RoomID, cmd event.Command, done func(event.Reply, error)) {
	f.work <- func() {
		f.mu.Lock()
		if f.hold[id] {
			f.mu.Unlock()
			return
		}
		f.asked++
		f.mu.Unlock()
		reply, err := f.decide(id, cmd)
		done(reply, err)
		f.publish(id)
	}
}

func (f *coreRooms) decide(id event.RoomID, msg any) (event.Reply, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.room(id)
	f.draws++
	in := room.Input{Now: time.Now(), Msg: msg}
	binary.BigEndian.PutUint64(in.Rand[:], f.draws*0x9e3779b97f4a7c15)
	binary.BigEndian.PutUint64(in.Rand[8:], f.draws)
	facts := room.Facts{Rows: map[event.Key]event.Row{}}
	for _, k := range r.state.Needs(in) {
		if row, ok := r.rows[k]; ok {
			facts.Rows[k] = row
		}
	}
	d, err := r.state.Decide(in, facts)
	if err != nil {
		return nil, err
	}
	for _, e := range d.Entries {
		for _, kr := range r.state.Apply(e) {
			r.rows[kr.Key] = kr.Row
		}
		r.journal = append(r.journal, e)
	}
	return d.Reply, nil
}

// publish makes what was written durable and tells the followers.
func (f *coreRooms) publish(id event.RoomID) {
	f.mu.Lock()
	r := f.room(id)
	moved := r.durable != r.state.Head()
	r.durable = r.state.Head()
	head := r.durable
	list := make([]func(event.Seq), 0, len(r.followers))
	for _, m := range r.followers {
		list = append(list, m)
	}
	f.mu.Unlock()
	if moved {
		for _, m := range list {
			m(head)
		}
	}
}

// View is at hand as soon as the room exists, when shows is set.
func (f *coreRooms) View(id event.RoomID) *event.View {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r := f.rooms[id]; f.shows && r != nil && r.state.Exists() && r.durable == r.state.Head() {
		return r.state.View()
	}
	return nil
}

func (f *coreRooms) Follow(id event.RoomID, moved func(event.Seq)) (stop func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.room(id)
	r.next++
	n := r.next
	r.followers[n] = moved
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(r.followers, n)
	}
}

func (f *coreRooms) Read(id event.RoomID, after event.Seq, most int) ([]*event.Entry, event.Seq, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.room(id)
	if after >= r.durable {
		return nil, r.durable, nil
	}
	return r.journal[after:min(r.durable, after+event.Seq(most))], r.durable, nil
}

// emit plays the driver of a run's present attempt.
func (f *coreRooms) emit(id event.RoomID, run event.RunID, bodies ...event.RunBody) {
	wait := make(chan struct{})
	f.work <- func() {
		defer close(wait)
		for _, b := range bodies {
			f.mu.Lock()
			r := f.room(id)
			r.n[run]++
			n := r.n[run]
			attempt := uint32(1)
			for _, v := range r.state.View().Runs {
				if v.Run == run {
					attempt = v.Attempt
				}
			}
			f.mu.Unlock()
			if _, err := f.decide(id, room.Emit{Run: run, Attempt: attempt, N: n, Event: b}); err != nil {
				panic(err)
			}
		}
		f.publish(id)
	}
	<-wait
}

// entries returns the journal of a room.
func (f *coreRooms) entries(id event.RoomID) []*event.Entry {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.room(id).journal
}

// tape is Rooms over a fixed journal that a test extends by hand; it has no rules.
type tape struct {
	mu      sync.Mutex
	journal []*event.Entry
	view    *event.View
	moved   map[int]func(event.Seq)
	reads   int
	submits int
	fail    error // of Read
}

func (f *tape) Do(_ event.RoomID, cmd event.Command, done func(event.Reply, error)) {
	f.mu.Lock()
	head := event.Seq(len(f.journal))
	view := &event.View{Room: "r", Incarnation: 7, Head: head}
	if f.view != nil {
		v := *f.view
		v.Head, v.Incarnation = head, 7
		view = &v
	}
	if _, ok := cmd.(event.Submit); ok {
		f.submits++
	}
	n := f.submits
	f.mu.Unlock()
	switch c := cmd.(type) {
	case event.Open:
		done(event.Done{Head: head, Incarnation: 7}, nil)
	case event.ReadView:
		done(view, nil)
	case event.Submit:
		done(event.Receipt{Input: c.Input.ID, Entry: event.Seq(n), Incarnation: 7, Run: "r_1", At: at(n), State: event.Started}, nil)
	case event.SetFocus:
		done(event.Done{Head: head, Incarnation: 7}, nil)
	default:
		done(nil, event.Refuse(event.Unavailable, "not on the tape"))
	}
}

func (f *tape) View(event.RoomID) *event.View { return nil }

func (f *tape) Follow(_ event.RoomID, moved func(event.Seq)) (stop func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.moved == nil {
		f.moved = map[int]func(event.Seq){}
	}
	n := len(f.moved) + 1
	f.moved[n] = moved
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.moved, n)
	}
}

func (f *tape) Read(_ event.RoomID, after event.Seq, most int) ([]*event.Entry, event.Seq, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	head := event.Seq(len(f.journal))
	if f.fail != nil {
		return nil, head, f.fail
	}
	if after >= head {
		return nil, head, nil
	}
	return f.journal[after:min(head, after+event.Seq(most))], head, nil
}

// add appends entries and tells the followers.
func (f *tape) add(entries ...*event.Entry) {
	f.mu.Lock()
	for _, e := range entries {
		if e.Seq == 0 {
			e.Seq = event.Seq(len(f.journal) + 1)
		}
		if e.At.IsZero() {
			e.At = at(int(e.Seq))
		}
		f.journal = append(f.journal, e)
	}
	head := event.Seq(len(f.journal))
	var list []func(event.Seq)
	for _, m := range f.moved {
		list = append(list, m)
	}
	f.mu.Unlock()
	for _, m := range list {
		m(head)
	}
}

func at(n int) time.Time {
	return time.Now().UTC().Truncate(time.Second).Add(time.Duration(n) * time.Millisecond)
}

// delta is an output entry on a channel.
func delta(ch event.ChannelID, to event.Disclosure, text string) *event.Entry {
	return &event.Entry{Channel: ch, Disclosure: to, Body: &event.RunEvent{
		Run: "r_1", Agent: "guide", Input: "i1", Attempt: 1, Sequence: 1, N: 1, Logical: "logical",
		Event: event.AssistantOutput{Output: "o_1", Delta: text, Purpose: event.Answer, History: event.Record},
	}}
}
