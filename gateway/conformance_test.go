package gateway

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"parley/event"
	"parley/gateway/wire"
)

// conformance is one case of a family of RFC 6455: frames as a client of any
// quality may send them on a connection that is caught up, and what becomes of it.
type conformance struct {
	name  string
	send  [][]byte
	chop  int      // bytes of a write; 0: one write a frame
	code  int      // with which it is closed; 0: it goes on
	pongs []string // that come, in order
	texts []string // each must be in a text frame that comes before the end
	never []string // must be in none
}

// conform runs each case on a connection of its own. Whatever the case does, a
// witness in the same room goes on, and so does the room.
func conform(t *testing.T, family string, cases []conformance) {
	t.Helper()
	rooms := newCoreRooms()
	s := serve(t, rooms, func(c *Config) { c.Limits.FramesPerSec, c.Limits.FrameBurst = 1000, 1000 })
	witness := s.live(t, "room-1", "wendy", "public")
	for i, c := range cases {
		t.Run(family+"/"+c.name, func(t *testing.T) {
			p := s.rawLive(t, "room-1", fmt.Sprint("p", i))
			before := len(rooms.entries("room-1"))
			if c.chop > 0 {
				p.chopped(c.chop, c.send...)
			} else {
				p.write(c.send...)
			}
			var texts []string
			if c.code == 0 {
				if got := p.goesOn("probe"); !slices.Equal(got, c.pongs) {
					t.Errorf("pongs %q, want %q", got, c.pongs)
				}
				p.write(closeFrame(1000, ""))
				if code, _, _ := p.end(); code != 1000 {
					t.Errorf("a normal close is answered by %d", code)
				}
			} else {
				var code int
				if code, _, texts = p.end(); code != c.code {
					t.Errorf("closed with %d after %q, want %d", code, texts, c.code)
				}
			}
			for _, want := range c.texts {
				if !strings.Contains(strings.Join(texts, "\n"), want) {
					t.Errorf("%q did not come in %q", want, texts)
				}
			}
			for _, bad := range c.never {
				if strings.Contains(strings.Join(texts, "\n"), bad) {
					t.Errorf("%q came in %q", bad, texts)
				}
				if got := len(rooms.entries("room-1")); got != before {
					t.Errorf("%d entries were written", got-before)
				}
			}
		})
		witness.send(frame{"type": "cancel", "ref": fmt.Sprint("w", i), "run": "none"})
		if f := witness.until("done"); f["ref"] != fmt.Sprint("w", i) {
			t.Fatalf("the witness gets %v", f)
		}
	}
	after := s.live(t, "room-1", "ann", "public")
	after.send(input("i1", "still there?"))
	after.until("accepted")
	if items := witness.items(2); body(items[0])["text"] != "still there?" {
		t.Errorf("the witness sees %v", items)
	}
}

func text(s string) []byte { return plain(fin|opText, s) }

func frames(list ...[]byte) [][]byte { return list }

// Family 1: lengths in all their forms, in one write or in odd pieces.
func TestFramesOfAllSizes(t *testing.T) {
	cases := []conformance{
		{name: "a text of nothing is no frame of the protocol", send: frames(text("")), code: 4400, texts: []string{"bad_request"}},
		{name: "a binary frame of nothing", send: frames(plain(fin|opBinary, "")), code: 1003},
		{name: "a binary frame", send: frames(plain(fin|opBinary, sized(126))), code: 1003},
		{name: "one byte at a time", send: frames(text(sized(300)), text(probe("chopped"))), chop: 1},
		{name: "two frames in one write", send: frames(slices.Concat(text(probe("a")), text(probe("b"))))},
		{name: "a length in a longer form than needed", send: frames(append([]byte{fin | opText, 0x80 | 126, 0, 40, 0, 0, 0, 0}, sized(40)...))},
	}
	for _, n := range []int{30, 125, 126, 127, 128, 4095, 4096, 4097, 65535, 65536} {
		for _, chop := range []int{0, 997, 251} {
			cases = append(cases, conformance{name: fmt.Sprintf("%d bytes in pieces of %d", n, chop), send: frames(text(sized(n))), chop: chop})
		}
	}
	for i, key := range [][4]byte{{1, 2, 3, 4}, {0xff, 0xff, 0xff, 0xff}, {0, 0x80, 0, 1}} {
		cases = append(cases, conformance{name: fmt.Sprint("a mask ", i), send: frames(masked(fin|opText, sized(333), key)), chop: 7})
	}
	conform(t, "1", cases)
}

