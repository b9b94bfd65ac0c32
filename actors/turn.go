package actors

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"parley/driver"
	"parley/event"
)

// maxContextPages bounds how many pages of a transcript are looked through for
// rows that a run may use.
const maxContextPages = 8

// turn is what the driver is asked to answer. All of it is the driver's own copy.
func (a *runActor) turn() (*driver.Turn, error) {
	s := a.start
	t := &driver.Turn{
		Room: a.room, Channel: s.Channel, Run: s.Run, Attempt: s.Attempt, Agent: s.Agent, Resumed: s.Resumed,
		Speaker: s.Speaker, Input: s.Input, Root: s.Root, Text: s.Text, Modality: s.Modality, Lang: s.Lang,
		Disclosure: ownDisclosure(s.Disclosure), Deadline: s.Deadline, Continues: s.Continues,
	}
	t.Agent.Voice = ownValue(s.Agent.Voice)
	t.Agent.Visibility = ownDisclosure(s.Agent.Visibility)
	if s.CheckpointAt > 0 {
		es, err := a.sys.cfg.Journal.Read(a.room, s.CheckpointAt-1, s.CheckpointAt, 1)
		if err != nil {
			return nil, fmt.Errorf("reading the checkpoint at %d: %w", s.CheckpointAt, err)
		}
		value, ok := checkpoint(es)
		if !ok {
			return nil, fmt.Errorf("no checkpoint at %d", s.CheckpointAt)
		}
		t.Checkpoint = slices.Clone(value)
	}
	t.Transcript = func(ctx context.Context) ([]event.TranscriptRow, error) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		rows, err := a.context()
		if err != nil {
			return nil, fmt.Errorf("reading the transcript before %d: %w", s.ContextTo, err)
		}
		return rows, nil
	}
	return t, nil
}

func checkpoint(es []*event.Entry) ([]byte, bool) {
	if len(es) != 1 {
		return nil, false
	}
	e, ok := es[0].Body.(*event.RunEvent)
	if !ok {
		return nil, false
	}
	c, ok := e.Event.(event.Checkpoint)
	return c.Value, ok
}

// context is what was said on the channel before, oldest first: rows that
// everyone who may see the run's output may see (M2), the newest within the
// budget, without the input that is being answered.
func (a *runActor) context() ([]event.TranscriptRow, error) {
	s, cfg := a.start, &a.sys.cfg
	var out []event.TranscriptRow // newest first
	bytes, before := 0, s.ContextTo
	for range maxContextPages {
		rows, err := cfg.Journal.Transcript(a.room, s.Channel, before, cfg.ContextRows, cfg.ContextBytes)
		if err != nil {
			return nil, err
		}
		if len(rows) == 0 {
			break
		}
		rows = slices.Clone(rows)
		slices.SortFunc(rows, func(x, y event.TranscriptRow) int { return cmp.Compare(y.Entry, x.Entry) })
		for _, r := range rows {
			before = r.Entry
			if !r.Disclosure.Covers(s.Disclosure) || r.Run == s.Run && r.Output == "" && r.Input == s.Input {
				continue
			}
			if bytes += len(r.Text); len(out) == cfg.ContextRows || bytes > cfg.ContextBytes {
				slices.Reverse(out)
				return out, nil
			}
			r.Disclosure = ownDisclosure(r.Disclosure)
			out = append(out, r)
		}
	}
	slices.Reverse(out)
	return out, nil
}

func ownDisclosure(d event.Disclosure) event.Disclosure {
	d.Participants = slices.Clone(d.Participants)
	return d
}
