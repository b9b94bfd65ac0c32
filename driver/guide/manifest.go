package guide

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
)

// Manifest is what a product explains of a game (N2). It holds no secrets and is
// never authority. Members that this package does not know are ignored.
type Manifest struct {
	GameID      string `yaml:"gameId" json:"gameId"`
	GameVersion string `yaml:"gameVersion" json:"gameVersion"`
	// Title is how the guide calls the game; empty: GameID.
	Title string `yaml:"title" json:"title,omitempty"`
	// Rules are what a question is answered from first, in the order in which
	// one would teach them: "how do you play?" is answered with the first, and
	// "and then?" goes on to the next.
	Rules []Rule `yaml:"rules" json:"rules"`
	// Mechanisms say how things are done at the table or on the screen.
	Mechanisms []Rule `yaml:"mechanisms" json:"mechanisms,omitempty"`
	// Knowledge is what is worth knowing beside the rules.
	Knowledge []Rule `yaml:"knowledge" json:"knowledge,omitempty"`
	Glossary  []Term `yaml:"glossary" json:"glossary,omitempty"`
}

// Rule is one rule, mechanism or piece of knowledge. Ids are unique in the manifest.
type Rule struct {
	ID    string `yaml:"id" json:"id"`
	Title string `yaml:"title" json:"title"`
	Body  string `yaml:"body" json:"body"`
	// Also has other words in which players ask about it. They are searched and never shown.
	Also []string `yaml:"also" json:"also,omitempty"`
	// See has the ids of what to read next.
	See []string `yaml:"see" json:"see,omitempty"`
	// ActionIDs are the game's actions that a mechanism explains.
	ActionIDs []string `yaml:"actionIds" json:"actionIds,omitempty"`
}

// Term is one word of the glossary. A question that uses one of Also is
// searched as if it used Term.
type Term struct {
	Term    string   `yaml:"term" json:"term"`
	Also    []string `yaml:"also" json:"also,omitempty"`
	Meaning string   `yaml:"meaning" json:"meaning"`
	// See is the id of the rule that the meaning is cited from, empty: none.
	See string `yaml:"see" json:"see,omitempty"`
}

// The bounds of a manifest.
const (
	MaxManifest = 4 << 20 // bytes, as text
	MaxRules    = 5_000   // rules, mechanisms and knowledge together, and terms
	MaxTitle    = 200     // bytes, also of a term and of each of Also
	MaxBody     = 8 << 10 // bytes, also of a meaning
	MaxAlso     = 100
	maxRuleID   = 64
)

//go:embed backgammon.yaml
var backgammon []byte

var builtin = sync.OnceValue(func() *Manifest {
	m, err := Parse(backgammon)
	if err != nil {
		panic(fmt.Sprintf("guide: the embedded manifest: %v", err)) // a test holds that it parses
	}
	return m
})

// Backgammon returns the manifest that comes with the package. It is shared: do
// not change it.
func Backgammon() *Manifest { return builtin() }

// Parse reads a manifest from YAML or JSON and validates it.
func Parse(raw []byte) (*Manifest, error) {
	if len(raw) > MaxManifest {
		return nil, fmt.Errorf("a manifest of %d bytes; at most %d are allowed", len(raw), MaxManifest)
	}
	m := &Manifest{}
	// JSON is almost YAML: tabs and some escapes differ.
	if bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) && json.Valid(raw) {
		if err := json.Unmarshal(raw, m); err != nil {
			return nil, fmt.Errorf("not a manifest: %w", err)
		}
	} else if err := yaml.Unmarshal(raw, m); err != nil {
		return nil, fmt.Errorf("not a manifest: %w", err)
	}
	if err := m.Validate(); err != nil {
		return nil, err
	}
	return m, nil
}

