package persistence

import (
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"parley/event"
)

func TestBlocksGiveBackTheEntriesOfABatchWithinTheirBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.OneOf(rapid.IntRange(0, 200), rapid.IntRange(0, 2*maxBlockBytes)), 1, 300).Draw(t, "sizes")
		b := &event.Batch{Room: "den", Expect: 1000}
		for i, n := range sizes {
			b.Entries = append(b.Entries, entryOf(b.Room, 1001+event.Seq(i), n))
		}
		var e encoded
		if err := e.encode(b); err != nil {
			t.Fatal(err)
		}
		at := 0
		for i, last := range e.lasts {
			raw := e.value(i)
			blk, err := openBlock(raw)
			if err != nil {
				t.Fatal(err)
			}
			n := blk.n
			if n > 1 && len(raw) > maxBlockBytes+1024 {
				t.Fatalf("a block of %d entries has %d bytes", n, len(raw))
			}
			for range n {
				one, err := blk.next()
				if err != nil {
					t.Fatal(err)
				}
				en, err := event.DecodeEntry(b.Entries[at].Seq, one)
				if err != nil || !reflect.DeepEqual(en, b.Entries[at]) {
					t.Fatalf("entry %d reads back as %+v, %v", at, en, err)
				}
				at++
			}
			if _, err := blk.next(); !errors.Is(err, errValue) {
				t.Fatalf("beyond its end a block gives %v", err)
			}
			if want := b.Entries[at-1].Seq; last != want {
				t.Fatalf("block %d is named %d, its last entry is %d", i, last, want)
			}
		}
		if at != len(sizes) {
			t.Fatalf("%d of %d entries", at, len(sizes))
		}
	})
}

// entryOf makes an entry with n bytes of content.
func entryOf(room event.RoomID, at event.Seq, n int) *event.Entry {
	e := entryAt(room, at)
	e.Body = &event.FocusSet{Subject: event.ParticipantID(room), Agent: event.AgentID(strings.Repeat("g", n))}
	return e
}

// Whatever the bytes are, reading a block ends and stays within them.
func FuzzBlock(f *testing.F) {
	var e encoded
	if err := e.encode(&event.Batch{Room: "den", Entries: []*event.Entry{entryOf("den", 1, 3), entryOf("den", 2, 300)}}); err != nil {
		f.Fatal(err)
	}
	f.Add(e.value(0))
	f.Add([]byte("\x01\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		b, err := openBlock(raw)
		if err != nil {
			return
		}
		for range 256 {
			one, err := b.next()
			if err != nil {
				return
			}
			_, _ = event.DecodeEntry(1, one)
		}
		t.Fatal("a block holds more entries than its count can say")
	})
}

// What was written once is readable for ever: this is a commit of format 2.
func TestTheStoredFormOfABatchStays(t *testing.T) {
	b := &event.Batch{Room: "den", Expect: 254, Entries: []*event.Entry{entryAt("den", 255), entryAt("den", 256)}}
	b.Rows = append(b.Rows, rowFor("den", 256, "said"))
	var e encoded
	if err := e.encode(b); err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		key   []byte
		bytes string
	}{
		{appendBlockKey(nil, 300, e.lasts[0]), blockGolden},
		{appendRowKey(nil, 300, b.Rows[0].Key), rowGolden},
	} {
		if got := fmt.Sprintf("%x=%x", want.key, e.value(i)); got != want.bytes {
			t.Errorf("value %d is written as\n%s, was\n%s", i, got, want.bytes)
		}
	}
	_, value, _ := strings.Cut(blockGolden, "=")
	raw, err := hex.DecodeString(value)
	if err != nil {
		t.Fatal(err)
	}
	blk, err := openBlock(raw)
	if err != nil || blk.n != 2 {
		t.Fatalf("the block of old has %d entries, %v", blk.n, err)
	}
	for _, want := range b.Entries {
		one, err := blk.next()
		if err != nil {
			t.Fatal(err)
		}
		if en, err := event.DecodeEntry(want.Seq, one); err != nil || !reflect.DeepEqual(en, want) {
			t.Errorf("entry %d of old reads as %+v, %v", want.Seq, en, err)
		}
	}
}

const (
	blockGolden = "12012c01020100=010223010402ffa1f1c2b13405067075626c69630603210364656e230967756964652d3235352301040280a2f1c2b13405067075626c69630603210364656e230967756964652d323536"
	rowGolden   = "12012c83067075626c69630000000000000100=01030280020480a0f1c2b134070702010503616e6e08030d0364656e1002150473616964"
)
