package drivertest

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"parley/driver"
	"parley/event"
)

// The bounds of single events that a room holds drivers to, in bytes where not
// said otherwise. TestTheContractIsTheRooms holds that they are the room's.
const (
	maxStage      = 64
	maxMessage    = 1 << 10
	maxID         = 128
	maxSpoken     = 8 << 10
	maxUtterance  = 64 << 10
	maxUtterances = 16                 // of a decision
	maxAudience   = 256                // participants
	maxWait       = 7 * 24 * time.Hour // of a request
	overhead      = 64                 // what an event counts towards the bounds of an attempt beside its texts
)

// Output is one message of an attempt, put together from its deltas.
type Output struct {
	ID      event.OutputID // logical
	Text    string
	Purpose event.Purpose // resolved, as is History
	History event.History
	Closed  bool
}

// message is an Output in the making; text is its Text.
type message struct {
	Output
	text strings.Builder
	to   event.Disclosure // who sees it
}

func (m *message) output() Output {
	o := m.Output
	o.Text = m.text.String()
	return o
}

// contract follows the events of one attempt and says what breaks it. It holds
// E2, E6, E7 and W1 as far as they bind a driver. Owned by a Recorder.
type contract struct {
	widest  event.Disclosure // run disclosure ∩ agent visibility
	now     func() time.Time
	outputs []*message // in the order of their first deltas
	events  int
	bytes   int
	// over says which event ended the attempt, "" while it goes on.
	over string
}

func newContract(turn *driver.Turn) *contract {
	return &contract{widest: turn.Disclosure.Intersect(turn.Agent.Visible()), now: time.Now}
}

// take accepts one event, or says what is wrong with it.
func (c *contract) take(body event.RunBody) error {
	if c.over != "" {
		return fault("an event after %s; the attempt is over", c.over)
	}
	if c.events++; c.events > event.MaxAttemptEvents {
		return fault("more than %d events in one attempt", event.MaxAttemptEvents)
	}
	size, err := 0, error(nil)
	switch b := body.(type) {
	case event.Progress:
		size, err = len(b.Stage)+len(b.Unit)+len(b.Message), checkProgress(b)
	case event.AssistantOutput:
		size, err = len(b.Delta)+len(b.Spoken), c.takeOutput(b)
	case event.Checkpoint:
		size, err = len(b.Value), checkCheckpoint(b)
	case event.InputRequested:
		err = c.takeRequest(b)
	case event.Decision:
		size, err = c.takeDecision(b)
	case event.Completed:
		err = c.noneOpen("completed")
		c.over = "completed"
	default:
		err = fault("a %T is not an event of a driver", body)
	}
	if err != nil {
		return err
	}
	if c.bytes += overhead + size; c.bytes > event.MaxAttemptBytes {
		return fault("more than %d bytes in one attempt", event.MaxAttemptBytes)
	}
	return nil
}

// finish says what is wrong with a clean end of the attempt, which implies
// completed (E4).
func (c *contract) finish() error {
	if c.over != "" {
		return nil
	}
	return c.noneOpen("the end of Run")
}

func checkProgress(b event.Progress) error {
	switch {
	case b.Stage == "" || len(b.Stage) > maxStage:
		return fault("progress: a stage has 1 to %d bytes, this one has %d", maxStage, len(b.Stage))
	case len(b.Message) > maxMessage || len(b.Unit) > maxStage:
		return fault("progress: a message has at most %d bytes, a unit %d", maxMessage, maxStage)
	case !utf8.ValidString(b.Stage), !utf8.ValidString(b.Message), !utf8.ValidString(b.Unit):
		return fault("progress: the text is not valid UTF-8")
	}
	for _, v := range []*int64{b.Current, b.Total} {
		if v != nil && (*v < 0 || *v > 1<<53) {
			return fault("progress: current and total lie within 0 and 2^53")
		}
	}
	return nil
}

func (c *contract) takeOutput(b event.AssistantOutput) error {
	if err := checkID("output", string(b.Output)); err != nil {
		return err
	}
	switch {
	case len(b.Delta) > event.MaxDelta:
		return fault("output %q: a delta has at most %d bytes, this one has %d", b.Output, event.MaxDelta, len(b.Delta))
	case len(b.Spoken) > maxSpoken:
		return fault("output %q: the spoken form of a delta has at most %d bytes, this one has %d", b.Output, maxSpoken, len(b.Spoken))
	case !utf8.ValidString(b.Delta), !utf8.ValidString(b.Spoken), !utf8.ValidString(b.Lang):
		return fault("output %q: the delta is not valid UTF-8", b.Output)
	case len(b.Lang) > maxStage:
		return fault("output %q: a language tag has at most %d bytes, this one has %d", b.Output, maxStage, len(b.Lang))
	case len(b.Audience.Participants) > maxAudience:
		return fault("output %q: an audience names at most %d participants, this one has %d", b.Output, maxAudience, len(b.Audience.Participants))
	case b.Delta == "" && !b.Final:
		return fault("output %q: an empty delta that is not final", b.Output)
	case b.Purpose > event.ProgressText || b.History > event.Ephemeral:
		return fault("output %q: unknown purpose or history", b.Output)
	}
	o := c.find(b.Output)
	switch {
	case o == nil:
		to, err := c.audience(b.Audience)
		if err != nil {
			return fault("output %q: %v", b.Output, err)
		}
		o = &message{Output: Output{ID: b.Output, Purpose: purposeOf(b), History: historyOf(b)}, to: to}
		c.outputs = append(c.outputs, o)
	case o.Closed:
		return fault("output %q: a delta after final", b.Output)
	case b.Purpose != 0 && b.Purpose != o.Purpose:
		return fault("output %q: its purpose was %v and became %v", b.Output, o.Purpose, b.Purpose)
	case b.Audience.Stated() && !c.widest.Intersect(sorted(b.Audience)).Equal(o.to):
		return fault("output %q: its audience changed", b.Output)
	case b.History != 0 && b.History != o.History:
		return fault("output %q: its history was %v and became %v", b.Output, o.History, b.History)
	}
	o.text.WriteString(b.Delta)
	if b.Final {
		if event.Blank(o.text.String()) {
			return fault("output %q: its finished text is blank", b.Output)
		}
		o.Closed = true
	}
	return nil
}

