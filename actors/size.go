package actors

import "parley/event"

// The sizes below are about what a thing takes up in a batch and in memory.
// Bounds are counted in them because the exact size is known only to the
// journal, after encoding.

// perRecord is what an entry or a row takes up beside its text: ids, times, key.
const perRecord = 96

func bodySize(b event.RunBody) int {
	n := perRecord
	switch x := b.(type) {
	case event.AssistantOutput:
		n += len(x.Delta) + len(x.Spoken) + len(x.Output) + disclosureSize(x.Audience)
	case event.Checkpoint:
		n += len(x.Value)
	case event.Progress:
		n += len(x.Stage) + len(x.Message) + len(x.Unit)
	case event.Decision:
		for _, u := range x.Utterances {
			n += len(u.Text) + len(u.Lang) + disclosureSize(u.Audience)
		}
	case event.RunFailed:
		n += len(x.Message)
	}
	return n
}

func entrySize(e *event.Entry) int {
	n := disclosureSize(e.Disclosure)
	switch x := e.Body.(type) {
	case *event.RunEvent:
		return n + bodySize(x.Event)
	case *event.InputAdmitted:
		return n + 2*perRecord + len(x.Text) + disclosureSize(x.RunDisclosure)
	case *event.RoomConfigured:
		n += perRecord
		for _, a := range x.Config.Agents {
			n += perRecord + len(a.Label) + len(a.Description) + disclosureSize(a.Visibility)
		}
		return n
	}
	return n + perRecord
}

func rowSize(r event.Row) int {
	switch x := r.(type) {
	case *event.TranscriptRow:
		return perRecord + len(x.Text) + disclosureSize(x.Disclosure)
	case *event.InputRow:
		return perRecord + disclosureSize(x.Disclosure)
	case *event.RunRow:
		return perRecord + len(x.Message) + disclosureSize(x.Disclosure)
	}
	return perRecord
}

func disclosureSize(d event.Disclosure) int {
	n := 0
	for _, p := range d.Participants {
		n += len(p) + 2
	}
	return n
}
