package wire

import (
	"maps"
	"slices"
	"strconv"

	"parley/event"
)

// Variant is one of the forms in which an entry is shown. Viewers of the same
// variant get the same bytes, so an item is written once for all of them.
type Variant uint8

// The variants.
const (
	// Hidden is not shown at all.
	Hidden Variant = iota
	// Public is the form of E9 for participants.
	Public
	// Asker is Public for the speaker of an input, with its input id, and for the
	// speaker whom a question is for, with its token.
	Asker
	// Bystander is an input whose run only others may see: what was said, not what came of it.
	Bystander
	// AskerOnly is Bystander for the speaker, with the input id.
	AskerOnly
	// Host has everything.
	Host
	// Own depends on the viewer alone and is not to be shared.
	Own

	// Variants is the number of variants.
	Variants = int(Own) + 1
)

// Viewer is who looks. Whether it sees an entry at all is decided before, by
// event.Access.Sees with its present claims.
type Viewer struct {
	Subject event.ParticipantID
	Host    bool
}

// Variant returns the form in which the viewer gets an entry that it sees.
func (v Viewer) Variant(e *event.Entry) Variant {
	if v.Host {
		return Host
	}
	switch x := e.Body.(type) {
	case *event.InputAdmitted:
		mine := x.Speaker == event.Person(v.Subject)
		switch runs := x.RunDisclosure.Includes(v.Subject); {
		case mine && runs:
			return Asker
		case mine:
			return AskerOnly
		case runs:
			return Public
		}
		return Bystander
	case *event.RunEvent:
		switch b := x.Event.(type) {
		case event.Checkpoint, event.Decision:
			return Hidden
		case event.InputRequested:
			if b.Speaker == event.Person(v.Subject) {
				return Asker
			}
		}
		return Public
	case *event.RoomConfigured:
		return Own
	case *event.FocusSet:
		if x.Subject == v.Subject {
			return Public
		}
	}
	return Hidden
}

// KindOf returns the kind of the item that an entry becomes.
func KindOf(e *event.Entry) string {
	switch e.Body.Kind() {
	case event.KindInput:
		return KindInput
	case event.KindRun:
		return KindRunEvent
	}
	return KindRoom
}

// AppendItem appends the item of an entry in the variant that v.Variant
// returned for it; id is its EntryID. An item that would be larger than MaxItem is written with
// {"type":…,"omitted":true} for its body; participants get such items only of
// rooms with very many agents.
func AppendItem[ID ~string | ~[]byte](b []byte, e *event.Entry, id ID, v Viewer, as Variant) []byte {
	from := len(b)
	b = append(append(b, `{"id":"`...), id...)
	b = appendTime(append(b, `","at":`...), e.At)
	if e.Channel != "" {
		b = appendString(append(b, `,"channel":`...), e.Channel)
	}
	b = append(b, `,"kind":"`...)
	b = append(append(b, KindOf(e)...), '"')
	typ := ""
	body := func(b []byte) []byte { return b }
	switch x := e.Body.(type) {
	case *event.InputAdmitted:
		if as != Bystander && as != AskerOnly {
			b = appendString(append(b, `,"run":`...), x.Run)
		}
		body = func(b []byte) []byte { return appendInput(b, x, as) }
	case *event.RunEvent:
		b = appendRunHead(b, x, as)
		typ = x.Event.RunKind().String()
		body = func(b []byte) []byte { return appendRunBody(b, x.Event, as) }
	case *event.RoomConfigured:
		typ = RoomConfigured
		body = func(b []byte) []byte { return appendConfig(b, x, v) }
	case *event.FocusSet:
		typ = RoomFocus
		body = func(b []byte) []byte {
			b = append(b, `,"agent":`...)
			if x.Agent == "" {
				b = append(b, "null"...)
			} else {
				b = appendString(b, x.Agent)
			}
			if as == Host {
				b = appendString(append(b, `,"subject":`...), x.Subject)
			}
			return b
		}
	case *event.Drained:
		typ = RoomDrained
	}
	if e.Disclosure.Kind != event.DiscloseRoom {
		b = appendDisclosure(append(b, `,"disclosure":`...), e.Disclosure)
	}
	b = append(b, `,"body":{`...)
	at := len(b)
	if typ != "" {
		b = appendString(append(b, `"type":`...), typ)
	}
	b = body(b)
	if len(b)-from+2 > MaxItem && !essential(e.Body) {
		b = appendString(append(b[:at], `"type":`...), typ)
		b = append(b, `,"omitted":true`...)
	}
	return append(b, '}', '}')
}

