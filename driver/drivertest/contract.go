package drivertest

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"parley/driver"
	"parley/event"
)

// The bounds of the stage keys and ids that a driver chooses, in bytes.
const (
	maxStage = 64
	maxID    = event.MaxInputID
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
	decided bool
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
	if c.bytes += size; c.bytes > event.MaxAttemptBytes {
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
	case event.Blank(b.Stage) || len(b.Stage) > maxStage:
		return fault("progress: a stage has 1 to %d bytes, this one has %d", maxStage, len(b.Stage))
	case !utf8.ValidString(b.Stage + b.Unit + b.Message):
		return fault("progress: the text is not valid UTF-8")
	case b.Current != nil && *b.Current < 0 || b.Total != nil && *b.Total < 0:
		return fault("progress: current and total are not negative")
	case b.Current != nil && b.Total != nil && *b.Current > *b.Total:
		return fault("progress: current %d is greater than total %d", *b.Current, *b.Total)
	}
	return nil
}

func (c *contract) takeOutput(b event.AssistantOutput) error {
	if err := checkID("output", string(b.Output)); err != nil {
		return err
	}
	switch {
	case len(b.Delta) > event.MaxDelta || len(b.Spoken) > event.MaxDelta:
		return fault("output %q: a delta has at most %d bytes, this one has %d", b.Output, event.MaxDelta, max(len(b.Delta), len(b.Spoken)))
	case !utf8.ValidString(b.Delta) || !utf8.ValidString(b.Spoken):
		return fault("output %q: the delta is not valid UTF-8", b.Output)
	case b.Delta == "" && !b.Final:
		return fault("output %q: an empty delta that is not final", b.Output)
	case b.Purpose > event.ProgressText || b.History > event.Ephemeral:
		return fault("output %q: unknown purpose or history", b.Output)
	case b.Audience.Stated() && b.Audience.Intersect(c.widest).Empty() && !c.widest.Empty():
		return fault("output %q: its audience leaves nobody who may see the run", b.Output)
	}
	o := c.find(b.Output)
	switch {
	case o == nil:
		o = &message{Output: Output{ID: b.Output, Purpose: purposeOf(b), History: historyOf(b)}}
		c.outputs = append(c.outputs, o)
	case o.Closed:
		return fault("output %q: a delta after final", b.Output)
	case b.Purpose != 0 && b.Purpose != o.Purpose:
		return fault("output %q: its purpose was %v and became %v", b.Output, o.Purpose, b.Purpose)
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
	if b.Token != "" {
		return fault("request %q: the token is the room's to mint", b.Request)
	}
	if !b.ExpiresAt.IsZero() && !b.ExpiresAt.After(c.now()) {
		return fault("request %q: it expires before it is asked", b.Request)
	}
	if err := c.noneOpen("input_requested"); err != nil {
		return err
	}
	c.over = "input_requested"
	return nil
}

func (c *contract) takeDecision(b event.Decision) (size int, err error) {
	if c.decided {
		return 0, fault("a second decision in one attempt")
	}
	c.decided = true
	for i, u := range b.Utterances {
		id := event.OutputID(fmt.Sprintf("utterance-%d", i+1))
		if len(u.Text) > event.MaxAttemptBytes || !utf8.ValidString(u.Text) || event.Blank(u.Text) {
			return 0, fault("decision: utterance %d is blank, too long or not valid UTF-8", i+1)
		}
		if u.Audience.Stated() && u.Audience.Intersect(c.widest).Empty() && !c.widest.Empty() {
			return 0, fault("decision: the audience of utterance %d leaves nobody who may see the run", i+1)
		}
		m := &message{Output: Output{ID: id, Purpose: event.Answer, History: event.Record, Closed: true}}
		m.text.WriteString(u.Text)
		c.outputs = append(c.outputs, m)
		size += len(u.Text)
	}
	return size, nil
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
	if event.Blank(id) || len(id) > maxID || !utf8.ValidString(id) {
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
