package gateway

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"parley/event"
	"parley/gateway/wire"
)

// What is no handshake of WebSocket is answered by HTTP, as a problem with a
// code, before anything is looked up or made.
func TestHandshakesThatAreNone(t *testing.T) {
	rooms := newCoreRooms()
	s := serve(t, rooms)
	const path = "/v1/rooms/room-1/ws"
	token := "Authorization: Bearer " + mint(t, host("h"))
	for _, c := range []struct {
		name   string
		send   string
		status int
		code   wire.Code // of the problem; "": the answer is net/http's own
	}{
		{"POST", strings.Replace(handshake(path, token, "Origin"), "GET", "POST", 1), 405, ""},
		{"HEAD", strings.Replace(handshake(path, token, "Origin"), "GET", "HEAD", 1), 405, ""},
		{"a made-up method", strings.Replace(handshake(path, token, "Origin"), "GET", "PARLEY", 1), 405, ""},
		{"HTTP/1.0", strings.Replace(handshake(path, token, "Origin"), "HTTP/1.1", "HTTP/1.0", 1), 426, wire.CodeBadRequest},
		{"no Host", handshake(path, token, "Origin", "Host"), 400, ""},
		{"no Upgrade", handshake(path, token, "Origin", "Upgrade"), 426, wire.CodeBadRequest},
		{"another Upgrade", handshake(path, token, "Origin", "Upgrade: h2c"), 426, wire.CodeBadRequest},
		{"no Connection", handshake(path, token, "Origin", "Connection"), 426, wire.CodeBadRequest},
		{"another Connection", handshake(path, token, "Origin", "Connection: keep-alive"), 426, wire.CodeBadRequest},
		{"no version", handshake(path, token, "Origin", "Sec-WebSocket-Version"), 426, wire.CodeBadRequest},
		{"version 8", handshake(path, token, "Origin", "Sec-WebSocket-Version: 8"), 426, wire.CodeBadRequest},
		{"no key", handshake(path, token, "Origin", "Sec-WebSocket-Key"), 400, wire.CodeBadRequest},
		{"a short key", handshake(path, token, "Origin", "Sec-WebSocket-Key: c2hvcnQ="), 400, wire.CodeBadRequest},
		{"a key that is no base64", handshake(path, token, "Origin", "Sec-WebSocket-Key: ????????????????????????"), 400, wire.CodeBadRequest},
		{"a foreign origin", handshake(path, "Origin: https://evil.example"), 403, wire.CodeForbidden},
		{"an origin of another scheme", handshake(path, "Origin: "+strings.Replace(testOrigin, "https", "http", 1)), 403, wire.CodeForbidden},
		{"an origin in capitals", handshake(path, "Origin: "+strings.ToUpper(testOrigin)), 403, wire.CodeForbidden},
		{"an opaque origin", handshake(path, "Origin: null"), 403, wire.CodeForbidden},
		{"no origin and no token", handshake(path, "Origin"), 403, wire.CodeForbidden},
		{"a room with a slash", handshake("/v1/rooms/a%2Fb/ws", token, "Origin"), 404, wire.CodeNotFound},
		{"a room of no name", handshake("/v1/rooms//ws", token, "Origin"), 0, ""},
		{"a room with a long name", handshake("/v1/rooms/"+strings.Repeat("r", 129)+"/ws", token, "Origin"), 404, wire.CodeNotFound},
		{"another path", handshake("/v1/rooms/room-1/wss", token, "Origin"), 404, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := s.request(t, c.send)
			defer p.c.Close()
			if p.ok.StatusCode == 101 || c.status != 0 && p.ok.StatusCode != c.status {
				t.Fatalf("status %d, want %d", p.ok.StatusCode, c.status)
			}
			if c.code == "" {
				return
			}
			var problem struct {
				Code   wire.Code
				Status int
			}
			if err := json.NewDecoder(p.ok.Body).Decode(&problem); err != nil || problem.Code != c.code || problem.Status != c.status {
				t.Errorf("problem %+v (%v), want %s", problem, err, c.code)
			}
			if c.status == 426 && p.ok.Header.Get("Upgrade") == "" && p.ok.Header.Get("Sec-Websocket-Version") != "13" {
				t.Errorf("the answer does not say what is spoken here: %v", p.ok.Header)
			}
		})
	}
	// A host's token would have made the room.
	if n := len(rooms.entries("room-1")); n != 0 {
		t.Errorf("a handshake that is none wrote %d entries", n)
	}
	if got := s.Stats(); got.Connections != 0 || got.Connects != 0 || got.TurnedAway[wire.CodeBadRequest] != 11 {
		t.Errorf("%d connections of %d, %d turned away", got.Connections, got.Connects, got.TurnedAway[wire.CodeBadRequest])
	}
	s.rawLive(t, "room-1", "ann").goesOn("probe")
}

// Versions of the protocol are subprotocols, compared whole.
func TestSubprotocols(t *testing.T) {
	s := serve(t, newCoreRooms())
	for offer, taken := range map[string]bool{
		" parley.v1": true, " parley.v2, parley.v1": true, " chat,parley.v1 ,x": true,
		" parley.v2": false, " PARLEY.V1": false, " parley.v1.1": false, " ": false,
	} {
		p := s.raw(t, "room-1", "Sec-WebSocket-Protocol:"+offer)
		if got := p.ok.Header.Get("Sec-Websocket-Protocol"); (got == wire.Subprotocol) != taken {
			t.Errorf("offered %q, took %q", offer, got)
		}
		if taken {
			p.write(text(helloText(t, "ann")))
			p.goesOn("probe")
			p.write(closeFrame(1000, ""))
			p.end()
			continue
		}
		// Not even a hello is looked at.
		p.write(text(helloText(t, "ann")))
		if code, _, texts := p.end(); code != int(wire.CloseVersionUnsupported) || len(texts) != 0 {
			t.Errorf("offered %q: closed with %d after %q", offer, code, texts)
		}
	}
}

