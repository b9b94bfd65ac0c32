package audience

import (
	"time"

	"parley/event"
)

// object is a JSON object as encoding/json reads it.
type object = map[string]any

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

func disclosed(d event.Disclosure) object {
	o := object{"kind": d.Kind.String()}
	if d.Kind == event.DiscloseParticipants {
		ids := []any{}
		for _, id := range d.Participants {
			ids = append(ids, string(id))
		}
		o["participantIds"] = ids
	}
	return o
}

func speakerOf(e event.Endpoint) object { return object{"kind": e.Kind.String(), "id": e.ID} }

// due is the item of an entry that a participant is to get.
func due(e *event.Entry, id string, sub event.ParticipantID) object {
	o := object{"id": id, "at": stamp(e.At)}
	if e.Channel != "" {
		o["channel"] = string(e.Channel)
	}
	if e.Disclosure.Kind != event.DiscloseRoom {
		o["disclosure"] = disclosed(e.Disclosure)
	}
	body := object{}
	o["body"] = body
	switch x := e.Body.(type) {
	case *event.InputAdmitted:
		o["kind"] = "input"
		body["speaker"], body["text"], body["modality"] = speakerOf(x.Speaker), x.Text, x.Modality.String()
		if includes(x.RunDisclosure, sub) { // what came of it is for those who may see the run
			o["run"] = string(x.Run)
			body["agent"], body["state"] = string(x.Agent), x.State.String()
		}
		if x.Speaker == event.Person(sub) {
			body["inputId"] = string(x.Input)
		}
	case *event.RunEvent:
		o["kind"], o["run"], o["attempt"] = "run.event", string(x.Run), float64(x.Attempt)
		body["type"] = x.Event.RunKind().String()
		dueRun(o, body, x, sub)
	case *event.RoomConfigured:
		o["kind"] = "room"
		body["type"], body["phase"], body["agents"] = "configured", x.Config.Phase, agentsFor(x.Config.Agents, sub)
		if a, ok := x.Config.Agent(x.Config.FallbackAgent); ok && includes(a.Visible(), sub) {
			body["fallbackAgentId"] = string(a.ID)
		}
	case *event.FocusSet:
		o["kind"] = "room"
		body["type"], body["agent"] = "focus", nil
		if x.Agent != "" {
			body["agent"] = string(x.Agent)
		}
	}
	return o
}

func dueRun(o, body object, x *event.RunEvent, sub event.ParticipantID) {
	switch b := x.Event.(type) {
	case event.AttemptStarted:
		o["agent"] = string(x.Agent)
		body["resumed"] = b.Resumed
	case event.Progress:
		body["stage"] = b.Stage
		if b.Current != nil {
			body["current"] = float64(*b.Current)
		}
		if b.Total != nil {
			body["total"] = float64(*b.Total)
		}
		if b.Message != "" {
			body["message"] = b.Message
		}
	case event.AssistantOutput:
		body["outputId"], body["delta"], body["purpose"] = string(b.Output), b.Delta, b.Purpose.String()
		if b.Final {
			body["final"] = true
		}
	case event.InputRequested:
		body["requestId"], body["expiresAt"] = string(b.Request), stamp(b.ExpiresAt)
		if b.Speaker == event.Person(sub) {
			body["token"] = b.Token
		}
	case event.RunCanceled:
		body["reason"] = b.Reason
	case event.RunFailed:
		body["code"], body["message"] = b.Code, b.Message
	case event.RunBlocked:
		body["reason"] = b.Reason
	}
}

func agentsFor(all []event.Agent, sub event.ParticipantID) []any {
	out := []any{}
	for _, a := range all {
		if !includes(a.Visible(), sub) {
			continue
		}
		o := object{"id": string(a.ID), "label": a.Label, "role": a.Role}
		if a.Voice != nil {
			o["voice"] = object{"id": a.Voice.ID, "lang": a.Voice.Lang}
		}
		out = append(out, o)
	}
	return out
}

// openRun is a run that is open at a position.
type openRun struct {
	run     event.RunID
	channel event.ChannelID
	agent   event.AgentID
	status  event.Status
	attempt uint32
	input   event.InputID
	speaker event.Endpoint
	to      event.Disclosure
	waiting *event.InputRequested
	outputs []*said
}

