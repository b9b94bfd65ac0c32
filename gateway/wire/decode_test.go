package wire

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"parley/event"
)

func TestClientFramesThatAreNotTaken(t *testing.T) {
	const ok = `"type":"input","id":"i1","channel":"public","text":"hello","modality":"text"`
	tests := []struct {
		name  string
		frame string
		code  Code
		ref   string
		close Close
	}{
		{"not UTF-8", "{\"type\":\"ack\",\"n\":1,\"x\":\"\xff\"}", CodeInvalidText, "", CloseInvalidUTF8},
		{"a surrogate in UTF-8", "{\"type\":\"ack\",\"n\":1,\"x\":\"\xed\xa0\x80\"}", CodeInvalidText, "", CloseInvalidUTF8},
		{"nothing", ``, CodeBadRequest, "", CloseBadRequest},
		{"not JSON", `hello`, CodeBadRequest, "", CloseBadRequest},
		{"half of JSON", `{"type":"ack"`, CodeBadRequest, "", CloseBadRequest},
		{"two values", `{"type":"ack","n":1}{}`, CodeBadRequest, "", CloseBadRequest},
		{"a trailing comma", `{"type":"ack","n":1,}`, CodeBadRequest, "", CloseBadRequest},
		{"a raw control character", "{\"type\":\"ack\",\"n\":1,\"x\":\"\x01\"}", CodeBadRequest, "", CloseBadRequest},
		{"a leading zero", `{"type":"ack","n":01}`, CodeBadRequest, "", CloseBadRequest},
		{"a number beyond a double", `{"type":"ack","n":1e999}`, CodeBadRequest, "", CloseBadRequest},
		{"NaN", `{"type":"ack","n":NaN}`, CodeBadRequest, "", CloseBadRequest},
		{"an unknown escape", `{"type":"ack","n":1,"x":"\q"}`, CodeBadRequest, "", CloseBadRequest},
		{"a list", `[]`, CodeBadRequest, "", CloseBadRequest},
		{"deep nesting", `{"type":"ack","n":1,"x":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`, CodeBadRequest, "", CloseBadRequest},
		{"very many values", `{"type":"ack","n":1,"x":[0` + strings.Repeat(",0", 30000) + `]}`, CodeBadRequest, "", CloseBadRequest},
		{"a member twice", `{"type":"ack","n":1,"n":2}`, CodeBadRequest, "", CloseBadRequest},
		{"a member twice, once escaped", `{"type":"ack","n":1,"\u006e":2}`, CodeBadRequest, "", CloseBadRequest},
		{"a nested member twice", `{"type":"ack","n":1,"x":{"a":1,"a":1}}`, CodeBadRequest, "", CloseBadRequest},
		{"a member twice among many", `{"type":"ack","n":1,` + many(40) + `"m7":0}`, CodeBadRequest, "", CloseBadRequest},
		{"no type", `{"n":1}`, CodeBadRequest, "", CloseBadRequest},
		{"a type that is no string", `{"type":1}`, CodeBadRequest, "", CloseBadRequest},
		{"a type in capitals", `{"type":"ACK","n":1}`, CodeUnknownType, "", 0},
		{"an unknown type", `{"type":"dance","ref":"d1"}`, CodeUnknownType, "d1", 0},
		{"a type of later rules", `{"type":"vote.cast","ref":"v1"}`, CodeUnknownType, "v1", 0},

		{"hello without an object for stages", `{"type":"hello","channels":["a"],"stages":[]}`, CodeBadRequest, "", CloseBadRequest},
		{"hello from elsewhere", `{"type":"hello","channels":["a"],"from":"middle"}`, CodeBadRequest, "", CloseBadRequest},
		{"hello with a wrong channel", `{"type":"hello","channels":["a b"]}`, CodeBadRequest, "", CloseBadRequest},
		{"hello with a number for a token", `{"type":"hello","channels":["a"],"token":7}`, CodeBadRequest, "", CloseBadRequest},
		{"hello with a control character", `{"type":"hello","channels":["a"],"token":"\u0000"}`, CodeInvalidText, "", CloseBadRequest},
		{"ack below zero", `{"type":"ack","n":-1}`, CodeBadRequest, "", CloseBadRequest},
		{"ack of a half", `{"type":"ack","n":1.5}`, CodeBadRequest, "", CloseBadRequest},
		{"ack beyond 2^53", `{"type":"ack","n":9007199254740993e3}`, CodeBadRequest, "", CloseBadRequest},
		{"cancel without ref", `{"type":"cancel","run":"r"}`, CodeBadRequest, "", CloseBadRequest},
		{"cancel with an empty ref", `{"type":"cancel","ref":"","run":"r"}`, CodeBadRequest, "", 0},
		{"subscribe to null", `{"type":"subscribe","ref":"s","channels":null}`, CodeBadRequest, "s", CloseBadRequest},
		{"subscribe without channels", `{"type":"subscribe","ref":"s"}`, CodeBadRequest, "s", CloseBadRequest},

		{"input without text", `{"type":"input","id":"i1","channel":"public","modality":"text"}`, CodeBadRequest, "i1", CloseBadRequest},
		{"input with null for its text", `{"type":"input","id":"i1","channel":"public","modality":"text","text":null}`, CodeBadRequest, "i1", CloseBadRequest},
		{"input with a number for its id", `{"type":"input","id":7,"channel":"public","text":"x","modality":"text"}`, CodeBadRequest, "", CloseBadRequest},
		{"input of another modality", `{"type":"input","id":"i1","channel":"public","text":"x","modality":"song"}`, CodeBadRequest, "i1", 0},
		{"input on a channel that cannot be", `{"type":"input","id":"i1","channel":"p/q","text":"x","modality":"text"}`, CodeBadRequest, "i1", 0},
		{"an id that is too long", `{"type":"input","id":"` + strings.Repeat("x", 129) + `","channel":"p","text":"x","modality":"text"}`, CodeBadRequest, "", 0},
		{"a lone high surrogate", `{` + ok + `,"lang":"\ud800"}`, CodeInvalidText, "i1", 0},
		{"a lone low surrogate", `{"type":"input","id":"i1","channel":"public","text":"\udc00","modality":"text"}`, CodeInvalidText, "i1", 0},
		{"surrogates in the wrong order", `{"type":"input","id":"i1","channel":"public","text":"\udc00\ud800","modality":"text"}`, CodeInvalidText, "i1", 0},
		{"a high surrogate before another escape", `{"type":"input","id":"i1","channel":"public","text":"\ud83d\u0041","modality":"text"}`, CodeInvalidText, "i1", 0},
		{"a lone surrogate in a name", `{` + ok + `,"\ud800":1}`, CodeInvalidText, "i1", 0},
		{"an escaped C0", `{"type":"input","id":"i1","channel":"public","text":"a\u0007","modality":"text"}`, CodeInvalidText, "i1", 0},
		{"a carriage return", `{"type":"input","id":"i1","channel":"public","text":"a\r","modality":"text"}`, CodeInvalidText, "i1", 0},
		{"DEL", "{\"type\":\"input\",\"id\":\"i1\",\"channel\":\"public\",\"text\":\"a\x7f\",\"modality\":\"text\"}", CodeInvalidText, "i1", 0},
		{"C1", "{\"type\":\"input\",\"id\":\"i1\",\"channel\":\"public\",\"text\":\"a\u0085\",\"modality\":\"text\"}", CodeInvalidText, "i1", 0},
		{"C1 after an escape", "{\"type\":\"input\",\"id\":\"i1\",\"channel\":\"public\",\"text\":\"\\n\u0085\",\"modality\":\"text\"}", CodeInvalidText, "i1", 0},
		{"append", `{` + ok + `,"onBusy":"append"}`, CodeBadRequest, "i1", 0},
		{"an unknown policy", `{` + ok + `,"onBusy":"wait"}`, CodeBadRequest, "i1", 0},
		{"continue", `{` + ok + `,"continue":"r_1"}`, CodeBadRequest, "i1", 0},
		{"supersession", `{` + ok + `,"supersession":{"run":"r_1"}}`, CodeBadRequest, "i1", 0},
		{"a disclosure to nobody named", `{` + ok + `,"disclosure":{"kind":"participants","participantIds":[]}}`, CodeBadRequest, "i1", 0},
		{"a disclosure of both kinds", `{` + ok + `,"disclosure":{"kind":"room","participantIds":["a"]}}`, CodeBadRequest, "i1", 0},
		{"a disclosure that is a word", `{` + ok + `,"disclosure":"room"}`, CodeBadRequest, "i1", CloseBadRequest},
		{"a deadline below zero", `{` + ok + `,"deadlineMs":-5}`, CodeBadRequest, "i1", CloseBadRequest},
		{"a time that is none", `{` + ok + `,"endedAt":"yesterday"}`, CodeBadRequest, "i1", 0},
		{"a continuation by both", `{` + ok + `,"continuation":{"run":"r","token":"t","requestId":"q"}}`, CodeBadRequest, "i1", 0},
		{"a continuation by neither", `{` + ok + `,"continuation":{"run":"r"}}`, CodeBadRequest, "i1", 0},
		{"a speaker of no kind", `{` + ok + `,"as":{"kind":"ghost","id":"g"}}`, CodeBadRequest, "i1", 0},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			f, err := DecodeClient([]byte(c.frame))
			fault, ok := errors.AsType[*Fault](err)
			if !ok {
				t.Fatalf("taken as %+v", f)
			}
			if fault.Code != c.code || fault.Ref != c.ref || fault.Close != c.close {
				t.Errorf("got %s ref %q close %d (%s), want %s ref %q close %d", fault.Code, fault.Ref, fault.Close, fault.Message, c.code, c.ref, c.close)
			}
		})
	}
}

