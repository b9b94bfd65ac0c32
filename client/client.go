package client

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"parley/event"
	"parley/gateway/wire"
)

// Client keeps a connection to one room up while Run lasts. Safe for concurrent use.
type Client struct {
	config  Config
	address string
	dialer  websocket.Dialer
	running atomic.Bool
	status  atomic.Pointer[Status]
	// calls brings what other goroutines want to the goroutine of Run. Without
	// capacity: when nobody runs, the caller waits.
	calls chan func()
	refs  atomic.Uint64

	// Owned by the goroutine of Run, from one Run to the next.
	machine  *Machine
	inputs   map[event.InputID]chan receipt // capacity 1: one answer
	requests map[string]chan reply          // capacity 1: one answer
}

type receipt struct {
	Accepted
	err error
}

type reply struct {
	frame json.RawMessage
	err   error
}

// New makes a client that is not connected.
func New(c Config) (*Client, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	address, err := c.address()
	if err != nil {
		return nil, err
	}
	if c.Session == "" {
		c.Session = random128()
	}
	dialer := *websocket.DefaultDialer
	if c.Dialer != nil {
		dialer = *c.Dialer
	}
	dialer.Subprotocols = []string{wire.Subprotocol}
	dialer.EnableCompression = false
	if dialer.HandshakeTimeout == 0 {
		dialer.HandshakeTimeout = greetingTime
	}
	cl := &Client{
		config: c, address: address, dialer: dialer, calls: make(chan func()),
		inputs: map[event.InputID]chan receipt{}, requests: map[string]chan reply{},
	}
	cl.status.Store(&Status{})
	return cl, nil
}

// Status returns the present status.
func (c *Client) Status() Status { return *c.status.Load() }

// Run connects, delivers items to h until ctx ends, and returns after all that
// it started has ended. It returns the cause of ctx; or why it stopped: a
// *ClosedError whose code says that trying again is useless, ErrBudget,
// ErrTokenRefused, a *PayloadError, a *HandlerError, or an error of the
// storage. It may be called again: cursor and outbox are kept.
func (c *Client) Run(ctx context.Context, h Handler) error {
	if !c.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	defer c.running.Store(false)
	if c.machine == nil {
		if err := c.load(ctx); err != nil {
			return err
		}
	}
	inner, cancel := context.WithCancel(ctx)
	r := &run{
		Client: c, ctx: inner, cancel: cancel, handler: h, happened: make(chan func()),
		deliveries: make(chan Delivery), ended: make(chan struct{}),
	}
	r.work.Go(r.deliver)
	err := r.loop(ctx)
	close(r.ended)
	close(r.deliveries)
	r.closeSocket(wire.CloseNormal)
	r.work.Wait()
	for id := range c.inputs {
		c.answerInput(id, receipt{err: ErrStopped})
	}
	for ref := range c.requests {
		c.answerRequest(ref, reply{err: ErrStopped})
	}
	return err
}

func (c *Client) load(ctx context.Context) error {
	o := Options{
		Channels: c.config.Channels, From: c.config.From, Session: c.config.Session, Render: c.config.Render,
		Kinds: c.config.Kinds, Client: c.config.Client, MaxFrame: c.config.MaxFrame, Budget: c.config.Budget,
		Random: jitter, Check: c.config.Check,
	}
	if c.config.Storage != nil {
		var err error
		if o.Cursor, o.Outbox, err = c.config.Storage.Load(ctx); err != nil {
			return fmt.Errorf("client: load: %w", err)
		}
	}
	c.machine = NewMachine(o)
	return nil
}

// Submit hands an input over and waits until it is durable. Its error says what
// became of it: a *RefusedError; ErrOutboxFull; ErrPending or one that names a
// member, when it was not taken. When ctx ends first, or with ErrStopped, the
// input stays in the outbox and is sent until it was answered. A call while
// nothing runs waits for Run. Submitting the same input again is safe (A5).
func (c *Client) Submit(ctx context.Context, in Input) (Accepted, error) {
	if in.ID == "" {
		in.ID = event.InputID(random128())
	}
	answer := make(chan receipt, 1)
	take := func() {
		if err := c.machine.Submit(time.Now(), in); err != nil {
			answer <- receipt{err: err}
			return
		}
		c.inputs[in.ID] = answer
	}
	select {
	case c.calls <- take:
	case <-ctx.Done():
		return Accepted{}, context.Cause(ctx)
	}
	select {
	case a := <-answer:
		return a.Accepted, a.err
	case <-ctx.Done():
		return Accepted{}, context.Cause(ctx)
	}
}

// CancelResult says what became of a cancel (C1).
type CancelResult struct {
	Canceled bool   `json:"canceled"` // whether this call ended the run
	Status   string `json:"status"`   // of the run; empty when there is none that the subject may see
}

