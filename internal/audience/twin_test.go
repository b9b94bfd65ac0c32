package audience

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"parley/driver"
	"parley/event"
	"parley/gateway"
)

// slot is the time between two visible acts. A visible run that does not wait
// for its end is shorter, so that a slot is quiet when the next begins.
const slot = 60 * time.Millisecond

// plan is a script for two rooms. The hidden acts and what is said beside
// visible runs belong to the second only.
type plan struct {
	Window  int
	Visible []act
	Hidden  []aside
	Beside  []int // by visible act: 0 nothing, 1 checkpoints, 2 outputs for others, 3 both
}

type act struct{ Kind, What int }

// aside is a hidden act in a slot, at a millisecond and a half of it.
type aside struct{ Slot, At, Kind, What int }

const (
	visibleKinds = 16
	hiddenKinds  = 8
)

func drawPlan(t *rapid.T) plan {
	p := plan{
		Window: rapid.SampledFrom([]int{512, 24}).Draw(t, "window"),
		Visible: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) act {
			return act{rapid.IntRange(0, visibleKinds-1).Draw(t, "kind"), rapid.IntRange(0, 63).Draw(t, "what")}
		}), 1, 30).Draw(t, "visible"),
	}
	p.Hidden = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) aside {
		return aside{
			rapid.IntRange(0, len(p.Visible)-1).Draw(t, "slot"), rapid.IntRange(1, 55).Draw(t, "at"),
			rapid.IntRange(0, hiddenKinds-1).Draw(t, "kind"), rapid.IntRange(0, 63).Draw(t, "what"),
		}
	}), 1, 40).Draw(t, "hidden")
	slices.SortStableFunc(p.Hidden, func(a, b aside) int { return (a.Slot-b.Slot)*100 + a.At - b.At })
	p.Beside = rapid.SliceOfN(rapid.IntRange(0, 3), len(p.Visible), len(p.Visible)).Draw(t, "beside")
	return p
}

// Two journals that differ only in what a viewer may not see give it the same frames.
func TestTwinJournalsLookTheSame(t *testing.T) {
	seen := map[string]int{} // what was compared
	rapid.Check(t, func(r *rapid.T) {
		p := drawPlan(r)
		frames, err := compare(t, p)
		if err != nil {
			r.Fatalf("%v\nplan: %+v", err, p)
		}
		for _, f := range frames {
			seen[regexp.MustCompile(`type:"(\w+)"( ref:\S+ code:"\w+"| resumed:\S+| ref:\S+ canceled:\S+|)|closed.*`).FindString(noRef.ReplaceAllString(f, "ref:x"))]++
		}
	})
	for _, k := range slices.Sorted(maps.Keys(seen)) {
		t.Logf("%6d %s", seen[k], k)
	}
}

var noRef = regexp.MustCompile(`ref:"[^"]*"`)

// Whatever a viewer tries on a hidden run is answered as for no run at all,
// whether it is active, waits, has ended, or is spoken on the viewer's own channel.
func TestTwinJournalsAnswerProbesAlike(t *testing.T) {
	for _, hidden := range []int{
		slices.Index(tales, "h"), slices.Index(tales, "q"), slices.Index(tales, "f1"), slices.Index(tales, "p x"), -1,
	} {
		p := plan{Window: 512, Visible: []act{{Kind: 4, What: slices.Index(tales, "f1")}}, Hidden: []aside{{At: 30, What: hidden}}, Beside: []int{0}}
		if hidden < 0 {
			p.Hidden[0] = aside{At: 30, Kind: 5}
		}
		for what := range probes {
			p.Visible = append(p.Visible, act{Kind: 12, What: what})
			p.Beside = append(p.Beside, 0)
		}
		if _, err := compare(t, p); err != nil {
			t.Errorf("hidden tale %d: %v", hidden, err)
		}
	}
}

