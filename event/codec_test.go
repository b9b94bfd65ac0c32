package event

import (
	"bytes"
	"encoding/binary"
	"errors"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

func TestSamplesHaveEveryKind(t *testing.T) {
	for i, b := range bodies {
		if b.Kind() != Kind(i+1) {
			t.Errorf("kind %d stands at %d", b.Kind(), i)
		}
	}
	if len(bodies) != len(kindNames)-1 {
		t.Errorf("%d bodies, %d kinds", len(bodies), len(kindNames)-1)
	}
	for i, b := range runBodies {
		if b.RunKind() != RunKind(i+1) {
			t.Errorf("run kind %d stands at %d", b.RunKind(), i)
		}
	}
	if len(runBodies) != len(runKindNames)-1 {
		t.Errorf("%d bodies of run events, %d kinds", len(runBodies), len(runKindNames)-1)
	}
	for i, r := range rows {
		if r.Table() != Table(i+1) {
			t.Errorf("table %d stands at %d", r.Table(), i)
		}
	}
}

func roundTripEntry(t interface{ Fatalf(string, ...any) }, en *Entry) {
	raw := AppendEntry([]byte("before"), en)
	if !bytes.HasPrefix(raw, []byte("before")) {
		t.Fatalf("AppendEntry does not append")
	}
	got, err := DecodeEntry(en.Seq, raw[len("before"):])
	if err != nil {
		t.Fatalf("%s: %v", nameOf(en), err)
	}
	clear(raw)
	if !reflect.DeepEqual(got, en) {
		t.Fatalf("%s: %+v came back as %+v", nameOf(en), en, got)
	}
}

func roundTripRow(t interface{ Fatalf(string, ...any) }, row Row) {
	raw := AppendRow([]byte("before"), row)
	if !bytes.HasPrefix(raw, []byte("before")) {
		t.Fatalf("AppendRow does not append")
	}
	got, err := DecodeRow(raw[len("before"):])
	if err != nil {
		t.Fatalf("%s: %v", nameOf(row), err)
	}
	clear(raw)
	if !reflect.DeepEqual(got, row) {
		t.Fatalf("%s: %+v came back as %+v", nameOf(row), row, got)
	}
}

// A member that a codec forgets is lost in silence; this finds it by its absence.
func TestEveryMemberOfEveryKindIsStored(t *testing.T) {
	for _, en := range filledEntries() {
		roundTripEntry(t, en)
	}
	for _, row := range filledRows() {
		roundTripRow(t, row)
	}
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		roundTripEntry(t, drawEntry(t))
		roundTripRow(t, drawRow(t))
	})
}

// The length of a part is patched in after it; the widths of lengths change at
// 128 and 16,384 bytes.
func TestPartsOfEveryWidthOfLengthAreRead(t *testing.T) {
	for _, n := range []int{0, 1, 100, 126, 127, 128, 129, 200, 16_382, 16_383, 16_384, 16_400, 1 << 18, 1 << 21} {
		roundTripEntry(t, &Entry{Seq: 1, Body: &RunEvent{Event: RunFailed{Message: string(make([]byte, n))}}})
		roundTripEntry(t, &Entry{Seq: 1, Body: &RunEvent{Event: Decision{Utterances: []Utterance{{Text: string(make([]byte, n))}, {Text: "x"}}}}})
		roundTripRow(t, &TranscriptRow{Speaker: Endpoint{Kind: Participant, ID: string(make([]byte, n))}, Text: "after"})
	}
}

func unknownFields() []byte {
	b := binary.AppendUvarint(nil, 900<<1)
	b = binary.AppendUvarint(b, 77)
	b = binary.AppendUvarint(b, 901<<1|1)
	b = binary.AppendUvarint(b, 5)
	return append(b, "later"...)
}

// A newer version may add members; an older one reads the rest.
func TestUnknownMembersAreSkipped(t *testing.T) {
	for _, en := range filledEntries() {
		raw := AppendEntry(nil, en)
		for name, with := range map[string][]byte{
			"at the end":   append(bytes.Clone(raw), unknownFields()...),
			"at the start": append(append(bytes.Clone(raw[:2]), unknownFields()...), raw[2:]...),
		} {
			if got, err := DecodeEntry(en.Seq, with); err != nil || !reflect.DeepEqual(got, en) {
				t.Errorf("%s %s: %+v, %v", nameOf(en), name, got, err)
			}
		}
		run, is := en.Body.(*RunEvent)
		if !is {
			continue
		}
		inner := &encoder{}
		inner.runBody(run.Event)
		if got, err := decodeRunBody(run.Event.RunKind(), append(unknownFields(), inner.b...)); err != nil || !reflect.DeepEqual(got, run.Event) {
			t.Errorf("%s inside: %+v, %v", nameOf(en), got, err)
		}
	}
	for _, row := range filledRows() {
		raw := AppendRow(nil, row)
		if got, err := DecodeRow(append(raw, unknownFields()...)); err != nil || !reflect.DeepEqual(got, row) {
			t.Errorf("%s: %+v, %v", nameOf(row), got, err)
		}
	}
}

