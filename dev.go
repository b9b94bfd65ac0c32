package parley

import (
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"parley/console"
	"parley/event"
	"parley/gateway"
)

// devTokenLife is how long a token of the page is good; the page refreshes it.
const devTokenLife = time.Hour

const (
	devIssuer   = "parley-dev"
	devAudience = "parley"
	devRoom     = "demo-lobby"
)

// Dev is a Runtime with a page, for trying rooms and drivers on one's own
// machine. It is for loopback only: each load of the page makes a new person,
// and whoever has the printed address comes in. Tokens of the page last an hour,
// cover rooms named demo-*, and never have host scope.
type Dev struct {
	*Runtime
	host string // host:port of the listener
	page string // the secret of the printed address
	key  Key
	// verify checks the tokens that the page refreshes.
	verify *gateway.Verifier
}

// NewDev makes a Runtime with a page that listens at addr, a loopback host:port
// whose port is known. It fills Secret, Auth and Origins of the configuration itself.
func NewDev(addr string, c Config) (*Dev, error) {
	host, port, err := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
		return nil, fmt.Errorf("address %q: the page is for this machine only; use a loopback address such as 127.0.0.1:8321", addr)
	}
	if err := os.MkdirAll(c.Data, 0o700); err != nil {
		return nil, fmt.Errorf("the data directory cannot be made: %w", err)
	}
	if c.Secret, err = keptSecret(filepath.Join(c.Data, secretFile)); err != nil {
		return nil, err
	}
	page, err := hkdf.Key(sha256.New, c.Secret, nil, "parley dev page", 18)
	if err != nil {
		return nil, fmt.Errorf("derive the page's secret: %w", err)
	}
	sign, err := hkdf.Key(sha256.New, c.Secret, nil, "parley dev tokens", 32)
	if err != nil {
		return nil, fmt.Errorf("derive the key of tokens: %w", err)
	}
	d := &Dev{
		host: addr, page: base64.RawURLEncoding.EncodeToString(page),
		key: Key{ID: "dev", Alg: "HS256", Secret: sign},
	}
	c.Auth = Auth{Issuer: devIssuer, Audience: devAudience, Keys: []Key{d.key}}
	c.Origins = nil
	c.DrainSpread = 100 * time.Millisecond // a page or two, and somebody who waits for the prompt
	for _, h := range []string{"localhost", "127.0.0.1", "[::1]"} {
		c.Origins = append(c.Origins, "http://"+h+":"+port)
	}
	if d.verify, err = gateway.NewVerifier(c.Auth.gatewayAuth()); err != nil {
		return nil, err
	}
	if d.Runtime, err = New(c); err != nil {
		return nil, err
	}
	return d, nil
}

// URL is the address to open. Its key is as good as a password for the page.
func (d *Dev) URL() string { return "http://" + d.host + "/?key=" + d.page }

// Handler serves the page beside what Runtime.Handler serves. It refuses
// requests under another host name and forwarded ones, so that no other site and
// no proxy reaches it.
func (d *Dev) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", d.Runtime.Handler())
	mux.HandleFunc("GET /{$}", d.servePage)
	mux.HandleFunc("POST /dev/token", d.serveToken)
	mux.Handle("GET /assets/", http.StripPrefix("/assets/", immutable(http.FileServerFS(console.Assets()))))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !d.local(r) {
			http.Error(w, "This server is for its own machine only. Open the address that parley dev printed.", http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func (d *Dev) local(r *http.Request) bool {
	for name := range r.Header {
		if strings.HasPrefix(name, "X-Forwarded-") || name == "Forwarded" {
			return false
		}
	}
	host, port, err := net.SplitHostPort(r.Host)
	_, own, _ := net.SplitHostPort(d.host)
	return err == nil && port == own && (host == "localhost" || host == "127.0.0.1" || host == "::1")
}

func immutable(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-cache")
		if r.URL.RawQuery != "" { // the page names the hash of the content
			w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
		}
		h.ServeHTTP(w, r)
	})
}

// servePage writes the page with the token of a new person inside.
func (d *Dev) servePage(w http.ResponseWriter, r *http.Request) {
	if subtle.ConstantTimeCompare([]byte(r.URL.Query().Get("key")), []byte(d.page)) != 1 {
		http.Error(w, "The key in the address is missing or wrong. Open the address that parley dev printed.", http.StatusForbidden)
		return
	}
	var b [5]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	tag := strings.ToLower(base64.RawURLEncoding.EncodeToString(b[:]))
	tag = strings.NewReplacer("-", "x", "_", "y").Replace(tag)
	sub := event.ParticipantID("visitor-" + tag)
	token, err := d.token(sub)
	if err != nil {
		http.Error(w, "The page could not be made.", http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self' ws://"+r.Host+"; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	if err := console.Page(w, console.PageData{Token: token, Room: devRoom, Sub: string(sub)}); err != nil {
		d.log.Warn("the page was cut short")
	}
}

// serveToken gives the holder of a token a fresh one for the same person.
func (d *Dev) serveToken(w http.ResponseWriter, r *http.Request) {
	if o := r.Header.Get("Origin"); o != "" && o != "http://"+r.Host {
		http.Error(w, "This origin is not allowed.", http.StatusForbidden)
		return
	}
	old, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	now, err := d.verify.Verify(old, time.Now())
	if !ok || err != nil {
		http.Error(w, "The token is not valid any more. Open the address that parley dev printed.", http.StatusUnauthorized)
		return
	}
	token, err := d.token(now.Access.Subject)
	if err != nil {
		http.Error(w, "The token could not be made.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(map[string]any{"token": token, "expiresIn": int(devTokenLife.Seconds())}) // the client is gone
}

func (d *Dev) token(sub event.ParticipantID) (string, error) {
	can := []event.Scope{event.ScopeRead, event.ScopeInput, event.ScopeCancel}
	return MintToken(d.key, TokenSpec{
		Issuer: devIssuer, Audience: devAudience, Life: devTokenLife,
		Access: event.Access{
			Subject: sub, Role: "player", Rooms: []string{"demo-*"}, Scopes: can,
			Channels: []event.ChannelRule{
				{Match: "public", Can: can, Disclosure: event.ToRoom()},
				{Match: "private:{sub}", Can: can, Disclosure: event.ToParticipants(sub)},
			},
		},
	})
}
