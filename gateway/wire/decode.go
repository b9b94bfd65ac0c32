package wire

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"parley/event"
)

// DecodeClient reads one frame of a client. The error is a *Fault:
//
//   - text that is not UTF-8 ends the connection with 1007;
//   - what is not a JSON object, names a member twice, lacks a member or has one
//     of another type ends it with 4400;
//   - a lone surrogate or a forbidden control character anywhere is invalid_text;
//   - a type that this server has no rules for is unknown_type;
//   - a value that is not allowed is bad_request for that request alone, except
//     in hello, which has no other request to go on with.
//
// Unknown members are ignored.
func DecodeClient(raw []byte) (Client, error) {
	if !utf8.Valid(raw) {
		return nil, &Fault{Code: CodeInvalidText, Message: "the frame is not valid UTF-8", Close: CloseInvalidUTF8}
	}
	v, p, err := parse(raw)
	if err != nil {
		return nil, &Fault{Code: CodeBadRequest, Message: "the frame " + err.Error(), Close: CloseBadRequest}
	}
	if v.kind != kindObject {
		return nil, &Fault{Code: CodeBadRequest, Message: "a frame is a JSON object", Close: CloseBadRequest}
	}
	d := &decoder{frame: &v}
	typ := d.str(&v, "type", 1, MaxRef, required)
	if d.fault != nil {
		return nil, d.fault
	}
	d.ref = reference(&v, typ)
	if p.lone || p.ctrl {
		f := &Fault{Code: CodeInvalidText, Ref: d.ref, Message: "a string holds a control character other than newline and tab"}
		if p.lone {
			f.Message = "a string holds an escaped lone surrogate"
		}
		if typ == TypeHello {
			f.Close = CloseBadRequest
		}
		return nil, f
	}
	c := d.decode(typ)
	if d.fault != nil {
		return nil, d.fault
	}
	return c, nil
}

// reference returns what the client will know the frame by, if it can be read.
func reference(v *value, typ string) string {
	name := "ref"
	if typ == TypeInput {
		name = "id"
	}
	if r := v.get(name); r != nil && r.kind == kindString && len(r.text) <= MaxRef {
		return r.text
	}
	return ""
}

// decoder reads the members of one frame. The first fault stays. Owned by one DecodeClient.
type decoder struct {
	frame *value
	ref   string
	whole bool // a value that is not allowed ends the connection
	fault *Fault
}

const (
	optional = false
	required = true
)

func (d *decoder) decode(typ string) Client {
	v := d.frame
	switch typ {
	case TypeHello:
		d.whole = true
		return d.hello(v)
	case TypeAuth:
		return &Auth{Ref: d.reference(v), Token: d.str(v, "token", 1, MaxHelloFrame, required)}
	case TypeSubscribe:
		return &Subscribe{Ref: d.reference(v), Channels: d.channels(v, required)}
	case TypeInput:
		return d.input(v)
	case TypeFocus:
		return &Focus{Ref: d.reference(v), Agent: event.AgentID(d.str(v, "agent", 0, event.MaxName, optional))}
	case TypeCancel:
		return &Cancel{
			Ref: d.reference(v), Run: event.RunID(d.str(v, "run", 1, event.MaxName, required)),
			Reason: d.str(v, "reason", 1, 64, optional),
		}
	case TypeAck:
		n, _ := d.integer(v, "n", required)
		return &Ack{N: uint64(n)}
	case TypePong:
		t, _ := d.integer(v, "t", required)
		return &Pong{T: t}
	}
	d.fault = &Fault{Code: CodeUnknownType, Ref: d.ref, Message: "this server has no rules for frames of that type"}
	return nil
}

func (d *decoder) hello(v *value) Client {
	h := &Hello{
		Token:   d.str(v, "token", 0, MaxHelloFrame, optional),
		Session: d.str(v, "session", 1, MaxRef, optional),
		Cursor:  d.str(v, "cursor", 0, MaxHelloFrame, optional),
		From:    From(d.str(v, "from", 1, MaxRef, optional)),
		Client:  d.str(v, "client", 0, MaxRef, optional),
		Kinds:   d.strings(v, "kinds", len(ItemKinds)),
		Render:  d.strings(v, "render", 16),
	}
	switch h.From {
	case "":
		h.From = FromTail
	case FromTail, FromStart:
	default:
		d.refuse("from: must be tail or start")
	}
	h.Channels = d.channels(v, optional)
	h.All = len(h.Channels) == 0 && absent(v.get("channels"))
	if n, ok := d.integer(v, "maxFrame", optional); ok {
		h.MaxFrame = int(min(max(n, MinMaxFrame), LargestMaxFrame))
	}
	if s := v.get("stages"); !absent(s) {
		if s.kind != kindObject {
			d.malformed("stages: must be an object")
			return h
		}
		h.Stages = map[string]uint64{}
		for i := range s.members {
			n, _ := d.integer(s, s.members[i].name, required)
			h.Stages[s.members[i].name] = uint64(n)
		}
	}
	return h
}

