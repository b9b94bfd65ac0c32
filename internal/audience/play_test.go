package audience

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"parley/driver"
	"parley/event"
)

// play does what the text of an input says: a mark, which whatever it emits
// carries, and steps.
//
//	w7   waits 7 ms            W3   waits 3 s
//	p    progress              k    a checkpoint
//	d1   a delta of output 1   f1   its last delta
//	q    asks a question       D    decides on two utterances
//	x    fails                 h    waits for the end of the attempt
//	n9   9 whole outputs       l1   a delta of 3 KB of output 1
//
// Outputs 4, 5 and 6 are for bob, for ann, and for ann and cat.
type play struct {
	// pace is how long a step waits before it begins; nil: not at all.
	pace func(mark string) time.Duration
	// beside is called after each step; nil: nothing is done.
	beside func(mark string, step int, turn *driver.Turn, out driver.Emitter) error
}

// errFails is what step x returns.
var errFails = errors.New("a secret of the driver")

func audienceOf(output string) event.Disclosure {
	switch output {
	case "4":
		return event.ToParticipants("bob")
	case "5":
		return event.ToParticipants("ann")
	case "6":
		return event.ToParticipants("ann", "cat")
	}
	return event.Disclosure{}
}

func (p *play) run(ctx context.Context, turn *driver.Turn, out driver.Emitter) error {
	words := strings.Fields(turn.Text)
	mark := words[0]
	for i, w := range words[1:] {
		if p.pace != nil {
			if err := pause(ctx, p.pace(mark)); err != nil {
				return err
			}
		}
		if err := p.step(ctx, fmt.Sprintf("%s-%d", mark, i), w[:1], w[1:], out); err != nil {
			return err
		}
		if p.beside != nil {
			if err := p.beside(mark, i, turn, out); err != nil {
				return err
			}
		}
	}
	if p.pace != nil {
		return pause(ctx, p.pace(mark))
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p *play) step(ctx context.Context, mark, do, arg string, out driver.Emitter) error {
	number, _ := strconv.Atoi(arg)
	switch do {
	case "w":
		return pause(ctx, time.Duration(number)*time.Millisecond)
	case "W":
		return pause(ctx, time.Duration(number)*time.Second)
	case "p":
		current, total := int64(1), int64(3)
		return out.Emit(event.Progress{Stage: "stage-" + mark, Current: &current, Total: &total, Message: "message-" + mark})
	case "k":
		return out.Emit(event.Checkpoint{Value: []byte(`{"kept":"check-` + mark + `"}`)})
	case "d", "f", "l":
		text := "delta-" + mark + " "
		if do == "l" {
			text += strings.Repeat("<&>", 1<<10)
		}
		return out.Emit(event.AssistantOutput{
			Output: event.OutputID("logical-" + arg), Delta: text, Final: do == "f", Audience: audienceOf(arg), Spoken: "spoken-" + mark,
		})
	case "n":
		for i := range number {
			err := out.Emit(event.AssistantOutput{Output: event.OutputID(fmt.Sprint(mark, "-", i)), Delta: "many-" + mark, Final: true})
			if err != nil {
				return err
			}
		}
		return nil
	case "q":
		return out.Emit(event.InputRequested{Request: event.RequestID("request-" + mark)})
	case "D":
		return out.Emit(event.Decision{Utterances: []event.Utterance{
			{Text: "first-" + mark}, {Text: "second-" + mark, Audience: event.ToParticipants("ann", "bob")},
		}})
	case "x":
		return errFails
	case "h":
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return fmt.Errorf("there is no step %q", do)
}
