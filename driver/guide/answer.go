package guide

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/rivo/uniseg"

	"parley/driver"
	"parley/event"
)

// phrase names something that the guide says of its own.
type phrase string

const (
	hello     phrase = "hello"
	welcome   phrase = "welcome"
	farewell  phrase = "farewell"
	offer     phrase = "offer"
	neverMind phrase = "never-mind"
	letGo     phrase = "let-go"
	thatIsAll phrase = "that-is-all"
)

// phrases are the guide's own words. {agent} is its label, {game} the game,
// {topics} some titles of rules.
var phrases = map[phrase]string{
	hello:     "Hello! I am {agent}, and I answer questions about the rules of {game}. You could ask me about {topics}.",
	welcome:   "You are welcome. Ask me whenever the rules of {game} leave you in doubt.",
	farewell:  "Goodbye, and enjoy your game!",
	offer:     "I am {agent}. I look up the rules of {game} and tell you which rule I have my answer from. You could ask me about {topics}. Say “and then?” to hear what comes next.",
	neverMind: "All right. Ask me another question whenever you like.",
	letGo:     "I am sorry, I find no rule about that. Ask me in other words whenever you like, or about {topics}.",
	thatIsAll: "That is all I know about it.",
}

// output is one message of an answer, as sentences.
type output struct {
	id        event.OutputID
	purpose   event.Purpose
	sentences []string
	cite      string // id of the rule that it was taken from, "" for none
}

// The size of an output: a few sentences, so that what a listener misses by an
// interruption is little, and what a reader sees is a paragraph.
const (
	mostSentences = 4
	mostBytes     = 420
)

// answer makes the messages of a decision.
func (g *Guide) answer(turn *driver.Turn, d decision) []output {
	var outputs []output
	for _, p := range d.Parts {
		text, cite := g.textOf(turn, p)
		outputs = append(outputs, paragraphs(text, cite)...)
	}
	return named(outputs, "answer", event.Answer)
}

func (g *Guide) textOf(turn *driver.Turn, p part) (text, cite string) {
	switch {
	case p.Rule != "":
		return g.index.rules[g.byID[p.Rule]].Body, p.Rule
	case p.Term != "":
		t := g.terms[g.termKey(split(p.Term))]
		return upper(t.Term) + ": " + t.Meaning, t.See
	}
	label := turn.Agent.Label
	if strings.TrimSpace(label) == "" {
		label = "the rules guide"
	}
	return strings.NewReplacer("{agent}", label, "{game}", g.name, "{topics}", g.topics()).Replace(phrases[p.Phrase]), ""
}

// askBack makes the message of a question.
func (g *Guide) askBack(a *ask) []output {
	titles := make([]string, len(a.Options))
	for i, id := range a.Options {
		titles[i] = g.index.rules[g.byID[id]].Title
	}
	options := listed(titles, "or")
	var text string
	switch a.Why {
	case tooMuch:
		text = fmt.Sprintf("That could be about several rules. Do you mean: %s?", options)
	case notSure:
		text = fmt.Sprintf("I am not sure which rule answers that. Do you mean: %s?", options)
	case nothingSaid:
		text = fmt.Sprintf("What would you like to know about %s? You could ask me about %s.", g.name, g.topics())
	default:
		text = fmt.Sprintf("I find nothing about that in the rules of %s. What would you like to know? You could ask me about %s.", g.name, g.topics())
	}
	return named([]output{{sentences: sentences(text)}}, fmt.Sprintf("question-%d", a.N), event.Question)
}

// mostTopics is how many titles the guide gives as examples.
const mostTopics = 4

// topics are some short titles from all over the rules, as examples.
func (g *Guide) topics() string {
	var short []string
	for _, r := range g.index.rules[:g.rules] {
		if len([]rune(r.Title)) <= 24 {
			short = append(short, "“"+r.Title+"”")
		}
	}
	if short == nil {
		return "the rules"
	}
	n := min(mostTopics, len(short))
	picked := make([]string, n)
	for i := range picked {
		picked[i] = short[i*len(short)/n]
	}
	return listed(picked, "or")
}

