package room_test

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"parley/event"
	"parley/room"
)

// TestRandomConversations lets several speakers, agents, crashes, stops and
// clock steps loose on a room, under ambient facts that change at will, and
// asserts with every message the laws of world and those of model.
func TestRandomConversations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{T: t, w: newWorld(t), closed: map[attempt]map[event.OutputID]bool{}, last: map[attempt]uint64{}}
		if _, err := m.step(event.Configure{Access: hostAccess(), Config: configs[0]}); err != nil {
			t.Fatal(err)
		}
		actions := slices.Sorted(maps.Keys(weights))
		var bag []string
		for _, a := range actions {
			for range weights[a] {
				bag = append(bag, a)
			}
		}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			m.ambience()
			m.act(rapid.SampledFrom(bag).Draw(t, "action"))
			m.settled()
		}
		m.w.checkRows()
		for _, a := range m.viewers() {
			m.w.checkView(a)
		}
	})
}

var weights = map[string]int{
	"input": 12, "answer": 6, "retry": 3, "conflict": 1, "emit": 16, "stale": 1, "ended": 3, "cancel": 2, "focus": 1, "configure": 1,
	"tick": 1, "early": 1, "clock": 2, "crash": 2, "recover": 1, "drain": 1, "get": 2, "snapshot": 1, "view": 2,
}

type attempt struct {
	run event.RunID
	n   uint32
}

// model is what a random test knows of the room beside its state.
type model struct {
	*rapid.T
	w        *world
	accepted []accepted // every input that was admitted
	closed   map[attempt]map[event.OutputID]bool
	last     map[attempt]uint64
	runs     []event.RunID
	snapshot []byte
	inputs   int
}

type accepted struct {
	submit  event.Submit
	receipt event.Receipt
}

var people = []event.ParticipantID{"ann", "bob", "cat", "dan"}

func (m *model) viewers() []event.Access {
	out := []event.Access{hostAccess(), moderator()}
	for _, p := range people {
		out = append(out, person(p))
	}
	return out
}

func agent(id event.AgentID) event.Agent { return event.Agent{ID: id, Role: "guide", Driver: "d"} }

// configs are the configurations between which a host changes: agents come, go,
// change version, visibility and label, and channels change their policy.
var configs = func() []event.RoomConfig {
	oracle, brittle, narrow, newer := agent("oracle"), agent("brittle"), agent("guide"), agent("guide")
	oracle.Visibility = event.ToParticipants("ann", "bob")
	brittle.Recovery = event.RecoverFail
	narrow.Visibility = event.ToParticipants("ann", "cat")
	newer.Version = "2"
	labeled := agent("guide")
	labeled.Label = "Guide"
	return []event.RoomConfig{
		{Agents: []event.Agent{agent("guide"), oracle, brittle}, FallbackAgent: "guide"},
		{Agents: []event.Agent{labeled, oracle, brittle}, FallbackAgent: "guide", DeadlineMs: 30_000, WaitMs: 60_000},
		{Agents: []event.Agent{newer, oracle}, Phase: "p", PhaseAgents: map[string]event.AgentID{"p": "oracle"}},
		{Agents: []event.Agent{narrow, brittle}, FallbackAgent: "brittle", Channels: []event.ChannelPolicy{
			{Match: "team:*", OnBusy: event.BusyReject}, {Match: "**", OnBusy: event.BusySupersede},
		}},
	}
}()

func (m *model) ambience() {
	pick := func(name string) map[event.AgentID]bool {
		out := map[event.AgentID]bool{}
		for _, id := range []event.AgentID{"guide", "oracle", "brittle"} {
			if rapid.IntRange(0, 11).Draw(m.T, name) == 11 {
				out[id] = true
			}
		}
		return out
	}
	m.w.ambient = room.Ambient{Unresponsive: pick("unresponsive"), Missing: pick("missing")}
}

func (m *model) chance(label string, percent int) bool {
	return rapid.IntRange(0, 99).Draw(m.T, label) < percent
}

// working returns the attempts that should have a driver at work.
func (m *model) working() map[attempt]bool {
	out := map[attempt]bool{}
	for _, e := range m.w.state.Outstanding(m.w.now) {
		s := e.(room.StartAttempt)
		out[attempt{s.Run, s.Attempt}] = true
	}
	return out
}

