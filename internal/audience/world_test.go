package audience

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"parley/event"
	"parley/gateway"
)

// op is one step of a world: what, by whom, and details whose meaning is the step's.
type op struct{ Kind, Who, A, B, C, Gap int }

// claim is a token, in numbers.
type claim struct {
	Rules  []rule
	Scopes int
}

type rule struct{ Match, Can, To int }

var (
	people   = []event.ParticipantID{"ann", "bob", "cat", "dan"}
	channels = []event.ChannelID{"public", "private:ann", "private:bob", "private:cat", "table:1", "team:red:1"}
	matches  = []string{"public", "private:{sub}", "private:*", "table:*", "team:**", "**", "table:1", "*", "private:ann"}
	scopes   = []event.Scope{event.ScopeRead, event.ScopeInput, event.ScopeCancel, event.ScopeModerate}
	audience = []event.Disclosure{
		{},
		event.ToRoom(), event.ToRoom(), event.ToParticipants("ann"), event.ToParticipants("bob", "cat"),
		event.ToParticipants("ann", "dan"), event.ToParticipants("cat"), event.ToNone(),
	}
	scripts = append(slices.Clone(tales), "d1 d4 f4 d5 f5 f1", "d1 f1 k d6 f6", "w3 d1 w3 d2 w3 f2 f1 w9 p", "D", "d1 W3 f1", "q", "W9", "n70", "k l1 l1 l1 l1 l1 f1", "w3 p")
)

func (c claim) access(sub event.ParticipantID) event.Access {
	a := event.Access{Subject: sub, Rooms: []string{"**"}}
	for i, s := range scopes {
		if c.Scopes&(1<<i) != 0 {
			a.Scopes = append(a.Scopes, s)
		}
	}
	for _, r := range c.Rules {
		x := event.ChannelRule{Match: matches[r.Match], Disclosure: audience[r.To]}
		for i, s := range scopes {
			if r.Can&(1<<i) != 0 {
				x.Can = append(x.Can, s)
			}
		}
		a.Channels = append(a.Channels, x)
	}
	return a
}

const opKinds = 24

type story struct {
	Claims []claim // the first belong to the people in turn, the rest are for refreshes
	Ops    []op
	Window int
}

func drawStory(t *rapid.T) story {
	rules := rapid.Custom(func(t *rapid.T) rule {
		return rule{
			rapid.IntRange(0, len(matches)-1).Draw(t, "match"), rapid.SampledFrom([]int{15, 3, 7, 7, 1, 2, 0}).Draw(t, "can"),
			rapid.SampledFrom([]int{1, 1, 1, 3, 4, 5, 0}).Draw(t, "to"),
		}
	})
	usual := []rule{{0, 7, 1}, {1, 7, 1}, {3, 3, 1}}
	return story{
		Claims: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) claim {
			return claim{
				append(rapid.SliceOfN(rules, 0, 4).Draw(t, "rules"), usual[:rapid.IntRange(0, 3).Draw(t, "usual")]...),
				rapid.SampledFrom([]int{15, 7, 7, 3, 1, 2}).Draw(t, "scopes"),
			}
		}), len(people), 8).Draw(t, "claims"),
		Ops: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) op {
			n := func(most int, what string) int { return rapid.IntRange(0, most).Draw(t, what) }
			return op{n(opKinds-1, "kind"), n(len(people)-1, "who"), n(255, "a"), n(255, "b"), n(255, "c"), n(7, "gap")}
		}), 20, 150).Draw(t, "ops"),
		Window: rapid.SampledFrom([]int{512, 64, 10}).Draw(t, "window"),
	}
}

// What arrives is what the journal holds and the viewer may see, in order, once.
func TestWorldArrivesAsEachMaySeeIt(t *testing.T) {
	var sum tally
	rapid.Check(t, func(r *rapid.T) {
		s := drawStory(r)
		if err := live(t, s, &sum); err != nil {
			r.Fatalf("%v\nstory: %+v", err, s)
		}
	})
	t.Logf("%+v", sum)
}

// world is one room with its people. Owned by the goroutine of the test.
type world struct {
	stack
	story    story
	from     time.Time
	now      map[event.ParticipantID]event.Access
	sessions []*session // in the order of their begin
	runs     []event.RunID
	sent     map[event.ParticipantID][]string // words that a person has sent
	count    int
	failed   lines
}

// session is one connection with what its client knows. Owned by the goroutine of the test.
type session struct {
	*tab
	sub     event.ParticipantID
	begin   lens
	start   bool     // asked to begin at the start
	cursor  string   // that it asked to resume from
	origin  *session // whence the cursor came; nil: it was made up
	at      int      // frames of origin up to the cursor's
	lo, hi  event.Seq
	changes []change
	over    bool
}

