package audience

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// shapes writes frames without the values of random ids. Two sequences of
// frames with the same shapes differ in nothing that a viewer could learn from:
// members, their order, all plain values, the lengths of ids, and which of them
// are the same are kept.
type shapes struct {
	known map[string]string
	count map[string]int
}

func newShapes() *shapes { return &shapes{map[string]string{}, map[string]int{}} }

// opaque has the members whose values are random ids; true: they come again, and
// it matters where.
var opaque = map[string]bool{
	"conn": false, "cursor": false, "entry": true, "run": true, "outputId": true, "token": true,
}

func (s *shapes) name(member, value string) string {
	if again := opaque[member]; !again {
		return fmt.Sprintf("%s of %d", member, len(value))
	}
	if n, ok := s.known[value]; ok {
		return n
	}
	s.count[member]++
	s.known[value] = fmt.Sprintf("%s %d of %d", member, s.count[member], len(value))
	return s.known[value]
}

// of returns the shape of a frame.
func (s *shapes) of(f frame) string {
	d := json.NewDecoder(bytes.NewReader(f.raw))
	d.UseNumber()
	var b strings.Builder
	fmt.Fprintf(&b, "%v %d bytes ", f.at, len(f.raw))
	s.value(d, &b, "", "")
	return b.String()
}

// value writes the next value of a frame, which is that of member in parent.
func (s *shapes) value(d *json.Decoder, b *strings.Builder, parent, member string) {
	tok, err := d.Token()
	if err != nil {
		fmt.Fprintf(b, "!%v", err)
		return
	}
	delim, nested := tok.(json.Delim)
	switch {
	case nested && delim == '{':
		b.WriteByte('{')
		for d.More() {
			key, err := d.Token()
			if err != nil {
				fmt.Fprintf(b, "!%v", err)
				return
			}
			name := key.(string)
			fmt.Fprintf(b, "%s:", name)
			s.value(d, b, member, name)
			b.WriteByte(' ')
		}
		_, _ = d.Token()
		b.WriteByte('}')
	case nested:
		b.WriteByte('[')
		for d.More() {
			s.value(d, b, parent, member)
			b.WriteByte(' ')
		}
		_, _ = d.Token()
		b.WriteByte(']')
	default:
		if text, ok := tok.(string); ok {
			if _, random := opaque[member]; random {
				b.WriteString(s.name(member, text))
				return
			}
			if parent == "items" && member == "id" {
				b.WriteString(s.name("entry", text))
				return
			}
		}
		fmt.Fprintf(b, "%q", fmt.Sprint(tok))
	}
}