// step has a message decided, and asserts that its effects are what the change
// of the state asks for: a driver is started for each attempt that should have
// one now and did not before, and told to stop where one should no longer be.
func (m *model) step(msg any) (room.Decision, error) {
	before := m.working()
	d, _, err := m.w.do(msg)
	after := m.working()
	started, stopped := map[attempt]bool{}, map[attempt]bool{}
	for _, e := range d.After {
		switch x := e.(type) {
		case room.StartAttempt:
			started[attempt{x.Run, x.Attempt}] = true
			if x.ContextTo == 0 || x.ContextTo > m.w.state.Head() {
				m.Fatalf("a driver is to read the transcript up to %d of %d", x.ContextTo, m.w.state.Head())
			}
		case room.StopAttempt:
			stopped[attempt{x.Run, x.Attempt}] = true
		}
	}
	for a := range after {
		if !before[a] != started[a] {
			m.Fatalf("%T: attempt %v: at work before %v, started %v", msg, a, before[a], started[a])
		}
	}
	for a := range started {
		if !after[a] {
			m.Fatalf("%T starts attempt %v, which should not be at work", msg, a)
		}
	}
	if _, lost := msg.(room.Recover); !lost {
		for a := range before {
			if !after[a] != stopped[a] {
				m.Fatalf("%T: attempt %v: at work after %v, stopped %v", msg, a, after[a], stopped[a])
			}
		}
	}
	return d, err
}

// settled asserts what holds between any two messages.
func (m *model) settled() {
	s := m.w.state
	open := m.w.check.Open()
	for _, r := range s.View().Runs {
		if r.Status != event.RunQueued && open[r.Channel] != r.Run {
			m.Fatalf("run %s is %s on %s, the journal has %s open", r.Run, r.Status, r.Channel, open[r.Channel])
		}
		if r.Status != m.w.check.Status(r.Run) {
			m.Fatalf("run %s is %s, the journal says %s", r.Run, r.Status, m.w.check.Status(r.Run))
		}
		if r.Status != event.RunQueued {
			delete(open, r.Channel)
		}
	}
	if len(open) > 0 {
		m.Fatalf("the journal has runs open that the state has not: %v", open)
	}
	if s.Active() != (len(m.working()) > 0) {
		m.Fatalf("active is %v with %d drivers at work", s.Active(), len(m.working()))
	}
	wake, next, last := s.Wake(), s.NextTick(), m.w.journal[len(m.w.journal)-1].At
	if !next.IsZero() && (wake.IsZero() || wake.After(next) && wake.After(last)) {
		m.Fatalf("the room wakes at %v, after its next tick at %v", wake, next)
	}
	if s.Active() && (wake.IsZero() || wake.After(last)) {
		m.Fatalf("with drivers at work a restart would look at the room only at %v", wake)
	}
	if next.IsZero() && !s.Active() && !wake.IsZero() && !m.drained() {
		m.Fatalf("the room wakes at %v for nothing", wake)
	}
}

// drained reports whether a run waits for a recovery.
func (m *model) drained() bool {
	for _, r := range m.w.state.View().Runs {
		if r.Status == event.RunActive {
			return true
		}
	}
	return false
}