// Family 2: the pings of WebSocket.
func TestPingsOfWebSocket(t *testing.T) {
	ping := func(s string) []byte { return plain(fin|opPing, s) }
	long := strings.Repeat("p", 125)
	cases := []conformance{
		{name: "without payload", send: frames(ping("")), pongs: []string{""}},
		{name: "with payload", send: frames(ping("hello")), pongs: []string{"hello"}},
		{name: "with bytes that are no text", send: frames(ping("\x00\xff\xfe\xfd")), pongs: []string{"\x00\xff\xfe\xfd"}},
		{name: "with the longest payload", send: frames(ping(long)), pongs: []string{long}},
		{name: "with the longest payload, chopped", send: frames(ping(long)), chop: 1, pongs: []string{long}},
		{name: "with a longer payload", send: frames(ping(long + "p")), code: 1002},
		{name: "an unsolicited pong", send: frames(plain(fin|opPong, "unasked"))},
		{name: "an unsolicited pong and a ping", send: frames(plain(fin|opPong, ""), ping("x")), pongs: []string{"x"}},
		{name: "a pong that is too long", send: frames(plain(fin|opPong, long+"p")), code: 1002},
	}
	var ten [][]byte
	var pongs []string
	for i := range 10 {
		ten = append(ten, ping(fmt.Sprint("ping", i)))
		pongs = append(pongs, fmt.Sprint("ping", i))
	}
	cases = append(cases, conformance{name: "ten", send: ten, pongs: pongs}, conformance{name: "ten, chopped", send: ten, chop: 3, pongs: pongs})
	conform(t, "2", cases)
}

// Families 3 and 4: what is reserved is refused, since no extension was agreed on.
func TestReservedBitsAndOpcodes(t *testing.T) {
	var cases []conformance
	for bits := byte(rsv3); bits < fin; bits += rsv3 {
		for _, op := range []byte{opText, opBinary, opClose, opPing, opPong, opMore} {
			payload := sized(40)
			if op >= opClose {
				payload = ""
			}
			cases = append(cases, conformance{
				name: fmt.Sprintf("bits %03b of opcode %d", bits>>4, op), send: frames(plain(fin|bits|op, payload)), code: 1002,
			})
		}
	}
	for _, op := range []byte{3, 4, 5, 6, 7, 11, 12, 13, 14, 15} {
		for _, payload := range []string{"", sized(40)} {
			cases = append(cases, conformance{
				name: fmt.Sprintf("opcode %d with %d bytes", op, len(payload)), send: frames(plain(fin|op, payload)), code: 1002,
			})
		}
	}
	// What came before is answered, what comes after is not looked at.
	cases = append(cases, conformance{
		name: "between two requests", send: frames(text(probe("before")), plain(fin|3, ""), text(inputText("after"))),
		code: 1002, never: []string{"after"},
	})
	conform(t, "3-4", cases)
}