// compare plays a plan without and with what is hidden, and returns the frames.
func compare(t *testing.T, p plan) ([]string, error) {
	plain, err := playTwin(t, p, false)
	if err != nil {
		return nil, err
	}
	mixed, err := playTwin(t, p, true)
	if err != nil {
		return nil, err
	}
	for i := range max(len(plain), len(mixed)) {
		var a, b string
		if i < len(plain) {
			a = plain[i]
		}
		if i < len(mixed) {
			b = mixed[i]
		}
		if a != b {
			return nil, fmt.Errorf("frame %d\nwithout: %s\nwith:    %s", i, a, b)
		}
	}
	return plain, nil
}

// twin is one of the two rooms. Owned by the goroutine of the test; drivers read
// plan and hidden, which do not change.
type twin struct {
	stack
	plan    plan
	hidden  bool
	from    time.Time
	tabs    []*tab        // of ann, the present one last
	count   int           // of inputs
	secrets []event.RunID // runs that ann may not see
	others  []*tab        // of other people
	failed  lines
}

func playTwin(t *testing.T, p plan, hidden bool) (shape []string, err error) {
	synctest.Test(t, func(*testing.T) {
		w := &twin{plan: p, hidden: hidden, from: time.Now()}
		w.limits = gateway.Limits{Window: p.Window, InputsPerSec: -1, InputBurst: -1, FramesPerSec: -1}
		player := play{pace: w.pace, beside: w.beside}
		w.run = player.run
		if err = w.start(); err != nil {
			return
		}
		if _, err = w.ask(event.Configure{Access: host(), Config: config("day")}); err != nil {
			w.failed.add("configure: %v", err)
		}
		w.connect("tail", "")
		for i, a := range p.Visible {
			begin := time.Now()
			w.visible(i, a)
			for _, h := range p.Hidden {
				if h.Slot == i && hidden {
					time.Sleep(time.Until(begin.Add(time.Duration(h.At)*time.Millisecond + 500*time.Microsecond)))
					w.aside(h)
				}
			}
			time.Sleep(time.Until(begin.Add(slot)))
			synctest.Wait()
		}
		// A last look at all of it, by one who comes anew.
		w.connect("start", "")
		time.Sleep(slot)
		w.connect("tail", "")
		time.Sleep(slot)
		synctest.Wait()
		names := newShapes()
		for i, t := range w.tabs {
			t.leave(true)
			frames, code := t.got()
			for _, f := range frames {
				shape = append(shape, fmt.Sprintf("tab %d: %s", i, names.of(f)))
			}
			shape = append(shape, fmt.Sprintf("tab %d: closed with %d", i, code))
		}
		for _, t := range w.others {
			t.leave(true)
		}
		if e := w.stop(); e != nil {
			w.failed.add("stop: %v", e)
		}
		err = w.failed.err()
	})
	return shape, err
}

// pace keeps the events of visible runs at instants of their own.
func (w *twin) pace(mark string) time.Duration {
	if mark[0] == 'v' {
		return time.Millisecond
	}
	return 0
}

// beside says what others hear beside a visible run.
func (w *twin) beside(mark string, step int, turn *driver.Turn, out driver.Emitter) error {
	var i int
	if n, _ := fmt.Sscanf(mark, "v%d", &i); n != 1 || !w.hidden {
		return nil
	}
	how := w.plan.Beside[i]
	if how&1 != 0 {
		if err := out.Emit(event.Checkpoint{Value: []byte(fmt.Sprintf(`{"secret":%d}`, step))}); err != nil {
			return err
		}
	}
	if how&2 != 0 && turn.Disclosure.Includes("bob") && turn.Channel == "public" {
		return out.Emit(event.AssistantOutput{
			Output: event.OutputID(fmt.Sprint("beside-", step)), Delta: strings.Repeat("secret ", 1+step*step), Final: true, Audience: event.ToParticipants("bob"),
		})
	}
	return nil
}

