package guide

import (
	"context"
	"slices"
	"strings"
	"unicode"
)

// intent is what kind of thing somebody said.
type intent int

const (
	asks    intent = iota // about the game; the words say what
	greets                // hello
	thanks                // thank you
	leaves                // goodbye
	offers                // who are you, what can you do, help
	goesOn                // and then? tell me more
	repeats               // say that again
	decides               // yes, no, never mind: of use only as an answer to a question
	wonders               // how the game is played at all
	says                  // nothing that could be searched
)

// question is what was made of a text.
type question struct {
	intent intent
	plain  []string        // all words, in lower case
	words  []word          // those that say what it is about, each once
	roots  map[string]bool // of all words, as typed, corrected and replaced; see index.roots
	// define is the term of the glossary that is asked for, nil for none.
	define *Term
	// leans says that it refers to what was said before, as "and if both are closed?" does.
	leans bool
	// refuses says that it is a no.
	refuses bool
}

// maxPlain is how many words of a text are read. Nobody asks at such length, and
// time must not grow with a text that only wants to waste it.
const maxPlain = 300

// read makes a question of a text. Words that neither the manifest nor the
// language of questions has are corrected when something near is known.
func (g *Guide) read(ctx context.Context, text string) (question, error) {
	q := question{plain: split(text)}
	q.plain = q.plain[:min(len(q.plain), maxPlain)]
	if len(q.plain) == 0 {
		q.intent = says
		return q, nil
	}
	said := " " + strings.Join(q.plain, " ") + " "
	q.leans = leanStarts[q.plain[0]] || slices.ContainsFunc(q.plain, func(w string) bool { return leanWords[w] })
	q.refuses = all(q.plain, refusals)

	unknown := 0
	content := g.replaceTerms(q.plain)
	for _, w := range content {
		if chatter[w] || g.own[w] || isNumber(w) {
			continue
		}
		if len(q.words) == maxWords {
			break
		}
		made, err := g.word(ctx, w, unknown < maxCorrected)
		if err != nil {
			return q, err
		}
		if made.corrected || made.stem != "" && !made.known {
			unknown++
		}
		if made.stem != "" && !slices.ContainsFunc(q.words, func(o word) bool { return o.stem == made.stem }) {
			q.words = append(q.words, made)
		}
	}
	q.roots = map[string]bool{}
	for _, w := range q.words {
		q.roots[w.stem] = true
	}
	for _, r := range g.index.roots(append(content, q.plain...)) {
		q.roots[r] = true
	}
	q.define = g.definition(q)
	known := slices.ContainsFunc(q.words, func(w word) bool { return w.known })
	switch {
	case q.define != nil:
		q.intent = asks
	case all(q.plain, goodbyes):
		q.intent = leaves
	case has(said, thanking) && !known:
		q.intent = thanks
	case has(said, offering) && !known || all(q.plain, helping):
		q.intent = offers
	case all(q.plain, salutes) && slices.ContainsFunc(q.plain, func(w string) bool { return greetings[w] }):
		q.intent = greets
	case all(q.plain, decisions):
		q.intent = decides
	case has(said, repeating) && !known:
		q.intent = repeats
	case all(q.plain, following):
		q.intent = goesOn
	case len(q.words) == 0 && (has(said, playing) || slices.ContainsFunc(q.plain, func(w string) bool { return g.own[w] })):
		q.intent = wonders
	case len(q.words) == 0:
		q.intent = says
	}
	return q, nil
}

// maxCorrected is how many unknown words of a text are corrected. One that has
// more is not about the game.
const maxCorrected = 8

// word looks a word up, and corrects it, if it should, when the manifest does
// not have it.
func (g *Guide) word(ctx context.Context, w string, correct bool) (word, error) {
	made := word{text: w}
	if isThrow(w) {
		return word{text: w, stem: w, known: g.index.throws[w] != nil}, nil
	}
	stem := g.index.stem(w)
	if stem == "" {
		return made, nil
	}
	made.stem = stem
	var err error
	if made.known, err = g.index.has(ctx, stem); err != nil || made.known || ordinary[w] || !correct {
		return made, err
	}
	if slips[w] {
		return word{}, nil
	}
	near, err := g.index.correct(w)
	if err != nil || near == "" {
		return made, err
	}
	if heads, ok := g.synonyms[g.termKey([]string{near})]; ok {
		near = heads[len(heads)-1]
	}
	return word{text: near, stem: g.index.stem(near), known: true, corrected: true}, nil
}

// replaceTerms replaces words that the glossary has beside a term by the term,
// the longest first.
func (g *Guide) replaceTerms(plain []string) []string {
	var made []string
	for i := 0; i < len(plain); {
		n := min(len(plain)-i, g.longest)
		for ; n > 0; n-- {
			if heads, ok := g.synonyms[g.termKey(plain[i:i+n])]; ok {
				made = append(made, heads...)
				break
			}
		}
		if n == 0 {
			made = append(made, plain[i])
			n = 1
		}
		i += n
	}
	return made
}

// definition returns the term whose meaning is asked for, nil when the question
// is another one.
func (g *Guide) definition(q question) *Term {
	said := strings.Join(q.plain, " ")
	rest, found := said, false
	for _, start := range definitionStarts {
		if r, ok := strings.CutPrefix(said, start+" "); ok {
			rest, found = r, true
			break
		}
	}
	for _, end := range definitionEnds {
		if r, ok := strings.CutSuffix(rest, " "+end); ok {
			rest, found = r, true
			break
		}
	}
	if !found && len(q.plain) > 3 {
		return nil
	}
	var words []string
	for _, w := range split(rest) {
		if !fillers[w] && !g.own[w] {
			words = append(words, w)
		}
	}
	if t := g.terms[g.termKey(words)]; t != nil && (found || len(words) == len(q.plain)) {
		return t
	}
	if !found || len(q.words) != len(words) {
		return nil
	}
	// Once more with the words as they were corrected.
	for i, w := range q.words {
		words[i] = w.text
	}
	return g.terms[g.termKey(words)]
}

// termKey is what a term of the glossary is found by: the stems of its words.
func (g *Guide) termKey(words []string) string {
	var stems []string
	for _, w := range words {
		if s := g.index.stem(w); s != "" {
			w = s
		}
		stems = append(stems, w)
	}
	return strings.Join(stems, " ")
}

// split cuts a text into its words, in lower case and without what follows an
// apostrophe: "Opponent's" is opponent.
func split(text string) []string {
	text = strings.ToLower(strings.ReplaceAll(text, "’", "'"))
	for _, c := range contractions {
		text = strings.ReplaceAll(text, c[0], c[1])
	}
	words := strings.FieldsFunc(text, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) && r != '\'' && r != '-'
	})
	for i := 0; i < len(words); i++ {
		if w := words[i]; strings.Contains(w, "-") && !isThrow(w) {
			words = slices.Replace(words, i, i+1, strings.FieldsFunc(w, func(r rune) bool { return r == '-' })...)
			i--
			continue
		}
		words[i], _, _ = strings.Cut(strings.Trim(words[i], "'"), "'")
	}
	return slices.DeleteFunc(words, func(w string) bool { return w == "" })
}

func all(words []string, of map[string]bool) bool {
	for _, w := range words {
		if !of[w] {
			return false
		}
	}
	return true
}

func has(said string, phrases []string) bool {
	return slices.ContainsFunc(phrases, func(p string) bool { return strings.Contains(said, " "+p+" ") })
}
