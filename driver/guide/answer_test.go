package guide

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"parley/driver"
	"parley/event"
)

func TestSentencesLoseNothing(t *testing.T) {
	for _, tc := range []struct {
		text string
		want int
	}{
		{"One.", 1},
		{"One. Two! Three?", 3},
		{"Roll 3.5 dice. Then stop.", 2},
		{"Is it? (Yes.) … 1.", 2}, // what has no letter goes with what is before
		{strings.Repeat("word ", 1000) + ".", 3},
		{strings.Repeat("x", 5000), 3},
		{strings.Repeat("👨‍👩‍👧", 300), 3}, // cut between families
		{"a" + strings.Repeat("\u0301", 3000), 3},
	} {
		list := sentences(tc.text)
		if strings.Join(list, "") != tc.text {
			t.Errorf("%.40q: the sentences are %.80q", tc.text, list)
		}
		for _, s := range list {
			if len(s) > longestSentence || !utf8.ValidString(s) {
				t.Errorf("%.40q: a sentence of %d bytes", tc.text, len(s))
			}
		}
		if len(list) != tc.want {
			t.Errorf("%.40q: %d sentences, want %d", tc.text, len(list), tc.want)
		}
	}
}

func TestAnAnswerIsSaidInAFewOutputsThatEachCite(t *testing.T) {
	rec := asked(t, backgammonGuide(t), driver.Turn{Text: "How do I enter from the bar?"})
	deltas := 0
	for _, e := range rec.Events() {
		o, ok := e.Body.(event.AssistantOutput)
		if !ok {
			continue
		}
		deltas++
		if cited := strings.HasSuffix(o.Delta, " [bar-entry]"); cited != o.Final {
			t.Errorf("the delta %q is final: %v", o.Delta, o.Final)
		}
		if o.Final && o.Spoken+" [bar-entry]" != o.Delta || !o.Final && o.Spoken != "" {
			t.Errorf("the delta %q is spoken %q", o.Delta, o.Spoken)
		}
		if strings.ContainsAny(o.Spoken, "[]") {
			t.Errorf("the id of the rule is spoken: %q", o.Spoken)
		}
	}
	whole := strings.ReplaceAll(rec.Text(), " [bar-entry]", "")
	body := backgammonGuide(t).index.rules[backgammonGuide(t).byID["bar-entry"]].Body
	if got := strings.ReplaceAll(whole, "\n", " "); got != body {
		t.Errorf("it says %q, the rule %q", got, body)
	}
	if n := len(rec.Outputs()); n != 1 && n != 2 || deltas < 4 {
		t.Errorf("%d outputs of %d deltas", n, deltas)
	}
}

func TestTheSearchIsReportedFirst(t *testing.T) {
	for _, text := range []string{"How do I win?", "hello", "How do I castle?"} {
		rec := asked(t, backgammonGuide(t), driver.Turn{Text: text})
		if p, ok := rec.Events()[0].Body.(event.Progress); !ok || p.Stage != "search" {
			t.Errorf("%s: the first event is %+v", text, rec.Events()[0].Body)
		}
	}
}

// TestAResumedAttemptGoesByItsCheckpoint changes the text, which a room never
// does, to see that the decision is not made again.
func TestAResumedAttemptGoesByItsCheckpoint(t *testing.T) {
	g := backgammonGuide(t)
	first := asked(t, g, driver.Turn{Text: "What is the Crawford rule?"})
	again := driver.Turn{Text: "How do I set up the board?", Attempt: 2, Resumed: true, Checkpoint: first.Checkpoint()}
	if got := asked(t, g, again).Text(); got != first.Text() {
		t.Errorf("it says %q", got)
	}
	again.Input = "input-2" // decided for another input
	if got := asked(t, g, again).Text(); !strings.Contains(got, "[setup]") {
		t.Errorf("after another input's checkpoint it says %q", got)
	}
}

