package channel

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"parley/event"
)

// Bounds of single events that a driver sends, in bytes.
const (
	maxStage     = 64
	maxMessage   = 1 << 10
	maxLogicalID = 128
	maxRequestID = 128
	maxUtterance = 64 << 10
	maxAudience  = 256
	maxSpoken    = 8 << 10
	maxWait      = 7 * 24 * time.Hour
)

// Size is what an event counts towards the bounds of an attempt (E6): its
// text and values, and 64 bytes for the rest of its entry.
func Size(b event.RunBody) int {
	const rest = 64
	switch x := b.(type) {
	case event.AssistantOutput:
		return rest + len(x.Delta) + len(x.Spoken)
	case event.Checkpoint:
		return rest + len(x.Value)
	case event.Progress:
		return rest + len(x.Stage) + len(x.Message)
	case event.Decision:
		n := rest
		for _, u := range x.Utterances {
			n += len(u.Text)
		}
		return n
	}
	return rest
}

// Fresh is what the shell gives a decision to make new ids of.
type Fresh struct {
	Now  time.Time
	Rand [16]byte
	Wait time.Duration // the room's, for a request without an expiry
}

// Event is one journaled form of what a driver sent.
type Event struct {
	Body       event.RunBody
	Logical    event.OutputID
	Disclosure event.Disclosure
}

// Check turns an event of the run's driver into what is to be journaled, ids
// and defaults resolved, audience clamped, and appends it to out, which is empty.
// No event and no error means that it was shown before (R2, R5). An error is the driver's fault (E2, E6, E7); it
// names what is wrong and carries no text of the driver.
//
// Invariant: the run is active and the event belongs to its current attempt.
func (r *Run) Check(out []Event, n uint64, body event.RunBody, f Fresh) ([]Event, error) {
	if n <= r.N {
		return nil, nil // R5
	}
	if err := r.bound(1, Size(body)); err != nil {
		return nil, err
	}
	switch x := body.(type) {
	case event.Progress:
		return r.checkProgress(out, x)
	case event.AssistantOutput:
		return r.checkOutput(out, x, f)
	case event.Checkpoint:
		if len(x.Value) > event.MaxCheckpoint {
			return nil, fmt.Errorf("a checkpoint has at most %d bytes, this one has %d", event.MaxCheckpoint, len(x.Value))
		}
		if err := event.CheckPlain(x.Value); err != nil {
			return nil, fmt.Errorf("a checkpoint is plain JSON: %w", err)
		}
		return append(out, Event{Body: x, Disclosure: event.ToNone()}), nil
	case event.InputRequested:
		return r.checkRequest(out, x, f)
	case event.Decision:
		return r.checkDecision(out, x, f)
	case event.Completed:
		if r.HasOpenOutput() {
			return nil, fmt.Errorf("the run completed while an output was open")
		}
		return append(out, Event{Body: x, Disclosure: r.Disclosure}), nil
	}
	return nil, fmt.Errorf("a driver does not send events of type %T", body)
}

// bound holds E6 for what an attempt journals in all.
func (r *Run) bound(events, bytes int) error {
	switch {
	case r.Events+events > event.MaxAttemptEvents:
		return fmt.Errorf("an attempt sends at most %d events", event.MaxAttemptEvents)
	case r.Bytes+bytes > event.MaxAttemptBytes:
		return fmt.Errorf("an attempt sends at most %d bytes", event.MaxAttemptBytes)
	}
	return nil
}

func (r *Run) checkProgress(out []Event, x event.Progress) ([]Event, error) {
	switch {
	case x.Stage == "" || len(x.Stage) > maxStage:
		return nil, fmt.Errorf("progress names a stage of 1 to %d bytes", maxStage)
	case len(x.Message) > maxMessage || len(x.Unit) > maxStage:
		return nil, fmt.Errorf("a message of progress has at most %d bytes, a unit %d", maxMessage, maxStage)
	case !utf8.ValidString(x.Stage), !utf8.ValidString(x.Message), !utf8.ValidString(x.Unit):
		return nil, fmt.Errorf("progress is not valid UTF-8")
	}
	for _, v := range []*int64{x.Current, x.Total} {
		if v != nil && (*v < 0 || *v > 1<<53) {
			return nil, fmt.Errorf("counts of progress lie within 0 and 2^53")
		}
	}
	return append(out, Event{Body: x, Disclosure: r.Disclosure}), nil
}

