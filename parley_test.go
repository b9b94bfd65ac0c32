package parley_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"parley"
	"parley/driver"
	"parley/event"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func table(drivers ...string) []parley.Template {
	room := event.RoomConfig{}
	for _, d := range drivers {
		room.Agents = append(room.Agents, event.Agent{ID: event.AgentID(d), Label: d, Role: "custom", Driver: d})
		room.FallbackAgent = event.AgentID(d)
	}
	return []parley.Template{{Match: "table-*", Room: room}}
}

func begin(t *testing.T, dir string, drivers map[string]driver.Driver, templates []parley.Template) *parley.Runtime {
	t.Helper()
	rt, err := parley.New(parley.Config{Data: dir, Drivers: drivers, Templates: templates})
	if err != nil {
		t.Fatal(err)
	}
	if err := rt.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return rt
}

func stop(t *testing.T, rt *parley.Runtime) {
	t.Helper()
	if err := rt.Shutdown(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func hello(id event.InputID) parley.Input {
	return parley.Input{Room: "table-1", Channel: "public", Speaker: "ann", ID: id, Text: "Hello", Disclosure: event.ToRoom()}
}

var echo = driver.RunFunc(func(_ context.Context, turn *driver.Turn, out driver.Emitter) error {
	return driver.Say(out, "answer", "You said: "+turn.Text)
})

// TestA5R6RetryAndReplay: an exact retry gives the same run, another text is a
// conflict, and a replay after a restart gives the same events and causes nothing.
func TestA5R6RetryAndReplay(t *testing.T) {
	dir, calls := t.TempDir(), 0
	counted := driver.RunFunc(func(ctx context.Context, turn *driver.Turn, out driver.Emitter) error {
		calls++
		return echo(ctx, turn, out)
	})
	drivers := map[string]driver.Driver{"echo": counted}
	rt := begin(t, dir, drivers, table("echo"))
	first, err := rt.Begin(t.Context(), hello("i-1"))
	if err != nil {
		t.Fatal(err)
	}
	res, err := first.Result(t.Context())
	if err != nil || res.Status != event.RunCompleted || res.Text() != "You said: Hello" {
		t.Fatalf("result %+v, %v", res, err)
	}
	again, err := rt.Begin(t.Context(), hello("i-1"))
	if err != nil || again.ID != first.ID || !again.Duplicate || first.Duplicate || !again.Accepted.Equal(first.Accepted) {
		t.Fatalf("an exact retry gave %+v, %v after %+v", again, err, first)
	}
	other := hello("i-1")
	other.Text = "Something else"
	if _, err := rt.Begin(t.Context(), other); reason(err) != event.InputConflict {
		t.Fatalf("another text under the same id: %v", err)
	}
	want := collect(t, first, 0)
	stop(t, rt)

	rt = begin(t, dir, drivers, table("echo"))
	found, err := rt.Find(t.Context(), "table-1", first.ID)
	if err != nil {
		t.Fatal(err)
	}
	if got := collect(t, found, 0); !slices.Equal(got, want) {
		t.Errorf("after a restart the run replays as %v, before as %v", got, want)
	}
	if got := collect(t, found, 2); !slices.Equal(got, want[2:]) {
		t.Errorf("a replay after event 2 gives %v, want %v", got, want[2:])
	}
	for _, err := range found.Events(t.Context(), 99) {
		if !errors.Is(err, parley.ErrCursorAhead) {
			t.Errorf("a replay after event 99: %v", err)
		}
	}
	if canceled, err := found.Cancel(t.Context()); canceled || err != nil {
		t.Errorf("canceling a completed run: %t, %v", canceled, err)
	}
	stop(t, rt)
	if calls != 1 {
		t.Errorf("the driver ran %d times, want once", calls)
	}
}

func collect(t *testing.T, r *parley.Run, after uint64) (out []string) {
	t.Helper()
	for e, err := range r.Events(t.Context(), after) {
		if err != nil {
			t.Fatal(err)
		}
		if want := after + uint64(len(out)) + 1; e.Sequence != want {
			t.Errorf("event %d follows %d", e.Sequence, want-1)
		}
		out = append(out, fmt.Sprintf("%d/%d %s", e.Sequence, e.Attempt, e.Body.RunKind()))
	}
	return out
}

func reason(err error) event.Reason {
	if r, ok := event.AsRefusal(err); ok {
		return r.Reason
	}
	return 0
}

// TestR1ShutdownResumes: a run that was let go by a shutdown goes on after it,
// with its checkpoint and without what it had closed.
func TestR1ShutdownResumes(t *testing.T) {
	dir := t.TempDir()
	var turns []driver.Turn
	working := make(chan struct{}, 1)
	slow := driver.RunFunc(func(ctx context.Context, turn *driver.Turn, out driver.Emitter) error {
		turns = append(turns, *turn)
		if err := driver.Say(out, "first", "One."); err != nil {
			return err
		}
		if turn.Resumed {
			return driver.Say(out, "second", "Two.")
		}
		if err := out.Emit(event.Checkpoint{Value: []byte(`{"step":1}`)}); err != nil {
			return err
		}
		working <- struct{}{}
		<-ctx.Done()
		return context.Cause(ctx)
	})
	rt := begin(t, dir, map[string]driver.Driver{"slow": slow}, table("slow"))
	run, err := rt.Begin(t.Context(), hello("i-1"))
	if err != nil {
		t.Fatal(err)
	}
	<-working
	for e, err := range run.Events(t.Context(), 0) { // until the checkpoint is durable
		if err != nil {
			t.Fatal(err)
		}
		if e.Body.RunKind() == event.KindCheckpoint {
			break
		}
	}
	stop(t, rt)
	rt = begin(t, dir, map[string]driver.Driver{"slow": slow}, table("slow"))
	found, err := rt.Find(t.Context(), "table-1", run.ID)
	if err != nil {
		t.Fatal(err)
	}
	res, err := found.Result(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	stop(t, rt)
	if res.Status != event.RunCompleted || res.Attempt != 2 || res.Text() != "One.\nTwo." {
		t.Errorf("result %+v", res)
	}
	if len(turns) != 2 || turns[0].Resumed || !turns[1].Resumed || string(turns[1].Checkpoint) != `{"step":1}` {
		t.Errorf("turns %+v", turns)
	}
}

// TestR1MissingDriverBlocks: a recovered run whose driver is not there waits for
// it, and goes on after a restart that has it.
func TestR1MissingDriverBlocks(t *testing.T) {
	dir := t.TempDir()
	working := make(chan struct{}, 1)
	hang := driver.RunFunc(func(ctx context.Context, _ *driver.Turn, _ driver.Emitter) error {
		working <- struct{}{}
		<-ctx.Done()
		return context.Cause(ctx)
	})
	rt := begin(t, dir, map[string]driver.Driver{"echo": hang}, table("echo"))
	run, err := rt.Begin(t.Context(), hello("i-1"))
	if err != nil {
		t.Fatal(err)
	}
	<-working
	stop(t, rt)

	rt = begin(t, dir, nil, table("echo"))
	found, err := rt.Find(t.Context(), "table-1", run.ID)
	if err != nil {
		t.Fatal(err)
	}
	for e, err := range found.Events(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Body.RunKind() == event.KindRunBlocked {
			break
		}
	}
	if _, err := rt.Begin(t.Context(), hello("i-2")); reason(err) != event.NoAgent {
		t.Errorf("an input for an agent without a driver: %v", err)
	}
	stop(t, rt)

	rt = begin(t, dir, map[string]driver.Driver{"echo": echo}, table("echo"))
	found, err = rt.Find(t.Context(), "table-1", run.ID)
	if err != nil {
		t.Fatal(err)
	}
	if res, err := found.Result(t.Context()); err != nil || res.Status != event.RunCompleted {
		t.Errorf("result %+v, %v", res, err)
	}
	stop(t, rt)
}

// TestW2AnswerContinues: a question parks the run, the answer continues it.
func TestW2AnswerContinues(t *testing.T) {
	ask := driver.RunFunc(func(_ context.Context, turn *driver.Turn, out driver.Emitter) error {
		if turn.Continues == "" {
			return out.Emit(event.InputRequested{Request: "colour"})
		}
		return driver.Say(out, "answer", string(turn.Continues)+": "+turn.Text)
	})
	rt := begin(t, t.TempDir(), map[string]driver.Driver{"ask": ask}, table("ask"))
	res, err := rt.Submit(t.Context(), hello("i-1"))
	if err != nil || res.Status != event.RunWaiting || res.Continuation == nil {
		t.Fatalf("result %+v, %v", res, err)
	}
	answer := hello("i-2")
	answer.Text = "Blue"
	answer.Continuation = &event.ContinuationRef{Run: res.Run, Token: res.Continuation.Token}
	next, err := rt.Submit(t.Context(), answer)
	if err != nil || next.Run != res.Run || next.Status != event.RunCompleted || next.Attempt != 2 || next.Text() != "colour: Blue" {
		t.Fatalf("result %+v, %v", next, err)
	}
	stop(t, rt)
}

// TestC2CallerGone: a caller that stops waiting cancels nothing.
func TestC2CallerGone(t *testing.T) {
	release := make(chan struct{})
	wait := driver.RunFunc(func(ctx context.Context, turn *driver.Turn, out driver.Emitter) error {
		select {
		case <-release:
			return echo(ctx, turn, out)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	rt := begin(t, t.TempDir(), map[string]driver.Driver{"wait": wait}, table("wait"))
	run, err := rt.Begin(t.Context(), hello("i-1"))
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := run.Result(gone); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller whose context is done got %v", err)
	}
	close(release)
	if res, err := run.Result(t.Context()); err != nil || res.Status != event.RunCompleted {
		t.Errorf("result %+v, %v", res, err)
	}
	stop(t, rt)
}

// TestBadInput: what is not allowed is refused with a sentence before anything is written.
func TestBadInput(t *testing.T) {
	rt := begin(t, t.TempDir(), map[string]driver.Driver{"echo": echo}, table("echo"))
	long := time.Duration(-1)
	for name, c := range map[string]struct {
		change func(*parley.Input)
		want   event.Reason
	}{
		"room":        {func(in *parley.Input) { in.Room = "a b" }, event.BadRequest},
		"no template": {func(in *parley.Input) { in.Room = "elsewhere" }, event.NotFound},
		"channel":     {func(in *parley.Input) { in.Channel = "" }, event.BadRequest},
		"speaker":     {func(in *parley.Input) { in.Speaker = "" }, event.BadRequest},
		"blank":       {func(in *parley.Input) { in.Text = " \n" }, event.BlankText},
		"control":     {func(in *parley.Input) { in.Text = "a\x00" }, event.InvalidText},
		"disclosure":  {func(in *parley.Input) { in.Disclosure = event.Disclosure{} }, event.DisclosureRequired},
		"none":        {func(in *parley.Input) { in.Disclosure = event.ToNone() }, event.DisclosureEmpty},
		"agent":       {func(in *parley.Input) { in.Agents = []event.AgentID{"nobody"} }, event.AgentUnknown},
		"deadline":    {func(in *parley.Input) { in.Deadline = &long }, event.BadRequest},
	} {
		in := hello("i-1")
		c.change(&in)
		if _, err := rt.Begin(t.Context(), in); reason(err) != c.want {
			t.Errorf("%s: %v, want reason %d", name, err, c.want)
		}
	}
	if run, err := rt.Begin(t.Context(), hello("i-1")); err != nil || run.Duplicate {
		t.Errorf("after the refusals the id is still free: %+v, %v", run, err)
	}
	stop(t, rt)
	if _, err := parley.New(parley.Config{Drivers: map[string]driver.Driver{"x": 7}}); err == nil {
		t.Error("a configuration without a data directory and with a number for a driver was taken")
	}
}

// TestJournal: a stopped server's journal gives its rooms, their entries and what
// they come to; what is no data directory is not made one.
func TestJournal(t *testing.T) {
	empty := t.TempDir()
	if _, err := parley.OpenJournal(empty); err == nil {
		t.Error("an empty directory was taken for a data directory")
	}
	if names, err := os.ReadDir(empty); err != nil || len(names) > 0 {
		t.Errorf("looking left %v in the directory, %v", names, err)
	}
	dir := t.TempDir()
	rt := begin(t, dir, map[string]driver.Driver{"echo": echo}, table("echo"))
	if _, err := rt.Submit(t.Context(), hello("i-1")); err != nil {
		t.Fatal(err)
	}
	if _, err := parley.OpenJournal(dir); err == nil {
		t.Error("the journal of a running server was opened")
	}
	stop(t, rt)
	j, err := parley.OpenJournal(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	}()
	names, err := j.Rooms()
	if err != nil || !slices.Equal(names, []event.RoomID{"table-1"}) {
		t.Errorf("rooms %v, %v", names, err)
	}
	var kinds []event.Kind
	for e, err := range j.Entries("table-1", 0) {
		if err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, e.Body.Kind())
	}
	want := []event.Kind{event.KindRoom, event.KindInput, event.KindRun, event.KindRun, event.KindRun}
	if !slices.Equal(kinds, want) {
		t.Errorf("entries %v, want %v", kinds, want)
	}
	v, err := j.View("table-1")
	if err != nil || v.Head != 5 || len(v.Runs) != 0 || len(v.Agents) != 1 {
		t.Errorf("view %+v, %v", v, err)
	}
	if _, err := j.View("nowhere"); reason(err) != event.NotFound {
		t.Errorf("a room that does not exist: %v", err)
	}
}

// A limit that was negative lifted itself, without a word.
func TestLimitsOutOfBoundsAreRefusedByName(t *testing.T) {
	limits := reflect.TypeFor[parley.Limits]()
	for i := range limits.NumField() {
		for _, n := range []int64{-1, parley.MaxLimit + 1} {
			c := parley.Config{Data: t.TempDir()}
			reflect.ValueOf(&c.Limits).Elem().Field(i).SetInt(n)
			name := limits.Field(i).Tag.Get("yaml")
			if _, err := parley.New(c); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("limits.%s: %d:", name, n)) {
				t.Errorf("%s of %d: %v", name, n, err)
			}
		}
	}
	if err := (parley.Config{Data: t.TempDir(), DrainSpread: -1}).Validate(); err == nil || !strings.Contains(err.Error(), "drainSpread") {
		t.Errorf("a negative drain: %v", err)
	}
}
