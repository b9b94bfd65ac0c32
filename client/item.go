package client

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"parley/event"
	"parley/gateway/wire"
)

// Item is one journaled entry of the room as the subject may see it. Immutable after it was delivered.
type Item struct {
	ID         string // entry id: stable for all viewers and across reconnects, unordered
	At         time.Time
	Channel    event.ChannelID // empty for what concerns the whole room
	Kind       string          // one of wire.ItemKinds, or a word of a newer server
	Run        event.RunID
	Agent      event.AgentID
	Attempt    uint32           // 0 for a run that was canceled while queued
	Disclosure event.Disclosure // who else may see it at most
	Body       json.RawMessage  // an object; see RunEvent and Input

	terminal bool // a run event after which the run has no other
}

type itemJSON struct {
	ID         string           `json:"id"`
	At         time.Time        `json:"at"`
	Channel    event.ChannelID  `json:"channel"`
	Kind       string           `json:"kind"`
	Run        event.RunID      `json:"run"`
	Agent      event.AgentID    `json:"agent"`
	Attempt    uint32           `json:"attempt"`
	Disclosure event.Disclosure `json:"disclosure"`
	Body       json.RawMessage  `json:"body"`
}

// Speaker is who said an input.
type Speaker struct {
	Kind string `json:"kind"` // participant, agent, service or watcher
	ID   string `json:"id"`
}

// InputRow is the body of an item of kind input.
type InputRow struct {
	Speaker    Speaker       `json:"speaker"`
	Text       string        `json:"text"`
	Modality   string        `json:"modality"`
	Lang       string        `json:"lang"`
	Agent      event.AgentID `json:"agent"`
	State      string        `json:"state"`
	MergedInto string        `json:"mergedInto"`
	InputID    event.InputID `json:"inputId"` // only of the subject's own inputs, and with host scope
}

// RunEvent is the body of an item of kind run.event. Which members are set
// depends on Type, which is a wire word of spec 2 or one of a newer server.
type RunEvent struct {
	Type      string          `json:"type"`
	Stage     string          `json:"stage"`   // progress
	Current   *int64          `json:"current"` // progress
	Total     *int64          `json:"total"`   // progress
	Unit      string          `json:"unit"`    // progress
	Message   string          `json:"message"` // progress, run_failed
	Output    event.OutputID  `json:"outputId"`
	Delta     string          `json:"delta"`
	Final     bool            `json:"final"`
	Purpose   string          `json:"purpose"`
	History   string          `json:"history"` // empty: the default of the purpose
	Lang      string          `json:"lang"`
	Request   event.RequestID `json:"requestId"` // input_requested
	Token     string          `json:"token"`     // input_requested, for the speaker who is asked
	ExpiresAt time.Time       `json:"expiresAt"` // input_requested
	Resumed   bool            `json:"resumed"`   // attempt_started
	Reason    string          `json:"reason"`    // run_canceled, run_blocked
	Code      string          `json:"code"`      // run_failed
}

// Input decodes the body of an item of kind input.
func (i *Item) Input() (row InputRow, err error) {
	return row, i.decode(wire.KindInput, &row)
}

// RunEvent decodes the body of an item of kind run.event.
func (i *Item) RunEvent() (e RunEvent, err error) {
	return e, i.decode(wire.KindRunEvent, &e)
}

func (i *Item) decode(kind string, into any) error {
	if i.Kind != kind {
		return fmt.Errorf("client: item %s is of kind %s, not %s", i.ID, i.Kind, kind)
	}
	if err := json.Unmarshal(i.Body, into); err != nil {
		return fmt.Errorf("client: body of item %s: %w", i.ID, err)
	}
	return nil
}

// Terminal reports whether the item ends its run.
func (i *Item) Terminal() bool { return i.terminal }

var terminals = []string{
	event.KindCompleted.String(), event.KindRunCanceled.String(),
	event.KindDeadlineExceeded.String(), event.KindRunFailed.String(),
}