func person(sub event.ParticipantID) event.Access {
	can := []event.Scope{event.ScopeRead, event.ScopeInput, event.ScopeCancel}
	a := event.Access{Subject: sub, Rooms: []string{"**"}, Scopes: can, Channels: []event.ChannelRule{
		{Match: "public", Can: can, Disclosure: event.ToRoom()},
		{Match: "private:{sub}", Can: can, Disclosure: event.ToRoom()},
	}}
	if sub != "ann" {
		a.Channels = append(a.Channels, event.ChannelRule{Match: "table:*", Can: can, Disclosure: event.ToRoom()})
	}
	return a
}

func (w *twin) ann() *tab { return w.tabs[len(w.tabs)-1] }

// connect opens a new connection of ann; the one before goes on for a moment.
func (w *twin) connect(from, cursor string, more ...any) {
	t, err := w.dial(w.from)
	if err != nil {
		w.failed.add("%v", err)
		return
	}
	token, err := mint(person("ann"))
	if err != nil {
		w.failed.add("%v", err)
	}
	f := map[string]any{
		"type": "hello", "token": token, "from": from, "cursor": cursor,
		"channels": []string{"public", "private:bob", "private:ann", "table:1"},
	}
	for i := 0; i < len(more); i += 2 {
		f[more[i].(string)] = more[i+1]
	}
	t.send(f)
	synctest.Wait()
	if len(w.tabs) > 0 {
		w.ann().leave(true)
	}
	w.tabs = append(w.tabs, t)
}

// last returns the last value of a member in what came to ann.
func (w *twin) last(member string) string {
	re := regexp.MustCompile(`"` + member + `":"([^"]*)"`)
	for _, t := range slices.Backward(w.tabs) {
		frames, _ := t.got()
		for _, f := range slices.Backward(frames) {
			if m := re.FindAllSubmatch(f.raw, -1); len(m) > 0 {
				return string(m[len(m)-1][1])
			}
		}
	}
	return ""
}

// own returns the run of ann's latest input.
func (w *twin) own() string {
	for _, t := range slices.Backward(w.tabs) {
		frames, _ := t.got()
		for _, f := range slices.Backward(frames) {
			if f.typ == "accepted" {
				return regexp.MustCompile(`"run":"([^"]*)"`).FindStringSubmatch(string(f.raw))[1]
			}
		}
	}
	return w.unseen(0)
}

// unseen returns the id of a run that ann may not see, or of none: 0 is the latest.
func (w *twin) unseen(i int) string {
	if n := len(w.secrets); n > 0 {
		return string(w.secrets[n-1-i%n])
	}
	return "r_0123456789abcdef"
}

// tales are what visible inputs make the guide do.
var tales = []string{
	"p d1 d1 f1", "d1 f1 d2 f2", "k p d1 f1", "p x", "d1 h", "q", "l1 l1 f1", "p d1 w5 d3 f3 f1", "D", "f1", "h",
}

// say sends an input of ann.
func (w *twin) say(i int, channel, text string, more ...any) {
	w.count++
	f := map[string]any{
		"type": "input", "id": fmt.Sprintf("input-%d", w.count), "channel": channel, "modality": "text",
		"text": fmt.Sprintf("v%d %s", i, text),
	}
	for i := 0; i < len(more); i += 2 {
		f[more[i].(string)] = more[i+1]
	}
	w.ann().send(f)
}

// hear lets somebody else speak. It returns the run.
func (w *twin) hear(who event.ParticipantID, ch event.ChannelID, text string, to event.Disclosure, busy event.BusyPolicy, agents ...event.AgentID) event.RunID {
	w.count++
	id := event.InputID(fmt.Sprintf("other-%d", w.count))
	reply, err := w.ask(event.Submit{
		Access: person(who), Channel: ch, Digest: sha256.Sum256([]byte(id)),
		Input: event.FinalInput{ID: id, Text: text, Modality: event.Text, Disclosure: to, OnBusy: busy, Agents: agents},
	})
	if err != nil {
		return ""
	}
	return reply.(event.Receipt).Run
}

