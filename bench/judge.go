package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// entry is a line of parley room replay --json.
type entry struct {
	Room     string
	Seq      uint64
	ID       string
	At       time.Time
	Kind     string
	Run      string
	Attempt  uint32
	Sequence uint64
	Input    string
	Type     string
}

// hidden reports whether no participant is shown the entry.
func (e *entry) hidden() bool {
	return e.Kind == "drained" || e.Type == "checkpoint" || e.Type == "decision"
}

// replay reads the journals of the witnesses' rooms from the data directory,
// through the binary, while no server has it.
func (s *server) replay(ctx context.Context) (map[string][]entry, error) {
	cmd := exec.CommandContext(ctx, s.binary, "room", "replay", "--json", "--data", filepath.Join(s.dir, "data"), "--config", s.config())
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("read the journal: %w", err)
	}
	rooms := map[string][]entry{}
	filler := []byte(`"room":"` + fillPrefix)
	lines := bufio.NewScanner(out)
	var bad error
	for lines.Scan() {
		if bad != nil || bytes.Contains(lines.Bytes(), filler) {
			continue // to the end, so that the process can write it
		}
		var e entry
		if bad = json.Unmarshal(lines.Bytes(), &e); bad == nil {
			rooms[e.Room] = append(rooms[e.Room], e)
		}
	}
	if bad == nil {
		bad = lines.Err()
	}
	if err := cmd.Wait(); err != nil {
		return nil, fmt.Errorf("read the journal: %w: %s", err, strings.TrimSpace(errs.String()))
	}
	if bad != nil {
		return nil, fmt.Errorf("read the journal: %w", bad)
	}
	return rooms, nil
}

// compare counts what one room's journal and its witness do not agree on. last
// says that the server was left to finish its work before.
func (r *KillResult) compare(w *witness, journal []entry, last bool) {
	byID := make(map[string]*entry, len(journal))
	inputs, terminals, sequence := map[string]int{}, map[string]int{}, map[string]uint64{}
	var shown []string // entry ids that a participant is shown, in order
	for i := range journal {
		e := &journal[i]
		byID[e.ID] = e
		if e.Seq != uint64(i)+1 {
			r.Gaps++
		}
		if !e.hidden() {
			shown = append(shown, e.ID)
		}
		switch e.Kind {
		case "input":
			inputs[e.Input]++
			terminals[e.Run] += 0
		case "run.event":
			if sequence[e.Run]++; e.Sequence != sequence[e.Run] {
				r.Gaps++
			}
			if terminal(e.Type) {
				terminals[e.Run]++
			}
			if e.Type == "attempt_started" && e.Attempt > 1 {
				r.Resumed++
			}
		}
	}
	for id, a := range w.accepted {
		e := byID[a.Entry]
		if e == nil || e.Kind != "input" || e.Input != id || e.Run != a.Run {
			r.Lost++
		}
	}
	for id, s := range w.seen {
		e := byID[id]
		if e == nil || (s.Kind == "run.event") != (e.Kind == "run.event") || e.Run != s.Run || (s.Kind == "run.event" && e.Type != s.Type) {
			r.NotJournal++
		}
	}
	// What a client saw is what the journal shows up to some position, without a hole.
	for i, id := range w.order {
		if i >= len(shown) || shown[i] != id {
			r.Disordered++
			break
		}
	}
	for _, n := range inputs {
		r.DoubledRows += max(0, n-1)
	}
	for _, n := range terminals {
		r.Terminals += max(0, n-1)
		if last && n == 0 {
			r.Unfinished++
		}
	}
	if last {
		for _, id := range shown {
			if _, ok := w.seen[id]; !ok {
				r.Unseen++
			}
		}
	}
	r.Accepted += len(w.accepted)
	r.Seen += len(w.seen)
	r.Journal += len(journal)
	r.Deferred += w.deferred
	r.Doubled += w.doubled
	r.Conflicts += w.conflicts
	r.NotResumed += w.notResumed
	r.Changed += w.changed
	r.Faults = append(r.Faults, w.faults...)
}

// notWhole counts the runs whose answer differs from what most runs of their
// kind gave. Every run of a kind is told the same by its driver, over however
// many attempts, so that one that differs has lost, doubled or mutilated an output.
func notWhole(witnesses []*witness) (n int) {
	for _, slow := range []bool{false, true} {
		count, total, most := map[string]int{}, 0, 0
		for _, w := range witnesses {
			if strings.HasPrefix(w.room, slowPrefix) != slow {
				continue
			}
			for text, runs := range w.answers {
				count[text] += runs
				total += runs
				most = max(most, count[text])
			}
		}
		n += total - most
	}
	return n
}
