package audience

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/gorilla/websocket"

	"parley/event"
	"parley/gateway/wire"
)

// audit compares what arrived with a journal. Owned by the goroutine of the test.
type audit struct {
	w       *world
	es      []*event.Entry
	keys    *wire.Keys
	ids     map[string]event.Seq
	results map[*session]*result
	raw     map[event.ParticipantID]*strings.Builder // all that a person got
	due     map[event.ParticipantID]*strings.Builder // all that it was to get
	tally
}

// tally says how much a test has looked at.
type tally struct {
	Worlds, Entries, Sessions, Resumed, Reset, Items, Hidden, States, Cursors, Pictures, Stale, Slow, Replaced, Refused int
}

func (t *tally) add(a *audit) {
	sum, more := reflect.ValueOf(t).Elem(), reflect.ValueOf(a.tally)
	for i := range sum.NumField() {
		sum.Field(i).SetInt(sum.Field(i).Int() + more.Field(i).Int())
	}
}

// result is what a session came to.
type result struct {
	frames  []object
	resumed bool
	from    event.Seq // the position at which it begins
	last    event.Seq // of what was delivered
	scanned int       // the lens under which that was
	lenses  []lens    // one after the other
	hear    bool      // it got ready
	caught  bool
	parts   []object // of state
}

func newAudit(w *world, es []*event.Entry) *audit {
	keys, err := wire.NewKeys(secret, hall)
	if err != nil {
		w.failed.add("keys: %v", err)
	}
	a := &audit{
		w: w, es: es, keys: keys, ids: map[string]event.Seq{}, results: map[*session]*result{},
		raw: map[event.ParticipantID]*strings.Builder{}, due: map[event.ParticipantID]*strings.Builder{},
	}
	for i, e := range es {
		if e.Seq != event.Seq(i+1) {
			w.failed.add("entry %d of the journal is at %d", i+1, e.Seq)
		}
		a.ids[a.id(e.Seq)] = e.Seq
	}
	for _, p := range people {
		a.raw[p], a.due[p] = &strings.Builder{}, &strings.Builder{}
	}
	a.Worlds, a.Entries = 1, len(es)
	return a
}

func (a *audit) incarnation() event.Incarnation {
	return a.es[0].Body.(*event.RoomConfigured).Incarnation & (1<<48 - 1)
}

func (a *audit) id(at event.Seq) string { return a.keys.EntryID(a.incarnation(), at) }

// expect notes what a person was to get.
func (a *audit) expect(sub event.ParticipantID, what any) {
	raw, _ := json.Marshal(what)
	a.due[sub].Write(raw)
}

func (a *audit) position(s *session, cursor string) event.Seq {
	c, err := a.keys.OpenCursor(cursor, []byte(s.sub))
	if err != nil || c.Incarnation != a.incarnation() {
		a.w.failed.add("%s got a cursor that is none of this room: %v", s.sub, err)
	}
	return c.Seq
}

// session checks what came over one connection. complete says that all that
// there is must have come.
func (a *audit) session(s *session, complete bool) {
	frames, code := s.got()
	r := &result{lenses: []lens{s.begin}}
	a.results[s] = r
	a.Sessions++
	bad := func(format string, args ...any) {
		a.w.failed.add("session %d of %s: %s", slices.Index(a.w.sessions, s), s.sub, fmt.Sprintf(format, args...))
	}
	for i, f := range frames {
		a.raw[s.sub].Write(f.raw)
		o := message(f)
		r.frames = append(r.frames, o)
		if (i == 0) != (f.typ == "ready") {
			bad("frame %d is %s", i, f.raw)
			return
		}
		a.frame(s, r, o, bad)
	}
	l := r.lenses[len(r.lenses)-1]
	switch {
	case s.begin.blind() && (r.hear || code != int(wire.CloseForbidden)):
		bad("its token opens nothing of %v and it ended with %d", s.begin.asked, code)
	case code == int(wire.CloseForbidden) && !s.begin.blind():
		next := len(r.lenses) - 1
		if next >= len(s.changes) || !s.changes[next].apply(l).blind() {
			bad("it was forbidden")
		}
		a.Refused++
	case code == int(wire.CloseSlowConsumer), code == int(wire.CloseHelloTimeout):
		a.Slow++
	case code == int(wire.CloseReplaced):
		a.Replaced++
	case s.slept && code == websocket.CloseAbnormalClosure: // its socket was full, so that no close frame went out
		a.Slow++
	case s.over && slices.Contains([]int{-1, websocket.CloseAbnormalClosure, websocket.CloseNormalClosure}, code):
	case !slices.Contains([]int{0, int(wire.CloseRestarting), int(wire.CloseForbidden), int(wire.CloseRateLimited)}, code):
		bad("it ended with %d, and the client had not left", code)
	}
	if !r.hear || !complete {
		return
	}
	if len(r.lenses) != len(s.changes)+1 {
		bad("%d of %d changes were answered", len(r.lenses)-1, len(s.changes))
	}
	if !r.caught {
		bad("it never caught up")
	}
	a.skipped(r, event.Seq(len(a.es)), "at the end", bad)
}

