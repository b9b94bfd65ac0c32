package gateway

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"go.uber.org/goleak"

	"parley/event"
	"parley/gateway/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	testIssuer   = "https://issuer.example"
	testAudience = "parley"
	testOrigin   = "https://game.example"
)

var (
	testSecret  = bytes.Repeat([]byte{7}, 32)
	testSigning = SigningKey{Ed25519: ed25519.NewKeyFromSeed(bytes.Repeat([]byte{3}, 32))}
	testAuth    = Auth{
		Keys: []Key{{Ed25519: testSigning.Ed25519.Public().(ed25519.PublicKey)}}, Issuer: testIssuer, Audience: testAudience,
	}
	testTemplate = event.RoomConfig{
		Agents: []event.Agent{
			{ID: "guide", Label: "Guide", Role: "guide", Driver: "scripted"},
			{ID: "shadow", Label: "Shadow", Role: "character", Driver: "scripted", Visibility: event.ToParticipants("ann")},
		},
		FallbackAgent: "guide", Phase: "lobby",
	}
)

// player is what most tests are: reads and writes public, and a private channel.
func player(sub string) event.Access {
	return event.Access{
		Subject: event.ParticipantID(sub), Rooms: []string{"room-*", "r"},
		Scopes: []event.Scope{event.ScopeRead, event.ScopeInput, event.ScopeCancel},
		Channels: []event.ChannelRule{
			{Match: "public", Can: []event.Scope{event.ScopeRead, event.ScopeInput, event.ScopeCancel}, Disclosure: event.ToRoom()},
			{Match: "private:{sub}", Can: []event.Scope{event.ScopeRead, event.ScopeInput, event.ScopeCancel}, Disclosure: event.ToParticipants("{sub}")},
		},
	}
}

func host(sub string) event.Access {
	return event.Access{Subject: event.ParticipantID(sub), Rooms: []string{"**"}, Scopes: []event.Scope{event.ScopeHost}}
}