// change is a request that changed what a session may see.
type change struct {
	ref   string
	apply func(lens) lens
}

func live(t *testing.T, s story, sum *tally) (err error) {
	synctest.Test(t, func(*testing.T) {
		w := &world{story: s, from: time.Now(), now: map[event.ParticipantID]event.Access{}, sent: map[event.ParticipantID][]string{}}
		w.limits = gateway.Limits{Window: s.Window, InputsPerSec: -1, InputBurst: -1, FramesPerSec: -1}
		player := play{pace: func(mark string) time.Duration { return time.Duration(len(mark)%2) * time.Millisecond }}
		w.run = player.run
		for i, p := range people {
			w.now[p] = s.Claims[i].access(p)
		}
		if err = w.start(); err != nil {
			return
		}
		if _, err := w.ask(event.Configure{Access: host(), Config: config("day")}); err != nil {
			w.failed.add("configure: %v", err)
		}
		for i, o := range s.Ops {
			w.step(i, o)
			switch o.Gap {
			case 0, 1:
			case 2, 3:
				synctest.Wait()
			default:
				time.Sleep(time.Duration(o.Gap-3) * time.Millisecond)
			}
		}
		w.finish(sum)
		err = w.failed.err()
	})
	return err
}

// finish lets everybody read to the end, and compares.
func (w *world) finish(sum *tally) {
	for _, s := range w.sessions {
		s.resume()
		s.release()
	}
	for range 40 { // a window at a time
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
	}
	// Somebody with the claims of each who reads on comes anew.
	var fresh []*session
	for _, s := range w.open() {
		fresh = append(fresh, w.join(s.sub, "", nil, 0, s.askedFor(), nil, false, 0, ""))
	}
	time.Sleep(time.Millisecond)
	synctest.Wait()
	es, err := w.journal()
	if err != nil {
		w.failed.add("journal: %v", err)
	}
	a := newAudit(w, es)
	for _, s := range w.sessions {
		a.session(s, !s.over && s.code() == 0)
	}
	a.pictures(fresh)
	a.words()
	sum.add(a)
	for _, s := range w.sessions {
		if !s.over {
			s.leave(true)
		}
	}
	if err := w.stop(); err != nil {
		w.failed.add("stop: %v", err)
	}
}

func (s *session) code() int {
	_, code := s.got()
	return code
}

func (s *session) askedFor() []event.ChannelID {
	var out []event.ChannelID
	for _, ch := range channels {
		if _, ok := s.begin.asked[ch]; ok {
			out = append(out, ch)
		}
	}
	return out
}

// open returns the sessions that are at work.
func (w *world) open() []*session {
	var out []*session
	for _, s := range w.sessions {
		if !s.over && s.code() == 0 {
			out = append(out, s)
		}
	}
	return out
}

func (w *world) of(sub event.ParticipantID, n int) *session {
	var own []*session
	for _, s := range w.open() {
		if s.sub == sub {
			own = append(own, s)
		}
	}
	if len(own) == 0 {
		return nil
	}
	return own[n%len(own)]
}

// head is the newest position, when nothing is at work at this instant.
func (w *world) head() event.Seq {
	h, err := w.store.Head(hall)
	if err != nil {
		w.failed.add("head: %v", err)
	}
	return h
}

// join opens a connection.
func (w *world) join(sub event.ParticipantID, cursor string, origin *session, at int, chs []event.ChannelID, kinds []string, start bool, maxFrame int, id string) *session {
	t, err := w.dial(w.from)
	if err != nil {
		w.failed.add("%v", err)
		return nil
	}
	s := &session{tab: t, sub: sub, cursor: cursor, origin: origin, at: at, start: start}
	s.begin = lens{sub: sub, access: w.now[sub], asked: map[event.ChannelID]event.Seq{}, kinds: kinds}
	for _, ch := range chs {
		s.begin.asked[ch] = 0
	}
	token, err := mint(w.now[sub])
	if err != nil {
		w.failed.add("mint: %v", err)
	}
	f := map[string]any{"type": "hello", "token": token, "channels": chs, "from": "tail", "maxFrame": maxFrame}
	for k, v := range map[string]string{"cursor": cursor, "session": id} {
		if v != "" {
			f[k] = v
		}
	}
	if start {
		f["from"] = "start"
	}
	if kinds != nil {
		f["kinds"] = kinds
	}
	s.lo = w.head()
	t.send(f)
	synctest.Wait()
	s.hi = w.head()
	w.sessions = append(w.sessions, s)
	return s
}