// inputMembers are the members of an input that A5 compares.
var inputMembers = []string{
	"agents", "as", "channel", "continuation", "continue", "deadlineMs", "disclosure", "endedAt", "id", "lang",
	"modality", "onBusy", "supersession", "text",
}

func (d *decoder) input(v *value) Client {
	in := &Input{Final: event.FinalInput{
		ID:   event.InputID(d.str(v, "id", 1, event.MaxInputID, required)),
		Text: d.str(v, "text", 0, MaxClientFrame, required),
		Lang: d.str(v, "lang", 0, 35, optional),
	}}
	f := &in.Final
	in.Channel = d.channel(d.str(v, "channel", 1, MaxClientFrame, required), "channel")
	var ok bool
	if f.Modality, ok = event.ParseModality(d.str(v, "modality", 1, MaxRef, required)); !ok {
		d.refuse("modality: must be speech or text")
	}
	if w := d.str(v, "onBusy", 1, MaxRef, optional); w != "" {
		if f.OnBusy, ok = event.ParseBusyPolicy(w); !ok {
			d.refuse("onBusy: must be supersede, append, queue or reject")
		}
		if f.OnBusy == event.BusyAppend {
			d.refuse("onBusy: this server does not offer append; use supersede, queue or reject")
		}
	}
	for _, a := range d.strings(v, "agents", 64) {
		f.Agents = append(f.Agents, event.AgentID(a))
	}
	if x := d.object(v, "disclosure"); x != nil {
		f.Disclosure = d.disclosure(x)
	}
	if n, ok := d.integer(v, "deadlineMs", optional); ok {
		// What is longer than any room allows is refused by the room; here it must only not wrap.
		f.Deadline = new(millis(min(n, (1<<31)*1000)))
	}
	if s := d.str(v, "endedAt", 1, 64, optional); s != "" {
		t, err := time.Parse(time.RFC3339, s)
		if err != nil || t.Year() < 1970 || t.Year() > 9999 {
			d.refuse("endedAt: must be a time in the form of RFC 3339")
		}
		f.EndedAt = t.UTC()
	}
	if x := d.object(v, "continuation"); x != nil {
		f.Continuation = &event.ContinuationRef{
			Run:     event.RunID(d.str(x, "run", 1, event.MaxName, required)),
			Request: event.RequestID(d.str(x, "requestId", 1, event.MaxName, optional)),
			Token:   d.str(x, "token", 1, event.MaxName, optional),
		}
		if (f.Continuation.Request == "") == (f.Continuation.Token == "") {
			d.refuse("continuation: must have either requestId or token")
		}
	}
	if x := d.object(v, "as"); x != nil {
		k, ok := event.ParseEndpointKind(d.str(x, "kind", 1, MaxRef, required))
		if !ok {
			d.refuse("as.kind: must be participant, agent, service or watcher")
		}
		in.As = event.Endpoint{Kind: k, ID: d.str(x, "id", 1, event.MaxName, required)}
	}
	if !absent(v.get("continue")) {
		d.refuse("continue: this server does not offer to go on with an ended run; send the input again")
	}
	if !absent(v.get("supersession")) {
		d.refuse("supersession: this server does not offer it; use onBusy supersede")
	}
	if d.fault == nil {
		in.Digest = digest(v)
	}
	return in
}

// digest is the hash of the canonical JSON (RFC 8785) of the known members as
// they were received, so that naming a default differs from leaving it out (A5).
func digest(v *value) [32]byte {
	known := value{kind: kindObject}
	for _, name := range inputMembers {
		if m := v.get(name); m != nil {
			known.members = append(known.members, member{name, *m})
		}
	}
	return sha256.Sum256(known.appendCanonical(make([]byte, 0, 512)))
}

