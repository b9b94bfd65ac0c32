package wire

import (
	"strconv"
	"unicode/utf8"

	"parley/event"
)

// State writes the state frames of a view for a viewer: one, or several when
// one would exceed maxFrame bytes. sees decides for a run and for an output
// whether the viewer may have it, with its present claims and channels. A nil
// view is the state before the first entry.
//
// Lists continue from part to part. A run that is named again goes on: its
// outputs are appended, and the text of an output that is named again is
// appended to what it had.
func State(v *event.View, who Viewer, sees func(event.ChannelID, event.Disclosure) bool, maxFrame int) [][]byte {
	s := &stateWriter{max: maxFrame}
	s.begin()
	if v != nil {
		s.room(v, who)
		for i := range v.Runs {
			if r := &v.Runs[i]; sees(r.Channel, r.Disclosure) {
				s.run(r, who, sees)
			}
		}
	}
	return s.frames()
}

// stateWriter fills one part after the other. Owned by one call of State.
type stateWriter struct {
	max   int
	parts []statePart
}

type statePart struct {
	head   []byte // members of room before agents
	agents []byte
	runs   []byte
	size   int
}

// stateEnvelope is more than all of a part but its fragments takes.
const stateEnvelope = 256

func (s *stateWriter) begin() *statePart {
	s.parts = append(s.parts, statePart{size: stateEnvelope})
	return s.last()
}

func (s *stateWriter) last() *statePart { return &s.parts[len(s.parts)-1] }

func (s *stateWriter) left() int { return s.max - s.last().size }

func (s *stateWriter) room(v *event.View, who Viewer) {
	p := s.last()
	b := appendString([]byte(`"phase":`), v.Phase)
	b = append(b, `,"focus":`...)
	focus := []byte("null")
	for _, f := range v.Focus {
		if f.Subject == who.Subject {
			focus = appendString(nil, f.Agent)
		}
	}
	b = append(append(b, focus...), ',')
	if who.Host && len(v.Focus) > 0 {
		b = append(b, `"focusBySubject":{`...)
		for i, f := range v.Focus {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendString(append(appendString(b, f.Subject), ':'), f.Agent)
		}
		b = append(b, '}', ',')
	}
	for i := range v.Agents {
		if a := &v.Agents[i]; a.ID == v.Fallback && who.sees(a) {
			b = append(appendString(append(b, `"fallbackAgentId":`...), a.ID), ',')
		}
	}
	p.head, p.size = b, p.size+len(b)
	for i := range v.Agents {
		a := &v.Agents[i]
		if !who.sees(a) {
			continue
		}
		f := appendAgent(nil, a, who.Host)
		if len(f)+stateEnvelope > s.max {
			brief := *a
			brief.Description, brief.Visibility = "", event.Disclosure{}
			f = appendAgent(nil, &brief, who.Host)
		}
		if len(f)+1 > s.left() {
			s.begin()
		}
		p := s.last()
		p.agents = appendElement(p.agents, f)
		p.size += len(f) + 1
	}
}

func (s *stateWriter) run(r *event.RunView, who Viewer, sees func(event.ChannelID, event.Disclosure) bool) {
	head := appendRunView(nil, r, who)
	// The head must leave room for a piece of text in the same part.
	if len(head)+16 > s.left() {
		s.begin()
	}
	open := false // whether the last part holds the head of this run
	var p *statePart
	put := func(fragment []byte) {
		if !open {
			p = s.last()
			p.runs = appendElement(p.runs, head)
			p.size += len(head) + len(runTail) + 1
			open = true
		} else if fragment != nil {
			p.runs = append(p.runs, ',')
		}
		p.runs = append(p.runs, fragment...)
		p.size += len(fragment) + 1
	}
	shut := func() {
		if open {
			p.runs = append(p.runs, runTail...)
			open = false
		}
	}
	cost := func(fragment []byte) int {
		n := len(fragment) + 1
		if !open {
			n += len(head) + len(runTail) + 1
		}
		return n
	}
	for i := range r.Outputs {
		o := &r.Outputs[i]
		if !sees(r.Channel, o.Disclosure) {
			continue
		}
		f := appendOutputView(nil, r, o, o.Text, o.Final)
		if cost(f) > s.left() {
			shut()
			s.begin()
		}
		if cost(f) <= s.left() {
			put(f)
			continue
		}
		for text := o.Text; ; {
			piece := cut(text, pieceOfText)
			text = text[len(piece):]
			f := appendOutputView(nil, r, o, piece, o.Final && text == "")
			if cost(f) > s.left() {
				shut()
				s.begin()
			}
			put(f)
			if text == "" {
				break
			}
		}
	}
	if !open {
		put(nil)
	}
	shut()
}

