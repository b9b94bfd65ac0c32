package guide

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"parley/driver"
	"parley/event"
)

// Config says what a Guide knows and how it speaks.
type Config struct {
	// Manifest is what to answer from; nil: Backgammon. It must not be changed
	// afterwards.
	Manifest *Manifest
	// Pace is the pause between two sentences, from 0 (none, the default) to 10 s.
	// With it an answer reads as if it were spoken.
	Pace time.Duration
}

// Validate reports all that is wrong at once, each with its key, its value and what is allowed.
func (c Config) Validate() error {
	var errs []error
	if c.Manifest != nil {
		errs = append(errs, c.Manifest.Validate())
	}
	if c.Pace < 0 || c.Pace > 10*time.Second {
		errs = append(errs, fmt.Errorf("pace: %v: must be 0s to 10s", c.Pace))
	}
	return errors.Join(errs...)
}

// Guide answers questions from one manifest. It is a driver.Runner. Immutable
// after New and safe for concurrent use.
type Guide struct {
	name     string // of the game
	version  string // of the manifest, as checkpoints name it
	pace     time.Duration
	index    *index
	rules    int                 // how many of index.rules are rules, the first ones
	byID     map[string]int      // position in index.rules
	terms    map[string]*Term    // by termKey
	synonyms map[string][]string // by termKey of another word for a term → the words of the term
	longest  int                 // the most words in a key of synonyms
	own      map[string]bool     // the words of the game's name, which every question may have
}

var _ driver.Runner = (*Guide)(nil)

// New makes a Guide, which takes some milliseconds per hundred rules.
func New(c Config) (*Guide, error) {
	if c.Manifest == nil {
		c.Manifest = Backgammon()
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	m := c.Manifest
	x, err := newIndex(m)
	if err != nil {
		return nil, err
	}
	g := &Guide{
		name: m.name(), version: m.GameID + " " + m.GameVersion, pace: c.Pace, index: x, rules: len(m.Rules),
		byID: map[string]int{}, terms: map[string]*Term{}, synonyms: map[string][]string{}, own: map[string]bool{},
	}
	for i, r := range x.rules {
		g.byID[r.ID] = i
	}
	for _, w := range split(m.name() + " " + m.GameID) {
		g.own[w] = true
	}
	for i := range m.Glossary {
		t := &m.Glossary[i]
		head := split(t.Term)
		for _, other := range append([]string{t.Term}, t.Also...) {
			words := split(other)
			key := g.termKey(words)
			if g.terms[key] == nil {
				g.terms[key] = t
			}
			// A word that has the term in it, such as doubling cube for cube, stays as it is.
			contained := key == g.termKey(head) || slices.ContainsFunc(words, func(w string) bool { return slices.Contains(head, w) })
			if !contained && g.synonyms[key] == nil {
				g.synonyms[key] = head
				g.longest = max(g.longest, len(words))
			}
		}
	}
	return g, nil
}

// Run implements driver.Runner.
func (g *Guide) Run(ctx context.Context, turn *driver.Turn, out driver.Emitter) error {
	if err := out.Emit(event.Progress{Stage: "search", Message: "Looking it up in the rules of " + g.name}); err != nil {
		return err
	}
	d, decided := g.recall(turn)
	if !decided {
		var err error
		if d, err = g.decide(ctx, turn, d); err != nil {
			return err
		}
		if err := out.Emit(event.Checkpoint{Value: d.encode()}); err != nil {
			return err
		}
	}
	s := speaker{ctx: ctx, out: out, pace: g.pace}
	if d.Ask == nil {
		return s.say(g.answer(turn, d))
	}
	if err := s.say(g.askBack(d.Ask)); err != nil {
		return err
	}
	return out.Emit(event.InputRequested{Request: d.Ask.request()})
}
