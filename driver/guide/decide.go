package guide

import (
	"context"
	"slices"
	"strings"

	"parley/driver"
	"parley/event"
)

// The measure of when a rule fits, tuned with the questions in testdata.
const (
	// fitCoverage is the least coverage of a rule whose title or other words
	// have some of the question.
	fitCoverage = 0.5
	// wordingCoverage is the least coverage of a rule that has a wording of three
	// words or more which the question has too.
	wordingCoverage = 0.4
	// bodyCoverage is the least coverage when only its body has.
	bodyCoverage = 0.75
	// hintCoverage is the least coverage of a rule that is offered when none fits.
	hintCoverage = 0.3
	// alike is how near the next rule's score must come for a one-word question
	// to be one about several rules.
	alike = 0.85
	// near is how near the first rule that fits must come to the first at all.
	near = 0.6
	// along is how near it must come to be answered too, when it has words of
	// the question that the first rule lacks; and how near an offered rule must
	// come to be what the answer to a question back means.
	along = 0.7
	// leaning is what a rule's score is multiplied with when the question leans
	// on an answer that cited it.
	leaning = 1.3
)

// mostAsked is how often a run asks back before it lets the question go.
const mostAsked = 2

// decide makes a decision for a turn. The earlier decision of the run is the
// question that the turn's text may answer; the zero decision is none.
func (g *Guide) decide(ctx context.Context, turn *driver.Turn, earlier decision) (decision, error) {
	d := decision{V: decisionVersion, Manifest: g.version, Input: turn.Input}
	q, err := g.read(ctx, turn.Text)
	if err != nil {
		return d, err
	}
	said, err := g.said(ctx, turn)
	if err != nil {
		return decision{}, err
	}
	if earlier.Ask == nil {
		d.Parts, d.Ask, err = g.resolve(ctx, q, turn.Text, said)
		return d, err
	}
	d.Parts, d.Ask, err = g.resolveAnswer(ctx, q, turn.Text, said, earlier.Ask)
	return d, err
}

// resolveAnswer decides about a text that answers a question of the guide, or
// goes past it.
func (g *Guide) resolveAnswer(ctx context.Context, q question, text string, said said, asked *ask) ([]part, *ask, error) {
	if len(q.plain) > 0 && q.refuses {
		return phrased(neverMind), nil, nil
	}
	if parts := chosen(q.plain, asked.Options); parts != nil {
		return parts, nil, nil
	}
	if len(q.words) > 0 {
		hits, err := g.index.search(ctx, q)
		if err != nil {
			return nil, nil, err
		}
		// Among the rules that it offered, the guide is easily convinced.
		for _, h := range hits {
			if slices.Contains(asked.Options, g.index.rules[h.rule].ID) && h.keyed != 0 && h.score >= along*hits[0].score {
				return g.ruled(h), nil, nil
			}
		}
	}
	parts, again, err := g.resolve(ctx, q, text, said)
	if err != nil || again == nil {
		return parts, nil, err
	}
	if asked.Text != "" {
		whole, err := g.read(ctx, asked.Text+" "+text)
		if err != nil {
			return nil, nil, err
		}
		if parts, more, err := g.resolve(ctx, whole, asked.Text, said); err != nil || more == nil {
			return parts, nil, err
		}
	}
	if asked.N >= mostAsked {
		return phrased(letGo), nil, nil
	}
	again.N, again.Text = asked.N+1, asked.Text
	if again.Text == "" {
		again.Text = text
	}
	if again.Options == nil && again.Why == nothingSaid {
		again.Options, again.Why = asked.Options, asked.Why
	}
	return nil, again, nil
}

// chosen returns the options that a short text names by their place, nil for none.
func chosen(plain, options []string) []part {
	if len(plain) == 0 || len(plain) > 6 || len(options) == 0 {
		return nil
	}
	var picked []int
	one := false
	for _, w := range plain {
		i, isPlace := places[w]
		switch {
		case w == "all" || w == "both" || w == "either":
			for i := range options {
				picked = append(picked, i)
			}
		case w == "last" || w == "latter":
			picked = append(picked, len(options)-1)
		case w == "one":
			one = true // the place, or what comes after one: the second one
		case isPlace && i < len(options):
			picked = append(picked, i)
		case !placeFillers[w]:
			return nil
		}
	}
	if len(picked) == 0 && (one || len(options) == 1 && all(plain, decisions)) {
		picked = []int{0}
	}
	var parts []part
	for _, i := range picked {
		if p := (part{Rule: options[i]}); !slices.Contains(parts, p) {
			parts = append(parts, p)
		}
	}
	return parts
}