type said struct {
	id    event.OutputID
	to    event.Disclosure
	text  string
	final bool
}

// picture is the room at a position, from its entries alone.
type picture struct {
	config event.RoomConfig
	focus  map[event.ParticipantID]event.AgentID
	runs   []*openRun
}

func fold(es []*event.Entry) *picture {
	p := &picture{focus: map[event.ParticipantID]event.AgentID{}}
	for _, e := range es {
		switch x := e.Body.(type) {
		case *event.RoomConfigured:
			p.config = x.Config
		case *event.FocusSet:
			p.focus[x.Subject] = x.Agent
		case *event.InputAdmitted:
			r := p.find(x.Run)
			if r == nil {
				r = &openRun{run: x.Run, channel: e.Channel, agent: x.Agent, speaker: x.Speaker, status: event.RunQueued}
				p.runs = append(p.runs, r)
			}
			if x.State != event.Queued {
				r.status = event.RunActive
			}
			r.input, r.to, r.waiting = x.Input, x.RunDisclosure, nil
		case *event.RunEvent:
			p.happened(e, x)
		}
	}
	return p
}

func (p *picture) find(id event.RunID) *openRun {
	for _, r := range p.runs {
		if r.run == id {
			return r
		}
	}
	return nil
}

func (p *picture) happened(e *event.Entry, x *event.RunEvent) {
	r := p.find(x.Run)
	switch b := x.Event.(type) {
	case event.AttemptStarted:
		r.status, r.attempt = event.RunActive, x.Attempt
		kept := r.outputs[:0:0]
		for _, o := range r.outputs {
			if o.final {
				kept = append(kept, o)
			}
		}
		r.outputs = kept
	case event.AssistantOutput:
		var o *said
		for _, have := range r.outputs {
			if have.id == b.Output {
				o = have
			}
		}
		if o == nil {
			o = &said{id: b.Output, to: e.Disclosure}
			r.outputs = append(r.outputs, o)
		}
		o.text, o.final = o.text+b.Delta, b.Final
	case event.InputRequested:
		r.status, r.waiting = event.RunWaiting, &b
	case event.Completed, event.RunCanceled, event.RunFailed, event.DeadlineExceeded:
		kept := p.runs[:0:0]
		for _, other := range p.runs {
			if other != r {
				kept = append(kept, other)
			}
		}
		p.runs = kept
	}
}

// state is what a viewer is told of the picture.
func (p *picture) state(l lens) object {
	room := object{"phase": p.config.Phase, "focus": nil, "agents": agentsFor(p.config.Agents, l.sub)}
	if f := p.focus[l.sub]; f != "" {
		room["focus"] = string(f)
	}
	if a, ok := p.config.Agent(p.config.FallbackAgent); ok && includes(a.Visible(), l.sub) {
		room["fallbackAgentId"] = string(a.ID)
	}
	runs := []any{}
	for _, r := range p.runs {
		if l.shows(r.channel, r.to) {
			runs = append(runs, r.state(l))
		}
	}
	return object{"room": room, "runs": runs, "captions": []any{}}
}

func (r *openRun) state(l lens) object {
	mine := r.speaker == event.Person(l.sub)
	o := object{
		"run": string(r.run), "channel": string(r.channel), "agent": string(r.agent), "status": r.status.String(),
		"attempt": float64(r.attempt), "approvals": []any{},
	}
	if mine {
		o["inputId"] = string(r.input)
	}
	if r.to.Kind != event.DiscloseRoom {
		o["disclosure"] = disclosed(r.to)
	}
	if w := r.waiting; w != nil {
		waits := object{"requestId": string(w.Request), "expiresAt": stamp(w.ExpiresAt)}
		if mine {
			waits["token"] = w.Token
		}
		o["waiting"] = waits
	}
	outputs := []any{}
	for _, s := range r.outputs {
		if !includes(s.to, l.sub) {
			continue
		}
		x := object{"outputId": string(s.id), "purpose": "answer", "text": s.text}
		if s.final {
			x["final"] = true
		}
		if !s.to.Equal(r.to) {
			x["disclosure"] = disclosed(s.to)
		}
		outputs = append(outputs, x)
	}
	o["outputs"] = outputs
	return o
}
