package gateway

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"parley/event"
	"parley/gateway/wire"
)

func countItems(t *testing.T, raw []byte) int {
	t.Helper()
	var f frame
	if err := json.Unmarshal(raw, &f); err != nil {
		t.Fatal(err)
	}
	if f["type"] != "events" {
		return 0
	}
	return len(f["items"].([]any))
}

// randomEntry draws from all kinds of entry, channels and disclosures.
func randomEntry(rng *rand.Rand, i int) *event.Entry {
	chans := []event.ChannelID{"public", "private:ann", "private:bob", "table:1"}
	to := []event.Disclosure{
		event.ToRoom(), event.ToRoom(), event.ToNone(), event.ToParticipants("ann"), event.ToParticipants("bob"),
		event.ToParticipants("ann", "cat"),
		{},
	}
	ch, d := chans[rng.IntN(len(chans))], to[rng.IntN(len(to))]
	text := fmt.Sprintf("text-%d-", i)
	switch rng.IntN(10) {
	case 0:
		return &event.Entry{Disclosure: d, Body: &event.RoomConfigured{Config: testTemplate}}
	case 1:
		sub := []event.ParticipantID{"ann", "bob"}[rng.IntN(2)]
		return &event.Entry{Disclosure: event.ToParticipants(sub), Body: &event.FocusSet{Subject: sub, Agent: "guide"}}
	case 2:
		return &event.Entry{Disclosure: event.ToNone(), Body: &event.Drained{}}
	case 3:
		e := delta(ch, d, text)
		e.Body.(*event.RunEvent).Event = event.Checkpoint{Value: json.RawMessage(`{"s":"checkpoint"}`)}
		return e
	case 4, 5:
		return &event.Entry{Channel: ch, Disclosure: d, Body: &event.InputAdmitted{
			Input: event.InputID(fmt.Sprintf("input-%d", i)), Speaker: event.Person("ann"), Text: text, Modality: event.Text,
			Agent: "guide", Run: "r_1", State: event.Started, RunDisclosure: to[rng.IntN(len(to))],
		}}
	}
	return delta(ch, d, text)
}

// A viewer gets exactly the entries that its claims let it see, live and replayed.
func TestAViewerGetsExactlyTheVisibleItems(t *testing.T) {
	rng := testSeed(t)
	wide := player("cat")
	wide.Channels = append(wide.Channels, event.ChannelRule{Match: "table:*", Can: []event.Scope{event.ScopeRead}})
	deaf := player("dan")
	deaf.Channels = []event.ChannelRule{{Match: "public", Can: []event.Scope{event.ScopeInput}}}
	all := []string{"public", "private:ann", "private:bob", "table:1"}
	for round := range 5 {
		f := &tape{}
		s := serve(t, f)
		keys, err := wire.NewKeys(testSecret, "r")
		if err != nil {
			t.Fatal(err)
		}
		var entries []*event.Entry
		for i := range 200 {
			e := randomEntry(rng, i)
			e.Seq, e.At = event.Seq(i+1), at(i)
			entries = append(entries, e)
		}
		f.add(entries[:100]...)
		type viewing struct {
			name   string
			access event.Access
			ask    []string
			peer   *peer
		}
		views := []viewing{
			{"ann", player("ann"), all, nil},
			{"bob", player("bob"), all, nil},
			{"ann, public only", player("ann"), []string{"public"}, nil},
			{"cat", wide, all, nil},
			{"dan, who may only speak", deaf, all, nil},
		}
		for i := range views {
			v := &views[i]
			v.peer = s.dial(t, "r").hello(mint(t, v.access), v.ask, "from", "start")
		}
		go f.add(entries[100:]...)
		for _, v := range views {
			who := wire.Viewer{Subject: v.access.Subject}
			var want []string
			for _, e := range entries {
				asked := e.Channel == "" || slices.Contains(v.ask, string(e.Channel))
				if asked && v.access.Sees(e.Channel, e.Disclosure) && who.Variant(e) != wire.Hidden {
					want = append(want, keys.EntryID(7, e.Seq))
				}
			}
			var got []string
			acked := 0
			for len(got) < len(want) {
				fr := v.peer.until("events")
				raw, err := json.Marshal(fr)
				if err != nil {
					t.Fatal(err)
				}
				for _, secret := range []string{"checkpoint", "drained", "scripted", "sequence", "logical"} {
					if strings.Contains(string(raw), secret) {
						t.Fatalf("%s gets %q: %s", v.name, secret, raw)
					}
				}
				if v.access.Subject != "ann" && strings.Contains(string(raw), "shadow") {
					t.Fatalf("%s gets an agent that is for ann: %s", v.name, raw)
				}
				for _, i := range itemsOf(fr) {
					got = append(got, i["id"].(string))
				}
				acked = len(got)
				v.peer.send(frame{"type": "ack", "n": acked})
			}
			// Nothing comes after the last: the answer to a request is next.
			v.peer.send(frame{"type": "focus", "ref": "f", "agent": "guide"})
			for {
				fr := v.peer.next()
				if fr["type"] == "events" {
					t.Fatalf("%s gets more than it may: %v", v.name, fr)
				}
				if fr["type"] == "done" {
					break
				}
			}
			if !slices.Equal(got, want) {
				t.Fatalf("round %d: %s got %d items, want %d", round, v.name, len(got), len(want))
			}
		}
		for _, v := range views {
			v.peer.ws.Close()
		}
	}
}