// skipped checks that nothing visible lies between what was delivered last and a
// position.
func (a *audit) skipped(r *result, to event.Seq, what string, bad func(string, ...any)) {
	if to > event.Seq(len(a.es)) {
		bad("%s: position %d of %d", what, to, len(a.es))
		return
	}
	for _, e := range a.es[r.last:max(r.last, to)] {
		hidden := false
		for _, l := range r.lenses[r.scanned:] {
			hidden = hidden || !l.sees(e)
		}
		if !hidden {
			bad("%s: entry %d, %s %T on %q for %v, was not delivered after %d", what, e.Seq, e.Body.Kind(), e.Body, e.Channel, e.Disclosure, r.last)
			return
		}
		a.Hidden++
	}
}

func (a *audit) cursor(s *session, r *result, o object, bad func(string, ...any)) {
	at := a.position(s, text(o, "cursor"))
	if at < r.last {
		bad("a cursor at %d after entry %d was delivered", at, r.last)
	}
	a.skipped(r, at, "a cursor", bad)
	a.Cursors++
}

func (a *audit) frame(s *session, r *result, o object, bad func(string, ...any)) {
	l := r.lenses[len(r.lenses)-1]
	switch typ := text(o, "type"); typ {
	case "ready":
		a.ready(s, r, o, bad)
	case "state":
		r.parts = append(r.parts, o)
		if n := float64(len(r.parts)); o["part"] != n || n > o["parts"].(float64) || r.resumed {
			bad("part %v of %v", o["part"], o["parts"])
		}
		if o["part"] == o["parts"] {
			a.state(s, r, bad)
		}
	case "events":
		if n, _ := o["n"].(float64); int(n) != r.items()+1 {
			bad("n is %v after %d items", o["n"], r.items())
		}
		for _, raw := range list(o, "items") {
			a.item(s, r, l, raw.(object), bad)
		}
		a.cursor(s, r, o, bad)
	case "caught_up":
		if r.caught || !r.resumed && len(r.parts) == 0 {
			bad("caught_up comes twice or too early")
		}
		r.caught = true
		a.cursor(s, r, o, bad)
	case "ping":
		a.cursor(s, r, o, bad)
	case "accepted":
		at, known := a.ids[text(o, "entry")]
		x, ok := (*event.InputAdmitted)(nil), false
		if known {
			x, ok = a.es[at-1].Body.(*event.InputAdmitted)
		}
		if !ok || string(x.Input) != text(o, "id") || x.Speaker != event.Person(s.sub) || string(x.Run) != text(o, "run") {
			bad("accepted of something else: %v", o)
			return
		}
		a.expect(s.sub, []any{text(o, "entry"), text(o, "run")})
	case "done", "subscribed", "error":
		if next := len(r.lenses) - 1; next < len(s.changes) && text(o, "ref") == s.changes[next].ref {
			after := s.changes[next].apply(l)
			r.lenses = append(r.lenses, after)
			if want := canOf(after); !reflect.DeepEqual(o["can"], want) {
				bad("%s: can %v, want %v", typ, o["can"], want)
			}
		}
	default:
		bad("a frame of type %q", typ)
	}
}

func (r *result) items() int {
	n := 0
	for _, f := range r.frames[:len(r.frames)-1] {
		n += len(list(f, "items"))
	}
	return n
}

func canOf(l lens) any {
	can := object{}
	for ch := range l.asked {
		var list []any
		if r, ok := grants(l.access, ch); ok {
			for _, s := range r.Can {
				if slices.Contains(l.access.Scopes, s) {
					list = append(list, string(s))
				}
			}
		}
		if list != nil {
			can[string(ch)] = list
		}
	}
	return can
}

func readable(l lens) string {
	var out []string
	for _, ch := range channels {
		if _, ok := l.asked[ch]; ok && may(l.access, ch, event.ScopeRead) {
			out = append(out, string(ch))
		}
	}
	return strings.Join(out, " ")
}

func (a *audit) ready(s *session, r *result, o object, bad func(string, ...any)) {
	r.hear = true
	r.resumed = o["resumed"] == true
	if r.from = a.position(s, text(o, "cursor")); r.from > event.Seq(len(a.es)) {
		bad("it begins at %d of %d", r.from, len(a.es))
		r.from = event.Seq(len(a.es))
	}
	r.last = r.from
	if want := canOf(s.begin); !reflect.DeepEqual(o["can"], want) {
		bad("can %v, want %v", o["can"], want)
	}
	if s.origin != nil {
		// The lens of the frame from which the cursor is.
		of := a.results[s.origin]
		then, next := s.origin.begin, 0
		for _, f := range of.frames[:min(s.at, len(of.frames))] {
			if next < len(s.origin.changes) && text(f, "ref") == s.origin.changes[next].ref {
				then = s.origin.changes[next].apply(then)
				next++
			}
		}
		same := readable(then) == readable(s.begin)
		if r.resumed != same || !same && o["reason"] != "channels_changed" {
			bad("resumed is %v with %v: it read %q and reads %q", r.resumed, o["reason"], readable(then), readable(s.begin))
		}
	} else if r.resumed {
		bad("it resumed from nothing")
	}
	switch {
	case r.resumed:
		a.Resumed++
		if at := a.position(s, s.cursor); at != r.from {
			bad("it resumed at %d, the cursor is of %d", r.from, at)
		}
	case s.start:
		if r.from != 0 {
			bad("the start is at %d", r.from)
		}
	case r.from < s.lo || r.from > s.hi:
		bad("the tail is at %d, the head was within %d and %d", r.from, s.lo, s.hi)
	}
	if s.cursor != "" && !r.resumed {
		a.Reset++
	}
}

