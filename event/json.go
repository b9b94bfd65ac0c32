package event

import (
	"encoding/json"
	"fmt"
)

type disclosureJSON struct {
	Kind         string          `json:"kind"`
	Participants []ParticipantID `json:"participantIds,omitempty"`
}

// MarshalJSON writes the wire form: {"kind":"room"}, {"kind":"none"} or
// {"kind":"participants","participantIds":[…]}; an unstated disclosure is null.
func (d Disclosure) MarshalJSON() ([]byte, error) {
	if !d.Stated() {
		return []byte("null"), nil
	}
	return json.Marshal(disclosureJSON{Kind: d.Kind.String(), Participants: d.Participants})
}

// UnmarshalJSON reads the wire form.
func (d *Disclosure) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*d = Disclosure{}
		return nil
	}
	var j disclosureJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return fmt.Errorf("a disclosure is an object with the member kind")
	}
	switch {
	case j.Kind == "room" && j.Participants == nil:
		*d = ToRoom()
	case j.Kind == "none" && j.Participants == nil:
		*d = ToNone()
	case j.Kind == "participants" && len(j.Participants) > 0 && len(j.Participants) <= 256:
		*d = ToParticipants(j.Participants...)
	default:
		return fmt.Errorf(`a disclosure is {"kind":"room"}, {"kind":"none"} or {"kind":"participants","participantIds":[…]} with 1 to 256 ids`)
	}
	return nil
}

// MarshalText writes the wire word; the default policy is empty.
func (p BusyPolicy) MarshalText() ([]byte, error) {
	if p == BusyDefault {
		return nil, nil
	}
	return []byte(p.String()), nil
}

// UnmarshalText reads the wire word.
func (p *BusyPolicy) UnmarshalText(b []byte) error {
	if len(b) == 0 {
		*p = BusyDefault
		return nil
	}
	v, ok := ParseBusyPolicy(string(b))
	if !ok {
		return fmt.Errorf("%q is not a busy policy; use supersede, append, queue or reject", b)
	}
	*p = v
	return nil
}
