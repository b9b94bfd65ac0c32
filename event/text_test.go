package event

import (
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// A1: valid UTF-8, not blank after trimming, at most 8 KiB, no control
// characters but newline and tab.
func TestCheckText(t *testing.T) {
	ok := Reason(0)
	for _, c := range []struct {
		name, text string
		want       Reason
	}{
		{"a word", "hello", ok},
		{"newline and tab", "a\n\tb", ok},
		{"space around", "  a  ", ok},
		{"many scripts", "Ünï 日本語 עברית 👩‍👩‍👧 🇩🇪", ok},
		{"a zero-width joiner", "a\u200db", ok},
		{"a line separator", "a\u2028b", ok},
		{"a private character", "\ue000", ok},
		{"the replacement character", "\ufffd", ok},
		{"the last code point", "\U0010ffff", ok},
		{"the first after C1", "a\u00a0b", ok},
		{"8 KiB", strings.Repeat("a", MaxText), ok},
		{"8 KiB of two bytes", strings.Repeat("ß", MaxText/2), ok},
		{"empty", "", BlankText},
		{"spaces", "  \n\t ", BlankText},
		{"no-break spaces", "\u00a0\u2003\u3000", BlankText},
		{"8 KiB and one", strings.Repeat("a", MaxText+1), TextTooLong},
		{"8 KiB and one of two bytes", strings.Repeat("ß", MaxText/2) + "a", TextTooLong},
		{"NUL", "a\x00b", InvalidText},
		{"carriage return", "a\r\nb", InvalidText},
		{"vertical tab", "a\vb", InvalidText},
		{"escape", "\x1b[31m", InvalidText},
		{"unit separator", "a\x1fb", InvalidText},
		{"DEL", "a\x7fb", InvalidText},
		{"the first C1", "a\u0080b", InvalidText},
		{"next line", "a\u0085b", InvalidText},
		{"the last C1", "a\u009fb", InvalidText},
		{"a control alone", "\x01", InvalidText},
		{"half a character", "a\xc3", InvalidText},
		{"a bare continuation", "\x80", InvalidText},
		{"an overlong form", "\xc0\x80", InvalidText},
		{"a surrogate", "\xed\xa0\x80", InvalidText},
		{"beyond Unicode", "\xf4\x90\x80\x80", InvalidText},
	} {
		err := CheckText(c.text)
		if c.want == ok {
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		r, is := AsRefusal(err)
		if !is || r.Reason != c.want {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestCheckTextNeverRepeatsTheText(t *testing.T) {
	for _, text := range []string{"secret\x00", "secret\xff", strings.Repeat("secret", MaxText)} {
		if err := CheckText(text); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v", err)
		}
	}
}

// E6: what is not plain is refused with the path of the value, which is not repeated.
func TestCheckPlain(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for _, c := range []struct{ raw, path string }{
		{`null`, ""},
		{`true`, ""},
		{`0`, ""},
		{`-0`, ""},
		{`"text"`, ""},
		{`[]`, ""},
		{`{}`, ""},
		{" {\n} ", ""},
		{`{"a":[1,2.5,-3e2,{"b":null}],"":"empty name"}`, ""},
		{`9007199254740992`, ""},
		{`-9007199254740992`, ""},
		{`1e308`, ""},
		{`0.1`, ""},
		{`1E-400`, ""},
		{`"\u00e9\ud83d\ude00 \\ud800 \" \n"`, ""},
		{`"\\\ud83d\ude00"`, ""},
		{deep(64), ""},

		{``, "$"},
		{` `, "$"},
		{`nul`, "$"},
		{`NaN`, "$"},
		{`Infinity`, "$"},
		{`-Infinity`, "$"},
		{`undefined`, "$"},
		{`'a'`, "$"},
		{`+1`, "$"},
		{`01`, "$"},
		{`1.`, "$"},
		{`.5`, "$"},
		{`0x10`, "$"},
		{`{`, "$"},
		{`[`, "$"},
		{`[1,`, "$"},
		{`[1 2]`, "$"},
		{`[1,]`, "$"},
		{`{"a"}`, "$"},
		{`{"a":}`, "$"},
		{`{"a":1,}`, "$"},
		{`{a:1}`, "$"},
		{`{1:1}`, "$"},
		{`1 2`, "$"},
		{`{} {}`, "$"},
		{`1]`, "$"},
		{`1}`, "$"},
		{`{}]`, "$"},
		{`[]}`, "$"},
		{`[1]x`, "$"},
		{`1,`, "$"},
		{`{}:`, "$"},
		{`// a` + "\n1", "$"},
		{"\"\xff\"", "$"},
		{"\"\xed\xa0\x80\"", "$"},
		{"\"a\x00\"", "$"},
		{"\"a\nb\"", "$"},
		{`9007199254740993`, "$"},
		{`-9007199254740993`, "$"},
		{`[0,9223372036854775807]`, "$[1]"},
		{`{"a":{"b":[1,18446744073709551616]}}`, "$.a.b[1]"},
		{strings.Repeat("9", 400), "$"},
		{`1e309`, "$"},
		{`{"a":-1e999}`, "$.a"},
		{`0.` + strings.Repeat("1", 100), "$"},
		{`{"a":1,"a":2}`, "$"},
		{`{"x":{"a":1,"\u0061":2}}`, "$.x"},
		{`"\ud800"`, "$"},
		{`"\udc00"`, "$"},
		{`"\ud800\ud800"`, "$"},
		{`"\ud83dx"`, "$"},
		{`{"\ud800":1}`, "$"},
		{`"\ud83d\n"`, "$"},
		{`"\\\ud800"`, "$"},
		{`["a","\uDBFF"]`, "$"},
		{deep(66), "$"},
		{deep(100_000), "$"},
	} {
		err := CheckPlain([]byte(c.raw))
		switch {
		case c.path == "" && err != nil:
			t.Errorf("%.60s: %v", c.raw, err)
		case c.path != "" && err == nil:
			t.Errorf("%.60s: passed", c.raw)
		case c.path != "" && !strings.HasPrefix(err.Error(), c.path):
			t.Errorf("%.60s: %v, want the path %s", c.raw, err, c.path)
		}
	}
	for _, raw := range []string{`[1,"secret`, `[73577357735773577357]`, `["secret","\ud800"]`} {
		if err := CheckPlain([]byte(raw)); err == nil || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "73577") {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

func FuzzCheckPlain(f *testing.F) {
	for _, raw := range []string{`{"a":[1,2.5,"\ud83d\ude00"]}`, `1]`, `"\ud800"`, `9007199254740993`, `{"a":1,"a":2}`, "\"\xff\""} {
		f.Add([]byte(raw))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if CheckPlain(raw) == nil && !json.Valid(raw) {
			t.Fatalf("%q is not JSON and passes", raw)
		}
	})
}

// Names go into keys, paths and patterns.
func TestCheckName(t *testing.T) {
	for name, want := range map[string]bool{
		"a": true, "den": true, "private:visitor-7": true, "A.b_C~0-9": true, strings.Repeat("a", MaxName): true, ":": true,
		"": false, strings.Repeat("a", MaxName+1): false, "a b": false, "a/b": false, "a*": false, "a\x00": false, "ä": false, "{sub}": false, "a\n": false, "\xff": false,
	} {
		if err := CheckName(name); (err == nil) != want {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// Two keys are equal only for the same channel, speaker and input (A5), and the
// rows of a channel's transcript lie together in the order of their positions.
func TestKeysOfRows(t *testing.T) {
	part := rapid.StringMatching(`[ab:\x00]{0,3}`)
	rapid.Check(t, func(t *rapid.T) {
		type input struct {
			ch  ChannelID
			who Endpoint
			id  InputID
		}
		draw := func(name string) input {
			return input{
				ChannelID(part.Draw(t, name+" channel")),
				Endpoint{EndpointKind(rapid.IntRange(1, 3).Draw(t, name+" kind")), part.Draw(t, name+" speaker")},
				InputID(part.Draw(t, name+" id")),
			}
		}
		a, b := draw("a"), draw("b")
		if (InputKey(a.ch, a.who, a.id) == InputKey(b.ch, b.who, b.id)) != (a == b) {
			t.Fatalf("%+v and %+v", a, b)
		}
		at, to := Seq(rapid.Uint64().Draw(t, "at")>>1), Seq(rapid.Uint64().Draw(t, "to")>>1)
		lo, hi := TranscriptRange(a.ch, to)
		k := TranscriptKey(b.ch, at)
		if in := lo.ID <= k.ID && k.ID < hi.ID; in != (a.ch == b.ch && at <= to) {
			t.Fatalf("row %d of %q lies in the range of %q to %d: %v", at, b.ch, a.ch, to, in)
		}
	})
}