// resolve decides about a text by itself and by what was said before.
func (g *Guide) resolve(ctx context.Context, q question, text string, said said) ([]part, *ask, error) {
	switch q.intent {
	case greets:
		return phrased(hello), nil, nil
	case thanks:
		return phrased(welcome), nil, nil
	case leaves:
		return phrased(farewell), nil, nil
	case offers:
		return phrased(offer), nil, nil
	case wonders:
		return []part{{Rule: g.index.rules[0].ID}}, nil, nil
	case decides, says:
		return nil, &ask{N: 1, Why: nothingSaid, Text: text}, nil
	case repeats:
		if len(said.last) > 0 {
			var parts []part
			for _, id := range said.last {
				parts = append(parts, part{Rule: id})
			}
			return parts, nil, nil
		}
		return nil, &ask{N: 1, Why: nothingSaid}, nil
	case goesOn:
		if parts := g.next(said); parts != nil {
			return parts, nil, nil
		}
		return nil, &ask{N: 1, Why: nothingSaid}, nil
	}
	hits, err := g.index.search(ctx, q)
	if err != nil {
		return nil, nil, err
	}
	if q.leans {
		g.lean(hits, said)
	}
	if q.define != nil {
		return []part{{Term: q.define.Term}}, nil, nil
	}
	// A rule that has a lot of a little of the question may come before one that has all of it.
	first := slices.IndexFunc(hits, fits)
	if first < 0 || hits[first].score < near*hits[0].score {
		return nil, g.unsure(hits, text), nil
	}
	hits = hits[first:]
	best := hits[0]
	if len(q.words) == 1 {
		if same := g.alike(hits); len(same) > 1 {
			return nil, &ask{N: 1, Why: tooMuch, Text: text, Options: same}, nil
		}
	}
	parts := g.ruled(best)
	if len(hits) > 1 && hits[1].score >= along*best.score && hits[1].keyed&^best.words != 0 {
		parts = append(parts, g.ruled(hits[1])...)
	}
	return parts, nil, nil
}

func fits(h hit) bool {
	if h.wording > 2 {
		return h.coverage >= wordingCoverage
	}
	if h.keyed != 0 {
		return h.coverage >= fitCoverage
	}
	return h.coverage >= bodyCoverage && count(h.words) > 2
}

// alike returns the ids of the best rule and of those that fit about as well.
func (g *Guide) alike(hits []hit) []string {
	var ids []string
	for _, h := range hits {
		if h.score < alike*hits[0].score || h.keyed == 0 || len(ids) == mostOffered {
			break
		}
		ids = append(ids, g.index.rules[h.rule].ID)
	}
	return ids
}

// mostOffered is how many rules a question back names.
const mostOffered = 3

func (g *Guide) unsure(hits []hit, text string) *ask {
	a := &ask{N: 1, Why: nothingFits, Text: text}
	for _, h := range hits {
		if h.keyed != 0 && h.coverage >= hintCoverage && len(a.Options) < mostOffered {
			a.Options = append(a.Options, g.index.rules[h.rule].ID)
		}
	}
	if a.Options != nil {
		a.Why = notSure
	}
	return a
}

// lean raises the rules that the answer before had cited, and what they refer to.
func (g *Guide) lean(hits []hit, said said) {
	if len(said.last) == 0 {
		return
	}
	for i, h := range hits {
		id := g.index.rules[h.rule].ID
		switch {
		case slices.Contains(said.last, id):
			hits[i].score *= leaning
		case slices.ContainsFunc(said.last, func(l string) bool { return slices.Contains(g.index.rules[g.byID[l]].See, id) }):
			hits[i].score *= (1 + leaning) / 2
		}
	}
	slices.SortStableFunc(hits, func(a, b hit) int {
		switch {
		case a.score > b.score:
			return -1
		case a.score < b.score:
			return 1
		}
		return 0
	})
}

func (g *Guide) ruled(h hit) []part { return []part{{Rule: g.index.rules[h.rule].ID}} }

func phrased(p phrase) []part { return []part{{Phrase: p}} }

// said is what the agent said before on the channel.
type said struct {
	last  []string // the rules that its last answer cited
	rules []string // all rules that it cited lately, the last answer's included
	text  string   // what it said lately
}

// lately is how many rows of the context are looked at.
const lately = 40

// said reads the context.
func (g *Guide) said(ctx context.Context, turn *driver.Turn) (s said, err error) {
	rows, err := turn.Context(ctx)
	if err != nil {
		return s, err
	}
	rows = rows[max(0, len(rows)-lately):]
	var answered event.InputID
	for _, r := range slices.Backward(rows) {
		if r.Output == "" || r.Speaker.ID != string(turn.Agent.ID) {
			continue
		}
		s.text = r.Text + "\n" + s.text
		cited := g.citations(r.Text)
		s.rules = append(cited, s.rules...)
		if len(s.last) == 0 {
			answered = r.Input
		}
		if r.Input == answered {
			s.last = append(slices.Clone(cited), s.last...)
		}
	}
	s.last = slices.Compact(s.last) // an answer cites its rule in each paragraph
	return s, nil
}

// citations returns the rules that a text cites, in order.
func (g *Guide) citations(text string) (ids []string) {
	for {
		_, rest, found := strings.Cut(text, "[")
		if !found {
			return ids
		}
		id, after, closed := strings.Cut(rest, "]")
		if _, ok := g.byID[id]; ok && closed {
			ids = append(ids, id)
			rest = after
		}
		text = rest
	}
}

// next returns what comes after what was said: a rule that was only cited, else
// one that it refers to, else the one after it in the manifest. It is nil when
// nothing was said.
func (g *Guide) next(s said) []part {
	if len(s.last) == 0 {
		return nil
	}
	fresh := func(id string) bool { return !slices.Contains(s.rules, id) }
	for _, id := range s.last {
		if first, _ := firstSentence(g.index.rules[g.byID[id]].Body); !strings.Contains(s.text, strings.TrimSpace(first)) {
			return []part{{Rule: id}}
		}
	}
	for _, id := range s.last {
		for _, see := range g.index.rules[g.byID[id]].See {
			if fresh(see) {
				return []part{{Rule: see}}
			}
		}
	}
	for _, r := range g.index.rules[g.byID[s.last[len(s.last)-1]]+1:] {
		if fresh(r.ID) {
			return []part{{Rule: r.ID}}
		}
	}
	return phrased(thatIsAll)
}