func (d *decoder) disclosure(v *value) event.Disclosure {
	kind := d.str(v, "kind", 1, MaxRef, required)
	ids := d.strings(v, "participantIds", 256)
	switch k, _ := event.ParseDisclosureKind(kind); {
	case k == event.DiscloseRoom && ids == nil:
		return event.ToRoom()
	case k == event.DiscloseNone && ids == nil:
		return event.ToNone()
	case k == event.DiscloseParticipants && len(ids) > 0:
		to := make([]event.ParticipantID, len(ids))
		for i, id := range ids {
			to[i] = event.ParticipantID(id)
		}
		return event.ToParticipants(to...)
	}
	d.refuse(`disclosure: must be {"kind":"none"}, {"kind":"room"} or {"kind":"participants","participantIds":[…]} with 1 to 256 ids`)
	return event.Disclosure{}
}

// malformed ends the connection: the frame does not have the shape of its type.
func (d *decoder) malformed(format string, args ...any) {
	if d.fault == nil || d.fault.Close == 0 {
		d.fault = &Fault{Code: CodeBadRequest, Ref: d.ref, Message: fmt.Sprintf(format, args...), Close: CloseBadRequest}
	}
}

// refuse answers this one frame.
func (d *decoder) refuse(format string, args ...any) {
	if d.fault == nil {
		d.fault = &Fault{Code: CodeBadRequest, Ref: d.ref, Message: fmt.Sprintf(format, args...)}
		if d.whole {
			d.fault.Close = CloseBadRequest
		}
	}
}

func absent(v *value) bool { return v == nil || v.kind == kindNull }

func (d *decoder) str(v *value, name string, least, most int, need bool) string {
	m := v.get(name)
	switch {
	case absent(m) && !need:
		return ""
	case m == nil:
		d.malformed("%s: is missing", name)
	case m.kind != kindString:
		d.malformed("%s: must be a string", name)
	case len(m.text) < least || len(m.text) > most:
		d.refuse("%s: must have %d to %d bytes", name, least, most)
	default:
		return m.text
	}
	return ""
}

func (d *decoder) reference(v *value) string { return d.str(v, "ref", 1, MaxRef, required) }

func (d *decoder) integer(v *value, name string, need bool) (int64, bool) {
	m := v.get(name)
	if absent(m) && !need {
		return 0, false
	}
	if m == nil {
		d.malformed("%s: is missing", name)
		return 0, false
	}
	if m.kind == kindNumber {
		// 1e3 and 1.0 are whole numbers too: many writers of JSON produce them.
		if f, err := strconv.ParseFloat(m.text, 64); err == nil && f >= 0 && f <= maxInt && f == float64(int64(f)) {
			return int64(f), true
		}
	}
	d.malformed("%s: must be a whole number from 0 to 2^53", name)
	return 0, false
}

func (d *decoder) object(v *value, name string) *value {
	m := v.get(name)
	if absent(m) {
		return nil
	}
	if m.kind != kindObject {
		d.malformed("%s: must be an object", name)
		return nil
	}
	return m
}

func (d *decoder) strings(v *value, name string, most int) []string {
	m := v.get(name)
	if absent(m) {
		return nil
	}
	if m.kind != kindList {
		d.malformed("%s: must be a list of strings", name)
		return nil
	}
	if len(m.list) > most {
		d.refuse("%s: must have at most %d elements", name, most)
		return nil
	}
	out := make([]string, 0, len(m.list))
	for i := range m.list {
		switch x := &m.list[i]; {
		case x.kind != kindString:
			d.malformed("%s: must be a list of strings", name)
			return nil
		case x.text == "" || len(x.text) > event.MaxName:
			d.refuse("%s: an element must have 1 to %d bytes", name, event.MaxName)
			return nil
		default:
			out = append(out, x.text)
		}
	}
	return out
}

func (d *decoder) channel(s, member string) event.ChannelID {
	if err := event.CheckName(s); err != nil && d.fault == nil {
		d.refuse("%s: %v", member, err)
	}
	return event.ChannelID(s)
}

func (d *decoder) channels(v *value, need bool) []event.ChannelID {
	if need && absent(v.get("channels")) {
		d.malformed("channels: is missing")
		return nil
	}
	var out []event.ChannelID
	for _, s := range d.strings(v, "channels", MaxChannels) {
		if ch := d.channel(s, "channels"); !slices.Contains(out, ch) {
			out = append(out, ch)
		}
	}
	return out
}
