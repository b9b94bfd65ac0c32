package script

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"parley/driver"
	"parley/driver/drivertest"
	"parley/event"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func plays(s *Script) func(*testing.T) driver.Driver {
	return func(*testing.T) driver.Driver { return New(s) }
}

func parsed(t *testing.T, text string) *Script {
	t.Helper()
	s, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// trace writes what was sent in short lines, with the time in front.
func trace(rec *drivertest.Recorder, err error) string {
	var b strings.Builder
	for _, e := range rec.Events() {
		fmt.Fprintf(&b, "%v ", e.At)
		switch v := e.Body.(type) {
		case event.Progress:
			fmt.Fprintf(&b, "progress %s", v.Stage)
			if v.Current != nil {
				fmt.Fprintf(&b, " %d/%d %s", *v.Current, *v.Total, v.Unit)
			}
		case event.AssistantOutput:
			fmt.Fprintf(&b, "%s %q", v.Output, v.Delta)
			if v.Final {
				b.WriteString(" final")
			}
			if v.Purpose != 0 {
				fmt.Fprintf(&b, " %v", v.Purpose)
			}
			if v.History != 0 {
				fmt.Fprintf(&b, " %v", v.History)
			}
		case event.Checkpoint:
			fmt.Fprintf(&b, "checkpoint %s", v.Value)
		case event.InputRequested:
			fmt.Fprintf(&b, "ask %s", v.Request)
			if !v.ExpiresAt.IsZero() {
				fmt.Fprintf(&b, " for %v", time.Until(v.ExpiresAt))
			}
		case event.Completed:
			b.WriteString("completed")
		}
		b.WriteByte('\n')
	}
	if err != nil {
		fmt.Fprintf(&b, "error: %v\n", strings.SplitN(err.Error(), "\n", 2)[0])
	}
	return b.String()
}

func TestStepsArePlayedInOrder(t *testing.T) {
	for _, tc := range []struct{ name, steps, want string }{
		{"a word", `[say: Woof.]`, `
0s say-1 "Woof." final
`},
		{"chunks and pauses", `[say: {text: "The quick brown fox", chunk: 10, every: 50ms, output: a}]`, `
0s a "The quick "
50ms a "brown fox" final
`},
		{"characters stay whole", `[say: {text: "🇫🇷🇩🇪🇮🇹", chunk: 2, output: a}]`, `
0s a "🇫🇷🇩🇪"
0s a "🇮🇹" final
`},
		{"deltas", `[say: {deltas: [one, two, ""], every: 1s, purpose: question, history: ephemeral}]`, `
0s say-1 "one" question ephemeral
1s say-1 "two" question ephemeral
2s say-1 "" final question ephemeral
`},
		{"two steps for one output", `[say: {text: one, output: a, final: false}, wait: 2s, say: {text: two, output: a}]`, `
0s a "one"
2s a "two" final
`},
		{"progress and checkpoint", "\n        - progress: {stage: search, current: 1, total: 3, unit: rules}\n        - checkpoint: {scene: 2, words: [a, 1.5, null, true]}\n        - progress: done", `
0s progress search 1/3 rules
0s checkpoint {"scene":2,"words":["a",1.5,null,true]}
0s progress done
`},
		{"ask", `[ask: which]`, `
0s ask which
`},
		{"ask with a time", `[ask: {request: which, expires: 5m}]`, `
0s ask which for 5m0s
`},
		{"complete", `[complete: {}]`, `
0s completed
`},
		{"fail", "\n        - say: Hm.\n        - fail: no ball", `
0s say-1 "Hm." final
error: the script says to fail: no ball
`},
		{"panic", `[panic: no dog]`, `
error: the driver panicked: script: no dog
`},
		{"hang", "\n        - hang: 10s\n        - say: Late.", `
10s say-1 "Late." final
`},
		{"placeholders", `[say: {text: "{text} in attempt {attempt}, round {round}, {else}"}]`, `
0s say-1 "fetch in attempt 1, round 0, {else}" final
`},
		{"repeat", "\n        - repeat:\n            times: 2\n            steps:\n              - repeat: {times: 2, steps: [say: {text: \"{round}\"}]}\n              - say: {text: \"round {round}\", output: \"r{round}\"}\n              - wait: 1s", `
0s say-1 "1" final
0s say-2 "2" final
0s r1 "round 1" final
1s say-3 "1" final
1s say-4 "2" final
1s r2 "round 2" final
`},
		{"complete ends a repeat", "\n        - repeat: {times: 9, steps: [complete: {}]}\n        - say: never", `
0s completed
`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, err := Parse([]byte("replies:\n  - name: r\n    steps: " + tc.steps))
			if err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				got := trace(drivertest.Attempt(t.Context(), New(s), driver.Turn{Text: "fetch"}))
				if want := strings.TrimPrefix(tc.want, "\n"); got != want {
					t.Errorf("played:\n%swant:\n%s", got, want)
				}
			})
		})
	}
}

