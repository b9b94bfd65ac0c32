package guide

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/blevesearch/bleve/v2/analysis"
	"github.com/blevesearch/bleve/v2/analysis/analyzer/simple"
	"github.com/blevesearch/bleve/v2/analysis/lang/en"
	"github.com/blevesearch/bleve/v2/document"
	"github.com/blevesearch/bleve/v2/index/scorch"
	"github.com/blevesearch/bleve/v2/registry"
	"github.com/blevesearch/bleve/v2/search"
	"github.com/blevesearch/bleve/v2/search/searcher"
	segment "github.com/blevesearch/bleve_index_api"
)

// The fields of an indexed rule.
const (
	fieldTitle = "title" // stems
	fieldAlso  = "also"  // stems
	fieldBody  = "body"  // stems
	fieldExact = "exact" // the words of title and also as they are, which is also what typing errors are corrected to
)

// fields are what a word of a question is looked up in, and what a hit there is worth.
var fields = [...]struct {
	name  string
	boost float64
}{{fieldTitle, 3}, {fieldAlso, 2}, {fieldBody, 1}}

// exactBoost is what it is worth that the very word, not only its stem, is in
// title or also: doubles are not doubling.
const exactBoost = 1.2

// index finds rules by words. Immutable after newIndex and safe for concurrent use.
//
// It uses the parts of the search library below its top package, for three
// reasons: that package starts goroutines for the whole process when it is
// imported, an open index keeps one more, and an analysis that is shared over a
// process cannot be used in a testing/synctest bubble. Here a reader of the
// finished index is all that is left.
type index struct {
	rules    []Rule // as searched: rules, mechanisms, knowledge
	stemmer  analysis.Analyzer
	reader   segment.IndexReader
	numbers  map[uint64]int // the index's number of a document → position in rules
	wordings []wording
	throws   map[string][]int // a throw such as 3-1 → the rules that have it in also
}

// wording is a title or one of also of a rule, when it has several words. A
// question that has all of them, the small words included, is likely about it:
// "must I move" says something that move does not.
type wording struct {
	rule  int
	roots []string // each once
}

func newIndex(m *Manifest) (*index, error) {
	cache := registry.NewCache()
	stemmer, err := cache.AnalyzerNamed(en.AnalyzerName)
	if err != nil {
		return nil, fmt.Errorf("guide: english analyzer: %w", err)
	}
	plain, err := cache.AnalyzerNamed(simple.Name)
	if err != nil {
		return nil, fmt.Errorf("guide: plain analyzer: %w", err)
	}
	x := &index{stemmer: stemmer, numbers: map[uint64]int{}, throws: map[string][]int{}}
	for _, rules := range m.sections() {
		x.rules = append(x.rules, rules...)
	}
	batch := segment.NewBatch()
	for i, r := range x.rules {
		for _, text := range append([]string{r.Title}, r.Also...) {
			if isThrow(text) {
				x.throws[text] = append(x.throws[text], i)
				continue
			}
			if roots := x.roots(split(text)); len(roots) > 1 {
				x.wordings = append(x.wordings, wording{i, roots})
			}
		}
		also := strings.Join(r.Also, "\n")
		doc := document.NewDocument(strconv.Itoa(i))
		for _, f := range []struct {
			name, text string
			analyzer   analysis.Analyzer
		}{{fieldTitle, r.Title, stemmer}, {fieldAlso, also, stemmer}, {fieldBody, r.Body, stemmer}, {fieldExact, r.Title + "\n" + also, plain}} {
			doc.AddField(document.NewTextFieldCustom(f.name, nil, []byte(f.text), segment.IndexField, f.analyzer))
		}
		batch.Update(doc)
	}
	if x.reader, err = build(batch); err != nil {
		return nil, fmt.Errorf("guide: index: %w", err)
	}
	for i := range x.rules {
		id, err := x.reader.InternalID(strconv.Itoa(i))
		if err != nil {
			return nil, fmt.Errorf("guide: index: %w", err)
		}
		x.numbers[id.Value()] = i
	}
	return x, nil
}

