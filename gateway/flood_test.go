package gateway

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"parley/event"
	"parley/gateway/wire"
)

// A connection that floods, with frames of whatever kind, is closed with 4429.
// Others of its room, of its subject and of other rooms are served meanwhile.
func TestFloodsEndOneConnection(t *testing.T) {
	rooms := newCoreRooms()
	s := serve(t, rooms, func(c *Config) { c.Limits.CreatesPerMin = 100 })
	fresh := mint(t, player("ann"))
	var channels []string
	for i := range wire.MaxChannels {
		channels = append(channels, fmt.Sprintf(`"c%d"`, i))
	}
	for i, c := range []struct {
		name string
		one  func(i int) []byte
	}{
		{"inputs", func(i int) []byte { return text(inputText(fmt.Sprint("i", i))) }},
		{"the same input", func(int) []byte { return text(inputText("same")) }},
		{"requests to cancel", func(i int) []byte { return text(probe(fmt.Sprint("c", i))) }},
		{"requests to focus", func(i int) []byte { return text(fmt.Sprintf(`{"type":"focus","ref":"f%d","agent":"guide"}`, i)) }},
		{"tokens", func(i int) []byte { return text(fmt.Sprintf(`{"type":"auth","ref":"a%d","token":"%s"}`, i, fresh)) }},
		{"tokens of nobody", func(i int) []byte { return text(fmt.Sprintf(`{"type":"auth","ref":"a%d","token":"x.y.z"}`, i)) }},
		{"subscribes", func(i int) []byte {
			return text(fmt.Sprintf(`{"type":"subscribe","ref":"s%d","channels":[%s]}`, i, strings.Join(channels, ",")))
		}},
		{"acks", func(int) []byte { return text(`{"type":"ack","n":0}`) }},
		{"pongs", func(i int) []byte { return text(fmt.Sprintf(`{"type":"pong","t":%d}`, i)) }},
		{"unknown frames", func(int) []byte { return text(`{"type":"juggle","ref":"r"}`) }},
		{"pings of WebSocket", func(int) []byte { return plain(fin|opPing, strings.Repeat("p", 125)) }},
		{"pongs of WebSocket", func(int) []byte { return plain(fin|opPong, "") }},
		{"pings in mid message", func(i int) []byte {
			if i == 0 {
				return plain(opText, "{")
			}
			return plain(fin|opPing, "")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			room := fmt.Sprint("room-", i)
			neighbour := s.live(t, room, "bob", "public")
			tab := s.live(t, "room-other", "ann", "public")
			before := s.Stats().Closed[wire.CloseRateLimited]
			p := s.rawLive(t, room, "ann")
			head, start := len(rooms.entries(event.RoomID(room))), time.Now()
			var flood []byte
			for n := range 100 + maxExcess + 300 {
				flood = append(flood, c.one(n)...)
			}
			go p.write(flood)
			if code, _, _ := p.end(); code != int(wire.CloseRateLimited) {
				t.Errorf("closed with %d", code)
			}
			if got := s.Stats().Closed[wire.CloseRateLimited] - before; got != 1 {
				t.Errorf("%d closes are counted", got)
			}
			for _, q := range []*peer{neighbour, tab} {
				q.send(input("after", "hello"))
				if q == neighbour {
					q.until("accepted")
				} else if f := q.until("accepted"); f["id"] != "after" {
					t.Errorf("got %v", f)
				}
				q.ws.Close()
			}
			inputs := 0
			for _, e := range rooms.entries(event.RoomID(room))[head:] {
				if x, ok := e.Body.(*event.InputAdmitted); ok && x.Speaker.ID == "ann" {
					inputs++
				}
			}
			given := int(time.Since(start)/time.Second+1) * s.cfg.Limits.InputsPerSec // back, by time
			if inputs > s.cfg.Limits.InputBurst+given {
				t.Errorf("%d inputs were journaled", inputs)
			}
		})
	}
}

