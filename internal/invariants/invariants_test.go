package invariants

import (
	"strings"
	"testing"
	"time"

	"parley/event"
)

var (
	ann = event.Person("ann")
	t0  = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
)

// journal builds entries that follow one another; a test spoils the last.
type journal struct{ entries []*event.Entry }

func (j *journal) add(ch event.ChannelID, to event.Disclosure, body event.Body) *event.Entry {
	e := &event.Entry{Seq: event.Seq(len(j.entries) + 1), At: t0, Channel: ch, Disclosure: to, Body: body}
	j.entries = append(j.entries, e)
	return e
}

func (j *journal) room() {
	j.add("", event.ToRoom(), &event.RoomConfigured{Incarnation: 1})
}

func (j *journal) input(id event.InputID, run event.RunID, state event.Admission) *event.InputAdmitted {
	x := &event.InputAdmitted{
		Input: id, Speaker: ann, Text: "hello", Modality: event.Text, Agent: "guide", Run: run, State: state, RunDisclosure: event.ToRoom(),
	}
	j.add("public", event.ToRoom(), x)
	return x
}

func (j *journal) run(run event.RunID, input event.InputID, attempt uint32, seq, n uint64, body event.RunBody) *event.RunEvent {
	x := &event.RunEvent{Run: run, Agent: "guide", Input: input, Attempt: attempt, Sequence: seq, N: n, Event: body}
	to := event.ToRoom()
	switch body.(type) {
	case event.Checkpoint, event.Decision:
		to = event.ToNone()
	case event.AssistantOutput:
		x.Logical = "a"
	}
	j.add("public", to, x)
	return x
}

func say(id event.OutputID, text string, final bool) event.AssistantOutput {
	return event.AssistantOutput{Output: id, Delta: text, Final: final, Purpose: event.Answer, History: event.Record}
}

// good is a journal that keeps every law: an answer over a recovery, a wait, its
// continuation, a queued input and the ends of both runs.
func good() *journal {
	j := &journal{}
	j.room()
	j.input("i1", "r1", event.Started)
	j.run("r1", "i1", 1, 1, 0, event.AttemptStarted{})
	j.run("r1", "i1", 1, 2, 1, say("o1", "one ", false))
	j.run("r1", "i1", 2, 3, 0, event.AttemptStarted{Resumed: true})
	j.run("r1", "i1", 2, 4, 1, say("o2", "one", true))
	j.run("r1", "i1", 2, 5, 2, event.InputRequested{Request: "q", Token: "t", ExpiresAt: t0.Add(time.Hour), Speaker: ann})
	j.input("i2", "r1", event.Continued)
	j.run("r1", "i2", 3, 6, 0, event.AttemptStarted{})
	j.input("i3", "r2", event.Queued)
	j.run("r1", "i2", 3, 7, 1, event.Completed{})
	j.run("r2", "i3", 1, 1, 0, event.AttemptStarted{})
	j.run("r2", "i3", 1, 2, 0, event.RunCanceled{Reason: event.ReasonCanceled})
	return j
}

func TestCheckAcceptsAJournalThatKeepsEveryLaw(t *testing.T) {
	if err := Check(good().entries); err != nil {
		t.Fatal(err)
	}
}