func (m *model) act(name string) {
	w := m.w
	switch name {
	case "input":
		m.input()
	case "answer":
		m.reply()
	case "retry":
		if len(m.accepted) == 0 {
			return
		}
		a := rapid.SampledFrom(m.accepted).Draw(m.T, "retried")
		d, err := m.step(a.submit)
		want := a.receipt
		want.Duplicate = true
		if err != nil || len(d.Entries) > 0 || len(d.After) > 0 || d.Reply != event.Reply(want) {
			m.Fatalf("a retry got %d entries, %d effects, %+v and %v; want %+v", len(d.Entries), len(d.After), d.Reply, err, want)
		}
	case "conflict":
		if len(m.accepted) == 0 {
			return
		}
		s := rapid.SampledFrom(m.accepted).Draw(m.T, "reused").submit
		s.Input.Text += "?"
		s.Digest = digest(s.Input)
		m.refused(s, event.InputConflict)
	case "emit":
		m.emit()
	case "stale":
		m.stale()
	case "ended":
		if a, ok := m.pick(); ok {
			if _, err := m.step(room.Ended{Run: a.run, Attempt: a.n, N: m.last[a] + 1, Failed: m.chance("failed", 30)}); err != nil {
				m.Fatalf("the return of a driver at work is refused: %v", err)
			}
		}
	case "cancel":
		m.cancel()
	case "focus":
		who := rapid.SampledFrom(people).Draw(m.T, "who")
		to := rapid.SampledFrom([]event.AgentID{"", "guide", "oracle", "brittle", "nobody"}).Draw(m.T, "focus")
		_, _ = m.step(event.SetFocus{Access: person(who), Agent: to})
	case "configure":
		_, err := m.step(event.Configure{Access: hostAccess(), Config: rapid.SampledFrom(configs).Draw(m.T, "config")})
		if err != nil {
			m.Fatalf("a good configuration is refused: %v", err)
		}
	case "tick":
		m.tick()
	case "early":
		now := w.now
		if last := w.journal[len(w.journal)-1].At; last.After(now) {
			now = last // room time does not fall with the clock
		}
		if next := w.state.NextTick(); next.After(now) {
			if d, err := m.step(room.Tick{}); err != nil || len(d.Entries) > 0 {
				m.Fatalf("a tick before %v at %v wrote %d entries: %v", next, now, len(d.Entries), err)
			}
		}
	case "clock":
		w.now = w.now.Add(time.Duration(rapid.Int64Range(-20_000, 60_000).Draw(m.T, "ms")) * time.Millisecond)
	case "crash":
		w.crash(m.snapshot)
		if m.chance("recover", 80) {
			m.recover()
		}
	case "recover":
		m.recover()
	case "drain":
		if _, err := m.step(room.Drain{}); err != nil || len(m.working()) > 0 {
			m.Fatalf("after a drain %d drivers are at work: %v", len(m.working()), err)
		}
		if m.chance("restart", 70) {
			w.crash(m.snapshot)
			m.recover()
		}
	case "get":
		m.get()
	case "snapshot":
		m.snapshot = w.state.Snapshot()
	case "view":
		w.checkView(rapid.SampledFrom(m.viewers()).Draw(m.T, "viewer"))
	}
}

func (m *model) refused(msg any, want event.Reason) {
	_, err := m.step(msg)
	if r, ok := event.AsRefusal(err); !ok || r.Reason != want {
		m.Fatalf("got %v, want the refusal %s", err, refusals[want])
	}
}

// recover asserts R1: afterwards no run is active whose attempt began before,
// unless its agent is missing.
func (m *model) recover() {
	before := m.working()
	if _, err := m.step(room.Recover{}); err != nil {
		m.Fatalf("a recovery is refused: %v", err)
	}
	for a := range m.working() {
		if before[a] {
			m.Fatalf("attempt %v goes on after a recovery", a)
		}
	}
}

func (m *model) tick() {
	next := m.w.state.NextTick()
	if next.IsZero() {
		return
	}
	m.w.now = next
	head := m.w.state.Head()
	d, err := m.step(room.Tick{})
	if err != nil {
		m.Fatalf("a tick is refused: %v", err)
	}
	ended := 0
	for _, e := range d.Entries {
		if x, ok := e.Body.(*event.RunEvent); ok && x.Event.RunKind() == event.KindDeadlineExceeded {
			ended++
		}
	}
	if after := m.w.state.NextTick(); ended == 0 || !after.IsZero() && !after.After(next) {
		m.Fatalf("a tick at %v, head %d, ended %d runs; the next is at %v", next, head, ended, after)
	}
	if d, _ := m.step(room.Tick{}); len(d.Entries) > 0 {
		m.Fatalf("a deadline fired twice")
	}
}

var disclosures = []event.Disclosure{
	{}, {}, {}, event.ToRoom(), event.ToParticipants("ann", "bob"), event.ToParticipants("cat"), event.ToNone(),
}