func (a *audit) state(s *session, r *result, bad func(string, ...any)) {
	a.States++
	got := join(r.parts)
	want := object{"room": object{"agents": []any{}}, "runs": []any{}, "captions": []any{}}
	if r.from > 0 {
		want = fold(a.es[:r.from]).state(s.begin)
	}
	a.expect(s.sub, want)
	if !reflect.DeepEqual(got, want) {
		bad("state at %d:\n got %s\nwant %s", r.from, shown(got), shown(want))
	}
}

func shown(v any) string {
	raw, _ := json.Marshal(v)
	return string(raw)
}

func (a *audit) item(s *session, r *result, l lens, item object, bad func(string, ...any)) {
	a.Items++
	at, ok := a.ids[text(item, "id")]
	switch {
	case !ok:
		bad("an item of no entry: %s", shown(item))
		return
	case at <= r.last:
		bad("entry %d comes after %d", at, r.last)
		return
	}
	e := a.es[at-1]
	if !l.sees(e) {
		bad("entry %d, a %T on %q for %v, is not for it", at, e.Body, e.Channel, e.Disclosure)
	}
	want := due(e, text(item, "id"), s.sub)
	a.expect(s.sub, want)
	if !reflect.DeepEqual(item, want) {
		bad("entry %d:\n got %s\nwant %s", at, shown(item), shown(want))
	}
	a.skipped(r, at-1, "before an item", bad)
	r.last, r.scanned = at, len(r.lenses)-1
}

// picture returns the room as the client of a session knows it after so many
// frames. It is not sure when the session has not seen all since the state.
func (a *audit) picture(s *session, frames int) (st object, sure bool) {
	r := a.results[s]
	sure = s.begin.kinds == nil && len(s.changes) == 0 && r.hear
	if !r.hear || frames > len(r.frames) || r.resumed && s.origin == nil {
		return nil, false
	}
	if r.resumed {
		if st, ok := a.picture(s.origin, s.at); !ok || st == nil {
			return nil, false
		} else {
			return a.play(st, r.frames[:frames]), sure
		}
	}
	raw, _ := json.Marshal(join(r.parts)) // a copy, which is changed
	_ = json.Unmarshal(raw, &st)
	return a.play(st, r.frames[:frames]), sure
}

func (a *audit) play(st object, frames []object) object {
	for _, f := range frames {
		for _, item := range list(f, "items") {
			take(st, item.(object))
		}
	}
	return st
}

// pictures compares what those who read on know with what others are told who
// have just come with the same claims.
func (a *audit) pictures(fresh []*session) {
	i := 0
	for _, s := range a.w.sessions {
		if s.over || slices.Contains(fresh, s) || i == len(fresh) {
			continue
		}
		if s.code() != 0 {
			continue
		}
		f := fresh[i]
		i++
		known, sure := a.picture(s, len(a.results[s].frames))
		told, ready := a.picture(f, len(a.results[f].frames))
		if !sure || !ready || s.sub != f.sub || !reflect.DeepEqual(s.begin.access, f.begin.access) {
			continue
		}
		a.Pictures++
		// A run that an answer has narrowed to others is gone for a fresh client,
		// while one who saw its question is not told of its end.
		now := fold(a.es)
		known["runs"] = slices.DeleteFunc(slices.Clone(list(known, "runs")), func(raw any) bool {
			r := now.find(event.RunID(text(raw.(object), "run")))
			gone := r == nil || !includes(r.to, s.sub)
			if gone {
				a.narrowed(s, text(raw.(object), "run"))
			}
			return gone
		})
		if got, want := bare(known), bare(told); !reflect.DeepEqual(got, want) {
			a.w.failed.add("session %d of %s knows\n%s\nand a fresh one is told\n%s", slices.Index(a.w.sessions, s), s.sub, shown(got), shown(want))
		}
	}
}

// narrowed checks that a run which a client still holds open was narrowed.
func (a *audit) narrowed(s *session, run string) {
	a.Stale++
	for _, e := range a.es {
		if x, ok := e.Body.(*event.InputAdmitted); ok && string(x.Run) == run && !includes(x.RunDisclosure, s.sub) {
			return
		}
	}
	a.w.failed.add("%s holds run %s open, which has ended", s.sub, run)
}