// pieceOfText is how much of a long text goes into one fragment. Escaped, it
// still fits into the least maxFrame beside the head of its run.
const pieceOfText = 2 << 10

const runTail = `],"approvals":[]}`

// cut returns the first n bytes of a text, less what would split a character.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

func appendRunView(b []byte, r *event.RunView, who Viewer) []byte {
	mine := r.Speaker == event.Person(who.Subject)
	b = appendString(append(b, `{"run":`...), r.Run)
	b = appendString(append(b, `,"channel":`...), r.Channel)
	b = appendString(append(b, `,"agent":`...), r.Agent)
	b = appendString(append(b, `,"status":`...), r.Status.String())
	b = strconv.AppendUint(append(b, `,"attempt":`...), uint64(r.Attempt), 10)
	if mine || who.Host {
		b = appendString(append(b, `,"inputId":`...), r.Input)
	}
	if who.Host {
		b = strconv.AppendUint(append(b, `,"sequence":`...), r.Sequence, 10)
		b = appendEndpoint(append(b, `,"speaker":`...), r.Speaker)
		if !r.Deadline.IsZero() {
			b = appendTime(append(b, `,"deadline":`...), r.Deadline)
		}
	}
	if r.Disclosure.Kind != event.DiscloseRoom {
		b = appendDisclosure(append(b, `,"disclosure":`...), r.Disclosure)
	}
	if w := r.Waiting; w != nil {
		b = append(b, `,"waiting":{`...)
		at := len(b)
		b = appendRequest(b, w, mine || who.Host)
		b = append(b[:at], b[at+1:]...) // appendRequest begins with a comma
		b = append(b, '}')
	}
	return append(b, `,"outputs":[`...)
}

func appendOutputView(b []byte, r *event.RunView, o *event.OutputView, text string, final bool) []byte {
	b = appendString(append(b, `{"outputId":`...), o.Output)
	b = appendString(append(b, `,"purpose":`...), o.Purpose.String())
	if usual := o.Purpose != event.ProgressText; (o.History == event.Record) != usual {
		b = appendString(append(b, `,"history":`...), o.History.String())
	}
	if final {
		b = append(b, `,"final":true`...)
	}
	if !o.Disclosure.Equal(r.Disclosure) {
		b = appendDisclosure(append(b, `,"disclosure":`...), o.Disclosure)
	}
	return append(appendString(append(b, `,"text":`...), text), '}')
}

func appendElement(list, element []byte) []byte {
	if len(list) > 0 {
		list = append(list, ',')
	}
	return append(list, element...)
}

func (s *stateWriter) frames() [][]byte {
	out := make([][]byte, len(s.parts))
	for i := range s.parts {
		p := &s.parts[i]
		b := strconv.AppendInt(append(make([]byte, 0, p.size+64), `{"type":"state","part":`...), int64(i+1), 10)
		b = strconv.AppendInt(append(b, `,"parts":`...), int64(len(s.parts)), 10)
		if i == 0 || len(p.agents) > 0 {
			b = append(append(append(b, `,"room":{`...), p.head...), `"agents":[`...)
			b = append(append(b, p.agents...), ']', '}')
		}
		b = append(append(b, `,"captions":[],"runs":[`...), p.runs...)
		out[i] = append(b, ']', '}')
	}
	return out
}