const dog = `
replies:
  - name: fetch
    match: {contains: [BALL, stick]}
    steps: [say: fetch]
  - name: number
    match: {regexp: '^\d+$'}
    steps: [say: number]
  - name: answer
    match: {continues: [a, b]}
    steps: [say: answer]
  - name: again
    match: {resumed: true, contains: long}
    steps: [say: again]
  - name: rest
    steps: [say: rest]
`

func TestTheFirstReplyThatFitsIsPlayed(t *testing.T) {
	drv := New(parsed(t, dog))
	for _, tc := range []struct {
		turn driver.Turn
		want string
	}{
		{driver.Turn{Text: "the Ball, please"}, "fetch"},
		{driver.Turn{Text: "stick", Continues: "a"}, "fetch"},
		{driver.Turn{Text: "42"}, "number"},
		{driver.Turn{Text: "yes", Continues: "b"}, "answer"},
		{driver.Turn{Text: "yes", Continues: "c"}, "rest"},
		{driver.Turn{Text: "a long walk"}, "rest"},
		{driver.Turn{Text: "a long walk", Resumed: true, Attempt: 2}, "again"},
		{driver.Turn{Text: "short", Resumed: true, Attempt: 2}, "rest"},
	} {
		rec, err := drivertest.Attempt(t.Context(), drv, tc.turn)
		if got := rec.Text(); err != nil || got != tc.want {
			t.Errorf("%+v: played %q (%v), want %q", tc.turn, got, err, tc.want)
		}
	}
}

func TestAudienceAndPresentationReachTheOutput(t *testing.T) {
	drv := New(parsed(t, `
replies:
  - name: r
    steps:
      - say: {text: hush, audience: [bob, ann], lang: en, spoken: psst, interruptible: false}
      - say: {text: all, audience: room}
`))
	rec, err := drivertest.Attempt(t.Context(), drv, driver.Turn{})
	if err != nil {
		t.Fatal(err)
	}
	hush := rec.Events()[0].Body.(event.AssistantOutput)
	if !hush.Audience.Equal(event.ToParticipants("ann", "bob")) || hush.Lang != "en" || hush.Spoken != "psst" || hush.Interruptible == nil || *hush.Interruptible {
		t.Errorf("the output is %+v", hush)
	}
	if all := rec.Events()[1].Body.(event.AssistantOutput); !all.Audience.Equal(event.ToRoom()) {
		t.Errorf("the audience is %+v", all.Audience)
	}
}

func TestHangHeedsOnlyRelease(t *testing.T) {
	for _, hangs := range []string{"released", "1h"} {
		s := parsed(t, "replies: [{name: r, steps: [hang: "+hangs+"]}]")
		synctest.Test(t, func(t *testing.T) {
			drv := New(s)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() {
				_, err := drivertest.Attempt(ctx, drv, driver.Turn{})
				done <- err
			}()
			cancel()
			time.Sleep(time.Minute)
			synctest.Wait()
			select {
			case err := <-done:
				t.Fatalf("hang %s returned %v before it was released", hangs, err)
			default:
			}
			drv.Release()
			drv.Release() // a second call does nothing
			if err := <-done; err != nil {
				t.Errorf("hang %s: %v", hangs, err)
			}
			if _, err := drivertest.Attempt(ctx, drv, driver.Turn{}); err != nil {
				t.Errorf("hang %s after the release: %v", hangs, err)
			}
		})
	}
}

func TestAFailureIsTold(t *testing.T) {
	drv := New(parsed(t, "replies: [{name: r, steps: [fail: out of stories]}]"))
	if _, err := drivertest.Attempt(t.Context(), drv, driver.Turn{}); !errors.Is(err, ErrScripted) {
		t.Errorf("Run returned %v, want ErrScripted in the chain", err)
	}
}