// build indexes a batch in memory and returns a reader of it, which outlives the index.
func build(batch *segment.Batch) (reader segment.IndexReader, err error) {
	queue := segment.NewAnalysisQueue(1)
	defer queue.Close()
	idx, err := scorch.NewScorch(scorch.Name, map[string]any{"path": ""}, queue)
	if err != nil {
		return nil, err
	}
	if err := idx.Open(); err != nil {
		return nil, err
	}
	if err = idx.Batch(batch); err == nil {
		reader, err = idx.Reader()
	}
	if closed := idx.Close(); err == nil {
		err = closed
	}
	return reader, err
}

// word is one word of a question that says what it is about.
type word struct {
	text string // as typed, in lower case, or corrected
	stem string // what it is searched by; "" for a word that is not searched
	// known is true when the manifest has the word at all.
	known     bool
	corrected bool // it was typed otherwise
}

// hit is how well a rule fits a question.
type hit struct {
	rule int // position in index.rules
	// score is comparable within a question only.
	score float64
	// coverage is how much of what the question says the rule has, from 0 to 1:
	// each word counts by how rare it is, and one that the manifest has nowhere
	// counts as rare.
	coverage float64
	// words has bit i set when the rule has word i.
	words uint64
	// keyed has bit i set when title or also has word i.
	keyed uint64
	// wording is how many words the longest wording has of which the question
	// has all; 0: none.
	wording int
}

// throwScore is what it is worth that a rule names the very throw.
const throwScore = 4

// isThrow reports whether a word is a throw of dice as players write it: 3-1.
// It is looked up whole, and what it consists of says nothing by itself.
func isThrow(w string) bool {
	a, b, found := strings.Cut(w, "-")
	return found && isNumber(a) && isNumber(b)
}

func isNumber(w string) bool { return w != "" && strings.Trim(w, "0123456789") == "" }

// maxWords is how many words of a question are searched; a hit has a bit for each.
const maxWords = 40

// unknownWeight is what a word that the manifest has nowhere weighs in coverage.
const unknownWeight = 3.0

// wordingBoost is what it is worth, for each word of it, that a question has all
// of a wording.
const wordingBoost = 1.2

// search returns the rules that fit a question, best first.
func (x *index) search(ctx context.Context, q question) ([]hit, error) {
	words := q.words
	found := make([]hit, len(x.rules))
	for i := range found {
		found[i].rule = i
	}
	total := 0.0
	weights := make([]float64, len(words))
	for i, w := range words {
		scores, keyed, err := x.lookup(ctx, w)
		if err != nil {
			return nil, err
		}
		have := 0
		for _, s := range scores {
			if s > 0 {
				have++
			}
		}
		weights[i] = unknownWeight
		if have > 0 {
			weights[i] = math.Log(1 + float64(len(x.rules)-have)/(float64(have)+0.5))
		}
		total += weights[i]
		for r, s := range scores {
			if s > 0 {
				found[r].score += s
				found[r].coverage += weights[i]
				found[r].words |= 1 << i
				if keyed[r] {
					found[r].keyed |= 1 << i
				}
			}
		}
	}
	for i := range found {
		if total > 0 {
			found[i].coverage /= total
		}
		found[i].score *= 0.2 + 0.8*found[i].coverage
	}
	for _, p := range x.wordings {
		if n := len(p.roots); n > found[p.rule].wording && !slices.ContainsFunc(p.roots, func(r string) bool { return !q.roots[r] }) {
			found[p.rule].wording = n
		}
	}
	for i := range found {
		found[i].score += wordingBoost * float64(found[i].wording) * (0.5 + 0.5*found[i].coverage)
	}
	found = slices.DeleteFunc(found, func(h hit) bool { return h.score == 0 })
	slices.SortStableFunc(found, func(a, b hit) int { return cmp.Compare(b.score, a.score) })
	return found, nil
}

// lookup scores every rule for one word.
func (x *index) lookup(ctx context.Context, w word) (scores []float64, keyed []bool, err error) {
	scores, keyed = make([]float64, len(x.rules)), make([]bool, len(x.rules))
	if isThrow(w.text) {
		for _, rule := range x.throws[w.text] {
			scores[rule], keyed[rule] = throwScore, true
		}
		return scores, keyed, nil
	}
	for _, f := range fields {
		err := x.term(ctx, w.stem, f.name, f.boost, func(rule int, score float64) {
			scores[rule] += score
			keyed[rule] = keyed[rule] || f.name != fieldBody
		})
		if err != nil {
			return nil, nil, err
		}
	}
	err = x.term(ctx, w.text, fieldExact, exactBoost, func(rule int, score float64) {
		if scores[rule] > 0 {
			scores[rule] += score
		}
	})
	return scores, keyed, err
}