func subset[T any](all []T, bits int) []T {
	out := []T{}
	for i, v := range all {
		if bits&(1<<i) == 0 {
			out = append(out, v)
		}
	}
	return out
}

// come opens a connection, anew or from a cursor of an earlier one.
func (w *world) come(sub event.ParticipantID, o op) {
	chs := subset(channels, o.B&o.C&63)
	if len(chs) == 0 {
		chs = channels
	}
	var kinds []string
	if o.C >= 240 {
		kinds = subset([]string{"input", "run.event", "room"}, o.B%7)
	}
	id := []string{"", "one", "two"}[o.C%3]
	var origin *session
	cursor, at := "", 0
	var mine []*session
	for _, s := range w.sessions {
		if s.sub == sub {
			mine = append(mine, s)
		}
	}
	if len(mine) > 0 && o.A%8 > 0 {
		origin = mine[len(mine)-1]
		if o.A%8 > 6 {
			origin = mine[(o.A/8)%len(mine)]
		}
		frames, _ := origin.got()
		var with []int
		for i, f := range frames {
			if f.cursor() != "" {
				with = append(with, i)
			}
		}
		if len(with) > 0 {
			i := with[len(with)-1]
			if o.A%8 > 4 {
				i = with[o.B%len(with)]
			}
			cursor, at = frames[i].cursor(), i+1
			if o.A%16 < 12 { // with the same channels
				chs = origin.askedFor()
				for _, c := range origin.changes {
					if c.apply != nil {
						chs = c.apply(lens{sub: sub, access: w.now[sub], asked: origin.begin.asked}).channels(chs)
					}
				}
			}
		}
		if cursor == "" {
			origin = nil
		}
	}
	w.join(sub, cursor, origin, at, chs, kinds, o.A%3 == 0, []int{0, 1, 64 << 10}[o.C/64%3], id)
}

// channels adds to a list what the lens has beside it, in the order of all.
func (l lens) channels(list []event.ChannelID) []event.ChannelID {
	var out []event.ChannelID
	for _, ch := range channels {
		if _, ok := l.asked[ch]; ok || slices.Contains(list, ch) {
			out = append(out, ch)
		}
	}
	return out
}

func (w *world) mark(sub event.ParticipantID) (mark, id string) {
	w.count++
	mark, id = fmt.Sprintf("m%dz", w.count), fmt.Sprintf("input-%dz", w.count)
	w.sent[sub] = append(w.sent[sub], id)
	return mark, id
}

// step takes one step.
func (w *world) step(i int, o op) {
	sub, ref := people[o.Who], fmt.Sprintf("ref-%d", i)
	s := w.of(sub, o.C)
	switch o.Kind {
	case 0, 1, 2:
		w.come(sub, o)
		return
	case 3, 4: // goes, and comes back from where it was
		if s != nil {
			s.leave(o.B%2 == 0)
			s.over = true
			o.A = 1
			w.come(sub, o)
		}
		return
	case 5, 6, 7:
		w.hosted(sub, o)
		return
	case 8:
		if _, err := w.ask(event.Configure{Access: host(), Config: config(fmt.Sprintf("phase-%dz", i%3))}); err != nil {
			w.failed.add("configure: %v", err)
		}
		return
	case 9:
		time.Sleep([]time.Duration{time.Second, 3 * time.Second, 11 * time.Second, 26 * time.Second, 70 * time.Second}[o.A%5])
		return
	case 10:
		if o.A%4 == 0 {
			w.restart()
		}
		return
	case 11:
		time.Sleep(time.Duration(o.A%20) * time.Millisecond)
		return
	}
	if s == nil {
		return
	}
	switch o.Kind {
	case 12, 13, 14, 15:
		mark, id := w.mark(sub)
		f := map[string]any{
			"type": "input", "id": id, "channel": channels[o.A%len(channels)], "modality": "text", "text": mark + " " + scripts[o.B%len(scripts)],
		}
		if d := audience[o.C%len(audience)]; d.Stated() {
			f["disclosure"] = d
		}
		if b := []string{"", "", "queue", "supersede", "reject"}[o.C/8%5]; b != "" {
			f["onBusy"] = b
		}
		if o.C%5 == 0 {
			f["agents"] = []string{[]string{"shadow", "owl-for-ann", "nobody"}[o.B%3], "guide"}[:1+o.A%2]
		}
		s.send(f)
	case 16:
		if len(w.runs) > 0 {
			s.send(map[string]any{"type": "cancel", "ref": ref, "run": w.runs[o.A%len(w.runs)]})
		}
	case 17:
		s.send(map[string]any{"type": "focus", "ref": ref, "agent": []any{"guide", "shadow", "owl-for-ann", nil}[o.A%4]})
	case 18:
		w.behind(s, o)
		chs := subset(channels, o.B|o.C)
		now := w.head()
		s.changes = append(s.changes, change{ref, func(l lens) lens { return l.subscribed(chs, now) }})
		s.send(map[string]any{"type": "subscribe", "ref": ref, "channels": chs})
		synctest.Wait()
	case 19:
		w.behind(s, o)
		a := w.story.Claims[o.A%len(w.story.Claims)].access(sub)
		w.now[sub] = a
		token, err := mint(a)
		if err != nil {
			w.failed.add("mint: %v", err)
		}
		now := w.head()
		s.changes = append(s.changes, change{ref, func(l lens) lens { return l.refreshed(a, now) }})
		s.send(map[string]any{"type": "auth", "ref": ref, "token": token})
		synctest.Wait()
	case 20:
		switch o.A % 4 {
		case 0:
			s.pause()
		case 1: // reads nothing while much is said
			s.pause()
			for range o.B % 8 {
				w.hosted(sub, op{A: o.C, B: len(scripts) - 3, C: 1})
				time.Sleep(time.Second)
			}
			time.Sleep(time.Duration(o.C%32) * time.Second)
		default:
			s.resume()
		}
	case 21:
		if o.A%2 == 0 {
			s.hold()
		} else {
			s.release()
		}
	case 22:
		s.leave(o.A%2 == 0)
		s.over = true
	case 23: // answers whatever waits
		w.answer(s, o)
	}
}