// essential reports whether a body is never left out. Inputs and deltas are
// bounded when they are written (A1, E6) and fit into MinMaxFrame even when
// every byte of them is escaped.
func essential(b event.Body) bool {
	switch x := b.(type) {
	case *event.InputAdmitted:
		return true
	case *event.RunEvent:
		return x.Event.RunKind() == event.KindAssistantOutput
	}
	return false
}

func appendInput(b []byte, x *event.InputAdmitted, as Variant) []byte {
	b = appendEndpoint(append(b, `"speaker":`...), x.Speaker)
	b = appendString(append(b, `,"text":`...), x.Text)
	b = appendString(append(b, `,"modality":`...), x.Modality.String())
	if x.Lang != "" {
		b = appendString(append(b, `,"lang":`...), x.Lang)
	}
	if as != Bystander && as != AskerOnly {
		b = appendString(append(b, `,"agent":`...), x.Agent)
		b = appendString(append(b, `,"state":`...), x.State.String())
	}
	if as == Asker || as == AskerOnly || as == Host {
		b = appendString(append(b, `,"inputId":`...), x.Input)
	}
	if as == Host {
		if x.By != "" {
			b = appendString(append(b, `,"by":`...), x.By)
		}
		if !x.EndedAt.IsZero() {
			b = appendTime(append(b, `,"endedAt":`...), x.EndedAt)
		}
	}
	return b
}

func appendRunHead(b []byte, x *event.RunEvent, as Variant) []byte {
	b = appendString(append(b, `,"run":`...), x.Run)
	b = strconv.AppendUint(append(b, `,"attempt":`...), uint64(x.Attempt), 10)
	if _, start := x.Event.(event.AttemptStarted); start || as == Host {
		b = appendString(append(b, `,"agent":`...), x.Agent)
	}
	if as != Host {
		return b
	}
	b = strconv.AppendUint(append(b, `,"sequence":`...), x.Sequence, 10)
	b = appendString(append(b, `,"inputId":`...), x.Input)
	if x.Logical != "" || x.Runtime {
		b = append(b, `,"delivery":{"origin":`...)
		if x.Runtime {
			b = append(b, `"runtime"`...)
		} else {
			b = append(b, `"driver"`...)
		}
		b = strconv.AppendUint(append(b, `,"attempt":`...), uint64(x.Attempt), 10)
		b = append(appendString(append(b, `,"logicalOutputId":`...), x.Logical), '}')
	}
	return b
}

func appendRunBody(b []byte, body event.RunBody, as Variant) []byte {
	switch x := body.(type) {
	case event.Progress:
		b = appendString(append(b, `,"stage":`...), x.Stage)
		if x.Current != nil {
			b = strconv.AppendInt(append(b, `,"current":`...), *x.Current, 10)
		}
		if x.Total != nil {
			b = strconv.AppendInt(append(b, `,"total":`...), *x.Total, 10)
		}
		b = appendIf(b, `,"unit":`, x.Unit)
		b = appendIf(b, `,"message":`, x.Message)
	case event.AssistantOutput:
		b = appendString(append(b, `,"outputId":`...), x.Output)
		b = appendString(append(b, `,"delta":`...), x.Delta)
		if x.Final {
			b = append(b, `,"final":true`...)
		}
		b = appendString(append(b, `,"purpose":`...), x.Purpose.String())
		if usual := x.Purpose != event.ProgressText; (x.History == event.Record) != usual {
			b = appendString(append(b, `,"history":`...), x.History.String())
		}
		b = appendIf(b, `,"lang":`, x.Lang)
		if as == Host {
			if x.Interruptible != nil {
				b = strconv.AppendBool(append(b, `,"interruptible":`...), *x.Interruptible)
			}
			b = appendIf(b, `,"spoken":`, x.Spoken)
		}
	case event.Checkpoint:
		b = append(append(b, `,"value":`...), x.Value...)
	case event.InputRequested:
		b = appendRequest(b, &x, as == Asker || as == Host)
	case event.Decision:
		b = append(b, `,"utterances":[`...)
		for i, u := range x.Utterances {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendString(append(b, `{"text":`...), u.Text)
			if u.Audience.Stated() {
				b = appendDisclosure(append(b, `,"audience":`...), u.Audience)
			}
			b = append(appendIf(b, `,"lang":`, u.Lang), '}')
		}
		b = append(b, ']')
	case event.AttemptStarted:
		b = strconv.AppendBool(append(b, `,"resumed":`...), x.Resumed)
	case event.RunCanceled:
		b = appendString(append(b, `,"reason":`...), x.Reason)
		if as == Host {
			b = appendIf(b, `,"by":`, string(x.By))
		}
	case event.RunFailed:
		b = appendString(append(b, `,"code":`...), x.Code)
		b = appendString(append(b, `,"message":`...), x.Message)
	case event.RunBlocked:
		b = appendIf(b, `,"stepId":`, x.Step)
		b = appendString(append(b, `,"reason":`...), x.Reason)
	case event.Completed, event.DeadlineExceeded:
	}
	return b
}

