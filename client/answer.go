package client

import (
	"encoding/json"
	"slices"
	"time"

	"parley/gateway/wire"
)

type pongJSON struct {
	Type string          `json:"type"`
	T    json.RawMessage `json:"t"`
}

func (m *Machine) answered(ref string, result json.RawMessage) {
	if m.requests[ref] {
		delete(m.requests, ref)
		m.emit(RequestDone{Ref: ref, Result: result})
	}
}

// onSubscribed keeps the channels for the next hello: the cursors that follow belong to the larger set.
func (m *Machine) onSubscribed(f *subscribedFrame) {
	m.can = f.Can
	if m.requests[f.Ref] && m.o.Channels != nil {
		for _, ch := range f.Channels {
			if !slices.Contains(m.o.Channels, ch) {
				m.o.Channels = append(slices.Clip(m.o.Channels), ch)
			}
		}
	}
	m.emit(StatusChanged{m.Status()})
	m.answered(f.Ref, f.Result)
}

func (m *Machine) onDone(now time.Time, f *doneFrame) {
	if f.Ref != m.authRef {
		m.answered(f.Ref, f.Result)
		return
	}
	m.authRef = ""
	if f.ExpiresIn != nil {
		m.refreshAt = now.Add(refreshAfter(*f.ExpiresIn))
	}
	if f.Can != nil {
		m.can = f.Can
	}
	m.emit(StatusChanged{m.Status()})
}

func (m *Machine) onError(now time.Time, f *errorFrame) {
	refused := &RefusedError{Ref: f.Ref, Code: f.Code, Message: f.Message, Run: f.Run}
	switch i := m.outbox.find(f.Ref); {
	case f.Ref == "":
		m.emit(Faulted{refused})
	case i >= 0 && (f.Code == wire.CodeRateLimited || f.Code == wire.CodeUnavailable):
		// These say "later" of the server and not of the input; every other
		// refusal, passing or not, is the caller's to weigh.
		after := time.Duration(f.RetryMs) * time.Millisecond
		if after <= 0 {
			after = defaultRetry
		}
		id := m.outbox.kept[i].in.ID
		m.outbox.postpone(f.Ref, now, after)
		m.emit(InputDeferred{ID: id, Code: f.Code})
	case i >= 0:
		id := m.outbox.kept[i].in.ID
		m.outbox.remove(f.Ref)
		m.emit(InputRefused{ID: id, Err: refused})
		m.emit(SaveOutbox{m.outbox.inputs()})
	case m.requests[f.Ref]:
		delete(m.requests, f.Ref)
		m.emit(RequestFailed{Ref: f.Ref, Err: refused})
	case f.Ref == m.authRef:
		m.authRef = ""
		m.refreshAt = now.Add(refreshRetry)
	default:
		m.emit(Faulted{refused})
	}
}