// behind waits until nothing is at work, and before that, now and then, leaves a
// session behind what is said on all channels.
func (w *world) behind(s *session, o op) {
	if o.A%3 == 0 {
		s.hold()
		w.hosted(s.sub, op{B: len(scripts) - 3, C: 1}) // more than a window of 10 or 64
		time.Sleep(20 * time.Millisecond)
		for i := range channels {
			w.hosted(s.sub, op{A: i, B: len(scripts) - 1, C: 1})
		}
		time.Sleep(20 * time.Millisecond)
	}
	synctest.Wait()
}

// hosted lets the host speak, in the name of a person or of its own.
func (w *world) hosted(sub event.ParticipantID, o op) {
	mark, id := w.mark(sub)
	to := audience[1+o.C%(len(audience)-2)]
	m := event.Submit{
		Access: host(), Channel: channels[o.A%len(channels)], As: event.Person(sub), Digest: sha256.Sum256([]byte(id)),
		Input: event.FinalInput{
			ID: event.InputID(id), Text: mark + " " + scripts[o.B%len(scripts)], Modality: event.Speech, Disclosure: to,
			OnBusy: []event.BusyPolicy{0, event.BusySupersede, event.BusyQueue}[o.C/8%3],
		},
	}
	if o.C%7 == 0 {
		m.As = event.Endpoint{Kind: event.Service, ID: "clock"}
	}
	if o.C%3 == 0 {
		m.Input.Agents = []event.AgentID{"shadow", "guide"}
	}
	if reply, err := w.ask(m); err == nil {
		w.runs = append(w.runs, reply.(event.Receipt).Run)
	}
}

// answer sends an input that names a run that waits, whosever it is.
func (w *world) answer(s *session, o op) {
	v, err := w.ask(event.ReadView{})
	if err != nil {
		w.failed.add("view: %v", err)
		return
	}
	for _, r := range v.(*event.View).Runs {
		if r.Waiting == nil || o.B%2 == 0 && r.Speaker != event.Person(s.sub) {
			continue
		}
		mark, id := w.mark(s.sub)
		f := map[string]any{
			"type": "input", "id": id, "channel": r.Channel, "modality": "text", "text": mark + " " + scripts[o.A%len(scripts)],
			"continuation": map[string]any{"run": r.Run, "token": r.Waiting.Token},
		}
		if d := audience[o.C%len(audience)]; d.Stated() {
			f["disclosure"] = d
		}
		s.send(f)
		return
	}
}

// restart ends the server in good order and starts it again on its disk.
func (w *world) restart() {
	if err := w.stop(); err != nil {
		w.failed.add("stop: %v", err)
	}
	for _, s := range w.sessions {
		if !s.over {
			s.resume()
			<-s.ended
		}
	}
	if err := w.start(); err != nil {
		w.failed.add("start: %v", err)
	}
}
