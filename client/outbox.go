package client

import (
	"slices"
	"time"
)

// OutboxLimit is how many inputs are kept at most. One more pushes the oldest out, and its caller is told (K7).
const OutboxLimit = 32

// outbox keeps the inputs that are not yet durable, in the order in which they
// were made. Sending one again is safe: its id is the idempotency key (A5).
// Owned by one Machine.
type outbox struct {
	kept []kept
	// held keeps everything back until then, so that a deferred input is not
	// overtaken by those after it.
	held time.Time
}

type kept struct {
	in        Input
	sent      bool // on the present connection, and not answered yet
	deferrals int
}

func newOutbox(inputs []Input) outbox {
	var o outbox
	for _, in := range inputs[max(0, len(inputs)-OutboxLimit):] {
		o.kept = append(o.kept, kept{in: in})
	}
	return o
}

func (o *outbox) inputs() []Input {
	out := make([]Input, len(o.kept))
	for i := range o.kept {
		out[i] = o.kept[i].in
	}
	return out
}

func (o *outbox) find(id string) int {
	return slices.IndexFunc(o.kept, func(k kept) bool { return string(k.in.ID) == id })
}

// add returns the input that is given up, if one is.
func (o *outbox) add(in Input) (Input, bool) {
	o.kept = append(o.kept, kept{in: in})
	if len(o.kept) <= OutboxLimit {
		return Input{}, false
	}
	old := o.kept[0].in
	o.kept = slices.Delete(o.kept, 0, 1)
	return old, true
}

func (o *outbox) remove(id string) bool {
	i := o.find(id)
	if i < 0 {
		return false
	}
	o.kept = slices.Delete(o.kept, i, i+1)
	return true
}

// postpone has the input sent again, not before after. A server that postpones
// the same input again and again is asked less and less often.
func (o *outbox) postpone(id string, now time.Time, after time.Duration) {
	i := o.find(id)
	if i < 0 {
		return
	}
	k := &o.kept[i]
	k.sent = false
	wait := max(after, min(MaxWait, MinWait<<min(k.deferrals, 16)))
	k.deferrals++
	if t := now.Add(wait); t.After(o.held) {
		o.held = t
	}
}

// disconnected has everything sent again on the next connection.
func (o *outbox) disconnected() {
	for i := range o.kept {
		o.kept[i].sent = false
	}
	o.held = time.Time{}
}

// take returns the inputs to send now, in order, and marks them as sent.
func (o *outbox) take(now time.Time) []Input {
	if now.Before(o.held) {
		return nil
	}
	var out []Input
	for i := range o.kept {
		if k := &o.kept[i]; !k.sent {
			k.sent = true
			out = append(out, k.in)
		}
	}
	return out
}

// wake returns when take has something to give again; zero: not by time.
func (o *outbox) wake() time.Time {
	for i := range o.kept {
		if !o.kept[i].sent {
			return o.held
		}
	}
	return time.Time{}
}
