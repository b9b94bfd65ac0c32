package client

import (
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"parley/event"
	"parley/gateway/wire"
)

// Input is a final input (A1). Zero members are not sent, except Modality, whose
// zero is event.Text. The speaker is the subject of the token.
type Input struct {
	// ID is the idempotency key; Client.Submit makes one when it is empty.
	ID           event.InputID
	Channel      event.ChannelID
	Text         string
	Modality     event.Modality
	Lang         string
	Agents       []event.AgentID // addressed, in order of preference
	Disclosure   event.Disclosure
	OnBusy       event.BusyPolicy
	Continuation *event.ContinuationRef
	// Deadline bounds the attempt, in whole milliseconds; nil: the room's.
	Deadline *time.Duration
	EndedAt  time.Time
	// As names another speaker; host scope only.
	As event.Endpoint
}

type inputJSON struct {
	Type         string            `json:"type,omitempty"`
	ID           event.InputID     `json:"id"`
	Channel      event.ChannelID   `json:"channel"`
	Text         string            `json:"text"`
	Modality     string            `json:"modality"`
	Lang         string            `json:"lang,omitempty"`
	Agents       []event.AgentID   `json:"agents,omitempty"`
	Disclosure   event.Disclosure  `json:"disclosure,omitzero"`
	OnBusy       event.BusyPolicy  `json:"onBusy,omitempty"`
	Continuation *continuationJSON `json:"continuation,omitempty"`
	DeadlineMs   *int64            `json:"deadlineMs,omitempty"`
	EndedAt      time.Time         `json:"endedAt,omitzero"`
	As           *endpointJSON     `json:"as,omitempty"`
}

type continuationJSON struct {
	Run     event.RunID     `json:"run"`
	Request event.RequestID `json:"requestId,omitempty"`
	Token   string          `json:"token,omitempty"`
}

type endpointJSON struct {
	Kind string `json:"kind"`
	ID   string `json:"id"`
}

func (in Input) shape() inputJSON {
	j := inputJSON{
		ID: in.ID, Channel: in.Channel, Text: in.Text, Modality: event.Text.String(), Lang: in.Lang, Agents: in.Agents,
		Disclosure: in.Disclosure, OnBusy: in.OnBusy, EndedAt: in.EndedAt,
	}
	if in.Modality != 0 {
		j.Modality = in.Modality.String()
	}
	if c := in.Continuation; c != nil {
		j.Continuation = &continuationJSON{c.Run, c.Request, c.Token}
	}
	if in.Deadline != nil {
		j.DeadlineMs = new(in.Deadline.Milliseconds())
	}
	if in.As != (event.Endpoint{}) {
		j.As = &endpointJSON{in.As.Kind.String(), in.As.ID}
	}
	return j
}

// MarshalJSON writes the input as it stands on the wire, without the frame's
// type, so that a Storage can keep it as JSON.
func (in Input) MarshalJSON() ([]byte, error) { return json.Marshal(in.shape()) }

// UnmarshalJSON reads what MarshalJSON wrote.
func (in *Input) UnmarshalJSON(b []byte) error {
	var j inputJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	m, ok := event.ParseModality(j.Modality)
	if !ok {
		return fmt.Errorf("modality: must be speech or text")
	}
	*in = Input{
		ID: j.ID, Channel: j.Channel, Text: j.Text, Modality: m, Lang: j.Lang, Agents: j.Agents,
		Disclosure: j.Disclosure, OnBusy: j.OnBusy, EndedAt: j.EndedAt,
	}
	if c := j.Continuation; c != nil {
		in.Continuation = &event.ContinuationRef{Run: c.Run, Request: c.Request, Token: c.Token}
	}
	if j.DeadlineMs != nil {
		in.Deadline = new(time.Duration(*j.DeadlineMs) * time.Millisecond)
	}
	if j.As != nil {
		k, ok := event.ParseEndpointKind(j.As.Kind)
		if !ok {
			return fmt.Errorf("as.kind: must be participant, agent, service or watcher")
		}
		in.As = event.Endpoint{Kind: k, ID: j.As.ID}
	}
	return nil
}

// check refuses here what would make the server close the connection, and again
// after every resend.
func (in Input) check() error {
	if in.ID == "" || len(in.ID) > event.MaxInputID {
		return fmt.Errorf("client: id: must have 1 to %d bytes", event.MaxInputID)
	}
	if err := event.CheckName(string(in.Channel)); err != nil {
		return fmt.Errorf("client: channel: %w", err)
	}
	if err := event.CheckText(in.Text); err != nil {
		return fmt.Errorf("client: text: %w", err)
	}
	for _, s := range append([]string{string(in.ID), in.Lang, in.As.ID}, asStrings(in.Agents)...) {
		if !utf8.ValidString(s) {
			return fmt.Errorf("client: a member is not valid UTF-8")
		}
	}
	if n := len(in.frame()); n > wire.MaxClientFrame {
		return fmt.Errorf("client: the input takes %d bytes on the wire; at most %d are allowed", n, wire.MaxClientFrame)
	}
	return nil
}

func asStrings(ids []event.AgentID) []string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = string(id)
	}
	return out
}

func (in Input) frame() []byte {
	j := in.shape()
	j.Type = wire.TypeInput
	return encode(j)
}