// term calls each for the rules that have a term in a field.
func (x *index) term(ctx context.Context, term, field string, boost float64, each func(rule int, score float64)) (err error) {
	ctx = context.WithValue(ctx, search.GetScoringModelCallbackKey, search.GetScoringModelCallbackFn(func() string { return segment.BM25Scoring }))
	s, err := searcher.NewTermSearcher(ctx, x.reader, term, field, boost, search.SearcherOptions{})
	if err != nil {
		return fmt.Errorf("guide: search: %w", err)
	}
	defer func() {
		if closed := s.Close(); err == nil && closed != nil {
			err = fmt.Errorf("guide: search: %w", closed)
		}
	}()
	pool := &search.SearchContext{DocumentMatchPool: search.NewDocumentMatchPool(s.DocumentMatchPoolSize()+1, 0), IndexReader: x.reader}
	for {
		m, err := s.Next(pool)
		if err != nil {
			return fmt.Errorf("guide: search: %w", err)
		}
		if m == nil {
			return nil
		}
		each(x.numbers[m.IndexInternalID.Value()], m.Score)
		pool.DocumentMatchPool.Put(m)
	}
}

// stem returns the stem of a word, "" for one that is too common to be searched.
func (x *index) stem(w string) string {
	tokens := x.stemmer.Analyze([]byte(w))
	if len(tokens) == 0 {
		return ""
	}
	return string(tokens[0].Term)
}

// roots returns the stems of all words, each once; a word that is too common to
// be searched stands for itself, except an article.
func (x *index) roots(words []string) []string {
	var roots []string
	for _, w := range words {
		if s := x.stem(w); s != "" && !isThrow(w) {
			w = s
		}
		if !articles[w] && !slices.Contains(roots, w) {
			roots = append(roots, w)
		}
	}
	return roots
}

// has reports whether any rule has the stem.
func (x *index) has(ctx context.Context, stem string) (bool, error) {
	for _, f := range fields {
		any := false
		if err := x.term(ctx, stem, f.name, 1, func(int, float64) { any = true }); err != nil || any {
			return any, err
		}
	}
	return false, nil
}

// longestCorrected is the most letters of a word that is corrected. The work
// grows steeply with them.
const longestCorrected = 24

// correct returns the word of a title or of also that a mistyped one was meant
// to be, "" when none is near.
func (x *index) correct(w string) (string, error) {
	far := 1
	switch n := len([]rune(w)); {
	case n < 4, n > longestCorrected:
		return "", nil
	case n >= 8:
		far = 2
	}
	// Every segment of the library can do this; it is not in its general interface.
	fuzzy, ok := x.reader.(segment.IndexReaderFuzzy)
	if !ok {
		return "", nil
	}
	dict, automaton, err := fuzzy.FieldDictFuzzyAutomaton(fieldExact, w, far, "")
	if err != nil {
		return "", fmt.Errorf("guide: spelling: %w", err)
	}
	best, bestRank := "", math.MaxInt
	for {
		entry, err := dict.Next()
		if err != nil {
			return "", fmt.Errorf("guide: spelling: %w", err)
		}
		if entry == nil {
			break
		}
		t := entry.Term
		if len(t) < 4 || chatter[t] || x.stem(t) == "" || len(w) == 4 && !swapped(t, w) {
			continue
		}
		_, distance := automaton.MatchAndDistance(t)
		rank := int(distance) * 4
		if t[0] != w[0] {
			rank += 2 // the first letter is rarely wrong
		}
		if len(t) != len(w) {
			rank++
		}
		if rank < bestRank {
			best, bestRank = t, rank
		}
	}
	if err := dict.Close(); err != nil {
		return "", fmt.Errorf("guide: spelling: %w", err)
	}
	return best, nil
}

// swapped reports whether two words have the same letters. Of words of four
// letters, too many are one letter from another to take that for a typing error.
func swapped(a, b string) bool {
	x, y := []byte(a), []byte(b)
	slices.Sort(x)
	slices.Sort(y)
	return a[0] == b[0] && string(x) == string(y)
}

// count returns how many words a set of them has.
func count(words uint64) int { return bits.OnesCount64(words) }
