package client

import (
	"slices"
	"time"

	"parley/gateway/wire"
)

// stream keeps what was received and not handled, and what may be said of it:
// the cursor, the acknowledgement. Owned by one Machine.
//
// Invariant: pending is in the order of the journal. What an earlier connection
// brought stays in it, for it is as durable as ever; the resume repeats it, and
// then it gets its number on the new connection.
type stream struct {
	cursor string
	known  *recent // ids of items that were delivered or are pending
	ended  *recent // runs whose terminal was

	pending []*pending
	byID    map[string]*pending

	parts    []*stateFrame // of a state that is not complete
	awaits   bool          // a state
	why      wire.Reset
	start    string // cursor of the position that the state describes
	window   uint64
	received uint64 // number of the last item on this connection
	acked    uint64
	ackedAt  time.Time
	marks    []mark // Invariant: n rises
}

// pending is a delivery that was not handled yet.
type pending struct {
	Delivery
	n      uint64 // number on the present connection; 0: not repeated on it, or a reset
	cursor string // of a reset: holds once it was handled
	taken  bool   // in the handler's hands
}

// mark is a cursor that holds once all up to number n was handled.
type mark struct {
	n      uint64
	cursor string
}

func newStream(cursor string) stream {
	return stream{cursor: cursor, known: newRecent(remembered), ended: newRecent(remembered), byID: map[string]*pending{}}
}

// begin starts the numbers of a new connection.
func (s *stream) begin(now time.Time, f *readyFrame) {
	s.received, s.acked, s.ackedAt = 0, 0, now
	s.window = uint64(f.Window)
	s.awaits, s.why, s.start = !*f.Resumed, f.Reason, f.Cursor
}

// disconnected forgets the numbers. What is pending stays, except from a reset
// on that was not handed out: the cursor is the one before it, and the next
// connection decides anew whether there is one.
func (s *stream) disconnected() {
	s.received, s.acked = 0, 0
	s.marks, s.parts, s.awaits = nil, nil, false
	for _, p := range s.pending {
		p.n = 0
	}
	reset := func(p *pending) bool { return p.Item == nil && !p.taken }
	if at := slices.IndexFunc(s.pending, reset); at >= 0 {
		s.takeBack(at)
	}
}

// takeBack forgets what is pending from there on, except what is in the
// handler's hands, so that the next resume brings it again.
func (s *stream) takeBack(keep int) {
	if keep == 0 && len(s.pending) > 0 && s.pending[0].taken {
		keep = 1
	}
	for _, p := range s.pending[keep:] {
		s.forget(p)
	}
	clear(s.pending[keep:])
	s.pending = s.pending[:keep]
}

func (s *stream) forget(p *pending) {
	if p.Item == nil {
		return
	}
	delete(s.byID, p.Item.ID)
	s.known.forget(p.Item.ID)
	if p.Item.terminal {
		s.ended.forget(string(p.Item.Run))
	}
}

func (s *stream) resetInHand() bool {
	return len(s.pending) > 0 && s.pending[0].taken && s.pending[0].Item == nil
}

// reset begins anew: what is pending is in the state, or before it.
func (s *stream) reset() {
	whole := &State{}
	for _, p := range s.parts {
		whole.join(p)
	}
	s.parts, s.awaits = nil, false
	s.takeBack(0)
	s.known.clear()
	s.ended.clear()
	s.pending = append(s.pending, &pending{Delivery: Delivery{State: whole, Why: s.why}, cursor: s.start})
}

// add takes an item of the present connection. The error says that it is void.
func (s *stream) add(i *Item) error {
	s.received++
	if s.known.has(i.ID) {
		if p := s.byID[i.ID]; p != nil {
			p.n = s.received
		}
		return nil
	}
	s.known.add(i.ID)
	if i.Kind == wire.KindRunEvent && s.ended.has(string(i.Run)) {
		return &AfterTerminalError{Run: string(i.Run)}
	}
	if i.terminal {
		s.ended.add(string(i.Run))
	}
	p := &pending{Delivery: Delivery{Item: i}, n: s.received}
	s.pending = append(s.pending, p)
	s.byID[i.ID] = p
	return nil
}

