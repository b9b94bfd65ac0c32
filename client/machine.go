package client

import (
	"errors"
	"fmt"
	"time"

	"parley/event"
	"parley/gateway/wire"
)

// Options are what a product sets of a machine.
type Options struct {
	// Channels to read; nil for all, which takes host scope.
	Channels []event.ChannelID
	// From is where a stream without a valid cursor begins; wire.FromTail when it is empty.
	From wire.From
	// Session is 128 random bits that stay the same over reconnects: a new
	// connection of the session takes the place of the old one.
	Session string
	// Render lists what the client renders.
	Render []string
	// Kinds narrows the kinds of item; nil for all.
	Kinds []string
	// Client is name and version, for the server's metrics.
	Client string
	// MaxFrame bounds the frames of the server, in bytes; 0: wire.DefaultMaxFrame.
	MaxFrame int
	// TokenInHello puts the token into hello, for a transport that cannot carry a header.
	TokenInHello bool
	// Cursor is up to where everything was handled in an earlier life.
	Cursor string
	// Outbox is what an earlier life left unaccepted, oldest first.
	Outbox []Input
	// Budget is the number of tries without progress before the machine stops; 0: DefaultBudget.
	Budget int
	// Random draws numbers from [0, 1) for the jitter. Required.
	Random func() float64
	// Check checks the product payload of an item and returns the item with the
	// body that the product is to see (K2). It must not block. An error stops the
	// machine with a *PayloadError and the cursor stays. Nil: every payload passes.
	Check func(Item) (Item, error)
}

// Machine is the connection's state machine (K1). It waits for nothing: its
// owner tells it what happened and when, and carries out the effects that Next
// returns, in order. All its time is the now of the calls. Owned by one
// goroutine.
type Machine struct {
	o       Options
	backoff backoff
	outbox  outbox
	effects []Effect

	phase   Phase
	why     error
	retryAt time.Time
	sub     event.ParticipantID
	can     Rights

	conn      int // number of the present connection; those of earlier ones are void
	token     string
	owesHello bool // open, but a reset is in hand whose cursor the hello needs
	pingTime  time.Duration
	heardAt   time.Time
	requests  map[string]bool
	authRef   string
	refreshAt time.Time // zero: a refresh is under way, or no connection is up

	stream stream
}

// NewMachine makes a machine that is idle.
func NewMachine(o Options) *Machine {
	if o.Budget == 0 {
		o.Budget = DefaultBudget
	}
	if o.From == "" {
		o.From = wire.FromTail
	}
	if o.MaxFrame == 0 {
		o.MaxFrame = wire.DefaultMaxFrame
	}
	return &Machine{
		o: o, backoff: backoff{budget: o.Budget, random: o.Random}, outbox: newOutbox(o.Outbox),
		requests: map[string]bool{}, stream: newStream(o.Cursor),
	}
}

// Cursor returns up to where everything was handled; empty before the first.
func (m *Machine) Cursor() string { return m.stream.cursor }

// Outbox returns the inputs that are not yet durable, oldest first.
func (m *Machine) Outbox() []Input { return m.outbox.inputs() }

// Status returns the present status.
func (m *Machine) Status() Status {
	return Status{Phase: m.phase, Err: m.why, RetryAt: m.retryAt, Sub: m.sub, Can: m.can}
}

// Next returns the next effect to carry out, or false when there is none now.
func (m *Machine) Next() (Effect, bool) {
	if len(m.effects) == 0 {
		return nil, false
	}
	e := m.effects[0]
	if m.effects = m.effects[1:]; len(m.effects) == 0 {
		m.effects = nil
	}
	return e, true
}

// Wake returns when Tick has something to do; zero: not by time.
func (m *Machine) Wake() time.Time {
	if m.phase == Waiting {
		return m.retryAt
	}
	if !m.connected() {
		return time.Time{}
	}
	t := m.heardAt.Add(m.silence())
	if !m.ready() {
		return t
	}
	for _, u := range []time.Time{m.stream.ackAt(), m.outbox.wake(), m.refreshAt} {
		if !u.IsZero() && u.Before(t) {
			t = u
		}
	}
	return t
}

