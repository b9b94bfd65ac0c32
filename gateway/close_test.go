package gateway

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"parley/event"
	"parley/gateway/wire"
)

func TestWhatEndsAConnection(t *testing.T) {
	s := serve(t, newCoreRooms())
	ann := mint(t, player("ann"))
	live := func(t *testing.T) *peer { return s.live(t, "room-1", "ann", "public") }
	dial := func(t *testing.T) *peer { return s.dial(t, "room-1") }
	for _, c := range []struct {
		name string
		code wire.Close
		word wire.Code // of the fatal error before it
		do   func(t *testing.T) *peer
	}{
		{"a binary frame", wire.CloseUnsupported, "", func(t *testing.T) *peer {
			p := live(t)
			if err := p.ws.WriteMessage(websocket.BinaryMessage, []byte("{}")); err != nil {
				t.Fatal(err)
			}
			return p
		}},
		{"text that is not UTF-8", wire.CloseInvalidUTF8, "", func(t *testing.T) *peer {
			p := live(t)
			p.sendRaw("{\"type\":\"ack\",\"n\":0,\"x\":\"\xc3\x28\"}")
			return p
		}},
		{"a frame over the limit", wire.CloseTooLarge, "", func(t *testing.T) *peer {
			p := live(t)
			p.sendRaw(`{"type":"ack","n":0,"x":"` + strings.Repeat("x", wire.MaxClientFrame) + `"}`)
			return p
		}},
		{"a hello over its limit", wire.CloseTooLarge, "", func(t *testing.T) *peer {
			return dial(t).hello(ann, []string{"public"}, "x", strings.Repeat("x", wire.MaxHelloFrame))
		}},
		{"malformed JSON", wire.CloseBadRequest, wire.CodeBadRequest, func(t *testing.T) *peer {
			p := live(t)
			p.sendRaw(`{"type":`)
			return p
		}},
		{"a member of the wrong type", wire.CloseBadRequest, wire.CodeBadRequest, func(t *testing.T) *peer {
			p := live(t)
			p.sendRaw(`{"type":"cancel","ref":1,"run":"r"}`)
			return p
		}},
		{"a second hello", wire.CloseBadRequest, wire.CodeBadRequest, func(t *testing.T) *peer {
			return live(t).hello(ann, []string{"public"})
		}},
		{"a frame before hello", wire.CloseBadRequest, wire.CodeBadRequest, func(t *testing.T) *peer {
			p := dial(t)
			p.send(frame{"type": "ack", "n": 0})
			return p
		}},
		{"an unknown frame before hello", wire.CloseBadRequest, wire.CodeUnknownType, func(t *testing.T) *peer {
			p := dial(t)
			p.send(frame{"type": "dance"})
			return p
		}},
		{"no channels", wire.CloseBadRequest, wire.CodeBadRequest, func(t *testing.T) *peer {
			p := dial(t)
			p.send(frame{"type": "hello", "token": ann})
			return p
		}},
		{"an ack of what was not sent", wire.CloseBadRequest, wire.CodeBadRequest, func(t *testing.T) *peer {
			p := live(t)
			p.send(frame{"type": "ack", "n": 1})
			return p
		}},
		{"no token", wire.CloseUnauthenticated, "", func(t *testing.T) *peer { return dial(t).hello("", []string{"public"}) }},
		{"a token of nobody", wire.CloseUnauthenticated, "", func(t *testing.T) *peer { return dial(t).hello("a.b.c", []string{"public"}) }},
		{"a token that was changed", wire.CloseUnauthenticated, "", func(t *testing.T) *peer {
			return dial(t).hello(ann[:len(ann)-6]+"AAAAAA", []string{"public"})
		}},
		{"a token that has expired", wire.CloseTokenExpired, "", func(t *testing.T) *peer {
			return dial(t).hello(mint(t, player("ann"), -40*time.Second), []string{"public"})
		}},
		{"a token within the leeway but beyond the grace", wire.CloseTokenExpired, "", func(t *testing.T) *peer {
			return dial(t).hello(mint(t, player("ann"), -27*time.Second), []string{"public"})
		}},
		{"a host's token from a browser", wire.CloseForbidden, "", func(t *testing.T) *peer {
			return dial(t).hello(mint(t, host("h")), []string{"public"})
		}},
		{"no channel left", wire.CloseForbidden, "", func(t *testing.T) *peer {
			return dial(t).hello(ann, []string{"private:bob", "secret"})
		}},
		{"no channel asked", wire.CloseForbidden, "", func(t *testing.T) *peer { return dial(t).hello(ann, []string{}) }},
		{"a room that the token is not for", wire.CloseRoomNotFound, "", func(t *testing.T) *peer {
			return s.dial(t, "hall").hello(ann, []string{"public"})
		}},
		{"a room that does not exist", wire.CloseRoomNotFound, wire.CodeNotFound, func(t *testing.T) *peer {
			return s.dial(t, "r").hello(ann, []string{"public"})
		}},
		{"no subprotocol", wire.CloseVersionUnsupported, "", func(t *testing.T) *peer {
			p, refused := dialWith(t, websocket.Dialer{}, s.url("room-1"), http.Header{"Origin": {testOrigin}})
			if refused != nil {
				t.Fatal(refused.err)
			}
			return p
		}},
		{"far too many frames", wire.CloseRateLimited, wire.CodeRateLimited, func(t *testing.T) *peer {
			p := live(t)
			for range 100 + maxExcess + 50 {
				if p.ws.WriteMessage(websocket.TextMessage, []byte(`{"type":"pong","t":1}`)) != nil {
					break // it was closed already
				}
			}
			return p
		}},
		// Each is answered until the rate ends it: the answers are not what it is closed for.
		{"far too many unknown frames at once", wire.CloseRateLimited, wire.CodeRateLimited, func(t *testing.T) *peer {
			p := live(t)
			text := `{"type":"juggle","ref":"r"}`
			one := append([]byte{0x81, 0x80 | byte(len(text)), 0, 0, 0, 0}, text...) // masked with zeros
			_, _ = p.ws.UnderlyingConn().Write(bytes.Repeat(one, 100+maxExcess+50))  // it may be closed on the way
			return p
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			last := c.do(t).closed(c.code)
			if c.word != "" && (last["type"] != "error" || last["code"] != string(c.word) || last["fatal"] != true) {
				t.Errorf("the last frame is %v, want a fatal %s", last, c.word)
			}
			if c.word == "" && last["fatal"] == true {
				t.Errorf("the last frame is %v", last)
			}
		})
	}
	// The rooms are unharmed.
	s.live(t, "room-1", "ann", "public")
}

