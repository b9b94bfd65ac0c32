package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"parley/event"
	"parley/gateway/wire"
)

// Accepted says that an input is durable.
type Accepted struct {
	ID        event.InputID `json:"id"`
	Entry     string        `json:"entry"` // entry id of the input's item
	Run       event.RunID   `json:"run"`
	At        time.Time     `json:"at"`
	State     string        `json:"state"` // started, continued, merged or queued
	Duplicate bool          `json:"duplicate"`
}

// Other is a frame that the client hands on as it is: hints, speech, cues, and types of newer servers.
type Other struct {
	Type string
	Data json.RawMessage
}

type readyFrame struct {
	Conn      string              `json:"conn"`
	Sub       event.ParticipantID `json:"sub"`
	Resumed   *bool               `json:"resumed"`
	Reason    wire.Reset          `json:"reason"`
	Cursor    string              `json:"cursor"`
	Can       Rights              `json:"can"`
	ExpiresIn int64               `json:"expiresIn"`
	PingMs    int64               `json:"pingMs"`
	Window    int64               `json:"window"`
	Floor     json.RawMessage     `json:"floor"`
}

// Rights are what the connection may do, by channel. A channel without any right is absent.
type Rights map[event.ChannelID][]event.Scope

type stateFrame struct {
	Part  int `json:"part"`
	Parts int `json:"parts"`
	Room  *struct {
		Phase  string        `json:"phase"`
		Agents []Agent       `json:"agents"`
		Focus  event.AgentID `json:"focus"`
	} `json:"room"`
	Floor    json.RawMessage   `json:"floor"`
	Captions []json.RawMessage `json:"captions"`
	Runs     []OpenRun         `json:"runs"`
}

type eventsJSON struct {
	N      uint64     `json:"n"`
	Cursor string     `json:"cursor"`
	Items  []itemJSON `json:"items"`
}

type eventsFrame struct {
	n      uint64
	cursor string
	items  []Item
}

type caughtUpFrame struct {
	Cursor string `json:"cursor"`
}

type subscribedFrame struct {
	Ref      string            `json:"ref"`
	Channels []event.ChannelID `json:"channels"`
	Can      Rights            `json:"can"`
	Result   json.RawMessage
}

type doneFrame struct {
	Ref       string          `json:"ref"`
	ExpiresIn *int64          `json:"expiresIn"`
	Can       Rights          `json:"can"`
	Result    json.RawMessage // the whole frame
}

type errorFrame struct {
	Ref     string    `json:"ref"`
	Code    wire.Code `json:"code"`
	Message string    `json:"message"`
	Run     string    `json:"run"`
	RetryMs int64     `json:"retryMs"`
	Fatal   bool      `json:"fatal"`
}

type pingFrame struct {
	Cursor string          `json:"cursor"`
	T      json.RawMessage `json:"t"`
}

type goawayFrame struct {
	Reason  string `json:"reason"`
	AfterMs int64  `json:"afterMs"`
}

