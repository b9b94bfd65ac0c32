package gateway

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gorilla/websocket"
	"go.uber.org/zap"

	"parley/event"
	"parley/gateway/wire"
)

// refusal is a request that is answered by an HTTP problem (RFC 9457).
type refusal struct {
	status int
	code   wire.Code
	detail string
	retry  int // seconds; 0: none
}

func (r *refusal) answer(w http.ResponseWriter) {
	body, err := json.Marshal(map[string]any{
		"type": "about:blank", "title": http.StatusText(r.status), "status": r.status, "code": r.code, "detail": r.detail,
	})
	if err != nil {
		http.Error(w, "", http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	if r.retry > 0 {
		h.Set("Retry-After", strconv.Itoa(r.retry))
	}
	w.WriteHeader(r.status)
	w.Write(body)
}

// turnAway counts and answers a request that does not become a connection.
func (g *Gateway) turnAway(w http.ResponseWriter, r *refusal) {
	g.stats.turnsAway(r.code)
	r.answer(w)
}

func answerText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	w.Write([]byte(text))
}

// The words of HTTP problems that are no codes of frames: a frame cannot be
// refused for them, only a whole connection.
const (
	problemUnauthenticated wire.Code = "unauthenticated"
	problemTokenExpired    wire.Code = "token_expired"
)

// serveWS upgrades a request. All that can be known before is checked before:
// the name of the room, the handshake, the origin, a token in the header and its
// room, and the node's limits. Everything else is answered on the connection.
func (g *Gateway) serveWS(w http.ResponseWriter, r *http.Request) {
	room := event.RoomID(r.PathValue("room"))
	if err := event.CheckName(string(room)); err != nil {
		g.turnAway(w, &refusal{http.StatusNotFound, wire.CodeNotFound, "there is no such room", 0})
		return
	}
	if r.Method != http.MethodGet { // HEAD comes here too
		w.Header().Set("Allow", http.MethodGet)
		g.turnAway(w, &refusal{http.StatusMethodNotAllowed, wire.CodeBadRequest, "a WebSocket begins with GET", 0})
		return
	}
	if !websocket.IsWebSocketUpgrade(r) || !r.ProtoAtLeast(1, 1) {
		w.Header().Set("Upgrade", "websocket")
		g.turnAway(w, &refusal{http.StatusUpgradeRequired, wire.CodeBadRequest, "this address speaks WebSocket", 0})
		return
	}
	if r.Header.Get("Sec-Websocket-Version") != "13" {
		w.Header().Set("Sec-Websocket-Version", "13")
		g.turnAway(w, &refusal{http.StatusUpgradeRequired, wire.CodeBadRequest, "this address speaks version 13 of WebSocket", 0})
		return
	}
	if key, err := base64.StdEncoding.DecodeString(r.Header.Get("Sec-Websocket-Key")); err != nil || len(key) != 16 {
		g.turnAway(w, &refusal{http.StatusBadRequest, wire.CodeBadRequest, "Sec-WebSocket-Key must be 16 bytes in base64", 0})
		return
	}
	token, refused := g.admitHTTP(r, room)
	if refused != nil {
		g.turnAway(w, refused)
		return
	}
	c := &conn{
		g: g, room: room, header: token, browser: r.Header.Get("Origin") != "", address: g.address(r), id: g.connID(),
	}
	c.timer.fire = c.check
	if refused := g.enter(c); refused != nil {
		g.turnAway(w, refused)
		return
	}
	if token != nil {
		if refused := g.openHTTP(room, token); refused != nil {
			g.leave(c)
			g.turnAway(w, refused)
			return
		}
	}
	ws, err := g.upgrader.Upgrade(hijacker{w, g.cfg.Limits.WriteTimeout / 2}, r, nil)
	if err != nil {
		g.leave(c) // the upgrader has answered
		return
	}
	c.begin(ws)
	// The connection has a goroutine of its own, so that the one of the HTTP
	// server and its buffers are let go: 6 KB less per connection.
	go c.serve()
}

// admitHTTP checks the origin and a token in the Authorization header.
func (g *Gateway) admitHTTP(r *http.Request, room event.RoomID) (*Token, *refusal) {
	origin := r.Header.Get("Origin")
	header := r.Header.Get("Authorization")
	switch {
	case origin != "" && !g.origins[origin]:
		return nil, &refusal{http.StatusForbidden, wire.CodeForbidden, "this origin is not allowed", 0}
	case origin == "" && header == "":
		return nil, &refusal{http.StatusForbidden, wire.CodeForbidden, "without an origin the token comes in the Authorization header", 0}
	case header == "":
		return nil, nil
	}
	scheme, raw, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return nil, &refusal{http.StatusUnauthorized, problemUnauthenticated, "the Authorization header has no Bearer token", 0}
	}
	token, err := g.verify(strings.TrimSpace(raw), origin != "")
	switch {
	case errors.Is(err, ErrTokenExpired):
		return nil, &refusal{http.StatusUnauthorized, problemTokenExpired, "the token has expired", 0}
	case errors.Is(err, errHostBrowser):
		return nil, &refusal{http.StatusForbidden, wire.CodeForbidden, "a host's token is not for browsers", 0}
	case err != nil:
		g.cfg.Logger.Debug("token refused", zap.String("room", string(room)), zap.Error(err))
		return nil, &refusal{http.StatusUnauthorized, problemUnauthenticated, "the token is not valid here", 0}
	case !token.Access.Covers(room):
		return nil, &refusal{http.StatusNotFound, wire.CodeNotFound, "there is no such room", 0}
	}
	return token, nil
}

