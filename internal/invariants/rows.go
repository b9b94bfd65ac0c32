package invariants

import (
	"strings"

	"parley/event"
)

// Rows returns the history rows that a whole journal implies: what the store
// must hold, no more and no less, after the batch of its last entry. The journal
// must pass Check.
//
// The rules: an input leaves its index (A5) and its transcript row (M1); a
// recorded output leaves its transcript row with the entry that closes it (R4);
// a run leaves its record at its admission, at each wait and at its end.
func Rows(entries []*event.Entry) map[event.Key]event.Row {
	rows := map[event.Key]event.Row{}
	runs := map[event.RunID]*event.RunRow{}
	type delivery struct {
		run event.RunID
		id  event.OutputID
	}
	type message struct {
		lang string // of its first delta
		text strings.Builder
	}
	messages := map[delivery]*message{}
	put := func(r *event.RunRow) {
		copied := *r
		rows[event.RunKey(r.Run)] = &copied
	}
	for _, e := range entries {
		switch x := e.Body.(type) {
		case *event.InputAdmitted:
			rows[event.InputKey(e.Channel, x.Speaker, x.Input)] = &event.InputRow{
				Digest: x.Digest, Disclosure: e.Disclosure, Entry: e.Seq, At: e.At, Run: x.Run, State: x.State,
			}
			rows[event.TranscriptKey(e.Channel, e.Seq)] = &event.TranscriptRow{
				Entry: e.Seq, At: e.At, Speaker: x.Speaker, Disclosure: e.Disclosure, Run: x.Run, Input: x.Input,
				Modality: x.Modality, Lang: x.Lang, Text: x.Text,
			}
			if x.State == event.Continued {
				runs[x.Run].Disclosure, runs[x.Run].Status = x.RunDisclosure, event.RunActive
				continue
			}
			status := event.RunActive
			if x.State == event.Queued {
				status = event.RunQueued
			}
			r := &event.RunRow{
				Run: x.Run, Channel: e.Channel, Agent: x.Agent, Speaker: x.Speaker, Disclosure: x.RunDisclosure,
				Status: status, First: e.Seq, Started: e.At,
			}
			runs[x.Run] = r
			put(r)
		case *event.RunEvent:
			r := runs[x.Run]
			r.Sequence, r.Attempt = x.Sequence, x.Attempt
			switch b := x.Event.(type) {
			case event.AssistantOutput:
				key := delivery{x.Run, b.Output}
				m := messages[key]
				if m == nil {
					m = &message{lang: b.Lang}
					messages[key] = m
				}
				m.text.WriteString(b.Delta)
				if b.Final && b.History == event.Record {
					rows[event.TranscriptKey(e.Channel, e.Seq)] = &event.TranscriptRow{
						Entry: e.Seq, At: e.At, Speaker: event.Endpoint{Kind: event.AgentEndpoint, ID: string(x.Agent)},
						Disclosure: e.Disclosure, Run: x.Run, Input: x.Input, Output: b.Output, Lang: m.lang, Text: m.text.String(),
					}
				}
			case event.InputRequested:
				r.Status = event.RunWaiting
				put(r)
			case event.RunCanceled:
				r.Reason = b.Reason
			case event.RunFailed:
				r.Code, r.Message = b.Code, b.Message
			}
			if status := terminal(x.Event); status != 0 {
				r.Status, r.Last, r.Ended = status, e.Seq, e.At
				put(r)
			}
		}
	}
	return rows
}