// visible does something that ann sees, or tries.
func (w *twin) visible(i int, a act) {
	ref := fmt.Sprintf("ref-%d", i)
	tale := tales[a.What%len(tales)]
	count := w.count // inputs that nobody but others sees must not change the ids of the visible ones
	w.count = 1000 * (i + 1)
	defer func() { w.count = count }()
	switch a.Kind {
	case 0, 1, 2:
		w.say(i, "public", tale)
	case 3:
		w.say(i, "public", tale, "disclosure", map[string]any{"kind": "participants", "participantIds": []string{"ann"}}, "onBusy", "queue")
	case 4:
		w.say(i, "private:ann", tale)
	case 5:
		w.hear("bob", "public", fmt.Sprintf("v%d %s", i, tale), event.ToRoom(), 0, "guide") // whatever his focus is
	case 6: // ann sees the input and not what comes of it
		w.hear("bob", "public", fmt.Sprintf("v%d %s", i, []string{"d1 f1", "p", "x"}[a.What%3]), event.ToRoom(), event.BusyQueue, "shadow")
	case 7:
		w.ann().send(map[string]any{"type": "cancel", "ref": ref, "run": w.own()})
	case 8:
		if token := w.last("token"); token != "" && a.What%4 > 0 {
			w.say(i, "public", tale, "continuation", map[string]any{"run": w.own(), "token": token})
		} else {
			w.say(i, "public", "f1")
		}
	case 9:
		if _, err := w.ask(event.Configure{Access: host(), Config: config([]string{"day", "night"}[a.What%2])}); err != nil {
			w.failed.add("configure: %v", err)
		}
	case 10:
		w.ann().send(map[string]any{"type": "focus", "ref": ref, "agent": []any{"guide", "owl-for-ann", nil}[a.What%3]})
	case 11:
		w.again(a.What)
	case 12:
		w.probe(i, ref, a.What)
	case 13:
		time.Sleep([]time.Duration{time.Second, 3 * time.Second, 26 * time.Second, 70 * time.Second}[a.What%4])
	case 14:
		if a.What%2 == 0 {
			w.ann().hold()
		} else {
			w.ann().release()
		}
	case 15:
		access := person("ann")
		if a.What%2 == 0 {
			access.Channels = access.Channels[:1]
		}
		token, err := mint(access)
		if err != nil {
			w.failed.add("%v", err)
		}
		w.ann().send(map[string]any{"type": "auth", "ref": ref, "token": token})
	}
}

// again lets ann come back in one of many ways.
func (w *twin) again(what int) {
	frames, _ := w.ann().got()
	var cursors []string
	for _, f := range frames {
		if c := f.cursor(); c != "" {
			cursors = append(cursors, c)
		}
	}
	cursor := ""
	if len(cursors) > 0 && what%4 > 0 {
		cursor = cursors[len(cursors)-1]
		if what%4 == 2 {
			cursor = cursors[(what/4)%len(cursors)]
		}
	}
	if what%16 == 3 {
		cursor = "x" + cursor
	}
	var more []any
	if what&32 != 0 {
		more = []any{"maxFrame", 1}
	}
	w.connect([]string{"tail", "start"}[what/4%2], cursor, more...)
}

// probes is how many things ann tries that she may not.
const probes = 13