// Validate reports all that is wrong at once, each with its key, its value and what is allowed.
func (m *Manifest) Validate() error {
	c := checker{ids: map[string]bool{}}
	c.text("gameId", m.GameID, 1, MaxTitle)
	c.text("gameVersion", m.GameVersion, 1, MaxTitle)
	c.text("title", m.Title, 0, MaxTitle)
	if len(m.Rules) == 0 {
		c.bad("rules", "nothing", "must have at least one rule")
	}
	if n := len(m.Rules) + len(m.Mechanisms) + len(m.Knowledge); n > MaxRules {
		c.bad("rules", n, "at most %d rules, mechanisms and pieces of knowledge are allowed", MaxRules)
	}
	if n := len(m.Glossary); n > MaxRules {
		c.bad("glossary", n, "at most %d terms are allowed", MaxRules)
	}
	for key, rules := range m.sections() {
		for i, r := range rules {
			c.rule(fmt.Sprintf("%s[%d]", key, i), r)
		}
	}
	for key, rules := range m.sections() { // once all ids are known
		for i, r := range rules {
			for j, id := range r.See {
				c.known(fmt.Sprintf("%s[%d].see[%d]", key, i, j), id)
			}
		}
	}
	terms := map[string]bool{}
	for i, t := range m.Glossary {
		key := fmt.Sprintf("glossary[%d]", i)
		c.text(key+".term", t.Term, 1, MaxTitle)
		c.text(key+".meaning", t.Meaning, 1, MaxBody)
		c.also(key+".also", t.Also)
		if t.See != "" {
			c.known(key+".see", t.See)
		}
		word := strings.ToLower(t.Term)
		if terms[word] {
			c.bad(key+".term", quoted(t.Term), "is used twice; terms are unique")
		}
		terms[word] = true
	}
	return errors.Join(c.errs...)
}

// sections yields the lists of rules with their keys, in the order of search.
func (m *Manifest) sections() func(yield func(string, []Rule) bool) {
	return func(yield func(string, []Rule) bool) {
		_ = yield("rules", m.Rules) && yield("mechanisms", m.Mechanisms) && yield("knowledge", m.Knowledge)
	}
}

func (m *Manifest) name() string {
	if m.Title != "" {
		return m.Title
	}
	return m.GameID
}

// checker collects what is wrong with a manifest.
type checker struct {
	errs []error
	ids  map[string]bool
}

func (c *checker) bad(key string, value any, allowed string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf("%s: %v: %s", key, value, fmt.Sprintf(allowed, args...)))
}

func (c *checker) rule(key string, r Rule) {
	switch {
	case !validID(r.ID):
		c.bad(key+".id", quoted(r.ID), "must have 1 to %d of a-z, 0-9, '.', '_' and '-'", maxRuleID)
	case c.ids[r.ID]:
		c.bad(key+".id", quoted(r.ID), "is used twice; ids are unique in a manifest")
	}
	c.ids[r.ID] = true
	c.text(key+".title", r.Title, 1, MaxTitle)
	c.text(key+".body", r.Body, 1, MaxBody)
	c.also(key+".also", r.Also)
	for i, a := range r.ActionIDs {
		c.text(fmt.Sprintf("%s.actionIds[%d]", key, i), a, 1, MaxTitle)
	}
}

func (c *checker) also(key string, also []string) {
	if len(also) > MaxAlso {
		c.bad(key, len(also), "at most %d other words are allowed", MaxAlso)
	}
	for i, a := range also {
		c.text(fmt.Sprintf("%s[%d]", key, i), a, 1, MaxTitle)
	}
}

func (c *checker) known(key, id string) {
	if !c.ids[id] {
		c.bad(key, quoted(id), "must be the id of a rule, a mechanism or a piece of knowledge")
	}
}

// text checks a text of at most so many bytes; least is 1 when it must not be blank.
func (c *checker) text(key, s string, least, most int) {
	switch {
	case least > 0 && strings.TrimSpace(s) == "":
		c.bad(key, quoted(s), "must be a text of 1 to %d bytes", most)
	case len(s) > most:
		c.bad(key, fmt.Sprintf("%d bytes", len(s)), "must be a text of at most %d bytes", most)
	case !utf8.ValidString(s):
		c.bad(key, quoted(s), "must be valid UTF-8")
	case strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 && r != '\n' && r != '\t' || r >= 0x7f && r <= 0x9f }):
		c.bad(key, quoted(s), "must have no control characters but newline and tab")
	}
}

func validID(id string) bool {
	if id == "" || len(id) > maxRuleID {
		return false
	}
	return strings.Trim(id, "abcdefghijklmnopqrstuvwxyz0123456789._-") == "" && strings.Trim(id, ".") != ""
}

func quoted(s string) string {
	const most = 60
	if runes := []rune(s); len(runes) > most {
		s = string(runes[:most]) + "…"
	}
	return fmt.Sprintf("%q", s)
}
