package audience

import (
	"slices"
	"strings"

	"parley/event"
)

// never are words of the journal that no participant may read.
var never = []string{
	"logical-", "spoken-", "check-", `"kept"`, "a secret of the driver", `"sequence"`, `"driver"`, `"drained"`, `"decision"`, `"checkpoint"`,
	"the-host", "focusBySubject", `"visibility"`, `"delivery"`,
}

// agentWords are words that tell of an agent, and those who may read them.
var agentWords = map[string][]event.ParticipantID{
	`"shadow"`: {"bob", "cat"}, "Label of owl": {"ann", "bob"}, `"owl-for-ann"`: {"ann", "bob"},
}

// words checks that no word which is not for a person is in any byte that it got.
func (a *audit) words() {
	for _, p := range people {
		raw, want := a.raw[p].String(), a.due[p].String()
		for _, w := range never {
			if strings.Contains(raw, w) {
				a.w.failed.add("%s reads %q", p, w)
			}
		}
		for w, those := range agentWords {
			if strings.Contains(raw, w) && !slices.Contains(those, p) {
				a.w.failed.add("%s reads %q", p, w)
			}
		}
		mine := strings.Join(a.w.sent[p], " ")
		for _, e := range a.es {
			for _, w := range append(wordsOf(e), a.id(e.Seq)) {
				if strings.Contains(raw, w) && !strings.Contains(want, w) && !strings.Contains(mine, w) && !a.inTheWay(p, w) {
					a.w.failed.add("%s reads %q of entry %d, a %T on %q for %v", p, w, e.Seq, e.Body, e.Channel, e.Disclosure)
				}
			}
		}
	}
}

// inTheWay reports whether a word is the run of a visible answer, which a
// refused input may name (A7).
func (a *audit) inTheWay(p event.ParticipantID, run string) bool {
	for _, e := range a.es {
		if x, ok := e.Body.(*event.InputAdmitted); ok && string(x.Run) == run && includes(x.RunDisclosure, p) {
			return strings.Contains(a.raw[p].String(), `"code":"run_conflict"`)
		}
	}
	return false
}

// wordsOf returns the words of an entry that are found in no other place.
func wordsOf(e *event.Entry) []string {
	first := func(s string) string { return strings.Fields(s)[0] }
	switch x := e.Body.(type) {
	case *event.InputAdmitted:
		return []string{x.Text, string(x.Input), string(x.Run)}
	case *event.RunEvent:
		out := []string{string(x.Run)}
		switch b := x.Event.(type) {
		case event.AssistantOutput:
			out = append(out, string(b.Output))
			if strings.TrimSpace(b.Delta) != "" {
				out = append(out, first(b.Delta))
			}
		case event.Progress:
			out = append(out, b.Stage, b.Message)
		case event.InputRequested:
			out = append(out, string(b.Request), b.Token)
		case event.Decision:
			for _, u := range b.Utterances {
				out = append(out, u.Text)
			}
		}
		return out
	}
	return nil
}
