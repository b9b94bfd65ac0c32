package wire

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"parley/event"
)

type stateJSON struct {
	Part, Parts int
	Room        *struct {
		Phase  string
		Agents []struct{ ID, Description string }
	}
	Runs []struct {
		Run     string
		Outputs []struct {
			OutputID string
			Text     string
			Final    bool
		}
	}
}

func TestStateIsCutIntoPartsThatFit(t *testing.T) {
	view := goldenView()
	view.Agents = nil
	for i := range 300 {
		view.Agents = append(view.Agents, event.Agent{ID: event.AgentID(fmt.Sprintf("a%d", i)), Label: "L", Role: "custom", Description: strings.Repeat("d", 200)})
	}
	view.Agents = append(view.Agents, event.Agent{ID: "huge", Label: "L", Role: "custom", Description: strings.Repeat("d", 60<<10)})
	view.Runs = nil
	want := map[string]string{}
	for r := range 20 {
		run := event.RunView{
			Run: event.RunID(fmt.Sprintf("r%d", r)), Channel: "public", Agent: "a1", Disclosure: event.ToRoom(), Status: event.RunActive,
			Speaker: event.Person("visitor-7"),
		}
		for o := range r % 4 {
			text := strings.Repeat("\x01ä👩‍👧<", (r*o*337)%9000)
			id := event.OutputID(fmt.Sprintf("o%d.%d", r, o))
			want[string(run.Run)+"/"+string(id)] = text
			run.Outputs = append(run.Outputs, event.OutputView{Output: id, Purpose: event.Answer, History: event.Record, Disclosure: event.ToRoom(), Text: text, Final: o == 0})
		}
		view.Runs = append(view.Runs, run)
	}
	v := Viewer{Subject: "visitor-7"}
	for _, limit := range []int{MinMaxFrame, DefaultMaxFrame, LargestMaxFrame} {
		frames := State(view, v, showsTo(v), limit)
		if len(frames) < 2 {
			t.Fatalf("only %d parts", len(frames))
		}
		got, agents, runs := map[string]string{}, 0, map[string]bool{}
		for i, f := range frames {
			if len(f) > limit {
				t.Errorf("part %d has %d bytes, more than %d", i+1, len(f), limit)
			}
			var s stateJSON
			if err := json.Unmarshal(f, &s); err != nil || !utf8.Valid(f) {
				t.Fatalf("part %d: %v", i+1, err)
			}
			if s.Part != i+1 || s.Parts != len(frames) || s.Room == nil && i == 0 {
				t.Fatalf("part %d of %d at %d", s.Part, s.Parts, i)
			}
			if s.Room != nil {
				agents += len(s.Room.Agents)
			}
			for _, r := range s.Runs {
				runs[r.Run] = true
				for _, o := range r.Outputs {
					got[r.Run+"/"+o.OutputID] += o.Text
				}
			}
		}
		if agents != 301 || len(runs) != 20 || !maps.Equal(got, want) {
			t.Errorf("limit %d: %d agents, %d runs, texts equal: %v", limit, agents, len(runs), maps.Equal(got, want))
		}
	}
}

func TestItemsFitTheirFrame(t *testing.T) {
	names := make([]event.ParticipantID, 256)
	for i := range names {
		names[i] = event.ParticipantID(fmt.Sprintf("%03d%s", i, strings.Repeat("\"", 125)))
	}
	worst := strings.Repeat("\x01", event.MaxDelta)
	for name, e := range map[string]*event.Entry{
		"delta": {Channel: event.ChannelID(strings.Repeat("c", 128)), Disclosure: event.ToParticipants(names...), Body: &event.RunEvent{
			Run: "r", Event: event.AssistantOutput{Output: "o", Delta: worst, Purpose: event.Answer, History: event.Record},
		}},
		"input":      {Channel: "c", Disclosure: event.ToParticipants(names...), Body: &event.InputAdmitted{Text: strings.Repeat("\"", event.MaxText), Modality: event.Text}},
		"checkpoint": {Channel: "c", Disclosure: event.ToNone(), Body: &event.RunEvent{Event: event.Checkpoint{Value: json.RawMessage(`"` + strings.Repeat("x", event.MaxCheckpoint-2) + `"`)}}},
	} {
		item := AppendItem(nil, e, "id", Viewer{Host: true}, Host)
		var b Batch
		b.Reset(nil)
		b.Add(item)
		frame := b.Frame(1<<53, []byte(strings.Repeat("c", 64)))
		if !json.Valid(frame) || len(frame) > MinMaxFrame {
			t.Errorf("%s: frame of %d bytes, valid %v", name, len(frame), json.Valid(frame))
		}
		if name == "checkpoint" && !strings.HasSuffix(string(item), `"body":{"type":"checkpoint","omitted":true}}`) {
			t.Errorf("a large checkpoint is written as %.200s", item)
		}
	}
}

func TestBatchEndsAtItsBounds(t *testing.T) {
	var b Batch
	b.Reset(nil)
	item := []byte(`{"id":"` + strings.Repeat("x", 500) + `"}`)
	for b.Fits(len(item), MinMaxFrame) {
		b.Add(item)
	}
	n := b.Len()
	frame := b.Frame(1, []byte(strings.Repeat("c", 64)))
	if len(frame) > MinMaxFrame || !json.Valid(frame) || n < 50 {
		t.Errorf("%d items in %d bytes", n, len(frame))
	}
	b.Reset(b.Buffer())
	for b.Fits(2, LargestMaxFrame) {
		b.Add([]byte(`{}`))
	}
	if b.Len() != MaxBatch {
		t.Errorf("%d items in a frame", b.Len())
	}
	b.Reset(b.Buffer())
	if !b.Fits(1<<20, MinMaxFrame) {
		t.Error("an item does not fit into an empty frame")
	}
}

func TestErrorOfKeepsThePrivateCause(t *testing.T) {
	e := ErrorOf("r", fmt.Errorf("disk /var/x: %s", "secret"))
	if e.Code != CodeInternal || strings.Contains(e.Message, "secret") {
		t.Errorf("got %+v", e)
	}
	refusal := event.Refuse(event.RunConflict, "busy")
	refusal.Run, refusal.Retry = "r_1", 800*time.Millisecond
	if got, want := ErrorOf("r", fmt.Errorf("x: %w", refusal)), (Error{Ref: "r", Code: CodeRunConflict, Message: "busy", Run: "r_1", RetryMs: 800}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestVariantsCoverAllEntries(t *testing.T) {
	var kinds []event.Kind
	for _, e := range goldenEntries() {
		if got := (Viewer{Host: true}).Variant(e); got != Host {
			t.Errorf("a host gets variant %d of %s", got, e.Body.Kind())
		}
		if !slices.Contains(kinds, e.Body.Kind()) {
			kinds = append(kinds, e.Body.Kind())
		}
	}
	if len(kinds) != int(event.KindDrained) {
		t.Errorf("the golden conversation has %d of %d kinds of entry", len(kinds), event.KindDrained)
	}
}
