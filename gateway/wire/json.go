package wire

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// value is one parsed JSON value. encoding/json cannot be used for what clients
// send: it takes the last of two members of one name, matches names without
// regard to case and replaces lone surrogates, each silently.
type value struct {
	kind    kind
	text    string // of a string, decoded; of a number, as written
	list    []value
	members []member
}

type member struct {
	name  string
	value value
}

type kind uint8

const (
	kindNull kind = iota
	kindTrue
	kindFalse
	kindNumber
	kindString
	kindList
	kindObject
)

func (v *value) get(name string) *value {
	for i := range v.members {
		if v.members[i].name == name {
			return &v.members[i].value
		}
	}
	return nil
}

// maxDepth and maxValues bound what a frame of a given size costs to read: a
// list of zeros would otherwise take forty times its size.
const (
	maxDepth  = 32
	maxValues = 4096
)

var errJSON = errors.New("is not JSON")

// parser reads one JSON value. Lone surrogates and control characters do not
// stop it, so that the frame's id can still be read for the answer.
type parser struct {
	raw  []byte
	at   int
	seen int  // values so far
	lone bool // an escaped surrogate without its partner
	ctrl bool // C0 but newline and tab, DEL or C1, in a string
}

// parse reads raw, which must be valid UTF-8.
func parse(raw []byte) (value, *parser, error) {
	p := &parser{raw: raw}
	v, err := p.value(0)
	if err == nil {
		if p.space(); p.at != len(raw) {
			err = errJSON
		}
	}
	return v, p, err
}

func (p *parser) space() {
	for p.at < len(p.raw) {
		switch p.raw[p.at] {
		case ' ', '\t', '\n', '\r':
			p.at++
		default:
			return
		}
	}
}

func (p *parser) peek() byte {
	if p.at < len(p.raw) {
		return p.raw[p.at]
	}
	return 0
}

func (p *parser) literal(s string, k kind) (value, error) {
	if !strings.HasPrefix(string(p.raw[p.at:min(len(p.raw), p.at+len(s))]), s) {
		return value{}, errJSON
	}
	p.at += len(s)
	return value{kind: k}, nil
}

func (p *parser) value(depth int) (value, error) {
	if depth > maxDepth {
		return value{}, fmt.Errorf("nests deeper than %d", maxDepth)
	}
	if p.seen++; p.seen > maxValues {
		return value{}, fmt.Errorf("holds more than %d values", maxValues)
	}
	p.space()
	switch c := p.peek(); {
	case c == '{':
		return p.object(depth)
	case c == '[':
		return p.array(depth)
	case c == '"':
		s, err := p.str()
		return value{kind: kindString, text: s}, err
	case c == 't':
		return p.literal("true", kindTrue)
	case c == 'f':
		return p.literal("false", kindFalse)
	case c == 'n':
		return p.literal("null", kindNull)
	case c == '-' || c >= '0' && c <= '9':
		return p.number()
	}
	return value{}, errJSON
}

func (p *parser) object(depth int) (value, error) {
	v := value{kind: kindObject}
	p.at++
	p.space()
	if p.peek() == '}' {
		p.at++
		return v, nil
	}
	var seen map[string]bool // only for objects too large to search
	for {
		p.space()
		if p.peek() != '"' {
			return v, errJSON
		}
		name, err := p.str()
		if err != nil {
			return v, err
		}
		p.space()
		if p.peek() != ':' {
			return v, errJSON
		}
		p.at++
		x, err := p.value(depth + 1)
		if err != nil {
			return v, err
		}
		if twice := seen[name]; twice || seen == nil && v.get(name) != nil {
			return v, errors.New("names a member twice")
		}
		v.members = append(v.members, member{name, x})
		switch {
		case seen != nil:
			seen[name] = true
		case len(v.members) == 16:
			seen = make(map[string]bool, 64)
			for i := range v.members {
				seen[v.members[i].name] = true
			}
		}
		p.space()
		switch p.peek() {
		case ',':
			p.at++
		case '}':
			p.at++
			return v, nil
		default:
			return v, errJSON
		}
	}
}

func (p *parser) array(depth int) (value, error) {
	v := value{kind: kindList}
	p.at++
	p.space()
	if p.peek() == ']' {
		p.at++
		return v, nil
	}
	for {
		x, err := p.value(depth + 1)
		if err != nil {
			return v, err
		}
		v.list = append(v.list, x)
		p.space()
		switch p.peek() {
		case ',':
			p.at++
		case ']':
			p.at++
			return v, nil
		default:
			return v, errJSON
		}
	}
}

func (p *parser) digits() bool {
	from := p.at
	for p.peek() >= '0' && p.peek() <= '9' {
		p.at++
	}
	return p.at > from
}

func (p *parser) number() (value, error) {
	from := p.at
	if p.peek() == '-' {
		p.at++
	}
	if p.peek() == '0' {
		p.at++
	} else if !p.digits() {
		return value{}, errJSON
	}
	if p.peek() == '.' {
		p.at++
		if !p.digits() {
			return value{}, errJSON
		}
	}
	if c := p.peek(); c == 'e' || c == 'E' {
		p.at++
		if c := p.peek(); c == '+' || c == '-' {
			p.at++
		}
		if !p.digits() {
			return value{}, errJSON
		}
	}
	s := string(p.raw[from:p.at])
	if f, err := strconv.ParseFloat(s, 64); err != nil || math.IsInf(f, 0) {
		return value{}, errors.New("holds a number outside the range of a double")
	}
	return value{kind: kindNumber, text: s}, nil
}