// openHTTP opens the room before the upgrade, for a token from the header,
// whose holder can read the answer of HTTP.
func (g *Gateway) openHTTP(room event.RoomID, token *Token) *refusal {
	_, err := g.open(room, token.Access)
	if err == nil {
		return nil
	}
	e := wire.ErrorOf("", err)
	if e.Code == wire.CodeInternal {
		g.cfg.Logger.Error("room could not be opened", zap.String("room", string(room)), zap.Error(err))
	}
	return &refusal{wire.StatusOf(e.Code), e.Code, e.Message, int((e.RetryMs + 999) / 1000)}
}

var errHostBrowser = errors.New("gateway: a host's token from a browser")

// verify verifies a token for a connection. A host's token has no place in a
// browser, where any script of the page could read it.
func (g *Gateway) verify(raw string, browser bool) (*Token, error) {
	now := g.cfg.Clock()
	t, err := g.verifier.Verify(raw, now)
	if err != nil {
		return nil, err
	}
	if !now.Before(t.Expires.Add(g.cfg.Limits.ExpiryGrace)) {
		return nil, ErrTokenExpired
	}
	if browser && t.Access.Host() {
		return nil, errHostBrowser
	}
	return t, nil
}

// address returns whom a request is counted against: the peer, or behind a
// trusted proxy the last address that the proxies themselves have seen.
func (g *Gateway) address(r *http.Request) netip.Addr {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	a, _ := netip.ParseAddr(host) // what cannot be parsed counts as one address
	a = a.Unmap()
	if g.trusted(a) {
		hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
		for _, hop := range slices.Backward(hops) {
			next, err := netip.ParseAddr(strings.TrimSpace(hop))
			if err != nil {
				break
			}
			if a = next.Unmap(); !g.trusted(a) {
				break
			}
		}
	}
	if a.Is6() {
		if p, err := a.WithZone("").Prefix(64); err == nil { // one household is given as many
			a = p.Addr()
		}
	}
	return a
}

func (g *Gateway) trusted(a netip.Addr) bool {
	return slices.ContainsFunc(g.cfg.TrustedProxies, func(p netip.Prefix) bool { return p.Contains(a) })
}

// seconds is how long a token still lives, for expiresIn.
func seconds(t *Token, now time.Time) int64 {
	return max(0, int64(t.Expires.Sub(now)/time.Second))
}
