package wire

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"parley/event"
)

var testSecret = bytes.Repeat([]byte{7}, MinSecret)

func testKeys(t testing.TB, room event.RoomID) *Keys {
	t.Helper()
	k, err := NewKeys(testSecret, room)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestCursorOpensForItsRoomAndSubjectOnly(t *testing.T) {
	k := testKeys(t, "hall")
	want := Cursor{Incarnation: 0xfedcba987654, Seq: 0x123456789abc, Minutes: Minutes(time.Now()), Channels: 0xdeadbeef}
	text := string(k.AppendCursor(nil, [NonceSize]byte{1}, []byte("ann"), want))
	if len(text) > 64 {
		t.Errorf("a cursor has %d characters", len(text))
	}
	if got, err := k.OpenCursor(text, []byte("ann")); err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
	other, err := NewKeys(bytes.Repeat([]byte{8}, MinSecret), "hall")
	if err != nil {
		t.Fatal(err)
	}
	for name, open := range map[string]func() (Cursor, error){
		"another subject": func() (Cursor, error) { return k.OpenCursor(text, []byte("bob")) },
		"another room":    func() (Cursor, error) { return testKeys(t, "hall2").OpenCursor(text, []byte("ann")) },
		"another secret":  func() (Cursor, error) { return other.OpenCursor(text, []byte("ann")) },
		"cut":             func() (Cursor, error) { return k.OpenCursor(text[:len(text)-1], []byte("ann")) },
		"longer":          func() (Cursor, error) { return k.OpenCursor(text+"A", []byte("ann")) },
		"much longer":     func() (Cursor, error) { return k.OpenCursor(strings.Repeat("A", 5000), []byte("ann")) },
		"empty":           func() (Cursor, error) { return k.OpenCursor("", []byte("ann")) },
		"changed":         func() (Cursor, error) { return k.OpenCursor("B"+text[1:], []byte("ann")) },
		"other padding":   func() (Cursor, error) { return k.OpenCursor(text+"=", []byte("ann")) },
		"with a newline":  func() (Cursor, error) { return k.OpenCursor(text[:10]+"\n"+text[10:], []byte("ann")) },
	} {
		if c, err := open(); !errors.Is(err, ErrCursor) || c != (Cursor{}) {
			t.Errorf("%s: got %+v, %v", name, c, err)
		}
	}
}

func TestCursorsExpireWithRetention(t *testing.T) {
	now := time.Date(2026, 11, 30, 21, 0, 30, 0, time.UTC)
	c := Cursor{Minutes: Minutes(now)}
	for _, x := range []struct {
		age, retention time.Duration
		expired        bool
	}{
		{time.Hour, 0, false},
		{time.Hour, 2 * time.Hour, false},
		{2 * time.Hour, 2 * time.Hour, true},
		{2*time.Hour - 30*time.Second, 2 * time.Hour, false},
		{24 * time.Hour, time.Hour, true},
	} {
		if got := c.Expired(now.Add(x.age), x.retention); got != x.expired {
			t.Errorf("age %v, retention %v: expired is %v", x.age, x.retention, got)
		}
	}
}

func TestEntryIDsAreStableAndUnlikeEachOther(t *testing.T) {
	k := testKeys(t, "hall")
	seen := map[string]bool{}
	for inc := event.Incarnation(1); inc < 4; inc++ {
		for seq := event.Seq(1); seq < 2000; seq++ {
			id := k.EntryID(inc, seq)
			if seen[id] || len(id) != 16 || id != testKeysID(t, inc, seq) {
				t.Fatalf("id %s of (%d, %d)", id, inc, seq)
			}
			seen[id] = true
		}
	}
	if k.EntryID(1, 1) == testKeys(t, "hall2").EntryID(1, 1) {
		t.Error("two rooms name their entries alike")
	}
}

var sameKeys *Keys

func testKeysID(t *testing.T, inc event.Incarnation, seq event.Seq) string {
	if sameKeys == nil {
		sameKeys = testKeys(t, "hall")
	}
	return sameKeys.EntryID(inc, seq)
}

func TestChannelsHashIsOfTheSet(t *testing.T) {
	a := ChannelsHash([]event.ChannelID{"a", "bc"}, false)
	if a != ChannelsHash([]event.ChannelID{"bc", "a"}, false) {
		t.Error("the order matters")
	}
	for _, other := range [][]event.ChannelID{{"ab", "c"}, {"a"}, {"a", "bc", "d"}, nil} {
		if a == ChannelsHash(other, false) {
			t.Errorf("%v has the same hash", other)
		}
	}
	if ChannelsHash(nil, true) == ChannelsHash(nil, false) {
		t.Error("all channels are the same as none")
	}
}

func FuzzOpenCursor(f *testing.F) {
	k := testKeys(f, "hall")
	good := string(k.AppendCursor(nil, [NonceSize]byte{9}, []byte("ann"), Cursor{Incarnation: 1, Seq: 2, Minutes: 3, Channels: 4}))
	f.Add(good, "ann")
	f.Add(good, "bob")
	f.Add(good[:30], "ann")
	f.Add("", "")
	f.Fuzz(func(t *testing.T, text, subject string) {
		c, err := k.OpenCursor(text, []byte(subject))
		if (err == nil) != (text == good && subject == "ann") {
			t.Fatalf("%q for %q: %+v, %v", text, subject, c, err)
		}
	})
}