// checkOutput checks one delta and appends it to out, which holds what the same
// event has already made.
func (r *Run) checkOutput(out []Event, x event.AssistantOutput, f Fresh) ([]Event, error) {
	switch {
	case x.Output == "" || len(x.Output) > maxLogicalID:
		return nil, fmt.Errorf("an output has an id of 1 to %d bytes", maxLogicalID)
	case len(x.Delta) > event.MaxDelta:
		return nil, fmt.Errorf("a delta has at most %d bytes, this one has %d", event.MaxDelta, len(x.Delta))
	case len(x.Spoken) > maxSpoken:
		return nil, fmt.Errorf("the spoken form of a delta has at most %d bytes", maxSpoken)
	case !utf8.ValidString(x.Delta), !utf8.ValidString(x.Spoken), !utf8.ValidString(x.Lang), !utf8.ValidString(string(x.Output)):
		return nil, fmt.Errorf("an output is not valid UTF-8")
	case len(x.Lang) > maxStage:
		return nil, fmt.Errorf("a language tag has at most %d bytes", maxStage)
	case x.Purpose > event.ProgressText || x.History > event.Ephemeral:
		return nil, fmt.Errorf("an output has an unknown purpose or history")
	case len(x.Audience.Participants) > maxAudience:
		return nil, fmt.Errorf("an audience names at most %d participants", maxAudience)
	case x.Delta == "" && !x.Final:
		return nil, fmt.Errorf("an empty delta only closes an output")
	}
	if r.closedBefore(x.Output) {
		return out, nil // R2
	}
	if x.Audience.Kind == event.DiscloseParticipants {
		x.Audience = event.ToParticipants(x.Audience.Participants...) // a driver may name them in any order
	}
	logical := x.Output
	o := r.current(logical)
	if o == nil {
		if x.Purpose == 0 {
			x.Purpose = event.Answer
		}
		if x.History == 0 {
			x.History = event.Record
			if x.Purpose == event.ProgressText {
				x.History = event.Ephemeral
			}
		}
		if x.Final && event.Blank(x.Delta) {
			return nil, fmt.Errorf("a finished output is blank")
		}
		to := r.Disclosure
		if x.Audience.Stated() {
			if to = to.Intersect(x.Audience); to.Empty() {
				return nil, fmt.Errorf("nobody of the audience may see the run") // E7
			}
		}
		x.Output, x.Audience = r.newOutputID(f.Rand, out), event.Disclosure{}
		return append(out, Event{Body: x, Logical: logical, Disclosure: to}), nil
	}
	switch {
	case o.Final:
		return nil, fmt.Errorf("a delta follows the one that closed its output")
	case x.Purpose != 0 && x.Purpose != o.Purpose, x.History != 0 && x.History != o.History:
		return nil, fmt.Errorf("the first delta fixes purpose and history")
	case x.Audience.Stated() && !r.Disclosure.Intersect(x.Audience).Equal(o.Disclosure):
		return nil, fmt.Errorf("the first delta fixes the audience")
	case x.Final && event.Blank(x.Delta) && event.Blank(o.Text()):
		return nil, fmt.Errorf("a finished output is blank")
	}
	x.Output, x.Purpose, x.History, x.Audience = o.ID, o.Purpose, o.History, event.Disclosure{}
	return append(out, Event{Body: x, Logical: logical, Disclosure: o.Disclosure}), nil
}

