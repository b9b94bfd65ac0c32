package event

import (
	"slices"
	"strings"
)

// Scope is a right that a token grants for a whole room, or, in a channel rule, for a channel.
type Scope string

// The scopes of a token.
const (
	ScopeRead     Scope = "read"
	ScopeInput    Scope = "input"
	ScopeCancel   Scope = "cancel"
	ScopeModerate Scope = "moderate"
	ScopeHost     Scope = "host"
	ScopeConsole  Scope = "console"
)

// ChannelRule grants rights on the channels whose name matches. See Match for the pattern.
type ChannelRule struct {
	Match      string
	Can        []Scope
	Disclosure Disclosure
}

// Access is what an authenticated connection or call may do. It is plain data,
// taken from a verified token, and evaluated on every read and every command
// with its current value. Immutable after it was made.
type Access struct {
	Subject  ParticipantID
	Name     string
	Role     string
	Rooms    []string // patterns of room names
	Scopes   []Scope
	Channels []ChannelRule // the first rule that matches decides; none means no right
}

// Grant is what an Access allows on one channel.
type Grant struct {
	Can        []Scope
	Disclosure Disclosure
}

// May reports whether the grant includes the scope.
func (g Grant) May(s Scope) bool { return slices.Contains(g.Can, s) }

// Has reports whether the token carries the scope.
func (a Access) Has(s Scope) bool { return slices.Contains(a.Scopes, s) }

// Host reports whether the token is a host's: a product server that sees and steers all of a room.
func (a Access) Host() bool { return a.Has(ScopeHost) }

// Covers reports whether the token is for this room.
func (a Access) Covers(room RoomID) bool {
	for _, p := range a.Rooms {
		if Match(p, string(room), a.Subject) {
			return true
		}
	}
	return false
}

// On returns what the token allows on a channel: the rights of the first
// matching rule that the token's scope also carries. A host may read and write
// every channel; the widest disclosure is then the rule's, else the room.
func (a Access) On(ch ChannelID) Grant {
	var g Grant
	for _, r := range a.Channels {
		if !Match(r.Match, string(ch), a.Subject) {
			continue
		}
		for _, s := range r.Can {
			if a.Has(s) {
				g.Can = append(g.Can, s)
			}
		}
		g.Disclosure = r.Disclosure
		break
	}
	if a.Host() {
		g.Can = []Scope{ScopeRead, ScopeInput, ScopeCancel, ScopeModerate}
		if !g.Disclosure.Stated() {
			g.Disclosure = ToRoom()
		}
	}
	return g
}

// Sees reports whether the holder may see something on a channel with that
// disclosure: it may read the channel, and the disclosure includes it; a host
// sees everything. Room-wide things have the channel "".
func (a Access) Sees(ch ChannelID, d Disclosure) bool {
	if a.Host() {
		return true
	}
	if ch != "" && !a.On(ch).May(ScopeRead) {
		return false
	}
	return d.Includes(a.Subject)
}

// Match reports whether a name matches a pattern. Both are cut into segments at
// ':'. A segment '*' matches any one segment, a final '**' matches the rest
// (at least one segment), and '{sub}' stands for the subject. All else matches
// itself. Within a segment of a room pattern a trailing '*' matches any ending.
func Match(pattern, name string, sub ParticipantID) bool {
	for {
		p, prest, pmore := strings.Cut(pattern, ":")
		if p == "**" && !pmore {
			return name != ""
		}
		if p == "{sub}" {
			// The subject is put in whole, so that a ':' inside it cannot shift segments.
			rest, ok := strings.CutPrefix(name, string(sub))
			if !ok || sub == "" || (rest != "" && rest[0] != ':') {
				return false
			}
			if rest == "" || !pmore {
				return rest == "" && !pmore
			}
			pattern, name = prest, rest[1:]
			continue
		}
		n, nrest, nmore := strings.Cut(name, ":")
		if !matchSegment(p, n) || pmore != nmore {
			return false
		}
		if !pmore {
			return true
		}
		pattern, name = prest, nrest
	}
}

func matchSegment(p, n string) bool {
	if p == "*" {
		return n != ""
	}
	if head, ok := strings.CutSuffix(p, "*"); ok {
		return strings.HasPrefix(n, head)
	}
	return p == n
}