// The lens that a connection filters with agrees with the rule it stands for.
func TestTheLensAgreesWithTheClaims(t *testing.T) {
	rng := testSeed(t)
	for _, a := range []event.Access{player("ann"), player("bob"), host("h")} {
		for _, n := range []int{4, 40} { // searched, and found by a map
			var list []asked
			for i, ch := range []event.ChannelID{"public", "private:ann", "private:bob", "table:1"} {
				list = append(list, asked{channel: ch})
				for j := range n / 4 {
					list = append(list, asked{channel: event.ChannelID(fmt.Sprintf("other:%d:%d", i, j))})
				}
			}
			l := newLens(&Token{Access: a}, list, false, nil)
			for i := range 500 {
				e := randomEntry(rng, i)
				e.Seq = 1
				if got, want := l.sees(e), a.Sees(e.Channel, e.Disclosure); got != want {
					t.Fatalf("%s, channel %q, %+v: %v, want %v", a.Subject, e.Channel, e.Disclosure, got, want)
				}
			}
		}
	}
}

// Two journals that differ only in what a viewer may not see give it frames of
// the same shape: number, types, sizes, items in each.
func TestHiddenEntriesLeaveNoTraceInTheShape(t *testing.T) {
	rng := testSeed(t)
	shape := func(hidden bool) string {
		f := &tape{}
		s := serve(t, f)
		for i := range 400 {
			if hidden {
				for range rng.IntN(4) {
					f.add(delta("private:bob", event.ToRoom(), "x"), delta("public", event.ToParticipants("bob"), "y"),
						&event.Entry{Disclosure: event.ToNone(), Body: &event.Drained{}})
				}
			}
			e := delta("public", event.ToRoom(), strings.Repeat("z", 1+i%50))
			e.At = at(0).Truncate(1e9)
			f.add(e)
		}
		if hidden {
			for range 500 {
				f.add(delta("private:bob", event.ToRoom(), "x"))
			}
		}
		p := s.dial(t, "r").hello(mint(t, player("ann")), []string{"public"}, "from", "start")
		var b strings.Builder
		n := 0
		for {
			_, raw, err := p.ws.ReadMessage()
			if err != nil {
				t.Fatal(err)
			}
			var fr frame
			if err := json.Unmarshal(raw, &fr); err != nil {
				t.Fatal(err)
			}
			items := countItems(t, raw)
			n += items
			fmt.Fprintf(&b, "%s %d %d\n", fr["type"], len(raw), items)
			if fr["type"] == "caught_up" {
				break
			}
			if items > 0 {
				p.send(frame{"type": "ack", "n": n})
			}
		}
		if n != 400 {
			t.Fatalf("%d items", n)
		}
		return b.String()
	}
	if plain, mixed := shape(false), shape(true); plain != mixed {
		t.Errorf("without hidden entries:\n%s\nwith:\n%s", plain, mixed)
	}
}
