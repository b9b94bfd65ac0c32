package actors

import (
	"slices"
	"testing"
	"testing/synctest"
)

func TestATurnIsJournaledInOrder(t *testing.T) {
	in(t, func(r *rig) {
		r.create("hall")
		got := r.say("hall", "i1")
		synctest.Wait()
		want := []string{"room", "input", "attempt_started/1", "progress/1", "assistant_output/1", "assistant_output/1", "completed/1"}
		if ks := r.journal.kinds("hall"); !slices.Equal(ks, want) {
			t.Errorf("journal: %v, want %v", ks, want)
		}
		if got.Entry != 2 || got.Duplicate {
			t.Errorf("receipt: %+v", got)
		}
	})
}