func (m *model) input() {
	who := rapid.SampledFrom(people).Draw(m.T, "who")
	a := person(who)
	s := event.Submit{Access: a, Channel: rapid.SampledFrom([]event.ChannelID{
		"public", "public", "team:a", "team:b", event.ChannelID("private:" + who), "private:ann",
	}).Draw(m.T, "channel")}
	m.inputs++
	in := event.FinalInput{
		ID: event.InputID(fmt.Sprintf("i%d", m.inputs)), Text: rapid.SampledFrom([]string{"hello", "and then?"}).Draw(m.T, "text"),
		Modality:   rapid.SampledFrom([]event.Modality{event.Speech, event.Text}).Draw(m.T, "modality"),
		Disclosure: rapid.SampledFrom(disclosures).Draw(m.T, "disclosure"),
		OnBusy: rapid.SampledFrom([]event.BusyPolicy{
			0, 0, 0, event.BusySupersede, event.BusyQueue, event.BusyQueue, event.BusyReject,
		}).Draw(m.T, "busy"),
		Agents: rapid.SampledFrom([][]event.AgentID{nil, nil, nil, {"guide"}, {"oracle", "guide"}, {"brittle"}, {"nobody"}}).Draw(m.T, "to"),
	}
	if m.chance("host", 20) {
		s.Access, s.As = hostAccess(), event.Person(who)
	}
	if m.chance("deadline", 30) {
		d := time.Duration(rapid.IntRange(0, 150_000).Draw(m.T, "deadline ms")) * time.Millisecond
		in.Deadline = &d
	}
	m.answer(&in)
	s.Input, s.Digest = in, digest(in)
	d, err := m.step(s)
	if err != nil {
		return
	}
	m.admitted(s, d)
}

// reply has the speaker who is asked answer, with the agent in mind and without
// naming the run: W2 makes it a continuation, unless nobody may see both.
func (m *model) reply() {
	var waiting []event.RunView
	for _, r := range m.w.state.View().Runs {
		if r.Waiting != nil {
			waiting = append(waiting, r)
		}
	}
	if len(waiting) == 0 {
		return
	}
	r := rapid.SampledFrom(waiting).Draw(m.T, "asked")
	m.inputs++
	in := event.FinalInput{
		ID: event.InputID(fmt.Sprintf("i%d", m.inputs)), Text: "this one", Modality: event.Text, Agents: []event.AgentID{r.Agent},
		Disclosure: rapid.SampledFrom(disclosures).Draw(m.T, "disclosure"),
	}
	who := event.ParticipantID(r.Speaker.ID)
	if m.chance("other", 20) {
		who = rapid.SampledFrom(people).Draw(m.T, "who")
	}
	s := event.Submit{Access: person(who), Channel: r.Channel, Input: in, Digest: digest(in)}
	d, err := m.step(s)
	if err != nil {
		return
	}
	m.admitted(s, d)
	state := d.Reply.(event.Receipt).State
	x := m.w.journal[d.Reply.(event.Receipt).Entry-1]
	a, _ := configOf(m.w.journal).Agent(r.Agent)
	common := r.Disclosure.Intersect(x.Disclosure).Intersect(a.Visible())
	if want := r.Speaker == event.Person(who) && !common.Empty(); want != (state == event.Continued) {
		m.Fatalf("an input of %s to %s, who asked %s, for whom %v is common, is %s", who, r.Agent, r.Speaker.ID, common, state)
	}
	if to := x.Body.(*event.InputAdmitted).RunDisclosure; state == event.Continued && !to.Equal(common) {
		m.Fatalf("a continuation may show %v, want %v", to, common)
	}
}

func configOf(journal []*event.Entry) event.RoomConfig {
	for _, e := range slices.Backward(journal) {
		if x, ok := e.Body.(*event.RoomConfigured); ok {
			return x.Config
		}
	}
	return event.RoomConfig{}
}

// answer makes of some inputs the answer to a run's question, by the right or a
// wrong request or token.
func (m *model) answer(in *event.FinalInput) {
	var waiting []event.RunView
	for _, r := range m.w.state.View().Runs {
		if r.Waiting != nil {
			waiting = append(waiting, r)
		}
	}
	if len(waiting) == 0 || !m.chance("strict", 30) {
		return
	}
	r := rapid.SampledFrom(waiting).Draw(m.T, "asked")
	switch rapid.IntRange(0, 3).Draw(m.T, "by") {
	case 0:
		in.Continuation = &event.ContinuationRef{Run: r.Run, Token: r.Waiting.Token}
	case 1:
		in.Continuation = &event.ContinuationRef{Run: r.Run, Request: r.Waiting.Request}
	case 2:
		in.Continuation = &event.ContinuationRef{Run: r.Run, Token: "t_wrong"}
	case 3:
		in.Continuation = &event.ContinuationRef{Run: "r_wrong", Token: r.Waiting.Token}
	}
}