// Family 5: messages in parts.
func TestFragments(t *testing.T) {
	one := probe("whole")
	a, b, c := one[:7], one[7:20], one[20:]
	ping := plain(fin|opPing, "between")
	var many [][]byte
	long := sized(2000)
	many = append(many, plain(opText, ""))
	for i := range len(long) {
		many = append(many, plain(opMore, long[i:i+1]))
	}
	many = append(many, plain(fin|opMore, ""))
	conform(t, "5", []conformance{
		{name: "two parts", send: frames(plain(opText, a), plain(fin|opMore, b+c))},
		{name: "three parts, chopped", send: frames(plain(opText, a), plain(opMore, b), plain(fin|opMore, c)), chop: 1},
		{name: "empty parts", send: frames(plain(opText, ""), plain(opMore, one), plain(opMore, ""), plain(fin|opMore, ""))},
		{name: "two thousand parts", send: frames(slices.Concat(many...))},
		{name: "a ping between parts", send: frames(plain(opText, a), ping, plain(opMore, b), ping, plain(fin|opMore, c)), pongs: []string{"between", "between"}},
		{name: "a pong between parts", send: frames(plain(opText, a), plain(fin|opPong, ""), plain(fin|opMore, b+c))},
		{name: "a close between parts", send: frames(plain(opText, a), closeFrame(1000, "")), code: 1000},
		{name: "a ping in parts", send: frames(plain(opPing, "a"), plain(fin|opMore, "b")), code: 1002},
		{name: "a pong in parts", send: frames(plain(opPong, "a"), plain(fin|opMore, "b")), code: 1002},
		{name: "a close in parts", send: frames(plain(opClose, "\x03\xe8")), code: 1002},
		{name: "a continuation of nothing", send: frames(plain(fin|opMore, one)), code: 1002},
		{name: "a continuation of nothing, not final", send: frames(plain(opMore, one)), code: 1002},
		{name: "a continuation after a whole message", send: frames(text(one), plain(fin|opMore, one)), code: 1002},
		{name: "a new text in mid message", send: frames(plain(opText, a), text(one)), code: 1002},
		{name: "a new first part in mid message", send: frames(plain(opText, a), plain(opText, one)), code: 1002},
		{name: "a binary frame in mid message", send: frames(plain(opText, a), plain(fin|opBinary, one)), code: 1002},
		{name: "binary in parts", send: frames(plain(opBinary, a), plain(fin|opMore, b)), code: 1003},
	})
}

// Family 6: text is UTF-8, wherever it is cut.
func TestTextIsUTF8(t *testing.T) {
	in := func(s string) string { return `{"type":"ack","n":0,"x":"` + s + `"}` }
	var cases []conformance
	for name, s := range map[string]string{
		"two bytes": "é", "three bytes": "€", "four bytes": "😀", "the last code point": "\U0010ffff", "a noncharacter": "\ufffe\uffff",
		"a byte order mark": "\ufeff", "before the surrogates": "\ud7ff", "after them": "\ue000", "κόσμε": "κόσμε", "joined": "👩‍👩‍👧",
	} {
		whole := in(s)
		cases = append(cases, conformance{name: name, send: frames(text(whole))})
		for cut := range whole {
			cut += 25 // within the string
			if cut < len(whole) && cut < 25+len(s) {
				cases = append(cases, conformance{
					name: fmt.Sprintf("%s, cut after %d bytes", name, cut), send: frames(plain(opText, whole[:cut]), plain(fin|opMore, whole[cut:])),
				})
			}
		}
	}
	for name, s := range map[string]string{
		"a lone continuation": "\x80", "a continuation after a whole one": "é\x80", "two bytes, cut short": "\xc3", "three bytes, cut short": "\xe2\x82",
		"four bytes, cut short": "\xf0\x9f\x98", "a slash in two bytes": "\xc0\xaf", "a slash in three bytes": "\xe0\x80\xaf", "a slash in four bytes": "\xf0\x80\x80\xaf",
		"nothing in two bytes": "\xc0\x80", "the first surrogate": "\xed\xa0\x80", "the last surrogate": "\xed\xbf\xbf", "a pair of surrogates": "\xed\xa0\xbd\xed\xb8\x80",
		"beyond the last code point": "\xf4\x90\x80\x80", "five bytes": "\xf8\x88\x80\x80\x80", "six bytes": "\xfc\x84\x80\x80\x80\x80", "FE": "\xfe", "FF": "\xff",
		"Latin-1": "caf\xe9",
	} {
		whole := in(s)
		cases = append(cases,
			conformance{name: name, send: frames(text(whole)), code: 1007},
			conformance{name: name + ", chopped", send: frames(text(whole)), chop: 1, code: 1007},
			conformance{name: name + ", in parts", send: frames(plain(opText, whole[:26]), plain(opMore, whole[26:]), plain(fin|opMore, "")), code: 1007},
		)
	}
	cases = append(cases,
		conformance{name: "outside of JSON", send: frames(text("\xff")), code: 1007},
		conformance{name: "a half at the end", send: frames(text(in("x") + "\xf0\x9f")), code: 1007},
		conformance{
			name: "after an input of another frame", send: frames(text(in("\xff")), text(inputText("after"))), code: 1007, never: []string{"accepted"},
		},
	)
	conform(t, "6", cases)
}