// mint issues a token that lives for an hour unless told otherwise.
func mint(t testing.TB, a event.Access, life ...time.Duration) string {
	t.Helper()
	now := time.Now()
	exp := now.Add(time.Hour)
	if len(life) > 0 {
		exp = now.Add(life[0])
	}
	s, err := Mint(testSigning, Claims{
		Issuer: testIssuer, Audience: testAudience, Access: a, IssuedAt: exp.Add(-2 * time.Hour), Expires: exp,
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// server is a Gateway on a loopback socket.
type server struct {
	*Gateway
	http *httptest.Server
}

func serve(t testing.TB, rooms Rooms, change ...func(*Config)) *server {
	t.Helper()
	cfg := Config{
		Rooms: rooms, Auth: testAuth, Secret: testSecret, Origins: []string{testOrigin},
		Templates: func(id event.RoomID) (*event.RoomConfig, bool) {
			if !strings.HasPrefix(string(id), "room-") {
				return nil, false
			}
			return &testTemplate, true
		},
	}
	for _, f := range change {
		f(&cfg)
	}
	g, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{Gateway: g, http: httptest.NewServer(g.Handler())}
	t.Cleanup(func() {
		g.Close()
		s.http.Close()
		if c, ok := rooms.(interface{ Close() }); ok {
			c.Close()
		}
	})
	return s
}

// peer is a client without any rules of its own.
type peer struct {
	t  testing.TB
	ws *websocket.Conn
}

type frame map[string]any

func (s *server) url(room string) string {
	return "ws" + strings.TrimPrefix(s.http.URL, "http") + "/v1/rooms/" + room + "/ws"
}

// dial opens a connection as a browser of the allowed origin does.
func (s *server) dial(t testing.TB, room string) *peer {
	t.Helper()
	p, refused := s.tryDial(t, room, http.Header{"Origin": {testOrigin}})
	if refused != nil {
		t.Fatalf("dial: %+v", refused)
	}
	return p
}

// turnedAway is an upgrade that was refused.
type turnedAway struct {
	status int
	retry  string
	err    error
}

func dialWith(t testing.TB, d websocket.Dialer, url string, h http.Header) (*peer, *turnedAway) {
	t.Helper()
	ws, resp, err := d.Dial(url, h)
	if err != nil {
		r := &turnedAway{err: err}
		if resp != nil {
			r.status, r.retry = resp.StatusCode, resp.Header.Get("Retry-After")
			resp.Body.Close()
		}
		return nil, r
	}
	resp.Body.Close()
	t.Cleanup(func() { ws.Close() })
	return &peer{t: t, ws: ws}, nil
}

func (s *server) tryDial(t testing.TB, room string, h http.Header) (*peer, *turnedAway) {
	t.Helper()
	return dialWith(t, websocket.Dialer{Subprotocols: []string{wire.Subprotocol}, HandshakeTimeout: 5 * time.Second}, s.url(room), h)
}

// hello sends a hello; more members come from pairs of name and value.
func (p *peer) hello(token string, channels []string, more ...any) *peer {
	p.t.Helper()
	f := frame{"type": "hello", "token": token, "channels": channels}
	for i := 0; i < len(more); i += 2 {
		f[more[i].(string)] = more[i+1]
	}
	p.send(f)
	return p
}

func (p *peer) send(f frame) {
	p.t.Helper()
	b, err := json.Marshal(f)
	if err != nil {
		p.t.Fatal(err)
	}
	p.sendRaw(string(b))
}

func (p *peer) sendRaw(s string) {
	p.t.Helper()
	if err := p.ws.WriteMessage(websocket.TextMessage, []byte(s)); err != nil {
		p.t.Fatalf("send: %v", err)
	}
}

// patience bounds every wait of a test; nothing depends on it but failures.
const patience = 20 * time.Second

// read returns the next frame of any type.
func (p *peer) read() (frame, error) {
	_ = p.ws.SetReadDeadline(time.Now().Add(patience))
	_, b, err := p.ws.ReadMessage()
	if err != nil {
		return nil, err
	}
	var f frame
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, fmt.Errorf("%w: %s", err, b)
	}
	return f, nil
}

func (p *peer) next() frame {
	p.t.Helper()
	f, err := p.read()
	if err != nil {
		p.t.Fatalf("read: %v", err)
	}
	return f
}

// expect returns the next frame, which must be of that type.
func (p *peer) expect(typ string) frame {
	p.t.Helper()
	f := p.next()
	if f["type"] != typ {
		p.t.Fatalf("got %v, want a frame of type %s", f, typ)
	}
	return f
}

// until skips frames up to one of that type.
func (p *peer) until(typ string) frame {
	p.t.Helper()
	for {
		if f := p.next(); f["type"] == typ {
			return f
		}
	}
}

// closed reads up to the close frame and checks its code. It returns the last
// frame before it.
func (p *peer) closed(want wire.Close) frame {
	p.t.Helper()
	var last frame
	for {
		f, err := p.read()
		if err == nil {
			last = f
			continue
		}
		if ce, ok := errors.AsType[*websocket.CloseError](err); !ok || ce.Code != int(want) {
			p.t.Fatalf("the connection ended with %v after %v, want code %d", err, last, want)
		} else if want != wire.CloseTooLarge && ce.Text != want.Word() {
			p.t.Fatalf("close reason %q, want %q", ce.Text, want.Word())
		}
		return last
	}
}

// items reads events frames until n items have come, and checks their numbers.
func (p *peer) items(n int) []frame {
	p.t.Helper()
	var out []frame
	for len(out) < n {
		f := p.until("events")
		out = append(out, itemsOf(f)...)
	}
	if len(out) != n {
		p.t.Fatalf("got %d items, want %d: %v", len(out), n, out)
	}
	return out
}

func itemsOf(f frame) []frame {
	var out []frame
	for _, i := range f["items"].([]any) {
		out = append(out, frame(i.(map[string]any)))
	}
	return out
}

func body(f frame) map[string]any { return f["body"].(map[string]any) }

// live opens a connection and reads it up to caught_up.
func (s *server) live(t testing.TB, room, sub string, channels ...string) *peer {
	t.Helper()
	p := s.dial(t, room).hello(mint(t, player(sub)), channels)
	p.expect("ready")
	p.until("caught_up")
	return p
}

// get sends a plain GET, for what is refused before the upgrade.
func (s *server) get(t testing.TB, path string, h http.Header) (int, http.Header, map[string]any) {
	t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, s.http.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range h {
		req.Header[k] = v
	}
	tr := &http.Transport{DialContext: (&net.Dialer{}).DialContext, DisableKeepAlives: true}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var problem map[string]any
	_ = json.NewDecoder(resp.Body).Decode(&problem)
	return resp.StatusCode, resp.Header, problem
}