// decodeFrame reads and checks one text frame of a server. It is lenient in one
// direction only: unknown members, types and kinds pass, because a newer server
// may send them; a known member of the wrong shape is a *FrameError.
func decodeFrame(raw []byte) (any, error) {
	var head struct {
		Type string `json:"type"`
	}
	if err := unmarshal(raw, &head); err != nil {
		return nil, err
	}
	switch head.Type {
	case "":
		return nil, &FrameError{Member: "type", Expected: "expected a string that is not empty"}
	case wire.TypeReady:
		return decodeReady(raw)
	case wire.TypeState:
		return decodeState(raw)
	case wire.TypeEvents:
		return decodeEvents(raw)
	case wire.TypeCaughtUp:
		f := &caughtUpFrame{}
		if err := unmarshal(raw, f); err != nil {
			return nil, err
		}
		return f, filled("cursor", &f.Cursor)
	case wire.TypeAccepted:
		f := &Accepted{}
		if err := unmarshal(raw, f); err != nil {
			return nil, err
		}
		return f, filled("id", (*string)(&f.ID))
	case wire.TypeDone:
		f := &doneFrame{Result: raw}
		if err := unmarshal(raw, f); err != nil {
			return nil, err
		}
		return f, filled("ref", &f.Ref)
	case wire.TypeSubscribed:
		f := &subscribedFrame{Result: raw}
		return f, unmarshal(raw, f) // one without ref tells what a fresh token opened
	case wire.TypeError:
		f := &errorFrame{}
		if err := unmarshal(raw, f); err != nil {
			return nil, err
		}
		return f, filled("code", (*string)(&f.Code))
	case wire.TypePing:
		f := &pingFrame{}
		if err := unmarshal(raw, f); err != nil {
			return nil, err
		}
		if len(f.T) == 0 {
			return nil, &FrameError{Member: "t", Expected: "is missing"}
		}
		return f, nil
	case wire.TypeGoaway:
		f := &goawayFrame{}
		return f, unmarshal(raw, f)
	}
	return &Other{Type: head.Type, Data: raw}, nil
}

func decodeReady(raw []byte) (any, error) {
	f := &readyFrame{}
	if err := unmarshal(raw, f); err != nil {
		return nil, err
	}
	if f.Resumed == nil {
		return nil, &FrameError{Member: "resumed", Expected: "expected a boolean"}
	}
	for name, n := range map[string]int64{"expiresIn": f.ExpiresIn, "pingMs": f.PingMs - 1, "window": f.Window - 1} {
		if n < 0 {
			return nil, &FrameError{Member: name, Expected: "is too small"}
		}
	}
	return f, filled("cursor", &f.Cursor)
}

func decodeState(raw []byte) (any, error) {
	f := &stateFrame{Part: 1, Parts: 1}
	if err := unmarshal(raw, f); err != nil {
		return nil, err
	}
	if f.Part < 1 || f.Part > f.Parts {
		return nil, &FrameError{Member: "part", Expected: "expected a number from 1 to parts"}
	}
	for i, r := range f.Runs {
		if r.Run == "" || r.Channel == "" || r.Status == "" {
			return nil, &FrameError{Member: fmt.Sprintf("runs[%d]", i), Expected: "expected run, channel and status"}
		}
	}
	return f, nil
}

func decodeEvents(raw []byte) (any, error) {
	var j eventsJSON
	if err := unmarshal(raw, &j); err != nil {
		return nil, err
	}
	if j.N == 0 {
		return nil, &FrameError{Member: "n", Expected: "expected a number from 1"}
	}
	if len(j.Items) == 0 {
		return nil, &FrameError{Member: "items", Expected: "expected at least one"}
	}
	f := &eventsFrame{n: j.N, cursor: j.Cursor, items: make([]Item, len(j.Items))}
	for i := range j.Items {
		var err error
		if f.items[i], err = j.Items[i].item(fmt.Sprintf("items[%d]", i)); err != nil {
			return nil, err
		}
	}
	return f, filled("cursor", &f.cursor)
}

func filled(member string, s *string) error {
	if *s == "" {
		return &FrameError{Member: member, Expected: "expected a string that is not empty"}
	}
	return nil
}

// unmarshal turns the errors of encoding/json, which may quote values, into ones that name the member only.
func unmarshal(raw []byte, into any) error {
	err := json.Unmarshal(raw, into)
	var wrong *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &wrong):
		return &FrameError{Member: wrong.Field, Expected: "has another type than " + wrong.Type.String()}
	}
	return &FrameError{Expected: "is not the JSON of its type"}
}

// encode writes a frame. Texts go out as they are: nothing is escaped for HTML.
func encode(frame any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(frame); err != nil {
		panic(fmt.Sprintf("client: a frame of type %T cannot be written: %v", frame, err)) // only of values checked before
	}
	return bytes.TrimRight(b.Bytes(), "\n")
}
