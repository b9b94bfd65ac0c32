package event

import (
	"fmt"
	"testing"
)

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		sub           ParticipantID
		want          bool
	}{
		{"public", "public", "", true},
		{"public", "public2", "", false},
		{"public", "Public", "", false},
		{"public", "", "", false},
		{"", "", "", true},
		{"", "public", "", false},
		{"public", "public:a", "", false},
		{"public:a", "public", "", false},

		{"*", "public", "", true},
		{"*", "", "", false},
		{"*", "a:b", "", false},
		{"private:*", "private:a", "", true},
		{"private:*", "private:", "", false},
		{"private:*", "private", "", false},
		{"private:*", "private:a:b", "", false},
		{"*:a", "private:a", "", true},
		{"*:a", ":a", "", false},
		{"a:*:c", "a:b:c", "", true},
		{"a:*:c", "a::c", "", false},

		{"**", "a", "", true},
		{"**", "a:b:c", "", true},
		{"**", "", "", false},
		{"a:**", "a:b:c", "", true},
		{"a:**", "a:b", "", true},
		{"a:**", "a", "", false},
		{"a:**", "a:", "", false},
		{"a:**", "ab:c", "", false},
		{"**:a", "b:a", "", false}, // only a final one is the rest

		{"private:{sub}", "private:ann", "ann", true},
		{"private:{sub}", "private:bob", "ann", false},
		{"private:{sub}", "private:annie", "ann", false},
		{"private:{sub}", "private:ann:x", "ann", false},
		{"private:{sub}", "private:", "", false},
		{"{sub}", "", "", false},
		{"{sub}:notes", "ann:notes", "ann", true},
		{"{sub}:notes", "ann", "ann", false},
		{"{sub}:notes", "ann:", "ann", false},
		{"{sub}:*", "ann:x", "ann", true},
		{"{sub}:*", "ann", "ann", false},
		{"{sub}:**", "ann:x:y", "ann", true},
		{"{sub}:**", "annie:x", "ann", false},
		// The subject is taken whole and is not a pattern itself.
		{"private:{sub}", "private:org:ann", "org:ann", true},
		{"private:{sub}", "private:org", "org:ann", false},
		{"private:{sub}:n", "private:org:ann:n", "org:ann", true},
		{"private:{sub}", "private:bob", "*", false},
		{"private:{sub}", "private:*", "*", true},
		{"private:{sub}", "private:a:b", "**", false},
		{"private:{sub}", "private:{sub}", "ann", false},
		{"x{sub}", "xann", "ann", false}, // stands for a segment only

		{"demo-*", "demo-1", "", true},
		{"demo-*", "demo-", "", true},
		{"demo-*", "demo", "", false},
		{"demo-*", "demo-1:a", "", false},
		{"demo-*:a", "demo-1:a", "", true},
		{"*-demo", "x-demo", "", false}, // a star inside or before matches itself
		{"a*b", "axb", "", false},
		{"a*b", "a*b", "", true},
		{"[a-z]+", "abc", "", false},
	} {
		if got := Match(c.pattern, c.name, c.sub); got != c.want {
			t.Errorf("Match(%q, %q, %q) = %v", c.pattern, c.name, c.sub, got)
		}
	}
}

func access(scopes []Scope, rules ...ChannelRule) Access {
	return Access{Subject: "ann", Rooms: []string{"demo-*"}, Scopes: scopes, Channels: rules}
}

// A2: the grant is that of the first rule that matches, within the token's scopes.
func TestOnGivesTheFirstRuleThatMatches(t *testing.T) {
	rules := []ChannelRule{
		{Match: "private:{sub}", Can: []Scope{ScopeRead, ScopeInput, ScopeModerate}, Disclosure: ToParticipants("ann")},
		{Match: "private:*", Can: []Scope{ScopeRead}},
		{Match: "mute"},
		{Match: "**", Can: []Scope{ScopeRead, ScopeInput}, Disclosure: ToRoom()},
	}
	a := access([]Scope{ScopeRead, ScopeInput}, rules...)
	for _, c := range []struct {
		ch   ChannelID
		want Grant
	}{
		{"private:ann", Grant{[]Scope{ScopeRead, ScopeInput}, ToParticipants("ann")}}, // moderate is not in the token
		{"private:bob", Grant{[]Scope{ScopeRead}, Disclosure{}}},
		{"mute", Grant{}},
		{"public", Grant{[]Scope{ScopeRead, ScopeInput}, ToRoom()}},
		{"", Grant{}},
	} {
		if got := a.On(c.ch); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%q: %v, want %v", c.ch, got, c.want)
		}
	}
	if g := access([]Scope{ScopeRead}).On("public"); len(g.Can) != 0 || g.Disclosure.Stated() {
		t.Errorf("no rule gives %v", g)
	}
	if g := access(nil, rules...).On("public"); len(g.Can) != 0 {
		t.Errorf("no scope gives %v", g)
	}
	host := access([]Scope{ScopeHost}, rules...)
	for ch, want := range map[ChannelID]Disclosure{"private:ann": ToParticipants("ann"), "mute": ToRoom(), "public": ToRoom()} {
		g := host.On(ch)
		if !g.May(ScopeRead) || !g.May(ScopeInput) || !g.May(ScopeCancel) || !g.May(ScopeModerate) || !g.Disclosure.Equal(want) {
			t.Errorf("a host on %s: %v", ch, g)
		}
	}
}

func TestSees(t *testing.T) {
	reader := access([]Scope{ScopeRead}, ChannelRule{Match: "public", Can: []Scope{ScopeRead}}, ChannelRule{Match: "write", Can: []Scope{ScopeInput}})
	host := access([]Scope{ScopeHost})
	for _, c := range []struct {
		who  string
		a    Access
		ch   ChannelID
		d    Disclosure
		want bool
	}{
		{"reader", reader, "public", ToRoom(), true},
		{"reader", reader, "public", ToParticipants("ann", "bob"), true},
		{"reader", reader, "public", ToParticipants("bob"), false},
		{"reader", reader, "public", ToNone(), false},
		{"reader", reader, "public", Disclosure{}, false},
		{"reader", reader, "write", ToRoom(), false},
		{"reader", reader, "write", ToParticipants("ann"), false}, // to be named does not open a channel
		{"reader", reader, "secret", ToRoom(), false},
		{"reader", reader, "", ToRoom(), true}, // what concerns the whole room
		{"reader", reader, "", ToNone(), false},
		{"nobody", Access{}, "", ToNone(), false},
		{"nobody", Access{}, "public", ToRoom(), false},
		{"host", host, "secret", ToNone(), true},
		{"host", host, "secret", Disclosure{}, true},
	} {
		if got := c.a.Sees(c.ch, c.d); got != c.want {
			t.Errorf("%s on %q with %v: %v", c.who, c.ch, c.d, got)
		}
	}
}

func TestCovers(t *testing.T) {
	a := access(nil)
	for room, want := range map[RoomID]bool{"demo-1": true, "demo": false, "demo-1:a": false, "": false} {
		if a.Covers(room) != want {
			t.Errorf("%q: %v", room, !want)
		}
	}
	if (Access{}).Covers("demo-1") {
		t.Error("a token of no room covers one")
	}
}