// Start begins to connect, also again after the machine stopped.
func (m *Machine) Start() {
	if m.phase != Idle && m.phase != Stopped {
		return
	}
	m.backoff.progress()
	m.authorize()
}

// Stop closes the connection and stays away until Start.
func (m *Machine) Stop() { m.halt(wire.CloseNormal, nil) }

// Token brings the token that FetchToken asked for.
func (m *Machine) Token(now time.Time, token string) {
	switch {
	case m.phase == Authorizing:
		m.token = token
		m.conn++
		m.heardAt = now
		m.enter(Connecting)
		m.emit(Open{Conn: m.conn, Token: token})
	case m.ready():
		m.authRef = fmt.Sprintf("auth-%d", m.conn)
		m.send(authJSON{Type: wire.TypeAuth, Ref: m.authRef, Token: token})
	}
}

// TokenFailed says that the token source failed. An error that wraps
// ErrTokenRefused stops a machine that has no other token.
func (m *Machine) TokenFailed(now time.Time, err error) {
	switch {
	case m.phase == Authorizing && errors.Is(err, ErrTokenRefused):
		m.rest(err)
	case m.phase == Authorizing:
		m.wait(now, err, 0)
	case m.ready():
		// The token in use still holds; when it does not, the server closes with token_expired.
		m.refreshAt = now.Add(refreshRetry)
	}
}

// Opened says that the transport is up.
func (m *Machine) Opened(now time.Time, conn int) {
	if conn != m.conn || m.phase != Connecting {
		return
	}
	m.heardAt = now
	m.enter(Greeting)
	// The cursor of a reset holds once it was handled. To resume from the one
	// before would bring items that the reset has in it.
	if m.owesHello = m.stream.resetInHand(); !m.owesHello {
		m.send(m.hello())
	}
}

// Frame takes a text frame, whose memory the machine keeps.
func (m *Machine) Frame(now time.Time, conn int, raw []byte) {
	if conn != m.conn || m.phase != Greeting && !m.ready() {
		return
	}
	m.heardAt = now
	f, err := decodeFrame(raw)
	if err != nil {
		m.fail(now, err)
		return
	}
	m.take(now, f)
}

// Closed says that the connection ended, or could not be opened. after is the
// least wait that the server asked for; 0 for none.
func (m *Machine) Closed(now time.Time, conn int, code wire.Close, reason string, after time.Duration) {
	if conn == m.conn && m.connected() {
		m.closed(now, &ClosedError{Code: code, Reason: reason}, after)
	}
}

// Tick does what is due at now. Calling it earlier or more often is harmless.
func (m *Machine) Tick(now time.Time) {
	switch {
	case m.phase == Waiting && !now.Before(m.retryAt):
		m.authorize()
	case !m.connected():
	case now.Sub(m.heardAt) >= m.silence():
		m.emit(Close{Conn: m.conn, Code: wire.CloseNormal})
		m.closed(now, &ClosedError{Code: closeGone, Reason: "no sign of life"}, 0)
	case m.ready():
		m.maybeAck(now)
		m.flush(now)
		if !m.refreshAt.IsZero() && !now.Before(m.refreshAt) {
			m.refreshAt = time.Time{}
			m.emit(FetchToken{})
		}
	}
}

// Submit puts an input into the outbox, from where it is sent until it was
// accepted or refused. The error, ErrPending or one that names the member, says
// that it was not taken.
func (m *Machine) Submit(now time.Time, in Input) error {
	if err := in.check(); err != nil {
		return err
	}
	if m.outbox.find(string(in.ID)) >= 0 {
		return ErrPending
	}
	if old, full := m.outbox.add(in); full {
		m.emit(InputRefused{ID: old.ID, Err: ErrOutboxFull})
	}
	m.emit(SaveOutbox{m.outbox.inputs()})
	m.flush(now)
	return nil
}

// Request sends a frame that is answered by its ref: cancel, focus, subscribe
// and the like. It is sent once, and only while a connection is up.
func (m *Machine) Request(ref string, frame []byte) {
	if !m.ready() {
		m.emit(RequestFailed{Ref: ref, Err: ErrDisconnected})
		return
	}
	m.requests[ref] = true
	m.emit(Send{Conn: m.conn, Frame: frame})
}

// closeGone is the code of a connection that went away without one (RFC 6455).
const closeGone wire.Close = 1006

