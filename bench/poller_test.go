package bench

import (
	"bytes"
	"strings"
	"testing"
)

// TestFramesAreCut: frames of every form of length come out whole, wherever the
// stream is cut, and what no server under test sends is an error.
func TestFramesAreCut(t *testing.T) {
	var stream []byte
	var want []string
	for _, n := range []int{1, 125, 126, 127, 1000, 65535, 65536, 70000} {
		text := strings.Repeat("x", n)
		want = append(want, text)
		switch {
		case n <= 125:
			stream = append(stream, 0x81, byte(n))
		case n <= 65535:
			stream = append(stream, 0x81, 126, byte(n>>8), byte(n))
		default:
			stream = append(stream, 0x81, 127, 0, 0, 0, 0, 0, byte(n>>16), byte(n>>8), byte(n))
		}
		stream = append(stream, text...)
	}
	for _, step := range []int{1, 3, 64, 4096, len(stream)} {
		var pending []byte
		var got []string
		for at := 0; at < len(stream); at += step {
			pending = append(pending, stream[at:min(len(stream), at+step)]...)
			if step == 1 && len(pending) > 14 && len(pending)%997 != 0 && at < len(stream)-1 {
				continue // looking at each byte of a long frame tells nothing more
			}
			for {
				payload, rest, err := cutFrame(pending)
				if err != nil {
					t.Fatal(err)
				}
				if payload == nil {
					break
				}
				got = append(got, string(payload))
				pending = rest
			}
		}
		if len(got) != len(want) || len(pending) != 0 {
			t.Fatalf("in steps of %d: %d frames and %d bytes, want %d", step, len(got), len(pending), len(want))
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("in steps of %d: frame %d has %d bytes, want %d", step, i, len(got[i]), len(want[i]))
			}
		}
	}
	for name, raw := range map[string][]byte{
		"a close frame": {0x88, 2, 3, 0xe8}, "a part of a message": {0x01, 1, 'x'}, "a masked frame": {0x81, 0x81, 0, 0, 0, 0, 'x'},
		"a frame of a terabyte": {0x81, 127, 0, 0, 1, 0, 0, 0, 0, 0},
	} {
		if _, _, err := cutFrame(raw); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	if payload, _, err := cutFrame(bytes.Clone([]byte{0x81})); payload != nil || err != nil {
		t.Errorf("half a header gave %v, %v", payload, err)
	}
}