// Cancel ends a run.
func (c *Client) Cancel(ctx context.Context, id event.RunID) (CancelResult, error) {
	var result CancelResult
	raw, err := c.Request(ctx, wire.TypeCancel, map[string]any{"run": id})
	if err == nil {
		err = unmarshal(raw, &result)
	}
	return result, err
}

// Focus chooses the agent that the subject speaks to by default; empty removes the choice.
func (c *Client) Focus(ctx context.Context, agent event.AgentID) error {
	_, err := c.Request(ctx, wire.TypeFocus, map[string]any{"agent": agent})
	return err
}

// Subscribe adds channels, from now on. It tells what the connection may do now.
func (c *Client) Subscribe(ctx context.Context, channels ...event.ChannelID) (Rights, error) {
	var f subscribedFrame
	raw, err := c.Request(ctx, wire.TypeSubscribe, map[string]any{"channels": channels})
	if err == nil {
		err = unmarshal(raw, &f)
	}
	return f.Can, err
}

// Request sends a frame of that type with these members and a ref, and returns
// the frame that answers it. It is sent once: with ErrDisconnected or ErrStopped
// it is unknown whether it was carried out. A refusal is a *RefusedError.
func (c *Client) Request(ctx context.Context, typ string, members map[string]any) (json.RawMessage, error) {
	ref := fmt.Sprintf("r-%d", c.refs.Add(1))
	frame := make(map[string]any, len(members)+2)
	for k, v := range members {
		frame[k] = v
	}
	frame["type"], frame["ref"] = typ, ref
	raw, err := json.Marshal(frame)
	if err != nil {
		return nil, fmt.Errorf("client: %s: %w", typ, err)
	}
	answer := make(chan reply, 1)
	take := func() {
		c.requests[ref] = answer
		c.machine.Request(ref, raw)
	}
	select {
	case c.calls <- take:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	select {
	case a := <-answer:
		return a.frame, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (c *Client) answerInput(id event.InputID, a receipt) {
	if answer, ok := c.inputs[id]; ok {
		delete(c.inputs, id)
		answer <- a
	}
}

func (c *Client) answerRequest(ref string, a reply) {
	if answer, ok := c.requests[ref]; ok {
		delete(c.requests, ref)
		answer <- a
	}
}

// run is one Run of a client. Owned by the goroutine that called Run, except
// where a field says otherwise.
type run struct {
	*Client
	ctx     context.Context // ends when Run does
	cancel  context.CancelFunc
	handler Handler
	work    sync.WaitGroup
	// happened brings what the other goroutines of the run saw. Without capacity:
	// a reader waits until its frame was taken, which is the only backpressure.
	happened   chan func()
	deliveries chan Delivery // to the goroutine of deliver, one at a time
	ended      chan struct{} // closed when nobody takes from happened any more

	conn   int
	socket *websocket.Conn // nil: none is open
	giveUp context.CancelFunc
	busy   bool // a delivery is in hand
	failed error
}

// loop carries the machine until it stops.
func (r *run) loop(ctx context.Context) error {
	m := r.machine
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	m.Start()
	for {
		r.effects()
		s := m.Status()
		switch {
		case r.failed != nil:
			r.finish()
			return r.failed
		case s.Phase == Stopped:
			r.finish()
			return s.Err
		}
		if d, ok := m.Delivery(); ok {
			r.busy = true
			r.deliveries <- d
		}
		if at := m.Wake(); at.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(at))
		}
		select {
		case f := <-r.happened:
			f()
		case f := <-r.calls:
			f()
		case <-timer.C:
			m.Tick(time.Now())
		case <-ctx.Done():
			// The delivery in hand is waited for before the machine stops, so that
			// what its handler did and what the cursor says agree.
			r.finish()
			return context.Cause(ctx)
		}
	}
}

// finish stops the machine and waits for the delivery in hand.
func (r *run) finish() {
	r.cancel()
	for r.busy {
		(<-r.happened)()
	}
	r.machine.Stop()
	r.effects()
}

// deliver calls the handler. It is a goroutine of its own: a handler that takes
// its time must not keep pongs and inputs from going out.
func (r *run) deliver() {
	for d := range r.deliveries {
		var err error
		if d.Item != nil {
			err = r.handler.Item(r.ctx, d.Item)
		} else {
			err = r.handler.Reset(r.ctx, d.State, d.Why)
		}
		r.tell(func() {
			r.busy = false
			if err != nil {
				r.machine.HandlerFailed(err)
				return
			}
			r.machine.Handled(time.Now())
		})
	}
}

// tell has f called by the goroutine of Run, unless Run has ended.
func (r *run) tell(f func()) {
	select {
	case r.happened <- f:
	case <-r.ended:
	}
}