// item checks what the machine and the typed bodies rest on (K2). Kinds of newer servers pass.
func (j *itemJSON) item(path string) (Item, error) {
	bad := func(member, expected string) (Item, error) {
		return Item{}, &FrameError{Member: path + "." + member, Expected: expected}
	}
	i := Item{
		ID: j.ID, At: j.At, Channel: j.Channel, Kind: j.Kind, Run: j.Run, Agent: j.Agent, Attempt: j.Attempt,
		Disclosure: j.Disclosure, Body: j.Body,
	}
	if !i.Disclosure.Stated() {
		i.Disclosure = event.ToRoom() // what everyone may see is written without one
	}
	switch {
	case i.ID == "":
		return bad("id", "expected a string that is not empty")
	case i.Kind == "":
		return bad("kind", "expected a string that is not empty")
	case i.At.IsZero():
		return bad("at", "expected a time")
	case len(i.Body) == 0 || i.Body[0] != '{':
		return bad("body", "expected an object")
	}
	switch i.Kind {
	case wire.KindInput:
		row, err := i.Input()
		switch {
		case err != nil:
			return bad("body", "expected the members of an input")
		case i.Channel == "":
			return bad("channel", "expected a string that is not empty")
		case row.Speaker.Kind == "" || row.Speaker.ID == "":
			return bad("body.speaker", "expected kind and id")
		case row.Text == "":
			return bad("body.text", "expected a string that is not empty")
		}
	case wire.KindRunEvent:
		e, err := i.RunEvent()
		switch {
		case err != nil:
			return bad("body", "expected the members of a run event")
		case i.Channel == "":
			return bad("channel", "expected a string that is not empty")
		case i.Run == "":
			return bad("run", "expected a string that is not empty")
		case e.Type == "":
			return bad("body.type", "expected a string that is not empty")
		case e.Type == event.KindAssistantOutput.String() && e.Output == "":
			return bad("body.outputId", "expected a string that is not empty")
		}
		i.terminal = slices.Contains(terminals, e.Type)
	}
	return i, nil
}

// State is what a stream that was not resumed begins with: the room at exactly
// the position of its first item. What was known before is void.
type State struct {
	Phase    string
	Agents   []Agent
	Focus    event.AgentID // the subject's choice; empty for none
	Runs     []OpenRun
	Captions []json.RawMessage
	Floor    json.RawMessage // nil when nobody speaks
}

// Agent is a conversational presence that the subject may see.
type Agent struct {
	ID          event.AgentID `json:"id"`
	Label       string        `json:"label"`
	Role        string        `json:"role"`
	Description string        `json:"description"`
	Voice       *event.Voice  `json:"voice"`
}

// OpenRun is a run that has not ended.
type OpenRun struct {
	Run       event.RunID       `json:"run"`
	Channel   event.ChannelID   `json:"channel"`
	Agent     event.AgentID     `json:"agent"`
	Status    string            `json:"status"`
	Attempt   uint32            `json:"attempt"`
	InputID   event.InputID     `json:"inputId"` // only of the subject's own inputs, and with host scope
	Waiting   *OpenQuestion     `json:"waiting"` // while the run waits for an answer
	Outputs   []OpenOutput      `json:"outputs"`
	Approvals []json.RawMessage `json:"approvals"`
}

// OpenQuestion is what an open run waits for.
type OpenQuestion struct {
	Request   event.RequestID `json:"requestId"`
	ExpiresAt time.Time       `json:"expiresAt"`
	Token     string          `json:"token"` // for the speaker who is asked
}

// OpenOutput is the text so far of an output of an open run.
type OpenOutput struct {
	Output  event.OutputID `json:"outputId"`
	Purpose string         `json:"purpose"`
	History string         `json:"history"` // empty: the default of the purpose
	Final   bool           `json:"final"`
	Text    string         `json:"text"`
}

// join adds a further part of a state: lists go on, and so does a run or an
// output that is named again.
func (s *State) join(f *stateFrame) {
	if f.Room != nil {
		if f.Part == 1 { // the later ones go on with the agents only
			s.Phase = f.Room.Phase
		}
		s.Agents = append(s.Agents, f.Room.Agents...)
		if f.Room.Focus != "" {
			s.Focus = f.Room.Focus
		}
	}
	if len(f.Floor) > 0 && string(f.Floor) != "null" {
		s.Floor = f.Floor
	}
	s.Captions = append(s.Captions, f.Captions...)
	for _, r := range f.Runs {
		n := len(s.Runs)
		if n == 0 || s.Runs[n-1].Run != r.Run {
			s.Runs = append(s.Runs, r)
			continue
		}
		last := &s.Runs[n-1]
		last.Approvals = append(last.Approvals, r.Approvals...)
		for _, o := range r.Outputs {
			if k := len(last.Outputs); k > 0 && last.Outputs[k-1].Output == o.Output {
				last.Outputs[k-1].Text += o.Text
				last.Outputs[k-1].Final = o.Final
				continue
			}
			last.Outputs = append(last.Outputs, o)
		}
	}
}