// The answers that a client does not read are bounded in bytes, however short
// its requests are: here the answer to each lists all rights on many channels.
func TestAnswersThatNobodyReadsAreBounded(t *testing.T) {
	s := serve(t, newCoreRooms(), func(c *Config) {
		c.Limits.FramesPerSec, c.Limits.FrameBurst, c.Limits.WriteTimeout = noLimit, noLimit, 5*time.Second
	})
	a := player("ann")
	a.Channels = append(a.Channels, event.ChannelRule{Match: "x:**", Can: a.Scopes, Disclosure: event.ToRoom()})
	var channels []string
	for i := range wire.MaxChannels {
		channels = append(channels, fmt.Sprintf(`"x:%0100d"`, i))
	}
	list := strings.Join(channels, ",")
	p := s.raw(t, "room-1")
	p.write(text(`{"type":"hello","token":"` + mint(t, a) + `","channels":["public"]}`))
	for {
		if _, payload := p.frame(); strings.Contains(payload, `"caught_up"`) {
			break
		}
	}
	c := connOf(t, s, "ann")
	before := heapBytes()
	p.write(text(`{"type":"subscribe","ref":"s","channels":[` + list[:len(list)/2-len(list)/2%len(channels[0]+",")-1] + `]}`))
	// It reads nothing from here on. The writes end when the server has closed.
	one := text(`{"type":"subscribe","ref":"s","channels":["public"]}`)
	for range 2000 {
		if _, err := p.c.Write(one); err != nil {
			break
		}
	}
	waitUntil(t, func() bool { return s.Stats().Closed[wire.CloseSlowConsumer] == 1 })
	c.mu.Lock()
	owed, left := c.owed, len(c.control)
	c.mu.Unlock()
	if owed > maxOwedBytes+64<<10 || left != 0 {
		t.Errorf("%d bytes were owed, %d frames are still kept", owed, left)
	}
	if grown := heapBytes() - before; grown > 2*maxOwedBytes {
		t.Errorf("the heap has grown by %d", grown)
	}
	s.rawLive(t, "room-1", "bob").goesOn("probe")
}

// A connection whose hello does not end, in whatever way, ends at the time for it.
func TestHelloWithoutEnd(t *testing.T) {
	s := serve(t, newCoreRooms(), func(c *Config) { c.Limits.HelloTimeout = 200 * time.Millisecond })
	hello := helloText(t, "ann")
	stop := make(chan struct{})
	defer close(stop)
	for name, drip := range map[string]func(i int) []byte{
		"silence":       func(int) []byte { return nil },
		"half a header": func(i int) []byte { return []byte{fin | opText, 0x80 | 126}[min(i, 1):min(i+1, 2)] },
		"byte by byte": func(i int) []byte {
			return slices.Concat(text(hello[:len(hello)-1] + strings.Repeat(" ", 4000) + "}"))[i : i+1]
		},
		"part by part":   func(i int) []byte { return plain(byte(min(1, max(0, 1-i))), "") },
		"pings between":  func(i int) []byte { return plain(fin|opPing, "x") },
		"spaces in JSON": func(i int) []byte { return plain(byte(min(1, max(0, 1-i))), " ") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := s.raw(t, "room-1")
			go func() {
				tick := time.NewTicker(5 * time.Millisecond)
				defer tick.Stop()
				for i := 0; ; i++ {
					select {
					case <-tick.C:
						if _, err := p.c.Write(drip(i)); err != nil {
							return
						}
					case <-stop:
						return
					}
				}
			}()
			if code, _, _ := p.end(); code != int(wire.CloseHelloTimeout) {
				t.Errorf("closed with %d", code)
			}
		})
	}
}

// Parts of nothing are no message that could be counted. Their sender keeps its
// own goroutine busy; the others do not notice.
func TestPartsOfNothingStallNobody(t *testing.T) {
	s := serve(t, newCoreRooms())
	p := s.rawLive(t, "room-1", "ann")
	quit := make(chan struct{})
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		p.write(plain(opText, ""))
		flood := slices.Repeat(plain(opMore, ""), 1000)
		for {
			select {
			case <-quit:
				p.write(plain(fin|opMore, probe("whole")))
				return
			default:
				p.write(flood)
			}
		}
	}()
	q := s.live(t, "room-1", "bob", "public")
	for i := range 10 {
		q.send(input(fmt.Sprint("i", i), "hello"))
		q.until("accepted")
	}
	close(quit)
	<-gone
	for {
		if _, payload := p.frame(); strings.Contains(payload, `"whole"`) {
			return
		}
	}
}