func TestACheckpointThatDoesNotFitIsNotTrusted(t *testing.T) {
	g := backgammonGuide(t)
	for name, checkpoint := range map[string]string{
		"not JSON":         `{`,
		"another shape":    `{"v":"x"}`,
		"another version":  `{"v":2,"manifest":"backgammon 1","input":"input-1","parts":[{"rule":"setup"}]}`,
		"another manifest": `{"v":1,"manifest":"chess 1","input":"input-1","parts":[{"rule":"setup"}]}`,
		"unknown rule":     `{"v":1,"manifest":"backgammon 1","input":"input-1","parts":[{"rule":"castling"}]}`,
		"unknown term":     `{"v":1,"manifest":"backgammon 1","input":"input-1","parts":[{"term":"rook"}]}`,
		"nothing":          `{"v":1,"manifest":"backgammon 1","input":"input-1"}`,
		"both":             `{"v":1,"manifest":"backgammon 1","input":"input-1","parts":[{"rule":"setup"}],"ask":{"n":1}}`,
		"unknown option":   `{"v":1,"manifest":"backgammon 1","input":"input-1","ask":{"n":1,"options":["castling"]}}`,
		"never asked":      `{"v":1,"manifest":"backgammon 1","input":"input-1","ask":{"n":0}}`,
	} {
		rec := asked(t, g, driver.Turn{Text: "Who goes first?", Attempt: 2, Resumed: true, Checkpoint: json.RawMessage(checkpoint)})
		if !strings.Contains(rec.Text(), "[opening-roll]") {
			t.Errorf("%s: it says %q", name, rec.Text())
		}
	}
}

func TestOutputIdsFollowFromTheText(t *testing.T) {
	id := func(text string) event.OutputID {
		return named([]output{{sentences: []string{text}}}, "answer", event.Answer)[0].id
	}
	one, again, two := id("One."), id("One."), id("Two.")
	if one != again || one == two {
		t.Errorf("the ids are %s, %s and %s", one, again, two)
	}
}

func TestCitationsInAText(t *testing.T) {
	g := backgammonGuide(t)
	for text, want := range map[string]string{
		"":                                "",
		"none [here] at all [":            "",
		"[setup] and [x[dice]] [dice]":    "setup dice dice",
		"a [movement]. b [setup":          "movement",
		"[a very long [thing [crawford]]": "crawford",
	} {
		if got := strings.Join(g.citations(text), " "); got != want {
			t.Errorf("%q cites %q, want %q", text, got, want)
		}
	}
}

// TestAnotherGame sees to it that nothing of the embedded manifest is built in.
func TestAnotherGame(t *testing.T) {
	m, err := Parse([]byte(`
gameId: fish
gameVersion: "1"
title: Go Fish
rules:
  - {id: aim, title: Aim of the game, body: "Collect the most books. The game is for two to five."}
  - {id: deal, title: Dealing, body: "Everybody gets seven cards.", also: [hand, how many cards do I get]}
  - {id: ask, title: Asking for cards, body: "On your turn you ask somebody for a rank that you hold.", see: [fish]}
  - {id: fish, title: Going fishing, body: "Without the card, you draw one from the pond.", also: [draw, pond, stock]}
glossary:
  - {term: éclair, meaning: A book of four made in one turn., also: [lightning book]}
`))
	if err != nil {
		t.Fatal(err)
	}
	g, err := New(Config{Manifest: m})
	if err != nil {
		t.Fatal(err)
	}
	c := newTalk(t, g)
	for _, s := range [][2]string{
		{"How do you play Go Fish?", "[aim]"},
		{"and then?", "[deal]"},
		{"When do I draw from the pond?", "[fish]"},
		{"How do I ask?", "[ask]"},
		{"What is an éclair?", "Éclair: A book of four"},
		{"lightning book", "Éclair: A book of four"},
		{"What is a gammon?", "I find nothing about that in the rules of Go Fish."},
		{"never mind", "All right."},
		{"hello", "“Aim of the game”, “Dealing”, “Asking for cards” or “Going fishing”"},
	} {
		if got := c.say(s[0]); !strings.Contains(got, s[1]) {
			t.Errorf("%s\n  %s\nwants %s", s[0], got, s[1])
		}
	}
}

func TestAnAgentWithoutALabel(t *testing.T) {
	rec := asked(t, backgammonGuide(t), driver.Turn{Text: "hello", Agent: event.Agent{ID: "g", Role: "guide", Driver: "guide"}})
	if !strings.HasPrefix(rec.Text(), "Hello! I am the rules guide,") {
		t.Errorf("it says %q", rec.Text())
	}
}
