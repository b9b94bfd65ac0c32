package sweep

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"parley/driver"
	"parley/event"
)

// What an input's text makes the driver do.
const (
	tell = "tell" // says the parts of a tale, with a checkpoint after each
	load = "load" // the same with large checkpoints
	hang = "hang" // says one part, begins another and waits for the end
	ask  = "ask"  // asks a question; says one part of a tale when it is answered
)

// parts is how many parts a tale has.
const parts = 3

// progress is the content of a checkpoint.
type progress struct {
	Done int    `json:"done"`
	Pad  string `json:"pad,omitempty"`
}

// partID and part are the logical id and the whole text of a part of the answer to an input.
func partID(i int) event.OutputID { return event.OutputID(fmt.Sprint("part-", i)) }

func part(in event.InputID, i int) string {
	return fmt.Sprintf("Of %s this is part %d, and it is told in pieces. ", in, i)
}

func question(in event.InputID) string { return fmt.Sprintf("What does %s mean?", in) }

const questionID event.OutputID = "question"

// play is the driver of all agents. What it says depends on the turn and on
// nothing else, so that what a run must have said in the end is known.
func play(ctx context.Context, turn *driver.Turn, out driver.Emitter) error {
	var at progress
	if turn.Checkpoint != nil {
		if err := json.Unmarshal(turn.Checkpoint, &at); err != nil {
			return err
		}
	}
	if _, err := turn.Context(ctx); err != nil {
		return err
	}
	do, _, _ := strings.Cut(turn.Text, " ")
	if turn.Continues != "" {
		return pieces(ctx, out, turn.Input, 0)
	}
	if err := out.Emit(event.Progress{Stage: "looking"}); err != nil {
		return err
	}
	switch do {
	case hang:
		if at.Done == 0 {
			if err := pieces(ctx, out, turn.Input, 0); err != nil {
				return err
			}
			if err := out.Emit(event.Checkpoint{Value: []byte(`{"done":1}`)}); err != nil {
				return err
			}
		}
		if err := out.Emit(event.AssistantOutput{Output: partID(1), Delta: "Well, "}); err != nil {
			return err
		}
		<-ctx.Done()
		return context.Cause(ctx)
	case ask:
		if err := out.Emit(event.AssistantOutput{Output: questionID, Delta: question(turn.Input), Final: true, Purpose: event.Question}); err != nil {
			return err
		}
		return out.Emit(event.InputRequested{Request: "which"})
	}
	for i := at.Done; i < parts; i++ {
		if err := pieces(ctx, out, turn.Input, i); err != nil {
			return err
		}
		p := progress{Done: i + 1}
		if do == load {
			p.Pad = strings.Repeat("x", 40<<10)
		}
		raw, err := json.Marshal(p)
		if err != nil {
			return err
		}
		if err := out.Emit(event.Checkpoint{Value: raw}); err != nil {
			return err
		}
	}
	return nil
}

// pieces says one part in three deltas with a pause before the last.
func pieces(ctx context.Context, out driver.Emitter, in event.InputID, i int) error {
	text := part(in, i)
	third := len(text) / 3
	for n, delta := range []string{text[:third], text[third : 2*third], text[2*third:]} {
		if n == 2 {
			select {
			case <-time.After(2 * time.Millisecond):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if err := out.Emit(event.AssistantOutput{Output: partID(i), Delta: delta, Final: n == 2}); err != nil {
			return err
		}
	}
	return nil
}

// answer returns what a run that completed on an input must have said to it, by
// logical id.
func answer(in event.InputID, text string, continued bool) map[event.OutputID]string {
	do, _, _ := strings.Cut(text, " ")
	switch {
	case continued:
		return map[event.OutputID]string{partID(0): part(in, 0)}
	case do == tell || do == load:
		all := map[event.OutputID]string{}
		for i := range parts {
			all[partID(i)] = part(in, i)
		}
		return all
	}
	return nil // it does not complete by itself
}

// mayClose returns what may be closed in answer to an input, whatever becomes of the run.
func mayClose(in event.InputID, text string, continued bool) map[event.OutputID]string {
	do, _, _ := strings.Cut(text, " ")
	switch {
	case do == ask && !continued:
		return map[event.OutputID]string{questionID: question(in)}
	case do == hang:
		return map[event.OutputID]string{partID(0): part(in, 0)}
	}
	return answer(in, text, continued)
}