func many(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"m%d":0,`, i)
	}
	return b.String()
}

func TestTextComesBackAsSent(t *testing.T) {
	for _, text := range []string{
		"plain", "<b>&amp;</b>", "a\tb\nc", "\u2028\u2029", "👩‍👩‍👧", "\ufeff bom", "עברית", "\"quoted\" \\ / back",
		"\u00a0", "e\u0301", "\uffff", "\U0010ffff",
	} {
		raw, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		f, err := DecodeClient([]byte(`{"type":"input","id":"i","channel":"c","modality":"text","text":` + string(raw) + `}`))
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		e := &event.Entry{Disclosure: event.ToRoom(), Body: &event.InputAdmitted{Text: f.(*Input).Final.Text, Modality: event.Text}}
		var item struct{ Body struct{ Text string } }
		out := AppendItem(nil, e, "id", Viewer{}, Public)
		if err := json.Unmarshal(out, &item); err != nil || item.Body.Text != text {
			t.Errorf("%q came back as %q (%v)", text, item.Body.Text, err)
		}
		if strings.Contains(string(out), `\u003c`) || strings.Contains(string(out), `\u0026`) {
			t.Errorf("escaped for HTML: %s", out)
		}
	}
}

func TestDigestComparesKnownMembersAsReceived(t *testing.T) {
	digest := func(members string) string {
		f, err := DecodeClient([]byte(`{"type":"input","id":"i","channel":"c","modality":"text",` + members + `}`))
		if err != nil {
			t.Fatalf("%s: %v", members, err)
		}
		d := f.(*Input).Digest
		return hex.EncodeToString(d[:])
	}
	base := digest(`"text":"Zoë","deadlineMs":1000`)
	for _, same := range []string{
		`"deadlineMs":1000,"text":"Zoë"`, `"text":"Zo\u00eb","deadlineMs":1e3`, `"text":"Zoë","deadlineMs":1000.0,"future":true`,
		` "text" : "Zoë" , "deadlineMs":1000`,
	} {
		if digest(same) != base {
			t.Errorf("%s differs", same)
		}
	}
	for _, other := range []string{
		`"text":"Zoe\u0308","deadlineMs":1000`, `"text":"Zoë"`, `"text":"Zoë","deadlineMs":1001`,
		`"text":"Zoë","deadlineMs":1000,"onBusy":"supersede"`, `"text":"Zoë","deadlineMs":1000,"lang":""`,
		`"text":"Zoë ","deadlineMs":1000`, `"text":"Zoë","deadlineMs":1000,"agents":[]`,
	} {
		if digest(other) == base {
			t.Errorf("%s is the same", other)
		}
	}
	// Journaled with the input: a changed digest would turn every retry of an old input into a conflict.
	if want := "7c4585f96baedb34536611b8f6e326cb"; base[:32] != want {
		t.Errorf("the digest is %s, want %s…", base, want)
	}
}

// The examples of RFC 8785 for numbers and for the order of members.
func TestCanonicalJSON(t *testing.T) {
	for in, want := range map[string]string{
		`[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001]`:               `[333333333.3333333,1e+30,4.5,0.002,1e-27]`,
		`[0,-0,1e21,1e20,123456789012345680000,-1e-7,1e-6,5e-324,1.7976931348623157e308]`: `[0,0,1e+21,100000000000000000000,123456789012345680000,-1e-7,0.000001,5e-324,1.7976931348623157e+308]`,
		`"\u20ac$\u000F\nA'\u0042\u0022\u005c\\\"\/"`:                                     `"€$\u000f\nA'B\"\\\\\"/"`,
		`{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One","\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}`: "{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\u0080\":\"Control\",\"ö\":\"Latin Small Letter O With Diaeresis\",\"€\":\"Euro Sign\",\"😀\":\"Emoji: Grinning Face\",\"\ufb33\":\"Hebrew Letter Dalet With Dagesh\"}",
		` { "b" : [ true , false , null ] , "a" : { } } `: `{"a":{},"b":[true,false,null]}`,
	} {
		v, _, err := parse([]byte(in))
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		if got := string(v.appendCanonical(nil)); got != want {
			t.Errorf("%s:\n got %s\nwant %s", in, got, want)
		}
	}
}

func FuzzDecodeFrame(f *testing.F) {
	for _, s := range []string{
		`{"type":"hello","token":"t","channels":["a"],"stages":{"m":1}}`, `{"type":"ack","n":1e3}`, `{"type":"pong","t":0}`,
		`{"type":"input","id":"i","channel":"c","modality":"text","text":"\ud83d\ude00\ud800","disclosure":{"kind":"none"}}`,
		`{"type":"cancel","ref":"r","run":"x"}`, `{"a":[1,2,{"b":null}],"a":1}`, "{\"type\":\"focus\",\"ref\":\"\u0085\"}", `{`, "\xff",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := DecodeClient(raw)
		if err != nil {
			fault, ok := errors.AsType[*Fault](err)
			if !ok || CodeOf(event.BadRequest).Code == "" || fault.Message == "" || got != nil {
				t.Fatalf("%v with %v", err, got)
			}
			if !json.Valid(Error{Ref: fault.Ref, Code: fault.Code, Message: fault.Message}.Append(nil)) {
				t.Fatal("the answer is not JSON")
			}
			return
		}
		if !json.Valid(raw) {
			t.Fatalf("taken, but not JSON: %q", raw)
		}
		v, _, err := parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		canonical := v.appendCanonical(nil)
		again, _, err := parse(canonical)
		if err != nil || string(again.appendCanonical(nil)) != string(canonical) {
			t.Fatalf("canonical form %s is not its own (%v)", canonical, err)
		}
	})
}