func TestWhatIsRefusedBeforeTheUpgrade(t *testing.T) {
	s := serve(t, newCoreRooms())
	up := func(more ...string) http.Header {
		h := http.Header{
			"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"},
			"Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="}, "Sec-Websocket-Protocol": {wire.Subprotocol},
		}
		for i := 0; i < len(more); i += 2 {
			h[more[i]] = []string{more[i+1]}
		}
		return h
	}
	bearer := func(a event.Access, life ...time.Duration) string { return "Bearer " + mint(t, a, life...) }
	for _, c := range []struct {
		name   string
		path   string
		header http.Header
		status int
		code   string
	}{
		{"a foreign origin", "/v1/rooms/room-1/ws", up("Origin", "https://evil.example"), 403, "forbidden"},
		{"an origin that begins like ours", "/v1/rooms/room-1/ws", up("Origin", testOrigin+".evil.example"), 403, "forbidden"},
		{"a foreign origin with a token", "/v1/rooms/room-1/ws", up("Origin", "null", "Authorization", bearer(player("ann"))), 403, "forbidden"},
		{"neither origin nor token", "/v1/rooms/room-1/ws", up(), 403, "forbidden"},
		{"another scheme", "/v1/rooms/room-1/ws", up("Authorization", "Basic eDp5"), 401, "unauthenticated"},
		{"a wrong token", "/v1/rooms/room-1/ws", up("Authorization", "Bearer x.y.z"), 401, "unauthenticated"},
		{"an expired token", "/v1/rooms/room-1/ws", up("Authorization", bearer(player("ann"), -time.Minute)), 401, "token_expired"},
		{"a token for another room", "/v1/rooms/hall/ws", up("Authorization", bearer(player("ann"))), 404, "not_found"},
		{"a room that does not exist", "/v1/rooms/r/ws", up("Authorization", bearer(player("ann"))), 404, "not_found"},
		{"a host from a browser", "/v1/rooms/room-1/ws", up("Origin", testOrigin, "Authorization", bearer(host("h"))), 403, "forbidden"},
		{"a name that cannot be", "/v1/rooms/a%20b/ws", up("Origin", testOrigin), 404, "not_found"},
		{"no upgrade", "/v1/rooms/room-1/ws", http.Header{"Origin": {testOrigin}}, 426, "bad_request"},
		{"a token in the address", "/v1/rooms/room-1/ws?token=" + mint(t, player("ann")), up(), 403, "forbidden"},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, header, problem := s.get(t, c.path, c.header)
			if status != c.status || problem["code"] != c.code || problem["status"] != float64(c.status) {
				t.Errorf("got %d %v, want %d %s", status, problem, c.status, c.code)
			}
			if ct := header.Get("Content-Type"); ct != "application/problem+json" {
				t.Errorf("content type %q", ct)
			}
		})
	}
	if n := s.Stats().Connections; n != 0 {
		t.Errorf("%d connections are counted", n)
	}
}