func (r *Run) checkRequest(out []Event, x event.InputRequested, f Fresh) ([]Event, error) {
	switch {
	case x.Request == "" || len(x.Request) > maxRequestID || !utf8.ValidString(string(x.Request)):
		return nil, fmt.Errorf("a request has an id of 1 to %d bytes", maxRequestID)
	case r.HasOpenOutput():
		return nil, fmt.Errorf("input was requested while an output was open")
	case !x.ExpiresAt.IsZero() && (!x.ExpiresAt.After(f.Now) || x.ExpiresAt.After(f.Now.Add(maxWait))):
		return nil, fmt.Errorf("a request expires within the next seven days")
	}
	if x.ExpiresAt.IsZero() {
		x.ExpiresAt = f.Now.Add(f.Wait)
	}
	x.ExpiresAt = event.Millis(x.ExpiresAt)
	x.Token, x.Speaker = "t_"+id(f.Rand[:]), r.Speaker
	return append(out, Event{Body: x, Disclosure: r.Disclosure}), nil
}

// checkDecision makes outputs of the utterances (E5). Their logical ids count
// up, so that a decision taken again after a crash shows nothing twice.
func (r *Run) checkDecision(out []Event, d event.Decision, f Fresh) ([]Event, error) {
	if len(d.Utterances) > 16 {
		return nil, fmt.Errorf("a decision has at most 16 utterances")
	}
	out = append(out, Event{Body: d, Disclosure: event.ToNone()})
	for i, u := range d.Utterances {
		if len(u.Text) > maxUtterance {
			return nil, fmt.Errorf("an utterance has at most %d bytes", maxUtterance)
		}
		x := event.AssistantOutput{
			Output: event.OutputID(fmt.Sprintf("utterance-%d", i+1)), Delta: "x", Final: true,
			Audience: u.Audience, Lang: u.Lang,
		}
		if event.Blank(u.Text) || !utf8.ValidString(u.Text) {
			return nil, fmt.Errorf("utterance %d is blank or not valid UTF-8", i+1)
		}
		if r.current(x.Output) != nil {
			return nil, fmt.Errorf("an attempt takes one decision, and no other output is called %s", x.Output)
		}
		checked, err := r.checkOutput(out, x, f)
		if err != nil {
			return nil, fmt.Errorf("utterance %d: %w", i+1, err)
		}
		if len(checked) == len(out) {
			continue // R2
		}
		c := checked[len(out)]
		whole := c.Body.(event.AssistantOutput)
		for _, part := range chunks(u.Text, event.MaxDelta) {
			whole.Delta, whole.Final = part, false
			c.Body = whole
			out = append(out, c)
		}
		whole.Final = true
		out[len(out)-1].Body = whole
	}
	bytes := 0
	for _, ev := range out {
		bytes += Size(ev.Body)
	}
	if err := r.bound(len(out), bytes); err != nil {
		return nil, err
	}
	return out, nil
}

// chunks cuts s at rune boundaries into parts of at most size bytes.
func chunks(s string, size int) []string {
	var parts []string
	for len(s) > size {
		at := size
		for !utf8.RuneStart(s[at]) {
			at--
		}
		parts, s = append(parts, s[:at]), s[at:]
	}
	return append(parts, s)
}

// newOutputID makes a delivery id that is opaque and unique in the run and among
// the outputs that the same event has made before (E3). It is random rather than
// counted, so that it tells nobody how many outputs he did not see.
func (r *Run) newOutputID(rand [16]byte, earlier []Event) event.OutputID {
	for {
		o := event.OutputID("o_" + id(rand[:5]))
		made := func(e Event) bool {
			x, ok := e.Body.(event.AssistantOutput)
			return ok && x.Output == o
		}
		if r.delivery(o) == nil && !slices.ContainsFunc(earlier, made) {
			return o
		}
		// A hash, because neighbours of an id would tell what was made together with it.
		sum := sha256.Sum256(rand[:])
		rand = [16]byte(sum[:16])
	}
}

var idEncoding = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

func id(b []byte) string { return strings.ToLower(idEncoding.EncodeToString(b)) }

// NewRunID makes the id of a run of fresh randomness.
func NewRunID(rand [16]byte) event.RunID { return event.RunID("r_" + id(rand[:10])) }