// str reads a string. Most have no escape and are copied as they are.
func (p *parser) str() (string, error) {
	p.at++
	from := p.at
	for p.at < len(p.raw) {
		switch c := p.raw[p.at]; {
		case c == '"':
			s := string(p.raw[from:p.at])
			p.at++
			return s, nil
		case c == '\\':
			return p.escaped(from)
		case c < 0x20:
			return "", errJSON
		case c >= 0x7f:
			p.control(c)
		}
		p.at++
	}
	return "", errJSON
}

// control notes DEL and C1, which in UTF-8 are 0xC2 0x80 to 0xC2 0x9F.
func (p *parser) control(c byte) {
	if c == 0x7f || c == 0xc2 && p.at+1 < len(p.raw) && p.raw[p.at+1] < 0xa0 {
		p.ctrl = true
	}
}

func (p *parser) escaped(from int) (string, error) {
	b := append(make([]byte, 0, p.at-from+64), p.raw[from:p.at]...)
	for p.at < len(p.raw) {
		c := p.raw[p.at]
		switch {
		case c == '"':
			p.at++
			return string(b), nil
		case c < 0x20:
			return "", errJSON
		case c != '\\':
			if c >= 0x7f {
				p.control(c)
			}
			b = append(b, c)
			p.at++
			continue
		}
		p.at++
		c = p.peek()
		p.at++
		switch c {
		case '"', '\\', '/':
			b = append(b, c)
		case 'b':
			p.ctrl = true
			b = append(b, '\b')
		case 'f':
			p.ctrl = true
			b = append(b, '\f')
		case 'r':
			p.ctrl = true
			b = append(b, '\r')
		case 'n':
			b = append(b, '\n')
		case 't':
			b = append(b, '\t')
		case 'u':
			r, ok := p.hex()
			if !ok {
				return "", errJSON
			}
			b = utf8.AppendRune(b, p.unit(r))
		default:
			return "", errJSON
		}
	}
	return "", errJSON
}

func (p *parser) hex() (rune, bool) {
	if p.at+4 > len(p.raw) {
		return 0, false
	}
	var r rune
	for _, c := range p.raw[p.at : p.at+4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	p.at += 4
	return r, true
}

// unit joins a high surrogate with the low one that follows, and notes what is
// a surrogate alone or a control character.
func (p *parser) unit(r rune) rune {
	if !utf16.IsSurrogate(r) {
		if r < 0x20 && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 {
			p.ctrl = true
		}
		return r
	}
	if r < 0xdc00 && p.at+6 <= len(p.raw) && p.raw[p.at] == '\\' && p.raw[p.at+1] == 'u' {
		was := p.at
		p.at += 2
		if lo, ok := p.hex(); ok {
			if pair := utf16.DecodeRune(r, lo); pair != utf8.RuneError {
				return pair
			}
		}
		p.at = was // what follows is read by itself
	}
	p.lone = true
	return utf8.RuneError
}

// appendCanonical appends the canonical form of RFC 8785.
func (v *value) appendCanonical(b []byte) []byte {
	switch v.kind {
	case kindNull:
		return append(b, "null"...)
	case kindTrue:
		return append(b, "true"...)
	case kindFalse:
		return append(b, "false"...)
	case kindNumber:
		f, _ := strconv.ParseFloat(v.text, 64) // the parser let only doubles through
		return appendNumber(b, f)
	case kindString:
		return appendString(b, v.text)
	case kindList:
		b = append(b, '[')
		for i := range v.list {
			if i > 0 {
				b = append(b, ',')
			}
			b = v.list[i].appendCanonical(b)
		}
		return append(b, ']')
	}
	sorted := slices.Clone(v.members)
	slices.SortFunc(sorted, func(x, y member) int {
		return slices.Compare(utf16.Encode([]rune(x.name)), utf16.Encode([]rune(y.name)))
	})
	b = append(b, '{')
	for i := range sorted {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendString(b, sorted[i].name), ':')
		b = sorted[i].value.appendCanonical(b)
	}
	return append(b, '}')
}

// appendNumber writes a double as ECMAScript does, which RFC 8785 asks for.
func appendNumber(b []byte, f float64) []byte {
	if f == 0 {
		return append(b, '0') // also for -0
	}
	if abs := math.Abs(f); abs >= 1e-6 && abs < 1e21 {
		return strconv.AppendFloat(b, f, 'f', -1, 64)
	}
	s := strconv.FormatFloat(f, 'e', -1, 64)
	mantissa, exp, _ := strings.Cut(s, "e")
	return append(append(append(b, mantissa...), 'e', exp[0]), strings.TrimLeft(exp[1:], "0")...)
}

// appendString writes a string in the canonical form: escaped is only what JSON
// demands, so that text comes back byte for byte as it was sent.
func appendString[S ~string](b []byte, s S) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	from := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		b = append(b, s[from:i]...)
		from = i + 1
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\b':
			b = append(b, '\\', 'b')
		case '\t':
			b = append(b, '\\', 't')
		case '\n':
			b = append(b, '\\', 'n')
		case '\f':
			b = append(b, '\\', 'f')
		case '\r':
			b = append(b, '\\', 'r')
		default:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	return append(append(b, s[from:]...), '"')
}