type authJSON struct {
	Type  string `json:"type"`
	Ref   string `json:"ref"`
	Token string `json:"token"`
}

type helloJSON struct {
	Type     string            `json:"type"`
	Token    string            `json:"token,omitempty"`
	Session  string            `json:"session,omitempty"`
	Cursor   *string           `json:"cursor"`
	From     wire.From         `json:"from"`
	Channels []event.ChannelID `json:"channels,omitzero"`
	Kinds    []string          `json:"kinds,omitempty"`
	Render   []string          `json:"render,omitempty"`
	Client   string            `json:"client,omitempty"`
	MaxFrame int               `json:"maxFrame"`
}

func (m *Machine) hello() helloJSON {
	h := helloJSON{
		Type: wire.TypeHello, Session: m.o.Session, From: m.o.From, Channels: m.o.Channels, Kinds: m.o.Kinds,
		Render: m.o.Render, Client: m.o.Client, MaxFrame: m.o.MaxFrame,
	}
	if m.o.TokenInHello {
		h.Token = m.token
	}
	if m.stream.cursor != "" {
		h.Cursor = &m.stream.cursor
	}
	return h
}

func (m *Machine) connected() bool {
	return m.phase == Connecting || m.phase == Greeting || m.ready()
}

func (m *Machine) ready() bool { return m.phase == Replaying || m.phase == Live }

func (m *Machine) silence() time.Duration {
	if m.ready() {
		return m.pingTime + silenceGrace
	}
	return greetingTime
}

func (m *Machine) emit(e Effect) { m.effects = append(m.effects, e) }

func (m *Machine) send(frame any) { m.emit(Send{Conn: m.conn, Frame: encode(frame)}) }

func (m *Machine) enter(p Phase) {
	m.phase = p
	m.emit(StatusChanged{m.Status()})
}

func (m *Machine) authorize() {
	m.why, m.retryAt = nil, time.Time{}
	m.enter(Authorizing)
	m.emit(FetchToken{})
}

// fail leaves a connection on which the server broke the protocol, and resumes within the budget.
func (m *Machine) fail(now time.Time, err error) {
	m.emit(Faulted{err})
	m.emit(Close{Conn: m.conn, Code: wire.CloseGap})
	m.closed(now, &ClosedError{Code: wire.CloseGap, Reason: wire.CloseGap.Word()}, 0)
}

func (m *Machine) closed(now time.Time, why *ClosedError, after time.Duration) {
	m.lost()
	switch closeAction(why.Code) {
	case stop:
		m.rest(why)
	case fresh:
		// A token that is refused as expired again and again must not become a busy loop.
		if first := m.backoff.tries == 0; first {
			m.backoff.tries++
			m.authorize()
			return
		}
		m.wait(now, why, after)
	case retry:
		m.wait(now, why, after)
	}
}

func (m *Machine) wait(now time.Time, why error, after time.Duration) {
	d, ok := m.backoff.next()
	if !ok {
		m.rest(fmt.Errorf("%w: %w", ErrBudget, why))
		return
	}
	m.why = why
	m.retryAt = now.Add(max(d, after))
	m.enter(Waiting)
}

// halt ends the connection for good and takes back what was not handled.
func (m *Machine) halt(code wire.Close, why error) {
	if m.connected() {
		m.emit(Close{Conn: m.conn, Code: code})
	}
	m.lost()
	m.stream.takeBack(0)
	if m.phase != Idle && m.phase != Stopped {
		m.rest(why)
	}
}

func (m *Machine) rest(why error) {
	m.why, m.retryAt = why, time.Time{}
	m.enter(Stopped)
}

// lost forgets everything that belongs to one connection.
func (m *Machine) lost() {
	m.outbox.disconnected()
	m.stream.disconnected()
	m.refreshAt, m.owesHello = time.Time{}, false
	for ref := range m.requests {
		delete(m.requests, ref)
		m.emit(RequestFailed{Ref: ref, Err: ErrDisconnected})
	}
}

func (m *Machine) flush(now time.Time) {
	if !m.ready() {
		return
	}
	for _, in := range m.outbox.take(now) {
		m.emit(Send{Conn: m.conn, Frame: in.frame()})
	}
}