// handled returns the number up to which all of the present connection was
// handled, or false before a reset was.
func (s *stream) handled() (uint64, bool) {
	for _, p := range s.pending {
		switch {
		case p.Item == nil:
			return 0, false
		case p.n > 0:
			return p.n - 1, true
		}
	}
	return s.received, true
}

// pop takes the head away, which was handled.
func (s *stream) pop() {
	p := s.pending[0]
	s.pending[0] = nil
	s.pending = s.pending[1:]
	if p.Item != nil {
		delete(s.byID, p.Item.ID)
	} else {
		s.cursor = p.cursor
	}
}

// settle moves the cursor to where everything was handled. It reports whether it moved.
func (s *stream) settle() bool {
	n, ok := s.handled()
	if !ok {
		return false
	}
	was := s.cursor
	for len(s.marks) > 0 && s.marks[0].n <= n {
		s.cursor = s.marks[0].cursor
		s.marks = s.marks[1:]
	}
	return s.cursor != was
}

func (s *stream) owed() uint64 {
	n, _ := s.handled()
	return n - min(n, s.acked)
}

// ackAt returns when an acknowledgement is due; zero: none is owed.
func (s *stream) ackAt() time.Time {
	switch owed := s.owed(); {
	case owed == 0:
		return time.Time{}
	case owed >= ackItems:
		return s.ackedAt
	}
	return s.ackedAt.Add(ackInterval)
}

// Delivery returns what the handler gets next, or false when there is nothing
// or the last one was not yet reported as handled. One is in hand at a time.
func (m *Machine) Delivery() (Delivery, bool) {
	if m.phase == Idle || m.phase == Stopped || len(m.stream.pending) == 0 || m.stream.pending[0].taken {
		return Delivery{}, false
	}
	m.stream.pending[0].taken = true
	return m.stream.pending[0].Delivery, true
}

// Handled says that the handler returned from the delivery in hand.
func (m *Machine) Handled(now time.Time) {
	s := &m.stream
	if len(s.pending) == 0 || !s.pending[0].taken {
		return
	}
	was := s.cursor
	s.pop()
	m.backoff.progress()
	if moved := s.settle(); moved || s.cursor != was {
		m.emit(SaveCursor{s.cursor})
	}
	if m.owesHello {
		m.owesHello = false
		m.send(m.hello())
	}
	m.maybeAck(now)
}

// HandlerFailed says that the handler returned an error for the delivery in
// hand. The machine stops with a *HandlerError; after a Start it begins with
// the same delivery again.
func (m *Machine) HandlerFailed(err error) {
	s := &m.stream
	if len(s.pending) == 0 || !s.pending[0].taken {
		return
	}
	failed := &HandlerError{Err: err}
	if i := s.pending[0].Item; i != nil {
		failed.Item = i.ID
	}
	s.pending[0].taken = false
	m.halt(wire.CloseNormal, failed)
}

func (m *Machine) maybeAck(now time.Time) {
	at := m.stream.ackAt()
	if at.IsZero() || now.Before(at) || !m.ready() {
		return
	}
	m.stream.acked, _ = m.stream.handled()
	m.stream.ackedAt = now
	m.send(ackJSON{Type: wire.TypeAck, N: m.stream.acked})
}

type ackJSON struct {
	Type string `json:"type"`
	N    uint64 `json:"n"`
}

// mark notes a cursor for all that was received so far.
func (m *Machine) mark(cursor string) {
	m.stream.marks = append(m.stream.marks, mark{m.stream.received, cursor})
	if m.stream.settle() {
		m.emit(SaveCursor{m.stream.cursor})
	}
}

