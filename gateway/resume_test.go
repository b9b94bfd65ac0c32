package gateway

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"parley/event"
	"parley/gateway/wire"
)

// testSeed prints the seed of a random test; PARLEY_SEED repeats one.
func testSeed(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("PARLEY_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("seed %d (PARLEY_SEED)", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// A client that loses its connection at any moment and resumes with the cursor
// of what it has handled misses nothing and gets nothing twice.
func TestResumeInMidStreamLosesAndDoublesNothing(t *testing.T) {
	rng := testSeed(t)
	f := &tape{}
	s := serve(t, f)
	const total = 1500
	want := make([]string, 0, total)
	var plan []*event.Entry
	for i := range total {
		e := delta("public", event.ToRoom(), fmt.Sprint(i))
		if rng.IntN(3) == 0 {
			e = delta("private:bob", event.ToRoom(), "hidden")
		} else {
			want = append(want, fmt.Sprint(i))
		}
		plan = append(plan, e)
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		for len(plan) > 0 {
			n := min(len(plan), 1+rng.IntN(40))
			f.add(plan[:n]...)
			plan = plan[n:]
		}
	}()
	defer func() { <-written }()
	cuts := testSeed(t)
	var got []string
	var cursor any
	for len(got) < len(want) {
		p := s.dial(t, "r").hello(mint(t, player("ann")), []string{"public"}, "cursor", cursor, "from", "start", "session", "tab")
		ready := p.expect("ready")
		if cursor != nil && ready["resumed"] != true {
			t.Fatalf("after %d items: %v", len(got), ready)
		}
		cursor = ready["cursor"]
		n := 1
		for frames := 1 + cuts.IntN(6); frames > 0 && len(got) < len(want); {
			fr := p.next()
			if fr["type"] != "events" {
				if c, ok := fr["cursor"]; ok {
					cursor = c
				}
				continue
			}
			frames--
			if int(fr["n"].(float64)) != n {
				t.Fatalf("n is %v, want %d", fr["n"], n)
			}
			items := itemsOf(fr)
			n += len(items)
			if cuts.IntN(10) == 0 {
				break // lost before it was handled
			}
			for _, i := range items {
				got = append(got, body(i)["delta"].(string))
			}
			cursor = fr["cursor"]
			p.send(frame{"type": "ack", "n": n - 1})
		}
		p.ws.Close()
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %d items, want %d", len(got), len(want))
	}
}

func TestCursorsThatAreNotResumed(t *testing.T) {
	f := &tape{}
	now := time.Now()
	clock := func() time.Time { return now }
	s := serve(t, f, func(c *Config) { c.Clock = clock })
	f.add(delta("public", event.ToRoom(), "1"), delta("public", event.ToRoom(), "2"))
	cursor := func(room, sub string, channels ...string) any {
		p := s.dial(t, room).hello(mint(t, player(sub)), channels)
		p.expect("ready")
		return p.until("caught_up")["cursor"]
	}
	mine := cursor("r", "ann", "public")
	ask := func(c any, channels ...string) frame {
		p := s.dial(t, "r").hello(mint(t, player("ann")), channels, "cursor", c)
		ready := p.expect("ready")
		if ready["resumed"] == false {
			p.expect("state")
		}
		p.until("caught_up")
		p.ws.Close()
		return ready
	}
	for _, c := range []struct {
		name   string
		cursor any
		reason any
	}{
		{"one's own", mine, nil},
		{"somebody else's", cursor("r", "bob", "public"), "cursor_invalid"},
		{"of another room", cursor("room-x", "ann", "public"), "cursor_invalid"},
		{"no cursor at all", "hello", "cursor_invalid"},
		{"very long", string(make([]byte, 0)) + fmt.Sprintf("%0500d", 1), "cursor_invalid"},
		{"of more channels", cursor("r", "ann", "public", "private:ann"), "channels_changed"},
		{"of other channels", cursor("r", "ann", "private:ann"), "channels_changed"},
		{"of a channel that one may not read", cursor("r", "ann", "public", "private:bob"), nil},
	} {
		if r := ask(c.cursor, "public"); r["reason"] != c.reason || r["resumed"] != (c.reason == nil) {
			t.Errorf("%s: %v", c.name, r)
		}
	}
	g := s.Gateway
	keys, err := wire.NewKeys(testSecret, "r")
	if err != nil {
		t.Fatal(err)
	}
	hash := wire.ChannelsHash([]event.ChannelID{"public"}, false)
	made := func(c wire.Cursor) string {
		var nonce [wire.NonceSize]byte
		g.random(nonce[:])
		return string(keys.AppendCursor(nil, nonce, []byte("ann"), c))
	}
	for _, c := range []struct {
		name   string
		cursor wire.Cursor
		reason any
	}{
		{"of another incarnation", wire.Cursor{Incarnation: 8, Seq: 1, Minutes: wire.Minutes(now), Channels: hash}, "incarnation_changed"},
		{"ahead of the journal", wire.Cursor{Incarnation: 7, Seq: 3, Minutes: wire.Minutes(now), Channels: hash}, "cursor_invalid"},
		{"older than retention", wire.Cursor{Incarnation: 7, Seq: 1, Minutes: wire.Minutes(now.Add(-31 * 24 * time.Hour)), Channels: hash}, "cursor_expired"},
		{"nearly as old", wire.Cursor{Incarnation: 7, Seq: 1, Minutes: wire.Minutes(now.Add(-29 * 24 * time.Hour)), Channels: hash}, nil},
	} {
		if r := ask(made(c.cursor), "public"); r["reason"] != c.reason {
			t.Errorf("%s: %v", c.name, r)
		}
	}
}

func TestReadyOfAResumedStreamIsTheAskedPosition(t *testing.T) {
	f := &tape{}
	s := serve(t, f)
	f.add(delta("public", event.ToRoom(), "1"))
	p := s.dial(t, "r").hello(mint(t, player("ann")), []string{"public"}, "from", "start")
	p.until("events")
	cursor := p.until("caught_up")["cursor"]
	p.ws.Close()
	f.add(delta("public", event.ToRoom(), "2"), delta("public", event.ToRoom(), "3"))
	for range 3 { // ready's own cursor resumes at the same place, again and again
		p := s.dial(t, "r").hello(mint(t, player("ann")), []string{"public"}, "cursor", cursor)
		cursor = p.expect("ready")["cursor"]
		if items := itemsOf(p.expect("events")); len(items) != 2 || body(items[0])["delta"] != "2" {
			t.Fatalf("got %v", items)
		}
		p.expect("caught_up")
		p.ws.Close()
	}
}

func TestWhereAStreamBegins(t *testing.T) {
	f := &tape{view: &event.View{Phase: "lobby"}}
	s := serve(t, f)
	f.add(delta("public", event.ToRoom(), "old"))
	tail := s.dial(t, "r").hello(mint(t, player("ann")), []string{"public"})
	tail.expect("ready")
	if st := tail.expect("state"); st["room"].(map[string]any)["phase"] != "lobby" {
		t.Errorf("state at the tail: %v", st)
	}
	tail.expect("caught_up")
	start := s.dial(t, "r").hello(mint(t, player("ann")), []string{"public"}, "from", "start")
	start.expect("ready")
	if st := start.expect("state"); len(st["runs"].([]any)) != 0 || len(st["room"].(map[string]any)["agents"].([]any)) != 0 {
		t.Errorf("state at the start: %v", st)
	}
	if i := itemsOf(start.expect("events")); body(i[0])["delta"] != "old" {
		t.Errorf("got %v", i)
	}
	start.expect("caught_up")
	f.add(delta("public", event.ToRoom(), "new"))
	for _, p := range []*peer{tail, start} {
		if i := itemsOf(p.expect("events")); body(i[0])["delta"] != "new" {
			t.Errorf("got %v", i)
		}
	}
}

func TestTheWindowStopsTheStreamAndAcksMoveIt(t *testing.T) {
	f := &tape{}
	s := serve(t, f, func(c *Config) { c.Limits.Window = 10 })
	p := s.dial(t, "r").hello(mint(t, player("ann")), []string{"public"})
	p.until("caught_up")
	for i := range 25 {
		f.add(delta("public", event.ToRoom(), fmt.Sprint(i)))
	}
	read := func(want int) {
		t.Helper()
		if got := p.items(want); len(got) != want {
			t.Fatalf("got %d", len(got))
		}
		// Nothing more comes, but answers do.
		p.send(frame{"type": "focus", "ref": "f", "agent": "guide"})
		p.expect("done")
	}
	read(10)
	p.send(frame{"type": "ack", "n": 4})
	read(4)
	p.send(frame{"type": "ack", "n": 3}) // an old one changes nothing
	read(0)
	p.send(frame{"type": "ack", "n": 14})
	read(10)
	p.send(frame{"type": "ack", "n": 24})
	p.items(1)
}

func TestFramesAreBatchedAndKeepTheirSize(t *testing.T) {
	f := &tape{}
	s := serve(t, f)
	for i := range 300 {
		f.add(delta("public", event.ToRoom(), fmt.Sprintf("%d%0*d", i, 100+i*9, 0)))
	}
	p := s.dial(t, "r").hello(mint(t, player("ann")), []string{"public"}, "from", "start", "maxFrame", 1)
	ready := p.expect("ready")
	if ready["maxFrame"] != float64(wire.MinMaxFrame) {
		t.Errorf("maxFrame %v", ready["maxFrame"])
	}
	p.expect("state")
	n, frames := 0, 0
	for n < 300 {
		_, raw, err := p.ws.ReadMessage()
		if err != nil {
			t.Fatal(err)
		}
		if len(raw) > wire.MinMaxFrame {
			t.Errorf("a frame of %d bytes", len(raw))
		}
		n += countItems(t, raw)
		frames++
		p.send(frame{"type": "ack", "n": n})
	}
	if frames > 60 {
		t.Errorf("%d frames for 300 items", frames)
	}
}

func TestThoseWhoComeAtOnceAskARoomNothingThatIsAtHand(t *testing.T) {
	rooms := newCoreRooms()
	s := serve(t, rooms)
	first := s.dial(t, "room-1").hello(mint(t, player("ann")), []string{"public"})
	cursor := first.until("caught_up")["cursor"].(string)
	asked := func(shows bool) int {
		rooms.mu.Lock()
		defer rooms.mu.Unlock()
		rooms.shows = shows
		return rooms.asked
	}
	before := asked(true)
	for i := range 20 {
		s.live(t, "room-1", fmt.Sprint("p", i), "public")
	}
	p := s.dial(t, "room-1").hello(mint(t, player("ann")), []string{"public"}, "cursor", cursor)
	if r := p.expect("ready"); r["resumed"] != true {
		t.Errorf("ready: %v", r)
	}
	if n := asked(false) - before; n != 0 {
		t.Errorf("21 connections asked the room %d times for what was at hand", n)
	}
	s.live(t, "room-1", "bob", "public")
	if n := asked(false) - before; n != 2 {
		t.Errorf("without a view at hand a connection asks %d times, want 2", n)
	}
}

// lateRooms write an entry after a room has said where it stands and before
// anybody follows it.
type lateRooms struct {
	*tape
	write func()
}

func (l *lateRooms) Follow(room event.RoomID, moved func(event.Seq)) (stop func()) {
	l.write()
	return l.tape.Follow(room, moved)
}

func TestWhatIsWrittenBetweenOpeningAndFollowingIsNotMissed(t *testing.T) {
	f := &tape{}
	rooms := &lateRooms{tape: f, write: func() {}}
	s := serve(t, rooms)
	f.add(delta("public", event.ToRoom(), "early"))
	p := s.dial(t, "room-1").hello(mint(t, player("ann")), []string{"public"}, "from", "start")
	cursor := p.until("caught_up")["cursor"].(string)
	_ = p.ws.Close() // the next one follows the room anew
	for s.Stats().Rooms > 0 {
		runtime.Gosched()
	}
	rooms.write = func() { f.add(delta("public", event.ToRoom(), "late")) }
	p = s.dial(t, "room-1").hello(mint(t, player("ann")), []string{"public"}, "cursor", cursor)
	if r := p.expect("ready"); r["resumed"] != true {
		t.Fatalf("ready: %v", r)
	}
	if items := itemsOf(p.until("events")); len(items) != 1 || body(items[0])["delta"] != "late" {
		t.Errorf("got %v", items)
	}
}