// Compression is declined, so that a message has the length that it is limited to.
func TestCompressionIsDeclined(t *testing.T) {
	s := serve(t, newCoreRooms())
	for _, offer := range []string{
		" permessage-deflate", " permessage-deflate; client_max_window_bits", " x-webkit-deflate-frame", " permessage-bzip2, permessage-deflate; server_no_context_takeover",
	} {
		p := s.raw(t, "room-1", "Sec-WebSocket-Extensions:"+offer)
		if got := p.ok.Header.Values("Sec-Websocket-Extensions"); len(got) != 0 {
			t.Errorf("offered %q, agreed on %q", offer, got)
		}
		p.write(text(helloText(t, "ann")))
		p.goesOn("plain")
		p.write(plain(fin|rsv1|opText, "\xaa\x56\x2a\xa9\x2c\x48\x55\xb2\x52\x4a\x4c\xce\x56\xaa\x05\x00")) // deflated
		if code, _, _ := p.end(); code != 1002 {
			t.Errorf("a compressed frame: closed with %d", code)
		}
	}
}

// A client that sends frames before it has the answer to its handshake is let go.
func TestFramesBeforeTheAnswer(t *testing.T) {
	s := serve(t, newCoreRooms())
	p := s.rawLive(t, "room-1", "wendy")
	c, err := dialTCP(t, s)
	if err != nil {
		t.Fatal(err)
	}
	early := &raw{t: t, c: c}
	early.write([]byte(handshake("/v1/rooms/room-1/ws") + string(text(helloText(t, "ann")))))
	if n, err := c.Read(make([]byte, 4096)); err == nil { // unless the two came apart
		t.Logf("%d bytes were answered", n)
	}
	p.goesOn("probe")
	waitUntil(t, func() bool { c.Close(); return s.Stats().Connections == 1 })
}

// Headers without end are cut off by the server that the gateway stands in; what
// goes through costs what it has to, and nobody else notices.
func TestFloodsOfHeaders(t *testing.T) {
	s := serve(t, newCoreRooms())
	limited := httptest.NewUnstartedServer(s.Handler())
	limited.Config.MaxHeaderBytes = 32 << 10
	limited.Start()
	defer limited.Close()
	s.http.Close()
	s.http = limited
	witness := s.rawLive(t, "room-1", "wendy")
	for name, send := range map[string]string{
		"one long header":    handshake("/v1/rooms/room-1/ws", "X-Flood: "+strings.Repeat("x", 1<<20)),
		"many headers":       handshake("/v1/rooms/room-1/ws", strings.Repeat("X-Flood: x\r\n", 50_000)+"X-End: 1"),
		"a long address":     strings.Replace(handshake("/v1/rooms/room-1/ws"), "/ws", "/ws?"+strings.Repeat("q", 1<<20), 1),
		"many subprotocols":  handshake("/v1/rooms/room-1/ws", "Sec-WebSocket-Protocol:"+strings.Repeat(" x,", 200_000)+" parley.v1"),
		"a long bearer":      handshake("/v1/rooms/room-1/ws", "Origin", "Authorization: Bearer "+strings.Repeat("a", 1<<20)),
		"many forwarded for": handshake("/v1/rooms/room-1/ws", "X-Forwarded-For: "+strings.Repeat("10.0.0.1, ", 100_000)),
	} {
		p := s.request(t, send)
		if p.ok.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("%s: status %d", name, p.ok.StatusCode)
		}
		p.c.Close()
	}
	// What is within the limit is only long.
	p := s.request(t, handshake("/v1/rooms/room-1/ws", "Origin", "Authorization: Bearer "+strings.Repeat("a.", 10_000)))
	if p.ok.StatusCode != 401 {
		t.Errorf("a long token: status %d", p.ok.StatusCode)
	}
	witness.goesOn("probe")
	if got := s.Stats(); got.Connections != 1 {
		t.Errorf("%d connections", got.Connections)
	}
}

// A room is made only by who may come in: a handshake that fails after all
// changes nothing (validate before mutating).
func TestAFailedHandshakeMakesNoRoom(t *testing.T) {
	rooms := newCoreRooms()
	s := serve(t, rooms)
	token := "Authorization: Bearer " + mint(t, host("h"))
	for i, change := range []string{"Sec-WebSocket-Key: short", "Sec-WebSocket-Version: 7", "Upgrade", "Connection"} {
		room := event.RoomID("room-made-" + string(rune('a'+i)))
		p := s.request(t, handshake("/v1/rooms/"+string(room)+"/ws", token, "Origin", change))
		if p.ok.StatusCode < 400 || len(rooms.entries(room)) != 0 {
			t.Errorf("%s: status %d and %d entries", change, p.ok.StatusCode, len(rooms.entries(room)))
		}
	}
	p := s.request(t, handshake("/v1/rooms/room-made/ws", token, "Origin"))
	if p.ok.StatusCode != 101 || len(rooms.entries("room-made")) == 0 {
		t.Errorf("a whole handshake: status %d", p.ok.StatusCode)
	}
}