func checkCheckpoint(b event.Checkpoint) error {
	if len(b.Value) > event.MaxCheckpoint {
		return fault("checkpoint: %d bytes; at most %d are allowed", len(b.Value), event.MaxCheckpoint)
	}
	if err := event.CheckPlain(b.Value); err != nil {
		return fault("checkpoint: %v", err)
	}
	return nil
}

func (c *contract) takeRequest(b event.InputRequested) error {
	if err := checkID("request", string(b.Request)); err != nil {
		return err
	}
	if now := c.now(); !b.ExpiresAt.IsZero() && (!b.ExpiresAt.After(now) || b.ExpiresAt.After(now.Add(maxWait))) {
		return fault("request %q: it must expire within the next %v", b.Request, maxWait)
	}
	if err := c.noneOpen("input_requested"); err != nil {
		return err
	}
	c.over = "input_requested"
	return nil
}

func (c *contract) takeDecision(b event.Decision) (size int, err error) {
	if len(b.Utterances) > maxUtterances {
		return 0, fault("decision: at most %d utterances, this one has %d", maxUtterances, len(b.Utterances))
	}
	for i, u := range b.Utterances {
		id := event.OutputID(fmt.Sprintf("utterance-%d", i+1))
		switch {
		case len(u.Text) > maxUtterance || !utf8.ValidString(u.Text) || event.Blank(u.Text):
			return 0, fault("decision: utterance %d is blank, longer than %d bytes or not valid UTF-8", i+1, maxUtterance)
		case len(u.Lang) > maxStage || !utf8.ValidString(u.Lang) || len(u.Audience.Participants) > maxAudience:
			return 0, fault("decision: the language tag or the audience of utterance %d is too long", i+1)
		case c.find(id) != nil:
			return 0, fault("decision: an output %q was sent before", id)
		}
		to, err := c.audience(u.Audience)
		if err != nil {
			return 0, fault("decision: utterance %d: %v", i+1, err)
		}
		m := &message{Output: Output{ID: id, Purpose: event.Answer, History: event.Record, Closed: true}, to: to}
		m.text.WriteString(u.Text)
		c.outputs = append(c.outputs, m)
		// The room journals it in parts, beside the decision itself.
		parts := (len(u.Text) + event.MaxDelta - 1) / event.MaxDelta
		c.events += parts
		size += 2*len(u.Text) + parts*overhead
	}
	if c.events > event.MaxAttemptEvents {
		return 0, fault("more than %d events in one attempt", event.MaxAttemptEvents)
	}
	return size, nil
}

// audience is who sees an output: what it asks for, as far as the run allows (E7).
func (c *contract) audience(asked event.Disclosure) (event.Disclosure, error) {
	if !asked.Stated() {
		return c.widest, nil
	}
	to := c.widest.Intersect(sorted(asked))
	if to.Empty() {
		return to, errors.New("its audience leaves nobody who may see the run")
	}
	return to, nil
}

// sorted lets a driver name participants in any order.
func sorted(d event.Disclosure) event.Disclosure {
	if d.Kind == event.DiscloseParticipants {
		return event.ToParticipants(d.Participants...)
	}
	return d
}

func (c *contract) noneOpen(at string) error {
	for _, o := range c.outputs {
		if !o.Closed {
			return fault("output %q is open at %s", o.ID, at)
		}
	}
	return nil
}

func (c *contract) find(id event.OutputID) *message {
	for _, o := range c.outputs {
		if o.ID == id {
			return o
		}
	}
	return nil
}

func checkID(what, id string) error {
	if id == "" || len(id) > maxID || !utf8.ValidString(id) {
		return fault("%s: an id has 1 to %d bytes of valid UTF-8, this one has %d", what, maxID, len(id))
	}
	return nil
}

func purposeOf(b event.AssistantOutput) event.Purpose {
	if b.Purpose == 0 {
		return event.Answer
	}
	return b.Purpose
}

func historyOf(b event.AssistantOutput) event.History {
	switch {
	case b.History != 0:
		return b.History
	case b.Purpose == event.ProgressText:
		return event.Ephemeral
	}
	return event.Record
}

func fault(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{driver.ErrFault}, args...)...)
}
