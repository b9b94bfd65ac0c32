package event

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// A2, E7: a disclosure only narrows on its way.
func TestIntersectNeverWidens(t *testing.T) {
	people := []ParticipantID{"ann", "bob", "cem", "dee", "nobody", ""}
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := drawDisclosure(t), drawDisclosure(t), drawDisclosure(t)
		ab := a.Intersect(b)
		for _, p := range people {
			want := a.Stated() && b.Stated() && a.Includes(p) && b.Includes(p)
			if ab.Includes(p) != want {
				t.Fatalf("%v ∩ %v = %v includes %q: %v", a, b, ab, p, ab.Includes(p))
			}
		}
		if !ab.Stated() {
			t.Fatalf("%v ∩ %v is not stated", a, b)
		}
		if !a.Covers(ab) || !b.Covers(ab) {
			t.Fatalf("%v ∩ %v = %v goes beyond a side", a, b, ab)
		}
		if ba := b.Intersect(a); !ab.Equal(ba) {
			t.Fatalf("%v ∩ %v = %v, the other way %v", a, b, ab, ba)
		}
		if l, r := ab.Intersect(c), a.Intersect(b.Intersect(c)); !l.Equal(r) {
			t.Fatalf("(%v ∩ %v) ∩ %v = %v, the other way %v", a, b, c, l, r)
		}
		if a.Stated() && !a.Intersect(a).Equal(a) {
			t.Fatalf("%v ∩ itself = %v", a, a.Intersect(a))
		}
		if ab.Empty() != !slices.ContainsFunc(people[:4], ab.Includes) {
			t.Fatalf("%v is empty: %v", ab, ab.Empty())
		}
		if !slices.IsSorted(ab.Participants) || (ab.Kind == DiscloseParticipants) != (len(ab.Participants) > 0) {
			t.Fatalf("%#v breaks the invariant", ab)
		}
	})
}

func TestIntersect(t *testing.T) {
	unstated, none, room := Disclosure{}, ToNone(), ToRoom()
	ann, both, bob := ToParticipants("ann"), ToParticipants("ann", "bob"), ToParticipants("bob")
	for _, c := range []struct{ a, b, want Disclosure }{
		{unstated, unstated, none},
		{unstated, room, none}, // A2: a grant without a disclosure gives none
		{unstated, ann, none},
		{none, room, none},
		{none, ann, none},
		{room, room, room},
		{room, both, both},
		{both, both, both},
		{both, ann, ann},
		{ann, bob, none},
	} {
		if got := c.a.Intersect(c.b); !got.Equal(c.want) {
			t.Errorf("%v ∩ %v = %v", c.a, c.b, got)
		}
		if got := c.b.Intersect(c.a); !got.Equal(c.want) {
			t.Errorf("%v ∩ %v = %v", c.b, c.a, got)
		}
	}
}

func TestCoversSaysThatEverybodyOfTheOtherMaySeeIt(t *testing.T) {
	people := []ParticipantID{"ann", "bob", "cem", "dee", "someone else"}
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawDisclosure(t), drawDisclosure(t)
		want := true
		for _, p := range people {
			want = want && (!b.Includes(p) || a.Includes(p))
		}
		if a.Covers(b) != want {
			t.Fatalf("%v covers %v: %v", a, b, a.Covers(b))
		}
	})
}

func TestToParticipantsSortsWithoutTouchingItsArguments(t *testing.T) {
	ids := []ParticipantID{"c", "a", "c", "b"}
	d := ToParticipants(ids...)
	if want := (Disclosure{DiscloseParticipants, []ParticipantID{"a", "b", "c"}}); !reflect.DeepEqual(d, want) {
		t.Errorf("%v", d)
	}
	if !slices.Equal(ids, []ParticipantID{"c", "a", "c", "b"}) {
		t.Errorf("the arguments became %v", ids)
	}
	if d := ToParticipants(); !d.Equal(ToNone()) {
		t.Errorf("nobody gives %v", d)
	}
}

func TestDisclosureOnTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawDisclosure(t)
		raw, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		var got Disclosure
		if err := json.Unmarshal(raw, &got); err != nil || !reflect.DeepEqual(got, d) {
			t.Fatalf("%v is %s is %v, %v", d, raw, got, err)
		}
	})
	many, err := json.Marshal(map[string]any{"kind": "participants", "participantIds": make([]string, 257)})
	if err != nil {
		t.Fatal(err)
	}
	for _, raw := range []string{
		`{}`, `{"kind":""}`, `{"kind":"all"}`, `{"kind":"room","participantIds":["a"]}`, `{"kind":"none","participantIds":[]}`,
		`{"kind":"participants"}`, `{"kind":"participants","participantIds":[]}`, `"room"`, `[]`, `{"kind":1}`, `{"kind":"Room"}`, string(many),
	} {
		var d Disclosure
		if err := json.Unmarshal([]byte(raw), &d); err == nil {
			t.Errorf("%.60s gives %v", raw, d)
		}
	}
}
