package script

import (
	"strings"
	"testing"
)

func TestEveryProblemIsNamedAtOnce(t *testing.T) {
	_, err := Parse([]byte(`
name: dog
replies:
  - name: a
    match: {contains: [], regexp: '(', resumed: maybe, like: cats}
    steps:
      - say: {txt: x, chunk: 0, every: soon, purpose: joke, history: short, audience: everyone, final: 1, lang: [en]}
      - say: {text: x, deltas: [y]}
      - say: {deltas: [y], chunk: 3}
      - say: {text: x, chunk: 3, spoken: z}
      - say: ""
      - progress: {current: -1, total: 1.5}
      - checkpoint: {n: 9007199254740993, far: .inf}
      - checkpoint: {n: 9007199254740993}
      - ask: {expires: 25h}
      - wait:
      - hang: never
      - repeat: {times: 0, steps: []}
      - bark: loud
      - {say: x, wait: 1s}
      - woof
      - complete: {well: true}
  - name: a
    steps:
      - fail: 7
      - say: never
  - match: {}
`))
	if err == nil {
		t.Fatal("Parse took it")
	}
	const want = `
script.name: "dog": is not a key here; the keys are replies
replies[0].match.like: "cats": is not a key here; the keys are contains, regexp, continues, resumed
replies[0].match.contains: a list of 0: must be a list of at least one of texts
replies[0].match.regexp: "(": must be a regular expression of RE2: error parsing regexp: missing closing ): ` + "`(`" + `
replies[0].match.resumed: "maybe": must be true or false
replies[0].steps[0].say.txt: "x": is not a key here; the keys are text, deltas, output, chunk, every, final, purpose, history, audience, lang, spoken, interruptible
replies[0].steps[0].say.every: "soon": must be a duration from 0s to 24h, such as 150ms or 2s
replies[0].steps[0].say.purpose: "joke": must be one of answer, question, progress
replies[0].steps[0].say.history: "short": must be one of record, ephemeral
replies[0].steps[0].say.audience: "everyone": must be room or a list of participant ids
replies[0].steps[0].say.lang: a list of 1: must be a text; put it in quotes
replies[0].steps[0].say.final: 1: must be true or false
replies[0].steps[0].say.chunk: 0: must be a whole number from 1 to 4096
replies[0].steps[0].say: a mapping of 8 keys: must have either text or deltas
replies[0].steps[1].say: a mapping of 2 keys: must have either text or deltas
replies[0].steps[2].say.chunk: 3: goes with text; deltas are sent as they are
replies[0].steps[3].say.spoken: "z": goes with a text that is sent in one delta
replies[0].steps[4].say: "": must be a text of 1 to 65536 bytes
replies[0].steps[5].progress.stage: nothing: must be a text of 1 to 64 bytes
replies[0].steps[5].progress.current: -1: must be a whole number from 0 to 9007199254740992
replies[0].steps[5].progress.total: 1.5: must be a whole number from 0 to 9007199254740992
replies[0].steps[6].checkpoint: a mapping of 2 keys: must be plain JSON: no infinities, and texts as keys
replies[0].steps[7].checkpoint: a mapping of 1 keys: must be plain JSON: $.n: an integer beyond ±2^53 does not survive JSON; send it as a string
replies[0].steps[8].ask.request: nothing: must be a text of 1 to 128 bytes
replies[0].steps[8].ask.expires: "25h": must be a duration from 0s to 24h, such as 150ms or 2s
replies[0].steps[9]: a mapping of 1 keys: is never reached; ask ends the attempt
replies[0].steps[9].wait: nothing: must be a duration from 0s to 24h, such as 150ms or 2s
replies[0].steps[10].hang: "never": must be released, or a duration up to 24h, such as 10s
replies[0].steps[11].repeat.times: 0: must be a whole number from 1 to 100000
replies[0].steps[11].repeat.steps: a list of 0: must be a list of at least one of steps
replies[0].steps[12]: a mapping of 1 keys: must be a mapping with one key of ask, checkpoint, complete, fail, hang, panic, progress, repeat, say, wait
replies[0].steps[13]: a mapping of 2 keys: must be a mapping with one key of ask, checkpoint, complete, fail, hang, panic, progress, repeat, say, wait
replies[0].steps[14]: "woof": must be a mapping with one key of ask, checkpoint, complete, fail, hang, panic, progress, repeat, say, wait
replies[0].steps[15].complete: a mapping of 1 keys: must be {}; there is nothing to say about it
replies[1].steps[0].fail: 7: must be a text; put it in quotes
replies[1].steps[1]: a mapping of 1 keys: is never reached; fail ends the attempt
replies[1].name: "a": is used twice; names of replies are unique
replies[1].match: nothing: must be given; only the last reply is without, and what follows would never be played
replies[2].name: nothing: must be a text of 1 to 64 bytes
replies[2].match: a mapping of 0 keys: must have one of contains, regexp, continues, resumed
replies[2].steps: nothing: must be a list of at least one of steps
replies[2].match: a mapping of 0 keys: must be left out of the last reply, which answers what no other does`
	got, wanted := strings.Split(err.Error(), "\n"), strings.Split(strings.TrimPrefix(want, "\n"), "\n")
	for i := range max(len(got), len(wanted)) {
		g, w := "", ""
		if i < len(got) {
			g = got[i]
		}
		if i < len(wanted) {
			w = wanted[i]
		}
		if g != w {
			t.Errorf("problem %d is\n  %s\nwant\n  %s", i, g, w)
		}
	}
}

func TestWhatIsNoScript(t *testing.T) {
	nested := "[say: x]"
	for range maxNesting + 1 {
		nested = "[repeat: {times: 1, steps: " + nested + "}]"
	}
	for _, tc := range []struct{ name, text, want string }{
		{"empty", "", "script: nothing: must be a mapping with the key replies"},
		{"a list", "[1]", "script: a list of 1: must be a mapping with keys of replies"},
		{"no reply", "replies: []", "replies: a list of 0: must be a list of at least one of replies"},
		{"not YAML", "replies: [", "not YAML"},
		{"a key twice", "replies: 1\nreplies: 2", "not YAML"},
		{"too big", strings.Repeat("#", maxScript+1), "at most 1048576 are allowed"},
		{"nested too deep", "replies: [{name: r, steps: " + nested + "}]", "repeats nest at most 8 deep"},
		{"long value", "replies: [{name: r, steps: " + strings.Repeat("é", 99) + "}]", `"` + strings.Repeat("é", 60) + `…": must be a list`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := Parse([]byte(tc.text)); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Parse says %v, want %q", err, tc.want)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(dog))
	f.Add([]byte("replies: [{name: r, match: {contains: x}, steps: [repeat: {times: 2, steps: [say: {deltas: [a]}]}]}]"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		s, err := Parse(raw)
		if (s == nil) == (err == nil) {
			t.Errorf("a script %v with error %v", s, err)
		}
	})
}