// Family 7: how a connection is closed by its client. The server answers with
// the code that it was given, except where that breaks the rules.
func TestClosesOfClients(t *testing.T) {
	longest := strings.Repeat("r", 123)
	cases := []conformance{
		{name: "without payload", send: frames(plain(fin|opClose, "")), code: 1005},
		{name: "with a reason", send: frames(closeFrame(1000, "done")), code: 1000},
		{name: "with the longest reason", send: frames(closeFrame(1000, longest)), code: 1000},
		{name: "with a longer reason", send: frames(closeFrame(1000, longest+"r")), code: 1002},
		{name: "with a reason that is no UTF-8", send: frames(closeFrame(1000, "\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80")), code: 1002},
		{name: "chopped", send: frames(closeFrame(1000, "done")), chop: 1, code: 1000},
		// The library does not tell one byte from none, and ends it as such.
		{name: "with half a code", send: frames(plain(fin|opClose, "\x03")), code: 1005},
		{name: "twice", send: frames(closeFrame(1000, ""), closeFrame(1001, "")), code: 1000},
		{name: "a ping after it", send: frames(closeFrame(1000, ""), plain(fin|opPing, "x")), code: 1000},
		{name: "an input after it", send: frames(closeFrame(1000, ""), text(inputText("after"))), code: 1000, never: []string{"accepted"}},
		{name: "an input and a close in one write", send: frames(slices.Concat(closeFrame(1000, ""), text(inputText("after")))), code: 1000, never: []string{"accepted"}},
		{name: "the code of this protocol", send: frames(closeFrame(int(wire.CloseGap), "gap")), code: int(wire.CloseGap)},
	}
	for _, code := range []int{1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 3000, 3999, 4000, 4999} {
		cases = append(cases, conformance{name: fmt.Sprint("code ", code), send: frames(closeFrame(code, "")), code: code})
	}
	for _, code := range []int{0, 1, 999, 1004, 1005, 1006, 1014, 1015, 1016, 1100, 2000, 2999, 5000, 65535} {
		cases = append(cases, conformance{name: fmt.Sprint("code ", code, ", which nobody may send"), send: frames(closeFrame(code, "")), code: 1002})
	}
	conform(t, "7", cases)
}

