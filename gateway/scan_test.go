package gateway

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"parley/event"
	"parley/gateway/wire"
)

// Where frames end, and when their cursors expire, does not tell how much lies
// between two items, and when.
func TestFramesAreCutByWhatIsInThem(t *testing.T) {
	keys, err := wire.NewKeys(testSecret, "r")
	if err != nil {
		t.Fatal(err)
	}
	shape := func(hidden int) (out []string) {
		f := &tape{}
		bubble(t, func() Rooms { return f }, func(t *testing.T, s *memory) {
			day := time.Now().Add(-10 * 24 * time.Hour)
			for i := range 100 {
				e := delta("public", event.ToRoom(), "x")
				e.At = day.Add(time.Duration(i) * 10 * time.Minute)
				f.add(e)
				if i == 50 || i == 63 { // within a frame, and between two
					for range hidden {
						e := delta("private:bob", event.ToRoom(), "y")
						e.At = day.Add(time.Duration(i)*10*time.Minute + 5*time.Minute)
						f.add(e)
					}
				}
			}
			last := delta("private:bob", event.ToRoom(), "y") // the newest is never visible
			last.At = day.Add(1000 * time.Minute)
			f.add(last)
			p := s.dial(t).hello(mint(t, player("ann")), []string{"public"}, "from", "start")
			for {
				fr := p.next()
				if cursor, ok := fr["cursor"].(string); ok {
					c, err := keys.OpenCursor(cursor, []byte("ann"))
					if err != nil {
						t.Fatal(err)
					}
					items, _ := fr["items"].([]any)
					out = append(out, fmt.Sprintf("%v of %d at minute %d", fr["type"], len(items), c.Minutes-wire.Minutes(day)))
				}
				if fr["type"] == "caught_up" {
					return
				}
			}
		})
		return out
	}
	plain := shape(0)
	for _, hidden := range []int{1, maxScan - 10, 2*maxScan + 10} {
		if mixed := shape(hidden); fmt.Sprint(mixed) != fmt.Sprint(plain) {
			t.Errorf("over %d hidden entries:\n%q\nwithout:\n%q", hidden, mixed, plain)
		}
	}
}

// gatedTape stops the first reader that has come so far.
type gatedTape struct {
	*tape
	after event.Seq
	once  sync.Once
	open  chan struct{}
}

func (g *gatedTape) Read(room event.RoomID, after event.Seq, most int) ([]*event.Entry, event.Seq, error) {
	if after >= g.after && most == feedChunk { // not the look for the head
		g.once.Do(func() { <-g.open })
	}
	return g.tape.Read(room, after, most)
}

// What was collected for a frame under a token is not sent under a narrower one.
func TestAFrameThatIsBeingCollectedIsNarrowedToo(t *testing.T) {
	f := &gatedTape{tape: &tape{}, after: maxScan / 2}
	bubble(t, func() Rooms { f.open = make(chan struct{}); return f }, func(t *testing.T, s *memory) {
		f.add(delta("private:ann", event.ToRoom(), "narrowed away"), delta("public", event.ToRoom(), "first"))
		for range 2 * maxScan {
			f.add(delta("private:bob", event.ToRoom(), "y"))
		}
		f.add(delta("public", event.ToRoom(), "second"))
		p := s.dial(t).hello(mint(t, player("ann")), []string{"public", "private:ann"}, "from", "start")
		p.expect("ready")
		p.expect("state")
		narrow := player("ann")
		narrow.Channels = narrow.Channels[:1]
		synctest.Wait()
		p.send(frame{"type": "auth", "ref": "a", "token": mint(t, narrow)})
		synctest.Wait()
		close(f.open)
		p.expect("done")
		fr := p.expect("events")
		items := itemsOf(fr)
		if fr["n"] != 1.0 || len(items) != 2 || body(items[0])["delta"] != "first" || body(items[1])["delta"] != "second" {
			t.Errorf("got %v", fr)
		}
		p.expect("caught_up")
	})
}

// An answer leaves before what the room announces after it, also when a writer
// is at work in that very moment.
func TestAnAnswerGoesBeforeTheEntriesThatFollowIt(t *testing.T) {
	f := &gatedTape{tape: &tape{}}
	bubble(t, func() Rooms { f.open = make(chan struct{}); return f }, func(t *testing.T, s *memory) {
		f.add(delta("public", event.ToRoom(), "first"))
		p := s.dial(t).hello(mint(t, player("ann")), []string{"public"}, "from", "start")
		p.expect("ready")
		p.expect("state")
		synctest.Wait() // the writer reads entries
		p.send(frame{"type": "input", "id": "i1", "channel": "public", "text": "Hello.", "modality": "text"})
		synctest.Wait() // it was accepted
		f.add(delta("public", event.ToRoom(), "answer"))
		close(f.open)
		p.expect("accepted")
		if items := itemsOf(p.expect("events")); len(items) != 2 {
			t.Errorf("got %v", items)
		}
	})
}