func TestHealthAndReadiness(t *testing.T) {
	s := serve(t, newCoreRooms())
	status := func(path string) int {
		code, _, _ := s.get(t, path, nil)
		return code
	}
	if status("/healthz") != 200 || status("/readyz") != 503 {
		t.Error("a gateway is ready before it is told so")
	}
	s.SetReady(true)
	if status("/readyz") != 200 {
		t.Error("not ready")
	}
}

func TestServersAndHostsComeWithAHeader(t *testing.T) {
	rooms := newCoreRooms()
	s := serve(t, rooms)
	p, refused := s.tryDial(t, "room-9", http.Header{"Authorization": {"Bearer " + mint(t, host("h"))}})
	if refused != nil {
		t.Fatal(refused.err)
	}
	p.send(frame{"type": "hello"}) // all channels, for a host only
	if r := p.expect("ready"); r["sub"] != "h" || len(r["can"].(map[string]any)) != 0 {
		t.Errorf("ready: %v", r)
	}
	p.until("caught_up")
	ann := s.live(t, "room-9", "ann", "private:ann")
	ann.send(frame{"type": "input", "id": "i1", "channel": "private:ann", "text": "psst", "modality": "text"})
	ann.until("accepted")
	items := p.items(2)
	if body(items[0])["inputId"] != "i1" || items[1]["sequence"] != 1.0 {
		t.Errorf("a host gets %v", items)
	}
	// A token of somebody else in hello does not go with the header.
	p, refused = s.tryDial(t, "room-9", http.Header{"Authorization": {"Bearer " + mint(t, player("ann"))}})
	if refused != nil {
		t.Fatal(refused.err)
	}
	p.hello(mint(t, player("bob")), []string{"public"}).closed(wire.CloseUnauthenticated)
}

func TestPlacesOfASubject(t *testing.T) {
	s := serve(t, newCoreRooms())
	open := func(session string) *peer {
		return s.dial(t, "room-1").hello(mint(t, player("ann")), []string{"public"}, "session", session)
	}
	var tabs []*peer
	for i := range 8 {
		p := open(strings.Repeat("s", i+1))
		p.until("caught_up")
		tabs = append(tabs, p)
	}
	open("ninth").closed(wire.CloseRateLimited)
	// A returning session takes its own place, also of a full house.
	again := open("s")
	again.until("caught_up")
	tabs[0].closed(wire.CloseReplaced)
	// The late end of the old connection did nothing to the new one.
	again.send(frame{"type": "focus", "ref": "f", "agent": "guide"})
	again.until("done")
	open("tenth").closed(wire.CloseRateLimited)
	// Another subject and another room are not concerned.
	s.live(t, "room-1", "bob", "public")
	s.live(t, "room-2", "ann", "public")
	// A place that was left can be taken.
	tabs[1].ws.Close()
	for {
		p := open("eleventh")
		if f, err := p.read(); err == nil && f["type"] == "ready" {
			break
		}
		p.ws.Close()
	}
}

func TestSameSessionOfAnotherSubjectIsNotReplaced(t *testing.T) {
	s := serve(t, newCoreRooms())
	ann := s.dial(t, "room-1").hello(mint(t, player("ann")), []string{"public"}, "session", "same")
	ann.until("caught_up")
	bob := s.dial(t, "room-1").hello(mint(t, player("bob")), []string{"public"}, "session", "same")
	bob.until("caught_up")
	// Neither does a connection that is refused.
	s.dial(t, "room-1").hello(mint(t, player("ann"))+"x", []string{"public"}, "session", "same").closed(wire.CloseUnauthenticated)
	s.dial(t, "room-1").hello(mint(t, player("ann")), []string{"secret"}, "session", "same").closed(wire.CloseForbidden)
	ann.send(frame{"type": "focus", "ref": "f", "agent": "guide"})
	ann.until("done")
}