func (m *Machine) onReady(now time.Time, f *readyFrame) {
	m.sub, m.can = f.Sub, f.Can
	m.pingTime = time.Duration(f.PingMs) * time.Millisecond
	m.refreshAt = now.Add(refreshAfter(f.ExpiresIn))
	m.stream.begin(now, f)
	m.enter(Replaying)
	m.flush(now)
}

func (m *Machine) onState(now time.Time, f *stateFrame) {
	s := &m.stream
	if !s.awaits || f.Part != len(s.parts)+1 {
		m.fail(now, &FrameError{Member: "part", Expected: "expected the next part of a state that is awaited"})
		return
	}
	if s.parts = append(s.parts, f); f.Part == f.Parts {
		s.reset()
	}
}

func (m *Machine) onEvents(now time.Time, f *eventsFrame) {
	s := &m.stream
	switch {
	case s.awaits:
		m.fail(now, &FrameError{Member: "type", Expected: "expected a state before items"})
		return
	case f.n != s.received+1:
		m.fail(now, &GapError{Want: s.received + 1, Got: f.n})
		return
	case s.received-s.acked > s.window+2*wire.MaxBatch:
		// Without this a server that ignores its window would fill the memory of a slow product.
		m.fail(now, &FrameError{Member: "n", Expected: "went beyond the window"})
		return
	}
	// All payloads are checked before the first is delivered, so that a bad frame has no half effect.
	if m.o.Check != nil {
		for i := range f.items {
			checked, err := m.o.Check(f.items[i])
			if err != nil {
				m.halt(wire.CloseNormal, &PayloadError{Item: f.items[i].ID, Err: err})
				return
			}
			f.items[i].Body = checked.Body
		}
	}
	for i := range f.items {
		if err := s.add(&f.items[i]); err != nil {
			m.emit(Faulted{err})
		}
	}
	m.mark(f.cursor)
	m.maybeAck(now) // of what was known already
}

// take decides by the type of a frame.
func (m *Machine) take(now time.Time, f any) {
	if !m.ready() {
		switch f := f.(type) {
		case *readyFrame:
			m.onReady(now, f)
		case *errorFrame:
			m.emit(Faulted{&RefusedError{Ref: f.Ref, Code: f.Code, Message: f.Message}}) // the close says what to do
		case *goawayFrame:
		default:
			m.fail(now, &FrameError{Member: "type", Expected: "expected ready first"})
		}
		return
	}
	switch f := f.(type) {
	case *readyFrame:
		m.fail(now, &FrameError{Member: "type", Expected: "a second ready"})
	case *stateFrame:
		m.onState(now, f)
	case *eventsFrame:
		m.onEvents(now, f)
	case *caughtUpFrame:
		if m.stream.awaits {
			m.fail(now, &FrameError{Member: "type", Expected: "expected a state before caught_up"})
			return
		}
		m.mark(f.Cursor)
		if m.phase == Replaying {
			m.enter(Live)
		}
	case *Accepted:
		m.backoff.progress()
		if m.outbox.remove(string(f.ID)) {
			m.emit(InputAccepted{*f})
			m.emit(SaveOutbox{m.outbox.inputs()})
		}
	case *doneFrame:
		m.onDone(now, f)
	case *subscribedFrame:
		m.onSubscribed(f)
	case *errorFrame:
		m.onError(now, f)
	case *pingFrame:
		m.backoff.progress()
		m.send(pongJSON{Type: wire.TypePong, T: f.T})
		if f.Cursor != "" && !m.stream.awaits {
			m.mark(f.Cursor)
		}
		m.maybeAck(now)
	case *goawayFrame: // the close that follows says what to do
	case *Other:
		m.emit(Received{*f})
	}
}

// refreshAfter is four fifths of a token's life, and at most a minute before its end.
func refreshAfter(seconds int64) time.Duration {
	life := time.Duration(seconds) * time.Second
	return life - min(time.Minute, life/5)
}