func TestAScriptMayBreakTheContractOnPurpose(t *testing.T) {
	for _, tc := range []struct{ steps, want string }{
		{`[say: {text: x, output: a, final: false}]`, `output "a" is open at the end of Run`},
		{`[say: {text: ""}]`, `finished text is blank`},
		{`[repeat: {times: 2, steps: [say: {text: x, output: a}]}]`, `a delta after final`},
	} {
		drv := New(parsed(t, "replies: [{name: r, steps: "+tc.steps+"}]"))
		rec, _ := drivertest.Attempt(t.Context(), drv, driver.Turn{})
		if got := fmt.Sprint(rec.Wrong()); !strings.Contains(got, tc.want) {
			t.Errorf("%s: found %s, want %q", tc.steps, got, tc.want)
		}
	}
}

func TestConformance(t *testing.T) {
	drivertest.Run(t, plays(Storyteller()),
		drivertest.Case{Name: "greeting", Turn: driver.Turn{Text: "Hello"}, Ends: drivertest.Waits},
		drivertest.Case{Name: "story", Turn: driver.Turn{Text: "The lighthouse, please"}, Ends: drivertest.Completes},
		drivertest.Case{Name: "answer", Turn: driver.Turn{Text: "the clock", Continues: "which-story", Attempt: 2, Input: "input-2"}, Ends: drivertest.Completes},
	)
	drivertest.Run(t, plays(Turn20()), drivertest.Case{Name: "turn20", Turn: driver.Turn{Text: "go"}, Ends: drivertest.Completes})
	drivertest.Run(t, plays(parsed(t, `
replies:
  - name: r
    steps:
      - progress: one
      - repeat:
          times: 3
          steps:
            - say: {text: "Round {round}, {text}", chunk: 4, every: 10ms}
            - wait: 1s
            - checkpoint: {done: true}
      - fail: at last
`)), drivertest.Case{Name: "fails", Turn: driver.Turn{Text: "go"}, Ends: drivertest.Fails})
}

func TestTurn20IsTheMeasuredTurn(t *testing.T) {
	rec, err := drivertest.Attempt(t.Context(), New(Turn20()), driver.Turn{Text: "go"})
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[event.RunKind]int{}
	bytes := 0
	for _, e := range rec.Events() {
		kinds[e.Body.RunKind()]++
		if o, ok := e.Body.(event.AssistantOutput); ok {
			bytes += len(o.Delta)
		}
	}
	if len(rec.Events()) != 22 || kinds[event.KindProgress] != 1 || kinds[event.KindAssistantOutput] != 20 || kinds[event.KindCompleted] != 1 {
		t.Errorf("the turn has %v", kinds)
	}
	if mean := bytes / 20; mean < 28 || mean > 34 {
		t.Errorf("a delta has %d bytes on average", mean)
	}
	if out := rec.Outputs(); len(out) != 1 || !out[0].Closed {
		t.Errorf("the outputs are %+v", out)
	}
}

func TestStorytellerTakesItsTime(t *testing.T) {
	for _, which := range []string{"lighthouse", "clock"} {
		synctest.Test(t, func(t *testing.T) {
			rec, err := drivertest.Attempt(t.Context(), New(Storyteller()), driver.Turn{Text: which})
			if err != nil {
				t.Fatal(err)
			}
			deltas := 0
			for _, e := range rec.Events() {
				if o, ok := e.Body.(event.AssistantOutput); ok {
					deltas++
					if len(o.Delta) > 30 {
						t.Errorf("the delta %q has %d bytes", o.Delta, len(o.Delta))
					}
				}
			}
			events := rec.Events()
			if took := events[len(events)-1].At; deltas < 28 || deltas > 50 || took < 4*time.Second || took > 8*time.Second {
				t.Errorf("%s: %d deltas in %v", which, deltas, took)
			}
		})
	}
}

func TestNamedScripts(t *testing.T) {
	for _, name := range []string{"storyteller", "turn20"} {
		if s, err := Named(name); err != nil || s == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Named("novel"); err == nil || err.Error() != `"novel": must be one of the scripts storyteller, turn20` {
		t.Errorf("Named says %v", err)
	}
}

type sink struct{ n int }

func (s *sink) Emit(event.RunBody) error {
	s.n++
	return nil
}

func BenchmarkTurn20(b *testing.B) {
	drv, out, turn := New(Turn20()), &sink{}, &driver.Turn{Text: "go"}
	b.ReportAllocs()
	for b.Loop() {
		if err := drv.Run(b.Context(), turn, out); err != nil {
			b.Fatal(err)
		}
	}
}
