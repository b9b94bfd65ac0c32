package guide

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestEveryProblemOfAManifestIsNamedAtOnce(t *testing.T) {
	m := &Manifest{
		Title: strings.Repeat("x", MaxTitle+1),
		Rules: []Rule{
			{ID: "A rule", Title: " ", Body: "b\x00"},
			{ID: "one", Title: "One", Body: "\xff", See: []string{"two", "three"}, Also: []string{"", "fine"}},
			{ID: "one", Title: "Again", Body: strings.Repeat("x", MaxBody+1)},
		},
		Mechanisms: []Rule{{ID: "..", Title: "Dots", Body: "b", ActionIDs: []string{""}}},
		Knowledge:  []Rule{{ID: "two", Title: "Two", Body: "b", Also: make([]string, MaxAlso+1)}},
		Glossary: []Term{
			{Term: "Word", Meaning: "m", See: "two"},
			{Term: "word", Meaning: "", See: "four"},
		},
	}
	for i := range m.Knowledge[0].Also {
		m.Knowledge[0].Also[i] = "x"
	}
	const want = `
gameId: "": must be a text of 1 to 200 bytes
gameVersion: "": must be a text of 1 to 200 bytes
title: 201 bytes: must be a text of at most 200 bytes
rules[0].id: "A rule": must have 1 to 64 of a-z, 0-9, '.', '_' and '-'
rules[0].title: " ": must be a text of 1 to 200 bytes
rules[0].body: "b\x00": must have no control characters but newline and tab
rules[1].body: "\xff": must be valid UTF-8
rules[1].also[0]: "": must be a text of 1 to 200 bytes
rules[2].id: "one": is used twice; ids are unique in a manifest
rules[2].body: 8193 bytes: must be a text of at most 8192 bytes
mechanisms[0].id: "..": must have 1 to 64 of a-z, 0-9, '.', '_' and '-'
mechanisms[0].actionIds[0]: "": must be a text of 1 to 200 bytes
knowledge[0].also: 101: at most 100 other words are allowed
rules[1].see[1]: "three": must be the id of a rule, a mechanism or a piece of knowledge
glossary[1].meaning: "": must be a text of 1 to 8192 bytes
glossary[1].see: "four": must be the id of a rule, a mechanism or a piece of knowledge
glossary[1].term: "word": is used twice; terms are unique`
	if got := fmt.Sprint(m.Validate()); got != strings.TrimPrefix(want, "\n") {
		t.Errorf("the problems are\n%s\nwant%s", got, want)
	}
	if got := fmt.Sprint((&Manifest{GameID: "g", GameVersion: "1"}).Validate()); got != "rules: nothing: must have at least one rule" {
		t.Errorf("a manifest without rules: %s", got)
	}
	many := &Manifest{GameID: "g", GameVersion: "1", Glossary: make([]Term, MaxRules+1)}
	for i := range MaxRules + 1 {
		many.Rules = append(many.Rules, Rule{ID: fmt.Sprintf("r%d", i), Title: "t", Body: "b"})
		many.Glossary[i] = Term{Term: fmt.Sprintf("t%d", i), Meaning: "m"}
	}
	const both = "rules: 5001: at most 5000 rules, mechanisms and pieces of knowledge are allowed\nglossary: 5001: at most 5000 terms are allowed"
	if got := fmt.Sprint(many.Validate()); got != both {
		t.Errorf("too large a manifest: %s", got)
	}
}

func TestParseReadsYAMLAndJSON(t *testing.T) {
	want := &Manifest{
		GameID: "go-fish", GameVersion: "2", Title: "Go Fish",
		Rules:      []Rule{{ID: "deal", Title: "Deal", Body: "Five \"cards\" each.", Also: []string{"hand"}, See: []string{"ask"}}},
		Mechanisms: []Rule{{ID: "ask", Title: "Asking", Body: "Ask.", ActionIDs: []string{"ask"}}},
		Glossary:   []Term{{Term: "book", Meaning: "Four of a kind.", Also: []string{"set"}, See: "deal"}},
	}
	asJSON, err := json.MarshalIndent(want, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	const asYAML = `
gameId: go-fish
gameVersion: "2"
title: Go Fish
theme: sea   # unknown members are ignored
rules:
  - {id: deal, title: Deal, body: 'Five "cards" each.', also: [hand], see: [ask]}
mechanisms:
  - {id: ask, title: Asking, body: Ask., actionIds: [ask]}
glossary:
  - {term: book, meaning: Four of a kind., also: [set], see: deal}
`
	for name, raw := range map[string]string{"JSON": string(asJSON), "YAML": asYAML} {
		if got, err := Parse([]byte(raw)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestWhatIsNoManifest(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"empty", "", "gameId: \"\""},
		{"not YAML", "rules: [", "not a manifest"},
		{"another type", "gameId: {a: 1}", "not a manifest"},
		{"JSON of another type", `{"rules": 7}`, "not a manifest"},
		{"too big", strings.Repeat(" ", MaxManifest+1), "at most 4194304 are allowed"},
	} {
		if m, err := Parse([]byte(tc.text)); err == nil || m != nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: Parse says %v, want %q", tc.name, err, tc.want)
		}
	}
}

func TestConfigNamesEveryProblem(t *testing.T) {
	_, err := New(Config{Manifest: &Manifest{GameID: "g", GameVersion: "1"}, Pace: -1})
	if got, want := fmt.Sprint(err), "rules: nothing: must have at least one rule\npace: -1ns: must be 0s to 10s"; got != want {
		t.Errorf("New says %s, want %s", got, want)
	}
}

// TestTheEmbeddedManifestIsSound holds what Validate does not ask of others.
func TestTheEmbeddedManifestIsSound(t *testing.T) {
	m := Backgammon()
	if len(m.Rules) < 30 || len(m.Knowledge) < 6 || len(m.Glossary) < 30 {
		t.Errorf("it has %d rules, %d pieces of knowledge and %d terms", len(m.Rules), len(m.Knowledge), len(m.Glossary))
	}
	for key, rules := range m.sections() {
		for _, r := range rules {
			if len(r.See) == 0 || len(r.Also) == 0 || slices.Contains(r.See, r.ID) {
				t.Errorf("%s: %s needs other words and other rules to see", key, r.ID)
			}
			if n := len(sentences(r.Body)); n < 2 || n > 6 {
				t.Errorf("%s: %s has %d sentences", key, r.ID, n)
			}
			if strings.ContainsAny(r.Body, "\n\t[]") {
				t.Errorf("%s: %s has line breaks or brackets", key, r.ID)
			}
		}
	}
	for _, g := range m.Glossary {
		if g.See == "" {
			t.Errorf("the term %s cites nothing", g.Term)
		}
	}
}