func TestLimitsOfTheNode(t *testing.T) {
	header := http.Header{"Origin": {testOrigin}}
	t.Run("connections", func(t *testing.T) {
		s := serve(t, newCoreRooms(), func(c *Config) { c.Limits.Connections = 2 })
		s.live(t, "room-1", "ann", "public")
		s.dial(t, "room-1") // counted before its hello
		if _, r := s.tryDial(t, "room-1", header); r == nil || r.status != 503 || r.retry == "" {
			t.Errorf("the third: %+v", r)
		}
	})
	t.Run("address", func(t *testing.T) {
		s := serve(t, newCoreRooms(), func(c *Config) { c.Limits.PerAddress = 1 })
		s.live(t, "room-1", "ann", "public")
		if _, r := s.tryDial(t, "room-1", header); r == nil || r.status != 429 || r.retry == "" {
			t.Errorf("the second: %+v", r)
		}
	})
	t.Run("subject", func(t *testing.T) {
		s := serve(t, newCoreRooms(), func(c *Config) { c.Limits.PerSubject = 1 })
		s.live(t, "room-1", "ann", "public")
		s.dial(t, "room-2").hello(mint(t, player("ann")), []string{"public"}).closed(wire.CloseRateLimited)
	})
	t.Run("rooms created", func(t *testing.T) {
		rooms := newCoreRooms()
		s := serve(t, rooms, func(c *Config) { c.Limits.CreatesPerMin = 2 })
		s.live(t, "room-1", "ann", "public")
		s.live(t, "room-2", "ann", "public")
		s.live(t, "room-1", "ann", "public") // exists
		last := s.dial(t, "room-3").hello(mint(t, player("ann")), []string{"public"}).closed(wire.CloseRateLimited)
		if last["code"] != "rate_limited" || last["retryMs"] == nil {
			t.Errorf("got %v", last)
		}
		s.live(t, "room-3", "bob", "public")
	})
}

func TestTemplatesThatAreForHostsOnly(t *testing.T) {
	s := serve(t, newCoreRooms(), func(c *Config) {
		c.Templates = func(event.RoomID) (*event.RoomConfig, bool) { return &testTemplate, false }
	})
	s.dial(t, "room-1").hello(mint(t, player("ann")), []string{"public"}).closed(wire.CloseRoomNotFound)
	p, refused := s.tryDial(t, "room-1", http.Header{"Authorization": {"Bearer " + mint(t, host("h"))}})
	if refused != nil {
		t.Fatal(refused.err)
	}
	p.send(frame{"type": "hello"})
	p.until("caught_up")
	s.live(t, "room-1", "ann", "public")
}

func TestAddressesBehindATrustedProxy(t *testing.T) {
	g := serve(t, newCoreRooms(), func(c *Config) {
		c.TrustedProxies = prefixes("10.0.0.0/8", "::1/128")
	}).Gateway
	for _, c := range []struct {
		remote, forwarded, want string
	}{
		{"198.51.100.7:1", "203.0.113.9", "198.51.100.7"},
		{"10.1.1.1:1", "203.0.113.9", "203.0.113.9"},
		{"10.1.1.1:1", "203.0.113.9, 198.51.100.3, 10.2.2.2", "198.51.100.3"},
		{"10.1.1.1:1", "garbage", "10.1.1.1"},
		{"10.1.1.1:1", "", "10.1.1.1"},
		{"[2001:db8:1:2:3:4:5:6]:1", "", "2001:db8:1:2::"},
		{"[::ffff:198.51.100.7]:1", "", "198.51.100.7"},
	} {
		r := &http.Request{RemoteAddr: c.remote, Header: http.Header{}}
		if c.forwarded != "" {
			r.Header.Set("X-Forwarded-For", c.forwarded)
		}
		if got := g.address(r).String(); got != c.want {
			t.Errorf("%s for %q: got %s, want %s", c.remote, c.forwarded, got, c.want)
		}
	}
}