func listed(titles []string, last string) string {
	if len(titles) < 2 {
		return strings.Join(titles, "")
	}
	return strings.Join(titles[:len(titles)-1], ", ") + " " + last + " " + titles[len(titles)-1]
}

// paragraphs cuts a text into outputs of about the same number of sentences.
func paragraphs(text, cite string) []output {
	all := sentences(text)
	n := max((len(all)+mostSentences-1)/mostSentences, (len(text)+mostBytes-1)/mostBytes, 1)
	var outputs []output
	for list := range slices.Chunk(all, max((len(all)+n-1)/n, 1)) {
		outputs = append(outputs, output{cite: cite, sentences: list})
	}
	return outputs
}

// named gives outputs their logical ids: their place, and a mark of their text,
// so that an output of a later attempt has the id of an earlier one only if it
// says the same (R2).
func named(outputs []output, prefix string, purpose event.Purpose) []output {
	for i := range outputs {
		h := fnv.New32a()
		for _, s := range outputs[i].sentences {
			_, _ = h.Write([]byte(s)) // never fails
		}
		outputs[i].id = event.OutputID(fmt.Sprintf("%s-%d-%08x", prefix, i+1, h.Sum32()))
		outputs[i].purpose = purpose
	}
	return outputs
}

// longest sentence that is sent in one delta, in bytes; the citation has room
// beside it (E6).
const longestSentence = 2 << 10

// sentences cuts a text into sentences (UAX #29), each with the white space
// after it. Bits without a letter go with the sentence before; a sentence that
// is too long is cut after a word.
func sentences(text string) []string {
	var list []string
	for text = strings.TrimSpace(text); text != ""; {
		var s string
		s, text = firstSentence(text)
		if n := len(list); n > 0 && !strings.ContainsFunc(s, unicode.IsLetter) && len(list[n-1])+len(s) <= longestSentence {
			list[n-1] += s
			continue
		}
		list = append(list, s)
	}
	return list
}

func firstSentence(text string) (sentence, rest string) {
	s, _, _ := uniseg.FirstSentenceInString(text, -1)
	if len(s) > longestSentence {
		s = s[:longestSentence]
		if i := strings.LastIndexAny(s, " \n\t"); i > 0 {
			s = s[:i+1]
		} else {
			s = graphemes(text, longestSentence)
		}
	}
	return s, text[len(s):]
}

// graphemes returns the longest beginning of whole characters, as a reader sees
// them, of at most so many bytes. A single one that is longer is cut.
func graphemes(text string, most int) string {
	n, rest, state := 0, text, -1
	for rest != "" {
		var c string
		c, rest, _, state = uniseg.FirstGraphemeClusterInString(rest, state)
		if n+len(c) > most {
			break
		}
		n += len(c)
	}
	if n == 0 {
		for n = most; !utf8.RuneStart(text[n]); n-- {
		}
	}
	return text[:n]
}

// speaker streams outputs at a pace. Owned by the goroutine of its Run.
type speaker struct {
	ctx  context.Context
	out  driver.Emitter
	pace time.Duration
	said bool // something, so that a pause comes first
}

func (s *speaker) say(outputs []output) error {
	for _, o := range outputs {
		for i, text := range o.sentences {
			b := event.AssistantOutput{Output: o.id, Delta: text, Purpose: o.purpose, Lang: "en"}
			if b.Final = i == len(o.sentences)-1; b.Final {
				b.Delta = strings.TrimRightFunc(text, unicode.IsSpace)
				if o.cite != "" {
					b.Spoken = b.Delta
					b.Delta += " [" + o.cite + "]"
				}
			}
			if err := s.pause(); err != nil {
				return err
			}
			if err := s.out.Emit(b); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *speaker) pause() error {
	if !s.said || s.pace == 0 {
		s.said = true
		return context.Cause(s.ctx)
	}
	t := time.NewTimer(s.pace)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	}
}

// upper returns a text with a capital at its beginning.
func upper(s string) string {
	r, size := utf8.DecodeRuneInString(s)
	return string(unicode.ToUpper(r)) + s[size:]
}