// TestCheckFindsEachBreach plants one breach after another and expects the
// sentence of the law that it breaks.
func TestCheckFindsEachBreach(t *testing.T) {
	started := func(j *journal) {
		j.room()
		j.input("i1", "r1", event.Started)
		j.run("r1", "i1", 1, 1, 0, event.AttemptStarted{})
	}
	last := func(j *journal) *event.Entry { return j.entries[len(j.entries)-1] }
	for _, c := range []struct {
		name, want string
		make       func(*journal)
	}{
		{"a gap in the positions", "follows entry 3", func(j *journal) { started(j); j.input("i2", "r1", event.Queued); last(j).Seq++ }},
		{"time falls", "older", func(j *journal) { started(j); last(j).At = t0.Add(-time.Millisecond) }},
		{"a fraction of a millisecond", "whole milliseconds", func(j *journal) { started(j); last(j).At = t0.Add(time.Microsecond) }},
		{"no disclosure", "no disclosure", func(j *journal) { started(j); last(j).Disclosure = event.Disclosure{} }},
		{"no room", "precedes the room", func(j *journal) { j.input("i1", "r1", event.Started) }},
		{"a second incarnation", "incarnation", func(j *journal) { j.room(); j.room() }},
		{"the same input twice", "second time", func(j *journal) { started(j); j.input("i1", "r2", event.Queued) }},
		{"two open runs", "while r1 is open", func(j *journal) { started(j); j.input("i2", "r2", event.Started) }},
		{"one run twice", "a second time", func(j *journal) { started(j); j.input("i2", "r1", event.Queued) }},
		{"queued behind nothing", "behind nothing", func(j *journal) { j.room(); j.input("i1", "r1", event.Queued) }},
		{"continued while active", "does not wait", func(j *journal) { started(j); j.input("i2", "r1", event.Continued) }},
		{"a run wider than its input", "more than its input", func(j *journal) {
			j.room()
			j.input("i1", "r1", event.Started)
			last(j).Disclosure = event.ToParticipants("ann")
		}},
		{"an event wider than its run", "wider than its run", func(j *journal) {
			j.room()
			j.input("i1", "r1", event.Started).RunDisclosure = event.ToParticipants("ann")
			j.run("r1", "i1", 1, 1, 0, event.AttemptStarted{})
		}},
		{"a gap in the run's sequence", "sequence 3 after 1", func(j *journal) { started(j); j.run("r1", "i1", 1, 3, 1, event.Progress{Stage: "s"}) }},
		{"an attempt left out", "attempt 3 follows 1", func(j *journal) { started(j); j.run("r1", "i1", 3, 2, 0, event.AttemptStarted{Resumed: true}) }},
		{"an attempt without cause", "starts again", func(j *journal) { started(j); j.run("r1", "i1", 2, 2, 0, event.AttemptStarted{}) }},
		{"an event of an old attempt", "carries attempt 1 in attempt 2", func(j *journal) {
			started(j)
			j.run("r1", "i1", 2, 2, 0, event.AttemptStarted{Resumed: true})
			j.run("r1", "i1", 1, 3, 1, event.Progress{Stage: "s"})
		}},
		{"an event before the attempt", "before its attempt", func(j *journal) {
			j.room()
			j.input("i1", "r1", event.Started)
			j.run("r1", "i1", 0, 1, 1, event.Progress{Stage: "s"})
		}},
		{"a number twice", "number 1 after 1", func(j *journal) {
			started(j)
			j.run("r1", "i1", 1, 2, 1, event.Progress{Stage: "s"})
			j.run("r1", "i1", 1, 3, 1, event.Progress{Stage: "s"})
		}},
		{"two terminals", "follows its terminal", func(j *journal) {
			started(j)
			j.run("r1", "i1", 1, 2, 1, event.Completed{})
			j.run("r1", "i1", 1, 3, 0, event.RunCanceled{})
		}},
		{"completed with an open output", "open output", func(j *journal) {
			started(j)
			j.run("r1", "i1", 1, 2, 1, say("o1", "x", false))
			j.run("r1", "i1", 1, 3, 2, event.Completed{})
		}},
		{"an abandoned output goes on", "output of attempt 1 in attempt 2", func(j *journal) {
			started(j)
			j.run("r1", "i1", 1, 2, 1, say("o1", "x", false))
			j.run("r1", "i1", 2, 3, 0, event.AttemptStarted{Resumed: true})
			j.run("r1", "i1", 2, 4, 1, say("o1", "y", true))
		}},
		{"what was closed is said again", "says again", func(j *journal) {
			started(j)
			j.run("r1", "i1", 1, 2, 1, say("o1", "x", true))
			j.run("r1", "i1", 2, 3, 0, event.AttemptStarted{Resumed: true})
			j.run("r1", "i1", 2, 4, 1, say("o2", "x", true))
		}},
		{"a delta after the closing one", "closed its output", func(j *journal) {
			started(j)
			j.run("r1", "i1", 1, 2, 1, say("o1", "x", true))
			j.run("r1", "i1", 1, 3, 2, say("o1", "y", false))
		}},
		{"two ids for one output", "second id", func(j *journal) {
			started(j)
			j.run("r1", "i1", 1, 2, 1, say("o1", "x", false))
			j.run("r1", "i1", 1, 3, 2, say("o2", "y", false))
		}},
		{"a blank output", "blank", func(j *journal) { started(j); j.run("r1", "i1", 1, 2, 1, say("o1", " \n", true)) }},
		{"a checkpoint in the open", "host scope", func(j *journal) {
			started(j)
			j.run("r1", "i1", 1, 2, 1, event.Checkpoint{Value: []byte("1")})
			last(j).Disclosure = event.ToRoom()
		}},
		{"a wait asks another", "somebody else", func(j *journal) {
			started(j)
			j.run("r1", "i1", 1, 2, 1, event.InputRequested{Request: "q", Token: "t", ExpiresAt: t0, Speaker: event.Person("bob")})
		}},
		{"a queued run out of turn", "out of turn", func(j *journal) {
			started(j)
			j.input("i2", "r2", event.Queued)
			j.input("i3", "r3", event.Queued)
			j.run("r1", "i1", 1, 2, 1, event.Completed{})
			j.run("r3", "i3", 1, 1, 0, event.AttemptStarted{})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := &journal{}
			c.make(j)
			err := Check(j.entries)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

func TestRowsHoldTextsRecordsAndIndexes(t *testing.T) {
	rows := Rows(good().entries)
	r1 := rows[event.RunKey("r1")].(*event.RunRow)
	if r1.Status != event.RunCompleted || r1.Attempt != 3 || r1.Sequence != 7 || r1.First != 2 || r1.Last != 11 {
		t.Errorf("record of r1: %+v", r1)
	}
	if r2 := rows[event.RunKey("r2")].(*event.RunRow); r2.Status != event.RunCanceledStatus || r2.Reason != event.ReasonCanceled {
		t.Errorf("record of r2: %+v", r2)
	}
	if row := rows[event.TranscriptKey("public", 6)].(*event.TranscriptRow); row.Text != "one" || row.Output != "o2" {
		t.Errorf("transcript row of the output: %+v", row)
	}
	if _, ok := rows[event.TranscriptKey("public", 4)]; ok {
		t.Error("an output that was never closed left a transcript row")
	}
	// Three inputs with index and transcript row, one recorded output, two records.
	if len(rows) != 3*2+1+2 {
		t.Errorf("%d rows", len(rows))
	}
}