// probe lets ann try what she may not.
func (w *twin) probe(i int, ref string, what int) {
	ann := w.ann()
	switch what % probes {
	case 0:
		ann.send(map[string]any{"type": "cancel", "ref": ref, "run": w.unseen(what / probes)})
	case 1:
		w.say(i, "private:ann", "f1", "continuation", map[string]any{"run": w.unseen(what / probes), "token": "t_0123456789abcdef0123456789"})
	case 2:
		w.say(i, "private:bob", "f1")
	case 3:
		w.say(i, "table:1", "f1")
	case 4:
		w.say(i, "public", "f1", "continuation", map[string]any{"run": w.unseen(what / probes), "requestId": "request-h-0"})
	case 5:
		w.say(i, "public", "f1", "agents", []string{"shadow"})
	case 6:
		ann.send(map[string]any{"type": "focus", "ref": ref, "agent": "shadow"})
	case 7:
		ann.send(map[string]any{"type": "subscribe", "ref": ref, "channels": []string{"private:bob", "private:nobody", "table:1"}})
	case 8: // the same id as an input of somebody else
		w.say(i, "private:ann", "f1", "id", "other-1")
	case 9:
		w.say(i, "public", "f1", "disclosure", map[string]any{"kind": "participants", "participantIds": []string{"bob"}})
	case 10:
		w.connect("tail", "", "channels", []string{"private:bob", "table:1"})
	case 11:
		w.say(i, "public", "f1", "onBusy", "reject")
	case 12:
		ann.send(map[string]any{"type": "cancel", "ref": ref, "run": w.unseen(what / probes), "reason": "mine"})
	}
}

// aside does something of which ann may learn nothing.
func (w *twin) aside(h aside) {
	who := []event.ParticipantID{"bob", "cat"}[h.What%2]
	ch := []event.ChannelID{"private:" + event.ChannelID(who), "table:1", "table:2"}[h.What/2%3]
	tale := append(tales, "n200", "l1 l1 l1 f1", "w3 d1 W9 f1", "d4 f4")[h.What%(len(tales)+4)]
	to := event.ToRoom()
	if h.What&8 != 0 {
		to = event.ToParticipants("bob", "cat")
	}
	secret := func(run event.RunID) {
		if run != "" {
			w.secrets = append(w.secrets, run)
		}
	}
	switch h.Kind {
	case 0, 1:
		secret(w.hear(who, ch, "h-0 "+tale, to, event.BusySupersede))
	case 2:
		for range 1 + h.What%12 {
			secret(w.hear(who, ch, "h-0 "+tale, to, event.BusyQueue))
		}
	case 3:
		if len(w.secrets) > 0 {
			_, _ = w.ask(event.CancelRun{Access: host(), Run: w.secrets[h.What%len(w.secrets)]})
		}
	case 4:
		_, _ = w.ask(event.SetFocus{Access: person(who), Agent: []event.AgentID{"guide", "shadow", ""}[h.What%3]})
	case 5: // on ann's own channel, for others, while nobody uses it
		if w.idle("public") {
			secret(w.hear(who, "public", "h-0 "+[]string{"f1", "p k d1 f1", "n40", "x", "D"}[h.What%5], event.ToParticipants("bob", "cat"), 0))
			synctest.Wait()
		}
	case 6:
		w.other(who, h.What)
	case 7:
		if len(w.others) > 0 {
			w.others[len(w.others)-1].leave(h.What%2 == 0)
			w.others = w.others[:len(w.others)-1]
		}
	}
}

// idle reports whether nothing is open on a channel.
func (w *twin) idle(ch event.ChannelID) bool {
	v, err := w.ask(event.ReadView{})
	if err != nil {
		w.failed.add("view: %v", err)
		return false
	}
	return !slices.ContainsFunc(v.(*event.View).Runs, func(r event.RunView) bool { return r.Channel == ch })
}

// other opens a connection of somebody else.
func (w *twin) other(who event.ParticipantID, what int) {
	if len(w.others) >= 6 {
		return
	}
	t, err := w.dial(w.from)
	if err != nil {
		w.failed.add("%v", err)
		return
	}
	token, err := mint(person(who))
	if err != nil {
		w.failed.add("%v", err)
	}
	t.send(map[string]any{
		"type": "hello", "token": token, "from": []string{"tail", "start"}[what/2%2],
		"channels": []string{"public", "private:" + string(who), "table:1"},
	})
	w.others = append(w.others, t)
}
