package bench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// binary is the program, built once for the tests of this package.
var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "parley-bench-test")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "parley")
	if out, err := exec.Command("go", "build", "-o", binary, "parley/cmd/parley").CombinedOutput(); err != nil {
		panic(fmt.Sprintf("build the binary: %v\n%s", err, out))
	}
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// TestKill is a short W6: the real binary is killed under load, and nothing that
// was acknowledged or shown is missing or doubled. `parley bench kill` is the
// long one.
func TestKill(t *testing.T) {
	res, err := Kill(context.Background(), KillConfig{
		Binary: binary, Dir: t.TempDir(), Rooms: 6, Slow: 4, Rounds: 3, Prefill: 1000, Least: 50 * time.Millisecond, Most: 400 * time.Millisecond, Out: t.Output(),
	})
	if err != nil {
		t.Fatal(err)
	}
	if res.Bad() {
		t.Errorf("seed %d: %+v", res.Seed, res)
	}
	if res.Accepted == 0 || res.Seen == 0 || res.Kills != 3 || res.Prefill < 1000 {
		t.Errorf("there was no load: %+v", res)
	}
}

// TestKillNotices: the comparison finds what is missing, doubled or too early.
func TestKillNotices(t *testing.T) {
	journal := []entry{
		{Seq: 1, ID: "a", Kind: "input", Run: "r", Input: "i"},
		{Seq: 2, ID: "b", Kind: "run.event", Run: "r", Sequence: 1, Type: "attempt_started", Attempt: 1},
		{Seq: 3, ID: "c", Kind: "run.event", Run: "r", Sequence: 2, Type: "completed"},
	}
	fresh := func() *witness {
		w := newWitness("room")
		w.accepted["i"] = sighting{Entry: "a", Kind: "input", Run: "r"}
		for _, e := range journal {
			w.seen[e.ID] = sighting{Entry: e.ID, Kind: e.Kind, Run: e.Run, Type: e.Type}
			w.order = append(w.order, e.ID)
		}
		return w
	}
	for name, c := range map[string]struct {
		change func(*witness, []entry) []entry
		count  func(*KillResult) int
	}{
		"lost": {func(w *witness, j []entry) []entry {
			w.accepted["k"] = sighting{Entry: "z", Kind: "input", Run: "q"}
			return j
		}, func(r *KillResult) int { return r.Lost }},
		"not journaled": {func(_ *witness, j []entry) []entry { return j[:2] }, func(r *KillResult) int { return r.NotJournal }},
		"doubled row": {func(_ *witness, j []entry) []entry {
			return append(j, entry{Seq: 4, ID: "d", Kind: "input", Run: "s", Input: "i"})
		}, func(r *KillResult) int { return r.DoubledRows }},
		"two terminals": {func(_ *witness, j []entry) []entry {
			return append(j, entry{Seq: 4, ID: "d", Kind: "run.event", Run: "r", Sequence: 3, Type: "run_failed"})
		}, func(r *KillResult) int { return r.Terminals }},
		"gap":    {func(_ *witness, j []entry) []entry { j[2].Seq = 4; return j }, func(r *KillResult) int { return r.Gaps }},
		"no end": {func(_ *witness, j []entry) []entry { return j[:2] }, func(r *KillResult) int { return r.Unfinished }},
		"never shown": {func(w *witness, j []entry) []entry {
			delete(w.seen, "b")
			return j
		}, func(r *KillResult) int { return r.Unseen }},
		"another order": {func(w *witness, j []entry) []entry {
			w.order[0], w.order[1] = w.order[1], w.order[0]
			return j
		}, func(r *KillResult) int { return r.Disordered }},
		"a hole": {func(w *witness, j []entry) []entry {
			w.order = append(w.order[:1], w.order[2:]...)
			return j
		}, func(r *KillResult) int { return r.Disordered }},
		"changed": {func(w *witness, j []entry) []entry { w.changed++; return j }, func(r *KillResult) int { return r.Changed }},
		"a broken connection": {func(w *witness, j []entry) []entry {
			w.faults = append(w.faults, "x")
			return j
		}, func(r *KillResult) int { return len(r.Faults) }},
		"shown twice": {func(w *witness, j []entry) []entry { w.doubled++; return j }, func(r *KillResult) int { return r.Doubled }},
	} {
		var r KillResult
		w := fresh()
		r.compare(w, c.change(w, append([]entry(nil), journal...)), true)
		if c.count(&r) != 1 || !r.Bad() {
			t.Errorf("%s was not noticed: %+v", name, r)
		}
	}
	var r KillResult
	if r.compare(fresh(), journal, true); r.Bad() {
		t.Errorf("a sound journal is held to be bad: %+v", r)
	}
}

// TestAnswersThatAreNotWholeAreNoticed over attempts of any outcome.
func TestAnswersThatAreNotWholeAreNoticed(t *testing.T) {
	out := func(id, delta string, final bool) *body {
		return &body{Type: "assistant_output", OutputID: id, Delta: delta, Final: final}
	}
	started, completed := &body{Type: "attempt_started"}, &body{Type: "completed"}
	for name, c := range map[string]struct {
		events []*body
		bad    int
	}{
		"as the others": {[]*body{started, out("a", "one ", false), out("a", "two", true), out("b", "three", true), completed}, 0},
		"resumed":       {[]*body{started, out("a", "one two", true), out("b", "thr", false), started, out("c", "three", true), completed}, 0},
		"doubled":       {[]*body{started, out("a", "one two", true), started, out("c", "one two", true), out("b", "three", true), completed}, 1},
		"missing":       {[]*body{started, out("a", "one two", true), started, completed}, 1},
		"mutilated":     {[]*body{started, out("a", "one two", true), out("b", "thr", true), completed}, 1},
		"not completed": {[]*body{started, out("a", "one two", true), {Type: "run_canceled"}}, 0},
	} {
		usual, w := newWitness("bench-1"), newWitness("bench-2")
		usual.answers["one two\nthree"] = 5
		for _, e := range c.events {
			w.hear("r", e)
		}
		if n := notWhole([]*witness{usual, w}); n != c.bad || len(w.told) != 0 {
			t.Errorf("%s: %d answers are not whole, want %d", name, n, c.bad)
		}
	}
}

// TestTurn: W1 gives figures of its own load and its baselines.
func TestTurn(t *testing.T) {
	res, err := Turn(context.Background(), TurnConfig{
		Binary: binary, Dir: t.TempDir(), Rooms: []int{2}, Duration: 200 * time.Millisecond, Out: t.Output(),
	})
	if err != nil {
		t.Fatal(err)
	}
	s := res.Sizes[0]
	if s.Turns == 0 || s.EventsPerSecond <= 0 || s.CommitsPerTurn < 1 || s.BarePebble <= 0 || s.SyncP50Ms <= 0 || s.FirstDeltaP50Ms <= 0 {
		t.Errorf("figures %+v", s)
	}
}