// admitted asserts what a receipt promises: the entry is there and says the same.
func (m *model) admitted(s event.Submit, d room.Decision) {
	receipt, ok := d.Reply.(event.Receipt)
	if !ok || receipt.Duplicate {
		m.Fatalf("a new input is answered %+v", d.Reply)
	}
	who := s.As
	if who == (event.Endpoint{}) {
		who = event.Person(s.Access.Subject)
	}
	e := m.w.journal[receipt.Entry-1]
	x, ok := e.Body.(*event.InputAdmitted)
	if !ok || x.Input != s.Input.ID || x.Run != receipt.Run || x.State != receipt.State || !e.At.Equal(receipt.At) ||
		e.Channel != s.Channel || x.Speaker != who || x.Text != s.Input.Text || receipt.Incarnation != m.w.state.Incarnation() {
		m.Fatalf("the receipt %+v is not of entry %+v", receipt, x)
	}
	if c := s.Input.Continuation; c != nil && (x.State != event.Continued || x.Run != c.Run) {
		m.Fatalf("a strict answer to %s became %s of %s", c.Run, x.State, x.Run)
	}
	if !s.Access.On(s.Channel).Disclosure.Covers(e.Disclosure) ||
		s.Input.Disclosure.Stated() && !s.Input.Disclosure.Covers(e.Disclosure) {
		m.Fatalf("entry %d is disclosed wider than token and input allow", e.Seq)
	}
	m.accepted = append(m.accepted, accepted{s, receipt})
	if !slices.Contains(m.runs, receipt.Run) {
		m.runs = append(m.runs, receipt.Run)
	}
}

// cancel asserts C1: it ends a run that is open, by who may, and says how it stands.
func (m *model) cancel() {
	if len(m.runs) == 0 {
		return
	}
	id := rapid.SampledFrom(m.runs).Draw(m.T, "run")
	by := rapid.SampledFrom(m.viewers()).Draw(m.T, "by")
	before := m.w.check.Status(id)
	d, err := m.step(event.CancelRun{Access: by, Run: id})
	after := m.w.check.Status(id)
	if err != nil {
		if after != before {
			m.Fatalf("a refused cancel made the run %s", after)
		}
		return
	}
	r := d.Reply.(event.CancelResult)
	switch {
	case r.Canceled && (before.Terminal() || after != event.RunCanceledStatus || r.Status != after):
		m.Fatalf("canceled a run that was %s and is %s: %+v", before, after, r)
	case !r.Canceled && (after != before || r.Status != 0 && r.Status != after):
		m.Fatalf("did not cancel a run that was %s and is %s: %+v", before, after, r)
	case by.Host() && !r.Canceled && !before.Terminal():
		m.Fatalf("a host could not cancel a run that was %s", before)
	}
}

// get asserts R6: a run is shown to who may see it and to nobody else.
func (m *model) get() {
	if len(m.runs) == 0 {
		return
	}
	id := rapid.SampledFrom(m.runs).Draw(m.T, "run")
	by := rapid.SampledFrom(m.viewers()).Draw(m.T, "by")
	d, err := m.step(event.GetRun{Access: by, Run: id})
	var to event.Disclosure
	var ch event.ChannelID
	for _, e := range m.w.journal {
		if x, ok := e.Body.(*event.InputAdmitted); ok && x.Run == id {
			to, ch = x.RunDisclosure, e.Channel
		}
	}
	if !seen(by, ch, to) {
		if r, ok := event.AsRefusal(err); !ok || r.Reason != event.NotFound {
			m.Fatalf("%s got a run that is not for him: %+v, %v", by.Subject, d.Reply, err)
		}
		return
	}
	if err != nil {
		m.Fatalf("%s did not get a run that is for him: %v", by.Subject, err)
	}
	r := d.Reply.(event.RunResult)
	if status := m.w.check.Status(id); status.Terminal() != (r.Open == nil) || r.Open == nil && r.Record.Status != status {
		m.Fatalf("the run is %s, the answer is %+v", status, r)
	}
	if r.Open != nil {
		for _, v := range viewFor(m.w.state.View(), by).Runs {
			if v.Run == id {
				m.w.sameRun(by, *r.Open, v)
			}
		}
	}
}

// TestMain raises the number of random conversations; -rapid.checks on the
// command line goes before it.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "1000"); err != nil {
		panic(err)
	}
	m.Run()
}
