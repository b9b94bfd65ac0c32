package guide

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"parley/driver"
	"parley/driver/drivertest"
	"parley/event"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func backgammonGuide(t testing.TB) *Guide {
	t.Helper()
	g, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// ask puts one text to the guide and returns what it recorded.
func asked(t testing.TB, g *Guide, turn driver.Turn) *drivertest.Recorder {
	t.Helper()
	rec, err := drivertest.Attempt(t.Context(), g, turn)
	if err != nil {
		t.Errorf("%q: %v", turn.Text, err)
	}
	for _, w := range rec.Wrong() {
		t.Errorf("%q: %v", turn.Text, w)
	}
	return rec
}

// lines reads a list of testdata without its comments.
func lines(t *testing.T, name string) []string {
	t.Helper()
	f, err := os.Open("testdata/" + name + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var list []string
	for s := bufio.NewScanner(f); s.Scan(); {
		if l := s.Text(); l != "" && !strings.HasPrefix(l, "#") {
			list = append(list, l)
		}
	}
	return list
}

// firstCited returns the rule that the answer to a question cites first, "" for none.
func firstCited(t *testing.T, g *Guide, question string) string {
	t.Helper()
	if cited := g.citations(asked(t, g, driver.Turn{Text: question}).Text()); cited != nil {
		return cited[0]
	}
	return ""
}

func TestQuestionsFindTheirRule(t *testing.T) {
	g := backgammonGuide(t)
	for _, line := range lines(t, "questions") {
		q, want, _ := strings.Cut(line, " = ")
		if got := firstCited(t, g, q); !slices.Contains(strings.Split(want, "|"), got) {
			t.Errorf("%s: cites %q, want %s", q, got, want)
		}
	}
}

// TestUnseenQuestionsMostlyFindTheirRule says how well the guide does beyond the
// questions that it was tuned with. It is not to be tuned with these.
func TestUnseenQuestionsMostlyFindTheirRule(t *testing.T) {
	g := backgammonGuide(t)
	right, wrong, n := 0, 0, 0
	for _, line := range lines(t, "heldout") {
		q, want, _ := strings.Cut(line, " = ")
		n++
		switch got := firstCited(t, g, q); {
		case slices.Contains(strings.Split(want, "|"), got):
			right++
		case got != "":
			wrong++
			t.Logf("%s: cites %s, want %s", q, got, want)
		default:
			t.Logf("%s: asks back, want %s", q, want)
		}
	}
	t.Logf("of %d questions %d found their rule, %d found another, the rest were asked back", n, right, wrong)
	if right*100 < n*75 || wrong*100 > n*15 {
		t.Errorf("of %d questions only %d found their rule, and %d found another", n, right, wrong)
	}
}

func TestOtherSubjectsAreAskedBack(t *testing.T) {
	g := backgammonGuide(t)
	for _, q := range lines(t, "offtopic") {
		rec := asked(t, g, driver.Turn{Text: q})
		if cited := g.citations(rec.Text()); cited != nil {
			t.Errorf("%s: cites %v", q, cited)
		}
		if rec.Request() == "" || rec.Outputs()[0].Purpose != event.Question {
			t.Errorf("%s: is not asked back", q)
		}
	}
}

func TestSmallTalk(t *testing.T) {
	g := backgammonGuide(t)
	agent := event.Agent{ID: "guide", Label: "Greta", Role: "guide", Driver: "guide"}
	for _, tc := range []struct{ text, want string }{
		{"Hello!", "Hello! I am Greta"},
		{"good evening", "Hello! I am Greta"},
		{"Hi, how are you?", "Hello! I am Greta"},
		{"hey all", "Hello! I am Greta"},
		{"Who are you?", "I am Greta. I look up the rules of Backgammon"},
		{"what can you do?", "I am Greta. I look up the rules of Backgammon"},
		{"Help", "I am Greta."},
		{"thanks a lot", "You are welcome."},
		{"Great, thank you!", "You are welcome."},
		{"bye", "Goodbye"},
		{"How do you play backgammon?", "Backgammon is a race for two players"},
		{"What is backgammon?", "Backgammon is a race for two players"},
		{"Explain the rules", "Backgammon is a race for two players"},
		{"What is a blot?", "Blot: A checker that stands alone"},
		{"define cocked dice", "Cocked dice: Dice that did not come to rest"},
		{"what does slotting mean", "Slot: To put a blot"},
		{"Anchor", "Anchor: A point that you hold"},
	} {
		rec := asked(t, g, driver.Turn{Text: tc.text, Agent: agent})
		if got := rec.Text(); !strings.HasPrefix(got, tc.want) || rec.Request() != "" {
			t.Errorf("%s: the answer is %q, want %q…", tc.text, got, tc.want)
		}
	}
}

// talk is a channel on which a person and the guide take turns, with the
// context and checkpoints that a room would hand over.
type talk struct {
	t    *testing.T
	g    *Guide
	rows []event.TranscriptRow
	turn driver.Turn
	n    int
}

func newTalk(t *testing.T, g *Guide) *talk {
	return &talk{t: t, g: g, turn: driver.Turn{Agent: event.Agent{ID: "guide", Label: "Greta", Role: "guide", Driver: "guide"}}}
}

// say puts a text to the guide, as an answer when it waits for one, and returns
// what it says.
func (c *talk) say(text string) string {
	c.t.Helper()
	c.n++
	input := event.InputID(strings.Repeat("i", c.n))
	c.turn.Text, c.turn.Input, c.turn.Attempt = text, input, c.turn.Attempt+1
	c.turn.Transcript = driver.Said(c.rows...)
	rec := asked(c.t, c.g, c.turn)
	c.rows = append(c.rows, event.TranscriptRow{Speaker: event.Person("ann"), Input: input, Text: text})
	for _, o := range rec.Outputs() {
		c.rows = append(c.rows, event.TranscriptRow{
			Speaker: event.Endpoint{Kind: event.AgentEndpoint, ID: "guide"}, Input: input, Output: o.ID, Text: o.Text,
		})
	}
	if c.turn.Continues = rec.Request(); c.turn.Continues != "" {
		c.turn.Checkpoint = rec.Checkpoint()
	} else {
		c.turn.Checkpoint, c.turn.Attempt = nil, 0
	}
	return rec.Text()
}

// TestConversations has whole talks: what the person says, and what the answer
// must hold; "?" wants the guide to wait for an answer, "." that it does not.
func TestConversations(t *testing.T) {
	g := backgammonGuide(t)
	for name, steps := range map[string][][2]string{
		"goes on to what the rule refers to": {
			{"How do I set up the board?", ".[setup]"},
			{"and then?", ".[board]"},
			{"tell me more", ".[movement]"},
			{"go on", ".[using-both-dice]"},
		},
		"a meaning first, its rule on request": {
			{"What is a blot?", ".[points-and-blots]"},
			{"tell me more", ".make that point yours"},
			{"what else?", ".[hitting]"},
		},
		"once more": {
			{"Say that again, please", "?What would you like to know"},
			{"What is the Jacoby rule?", ".[jacoby]"},
			{"Say that again, please", ".[jacoby]"},
			{"Pardon?", ".[jacoby]"},
		},
		"nothing to go on from": {
			{"and then?", "?What would you like to know"},
			{"how many dice do I roll?", ".[dice]"},
		},
		"leans on the answer before": {
			{"How do I get back in from the bar?", ".[bar-entry]"},
			{"and what if all six points are closed?", ".[closed-board]"},
		},
		"which of several, by place": {
			{"double", "?Do you mean: Doubling cube, Taking or dropping a double or Doubles?"},
			{"the second one", ".[take-or-drop]"},
		},
		"which of several, the first": {
			{"double", "?Do you mean: "},
			{"number one please", ".[doubling-cube]"},
		},
		"which of several, by name": {
			{"double", "?Do you mean: "},
			{"the cube one", ".[doubling-cube]"},
		},
		"which of several, both": {
			{"double", "?Do you mean: "},
			{"all of them", ".[doubles]"},
		},
		"never mind": {
			{"What is the capital of France?", "?I find nothing about that"},
			{"never mind", ".All right."},
			{"Who goes first?", ".[opening-roll]"},
		},
		"another question instead of an answer": {
			{"What is the capital of France?", "?I find nothing about that"},
			{"What is the Crawford rule?", ".[crawford]"},
		},
		"the answer completes the question": {
			{"How many times can somebody do that?", "?"},
			{"double", ".[redoubling]"},
		},
		"asks twice and then lets go": {
			{"How do I castle?", "?I find nothing about that"},
			{"with the rook", "?"},
			{"on the king's side", ".I am sorry, I find no rule about that"},
		},
		"yes to nothing": {
			{"yes", "?What would you like to know"},
			{"yes", "?"},
			{"yes", ".I am sorry"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newTalk(t, g)
			for _, s := range steps {
				text, want := s[0], s[1]
				got := c.say(text)
				if waits := c.turn.Continues != ""; waits != (want[0] == '?') || !strings.Contains(got, want[1:]) {
					t.Errorf("%s\n  %s\nwants %s", text, got, want)
				}
			}
		})
	}
}

func TestConformance(t *testing.T) {
	open := func(t *testing.T) driver.Driver {
		g, err := New(Config{Pace: 80e6})
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	row := event.TranscriptRow{
		Speaker: event.Endpoint{Kind: event.AgentEndpoint, ID: "agent"}, Input: "i", Output: "o", Text: "Your checkers always move forward. [movement]",
	}
	g := backgammonGuide(t)
	waiting := asked(t, g, driver.Turn{Text: "double"})
	drivertest.Run(t, open,
		drivertest.Case{Name: "question", Turn: driver.Turn{Text: "How do I enter from the bar?"}, Ends: drivertest.Completes},
		drivertest.Case{Name: "long answer", Turn: driver.Turn{Text: "How do I hit and what is the Jacoby rule?"}, Ends: drivertest.Completes},
		drivertest.Case{Name: "greeting", Turn: driver.Turn{Text: "Hello"}, Ends: drivertest.Completes},
		drivertest.Case{Name: "asks back", Turn: driver.Turn{Text: "double"}, Ends: drivertest.Waits},
		drivertest.Case{Name: "off topic", Turn: driver.Turn{Text: "How do I castle?"}, Ends: drivertest.Waits},
		drivertest.Case{Name: "goes on", Turn: driver.Turn{Text: "and then?", Transcript: driver.Said(row)}, Ends: drivertest.Completes},
		drivertest.Case{Name: "answer", Turn: driver.Turn{
			Text: "the first", Attempt: 2, Input: "input-2", Continues: waiting.Request(), Checkpoint: waiting.Checkpoint(),
		}, Ends: drivertest.Completes},
		drivertest.Case{Name: "private", Turn: driver.Turn{Text: "What is a gammon?", Disclosure: event.ToParticipants("ann")}, Ends: drivertest.Completes},
	)
}

func FuzzAnyText(f *testing.F) {
	for _, s := range []string{"How do I win?", "and then?", "3-1-", "-", "'", "İ ’ ǅ", "the second", "\xff", "a\u0301 b"} {
		f.Add(s, true)
	}
	g := backgammonGuide(f)
	waiting := asked(f, g, driver.Turn{Text: "double"})
	f.Fuzz(func(t *testing.T, text string, answers bool) {
		turn := driver.Turn{Text: text}
		if answers {
			turn.Input, turn.Attempt, turn.Continues, turn.Checkpoint = "input-2", 2, waiting.Request(), waiting.Checkpoint()
		}
		rec := asked(t, g, turn)
		if len(rec.Events()) < 3 {
			t.Errorf("%q: %d events", text, len(rec.Events()))
		}
	})
}

func BenchmarkNew(b *testing.B) {
	Backgammon()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := New(Config{}); err != nil {
			b.Fatal(err)
		}
	}
}

type sink struct{}

func (sink) Emit(event.RunBody) error { return nil }

func BenchmarkRun(b *testing.B) {
	g := backgammonGuide(b)
	var longest strings.Builder // unknown words, each another
	for i := 0; longest.Len() < event.MaxText-10; i++ {
		fmt.Fprintf(&longest, "blokk%c%c%c ", 'a'+i%26, 'a'+i/26%26, 'a'+i/676%26)
	}
	for name, text := range map[string]string{
		"longest": longest.String(),
		"answer":  "What happens when my checker gets hit?", "typing errors": "hwo do i bear of my chekers", "asks back": "How do I castle my king?",
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := g.Run(b.Context(), &driver.Turn{Text: text}, sink{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
