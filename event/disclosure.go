package event

import "slices"

// DisclosureKind is how wide a Disclosure is.
type DisclosureKind uint8

// The kinds of disclosure, from the narrowest to the widest. The zero value is
// "not stated" and shows a thing to nobody.
const (
	DiscloseUnstated DisclosureKind = iota
	DiscloseNone
	DiscloseParticipants
	DiscloseRoom
)

var disclosureNames = [...]string{DiscloseNone: "none", DiscloseParticipants: "participants", DiscloseRoom: "room"}

// String returns the wire word of k.
func (k DisclosureKind) String() string { return word(disclosureNames[:], int(k)) }

// ParseDisclosureKind returns the kind with that wire word.
func ParseDisclosureKind(s string) (DisclosureKind, bool) {
	return parse[DisclosureKind](disclosureNames[:], s)
}

// Disclosure says who may see a thing at most. It only narrows on its way.
//
// Invariant: Participants is sorted, without repeats, and set only for DiscloseParticipants.
type Disclosure struct {
	Kind         DisclosureKind
	Participants []ParticipantID
}

// ToNone is seen with host scope only.
func ToNone() Disclosure { return Disclosure{Kind: DiscloseNone} }

// ToRoom is seen by everyone who may read the channel.
func ToRoom() Disclosure { return Disclosure{Kind: DiscloseRoom} }

// ToParticipants is seen by those named. Without a name it equals ToNone.
func ToParticipants(ids ...ParticipantID) Disclosure {
	if len(ids) == 0 {
		return ToNone()
	}
	ids = slices.Clone(ids)
	slices.Sort(ids)
	return Disclosure{Kind: DiscloseParticipants, Participants: slices.Compact(ids)}
}

// Stated reports whether the disclosure was given at all.
func (d Disclosure) Stated() bool { return d.Kind != DiscloseUnstated }

// Empty reports whether no participant may see the thing.
func (d Disclosure) Empty() bool { return d.Kind != DiscloseRoom && len(d.Participants) == 0 }

// Includes reports whether the participant may see the thing, given the right to read its channel.
func (d Disclosure) Includes(id ParticipantID) bool {
	if d.Kind == DiscloseRoom {
		return true
	}
	_, ok := slices.BinarySearch(d.Participants, id)
	return ok
}

// Intersect returns what both allow (A2, E7). An unstated side gives none.
func (d Disclosure) Intersect(o Disclosure) Disclosure {
	switch {
	case !d.Stated() || !o.Stated():
		return ToNone()
	case d.Kind == DiscloseRoom:
		return o
	case o.Kind == DiscloseRoom:
		return d
	}
	var both []ParticipantID
	for _, id := range d.Participants {
		if o.Includes(id) {
			both = append(both, id)
		}
	}
	return ToParticipants(both...)
}

// Covers reports whether everyone who may see o may also see d.
func (d Disclosure) Covers(o Disclosure) bool {
	if d.Kind == DiscloseRoom {
		return true
	}
	if o.Kind == DiscloseRoom {
		return false
	}
	for _, id := range o.Participants {
		if !d.Includes(id) {
			return false
		}
	}
	return true
}

// Equal reports whether both show a thing to the same people.
func (d Disclosure) Equal(o Disclosure) bool {
	return d.Kind == o.Kind && slices.Equal(d.Participants, o.Participants)
}
