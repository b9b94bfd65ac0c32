package guide

import (
	"encoding/json"
	"fmt"

	"parley/driver"
	"parley/event"
)

// decision is what an attempt decided to say, and the guide's checkpoint: plain
// data that a later attempt can go by. Either Parts or Ask is set.
type decision struct {
	V        int           `json:"v"`
	Manifest string        `json:"manifest"`
	Input    event.InputID `json:"input"` // that it was decided for
	Parts    []part        `json:"parts,omitempty"`
	Ask      *ask          `json:"ask,omitempty"`
}

// decisionVersion rises when decision changes so that an older one misleads.
const decisionVersion = 1

// part is one part of an answer: a rule, a term of the glossary or a phrase of
// the guide's own, by its name.
type part struct {
	Rule   string `json:"rule,omitempty"`
	Term   string `json:"term,omitempty"`
	Phrase phrase `json:"phrase,omitempty"`
}

// ask is a question back.
type ask struct {
	N       int      `json:"n"` // how often the run asked, from 1
	Why     reason   `json:"why"`
	Text    string   `json:"text"`              // what was asked at first
	Options []string `json:"options,omitempty"` // ids of rules, in the order of the question
}

// reason is why the guide asks back.
type reason string

const (
	nothingFits reason = "nothing" // no rule fits
	notSure     reason = "unsure"  // some rules fit a little
	tooMuch     reason = "many"    // several fit alike
	nothingSaid reason = "empty"   // the text does not say what it is about
)

func (a *ask) request() event.RequestID { return event.RequestID(fmt.Sprintf("which-rule-%d", a.N)) }

func (d decision) encode() json.RawMessage {
	raw, err := json.Marshal(d)
	if err != nil {
		panic(fmt.Sprintf("guide: encode a decision: %v", err)) // it is plain data
	}
	return raw
}

// recall returns what the run's checkpoint says, and whether that was decided
// for this very input, so that there is nothing left to decide. Of another
// manifest's checkpoint nothing is taken.
func (g *Guide) recall(turn *driver.Turn) (d decision, decided bool) {
	if turn.Checkpoint == nil || json.Unmarshal(turn.Checkpoint, &d) != nil || d.V != decisionVersion || d.Manifest != g.version || !g.knows(d) {
		return decision{}, false
	}
	return d, d.Input == turn.Input
}

// knows reports whether all that a decision names exists.
func (g *Guide) knows(d decision) bool {
	if (d.Ask == nil) == (len(d.Parts) == 0) {
		return false
	}
	for _, p := range d.Parts {
		_, isRule := g.byID[p.Rule]
		if !isRule && g.terms[g.termKey(split(p.Term))] == nil && phrases[p.Phrase] == "" {
			return false
		}
	}
	if d.Ask == nil {
		return true
	}
	for _, id := range d.Ask.Options {
		if _, ok := g.byID[id]; !ok {
			return false
		}
	}
	return d.Ask.N > 0
}