// Families 9 and 10: what is too long, and what is masked wrongly.
func TestLimitsOfFrames(t *testing.T) {
	huge := func(n ...byte) []byte { return append([]byte{fin | opText, 0x80 | 127}, append(n, 0, 0, 0, 0)...) }
	half := strings.Repeat("x", 40<<10)
	conform(t, "9", []conformance{
		{name: "one byte too long", send: frames(text(sized(65537))), code: 1009},
		{name: "one byte too long, chopped", send: frames(text(sized(65537))), chop: 1021, code: 1009},
		{name: "only announced", send: frames(huge(0, 0, 0, 0, 0, 1, 0, 1)), code: 1009},
		{name: "announced as 2 GiB", send: frames(huge(0, 0, 0, 0, 0x80, 0, 0, 0)), code: 1009},
		{name: "announced as 2^62", send: frames(huge(0x40, 0, 0, 0, 0, 0, 0, 0)), code: 1009},
		{name: "announced with the highest bit", send: frames(huge(0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)), code: 1009},
		{name: "in parts", send: frames(plain(opText, half), plain(fin|opMore, half)), code: 1009},
		{name: "in parts without end", send: frames(plain(opText, half), plain(opMore, half)), code: 1009},
		{name: "in parts whose sum overflows", send: frames(plain(opText, "x"), append([]byte{opMore, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, 0, 0, 0, 0)), code: 1009},
		{name: "binary", send: frames(plain(fin|opBinary, sized(65537))), code: 1009},
		{name: "not masked", send: frames(append(lengthOf(fin|opText, 0, len(probe("x"))), probe("x")...)), code: 1002},
		{name: "a ping that is not masked", send: frames([]byte{fin | opPing, 0}), code: 1002},
		{name: "a close that is not masked", send: frames([]byte{fin | opClose, 2, 3, 0xe8}), code: 1002},
		{name: "masked with another key than it says", send: frames(append(lengthOf(fin|opText, 0x80, 40), append([]byte{1, 2, 3, 4}, sized(40)...)...)), code: 4400},
		{name: "masked so that it is no UTF-8", send: frames(append(lengthOf(fin|opText, 0x80, 40), append([]byte{0x80, 0x80, 0x80, 0x80}, sized(40)...)...)), code: 1007},
	})
}

func inputText(id string) string {
	return `{"type":"input","id":"` + id + `","channel":"public","text":"x","modality":"text"}`
}

// Before it is known who speaks, less is borne.
func TestLimitsBeforeReady(t *testing.T) {
	s := serve(t, newCoreRooms())
	hello := helloText(t, "ann")
	of := func(n int) string {
		pad := hello[:len(hello)-1] + `,"x":"`
		return pad + strings.Repeat("x", n-len(pad)-2) + `"}`
	}
	for _, c := range []struct {
		name string
		send [][]byte
		code int
	}{
		{"the longest hello", frames(text(of(wire.MaxHelloFrame))), 0},
		{"a longer hello", frames(text(of(wire.MaxHelloFrame + 1))), 1009},
		{"a longer hello in parts", frames(plain(opText, of(wire.MaxHelloFrame)), plain(fin|opMore, " ")), 1009},
		{"a hello in parts", frames(plain(opText, hello[:9]), plain(fin|opPing, ""), plain(fin|opMore, hello[9:])), 0},
		{"a binary hello", frames(plain(fin|opBinary, hello)), 1003},
		{"a hello that is no UTF-8", frames(text(hello[:len(hello)-1] + ",\"x\":\"\xff\"}")), 1007},
		{"a hello that is not masked", frames(append(lengthOf(fin|opText, 0, len(hello)), hello...)), 1002},
		{"half a hello and a close", frames(plain(opText, hello[:9]), closeFrame(1000, "")), 1000},
		{"no hello but a close", frames(closeFrame(1001, "")), 1001},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := s.raw(t, "room-1")
			p.write(c.send...)
			if c.code == 0 {
				p.goesOn("probe")
				// The limit is the wider one from here on.
				p.write(text(sized(wire.MaxClientFrame)))
				p.goesOn("again")
				return
			}
			if code, _, texts := p.end(); code != c.code {
				t.Errorf("closed with %d after %q, want %d", code, texts, c.code)
			}
		})
	}
	if got := s.Stats(); got.Closed[wire.CloseTooLarge] != 2 || got.Closed[wire.CloseProtocolError] != 1 {
		t.Errorf("counted: %v", got.Closed)
	}
}

// A client may close while the server writes to it: what it gets are whole
// frames up to the answer of its close.
func TestACloseWhileTheServerWrites(t *testing.T) {
	f := &tape{}
	s := serve(t, f)
	for range 400 {
		f.add(delta("public", event.ToRoom(), strings.Repeat("x", 300)))
	}
	for range 20 {
		p := s.raw(t, "r")
		p.write(text(helloText(t, "ann")[:len(helloText(t, "ann"))-1]+`,"from":"start"}`), closeFrame(1000, ""))
		if code, _, _ := p.end(); code != 1000 {
			t.Fatalf("closed with %d", code)
		}
	}
}