func TestUnknownKindsAndVersionsAreErrors(t *testing.T) {
	entry := AppendEntry(nil, filledEntries()[0])
	row := AppendRow(nil, filledRows()[0])
	with := func(raw []byte, at int, v byte) []byte {
		raw = bytes.Clone(raw)
		raw[at] = v
		return raw
	}
	run := &encoder{b: []byte{codecVersion, byte(KindRun)}}
	run.uint(24, 99)
	for name, raw := range map[string][]byte{
		"nothing": nil, "one byte": entry[:1], "kind 0": with(entry, 1, 0), "kind 99": with(entry, 1, 99),
		"a run event of no kind": {codecVersion, byte(KindRun)}, "a run event of kind 99": run.b,
		"version 0": with(entry, 0, 0), "version 2": with(entry, 0, 2),
	} {
		if en, err := DecodeEntry(1, raw); err == nil {
			t.Errorf("%s: %+v", name, en)
		}
	}
	for name, raw := range map[string][]byte{
		"nothing": nil, "one byte": row[:1], "table 0": with(row, 1, 0), "table 99": with(row, 1, 99),
		"version 0": with(row, 0, 0), "version 2": with(row, 0, 2),
	} {
		if r, err := DecodeRow(raw); err == nil {
			t.Errorf("row: %s: %+v", name, r)
		}
	}
	if _, err := DecodeEntry(1, with(entry, 0, codecVersion+1)); !errors.Is(err, errVersion) {
		t.Errorf("a newer entry: %v", err)
	}
	if _, err := DecodeRow(with(row, 0, codecVersion+1)); !errors.Is(err, errVersion) {
		t.Errorf("a newer row: %v", err)
	}
}

// A record that ends early is an error, unless it ends between two members. It
// is never a panic, and never read past its end.
func TestATruncatedRecordIsNeverAPanic(t *testing.T) {
	for _, en := range filledEntries() {
		raw := AppendEntry(nil, en)
		if r, is := en.Body.(*RunEvent); is && reflect.TypeOf(r.Event).NumField() == 0 {
			raw = raw[:len(raw)-2] // the event of no members, which may be left out
		}
		for n := range raw {
			if got, err := DecodeEntry(en.Seq, raw[:n:n]); err == nil && reflect.DeepEqual(got, en) {
				t.Errorf("%s: %d of %d bytes give the whole", nameOf(en), n, len(raw))
			}
		}
	}
	for _, row := range filledRows() {
		raw := AppendRow(nil, row)
		for n := range raw {
			if got, err := DecodeRow(raw[:n:n]); err == nil && reflect.DeepEqual(got, row) {
				t.Errorf("%s: %d of %d bytes give the whole", nameOf(row), n, len(raw))
			}
		}
	}
}

// An error of decoding ends in logs; the record holds what people said.
func TestErrorsOfDecodingHoldNoContent(t *testing.T) {
	for _, config := range []string{`{"agents":"secret"}`, `{"agents":[{"id":"x"`, `secret`, `{"deadlineMs":"secret"}`, `{"deadlineMs":73577357.5}`, `{"channels":[{"onBusy":"secret"}]}`} {
		e := &encoder{b: []byte{codecVersion, byte(KindRoom)}}
		e.bytes(16, []byte(config))
		_, err := DecodeEntry(4, e.b)
		if err == nil {
			t.Fatalf("%s was read", config)
		}
		for _, word := range []string{"secret", "73577357", "'s'"} {
			if bytes.Contains([]byte(err.Error()), []byte(word)) {
				t.Errorf("the error holds what was stored: %v", err)
			}
		}
	}
}

// Whatever decodes means one thing: written again it is read as the same.
func FuzzDecodeEntry(f *testing.F) {
	for _, en := range filledEntries() {
		raw := AppendEntry(nil, en)
		f.Add(raw)
		f.Add(raw[:len(raw)/2])
		f.Add(append(bytes.Clone(raw), unknownFields()...))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		en, err := DecodeEntry(9, raw)
		if err != nil {
			return
		}
		once := AppendEntry(nil, en)
		again, err := DecodeEntry(9, once)
		if err != nil {
			t.Fatalf("%x decodes, %x does not: %v", raw, once, err)
		}
		if twice := AppendEntry(nil, again); !bytes.Equal(once, twice) {
			t.Fatalf("%x is written as %x and then as %x", raw, once, twice)
		}
	})
}

// Whatever decodes means one thing: written again it is read as the same.
func FuzzDecodeRow(f *testing.F) {
	for _, row := range filledRows() {
		raw := AppendRow(nil, row)
		f.Add(raw)
		f.Add(raw[:len(raw)/2])
		f.Add(append(bytes.Clone(raw), unknownFields()...))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		row, err := DecodeRow(raw)
		if err != nil {
			return
		}
		once := AppendRow(nil, row)
		again, err := DecodeRow(once)
		if err != nil {
			t.Fatalf("%x decodes, %x does not: %v", raw, once, err)
		}
		if twice := AppendRow(nil, again); !bytes.Equal(once, twice) {
			t.Fatalf("%x is written as %x and then as %x", raw, once, twice)
		}
	})
}