func appendRequest(b []byte, x *event.InputRequested, token bool) []byte {
	b = appendString(append(b, `,"requestId":`...), x.Request)
	if !x.ExpiresAt.IsZero() {
		b = appendTime(append(b, `,"expiresAt":`...), x.ExpiresAt)
	}
	if token {
		b = appendIf(b, `,"token":`, x.Token)
	}
	return b
}

// appendConfig writes what the viewer may know of a room's configuration: an
// agent that it may not see leaves no trace.
func appendConfig(b []byte, x *event.RoomConfigured, v Viewer) []byte {
	c := &x.Config
	b = appendString(append(b, `,"phase":`...), c.Phase)
	b = append(b, `,"agents":[`...)
	first := true
	for i := range c.Agents {
		if a := &c.Agents[i]; v.sees(a) {
			if !first {
				b = append(b, ',')
			}
			first = false
			b = appendAgent(b, a, v.Host)
		}
	}
	b = append(b, ']')
	if a, ok := c.Agent(c.FallbackAgent); ok && v.sees(&a) {
		b = appendString(append(b, `,"fallbackAgentId":`...), a.ID)
	}
	if !v.Host {
		return b
	}
	b = append(b, `,"phaseAgents":{`...)
	for i, p := range slices.Sorted(maps.Keys(c.PhaseAgents)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(append(appendString(b, p), ':'), c.PhaseAgents[p])
	}
	b = append(b, `},"channels":[`...)
	for i, ch := range c.Channels {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(append(b, `{"match":`...), ch.Match)
		if ch.OnBusy != event.BusyDefault {
			b = appendString(append(b, `,"onBusy":`...), ch.OnBusy.String())
		}
		b = append(b, '}')
	}
	b = strconv.AppendInt(append(b, `],"deadlineMs":`...), c.Deadline().Milliseconds(), 10)
	b = strconv.AppendInt(append(b, `,"waitMs":`...), c.Wait().Milliseconds(), 10)
	return appendIf(b, `,"by":`, string(x.By))
}

func (v Viewer) sees(a *event.Agent) bool { return v.Host || a.Visible().Includes(v.Subject) }

func appendAgent(b []byte, a *event.Agent, host bool) []byte {
	b = appendString(append(b, `{"id":`...), a.ID)
	b = appendString(append(b, `,"label":`...), a.Label)
	b = appendString(append(b, `,"role":`...), a.Role)
	b = appendIf(b, `,"description":`, a.Description)
	if a.Voice != nil {
		b = appendString(append(b, `,"voice":{"id":`...), a.Voice.ID)
		b = append(appendIf(b, `,"lang":`, a.Voice.Lang), '}')
	}
	if host {
		b = appendDisclosure(append(b, `,"visibility":`...), a.Visible())
		b = appendIf(b, `,"version":`, a.Version)
		b = appendString(append(b, `,"driver":`...), a.Driver)
		b = appendIf(b, `,"recovery":`, string(a.Recovery))
	}
	return append(b, '}')
}

func appendEndpoint(b []byte, p event.Endpoint) []byte {
	b = appendString(append(b, `{"kind":`...), p.Kind.String())
	return append(appendString(append(b, `,"id":`...), p.ID), '}')
}

// maxNamed is how many bytes of names a disclosure is written with, about; the
// rest is counted.
const maxNamed = 1 << 10

func appendDisclosure(b []byte, d event.Disclosure) []byte {
	if !d.Stated() {
		return append(b, `{"kind":"none"}`...)
	}
	b = appendString(append(b, `{"kind":`...), d.Kind.String())
	if d.Kind == event.DiscloseParticipants {
		b = append(b, `,"participantIds":[`...)
		from := len(b)
		for i, id := range d.Participants {
			if len(b)-from > maxNamed {
				// A list of any length must not make an item larger than a frame.
				b = strconv.AppendInt(append(b, `],"more":`...), int64(len(d.Participants)-i), 10)
				return append(b, '}')
			}
			if i > 0 {
				b = append(b, ',')
			}
			b = appendString(b, id)
		}
		b = append(b, ']')
	}
	return append(b, '}')
}

// appendIf appends a member whose value is a string, unless it is empty.
func appendIf(b []byte, name, s string) []byte {
	if s == "" {
		return b
	}
	return appendString(append(b, name...), s)
}
