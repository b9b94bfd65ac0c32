package parley_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"parley"
	"parley/driver"
)

func TestDevPage(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	config := parley.Config{Data: dir, Drivers: map[string]driver.Driver{"echo": echo}, Templates: table("echo")}
	if _, err := parley.NewDev("0.0.0.0:8321", config); err == nil {
		t.Fatal("the page listens beyond this machine")
	}
	d, err := parley.NewDev("127.0.0.1:8321", config)
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t, d.Runtime)
	if info, err := os.Stat(filepath.Join(dir, "secret.key")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key file: %v, %v", info.Mode(), err)
	}
	get := func(method, url string, change func(*http.Request)) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, url, nil)
		r.Host = "127.0.0.1:8321"
		if change != nil {
			change(r)
		}
		w := httptest.NewRecorder()
		d.Handler().ServeHTTP(w, r)
		return w
	}
	page := strings.TrimPrefix(d.URL(), "http://127.0.0.1:8321")
	for name, c := range map[string]struct {
		url    string
		change func(*http.Request)
		want   int
	}{
		"the printed address": {page, nil, 200},
		"localhost":           {page, func(r *http.Request) { r.Host = "localhost:8321" }, 200},
		"no key":              {"/", nil, 403},
		"wrong key":           {page + "x", nil, 403},
		"another host":        {page, func(r *http.Request) { r.Host = "evil.example:8321" }, 403},
		"another port":        {page, func(r *http.Request) { r.Host = "localhost:80" }, 403},
		"forwarded":           {page, func(r *http.Request) { r.Header.Set("X-Forwarded-For", "127.0.0.1") }, 403},
		"unknown path":        {"/nothing", nil, 404},
		"health":              {"/healthz", nil, 200},
	} {
		if got := get("GET", c.url, c.change).Code; got != c.want {
			t.Errorf("%s: status %d, want %d", name, got, c.want)
		}
	}
	token := func(body string) string {
		m := regexp.MustCompile(`"token":"([^"]+)"`).FindStringSubmatch(body)
		if m == nil {
			t.Fatalf("no token in an answer of %d bytes", len(body))
		}
		return m[1]
	}
	res := get("GET", page, nil)
	first := token(res.Body.String())
	if csp := res.Header().Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") {
		t.Errorf("content security policy %q", csp)
	}
	bearer := func(tok string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+tok) }
	}
	if got := get("POST", "/dev/token", nil).Code; got != 401 {
		t.Errorf("refresh without a token: %d", got)
	}
	if got := get("POST", "/dev/token", bearer(first[:len(first)-4]+"AAAA")).Code; got != 401 {
		t.Errorf("refresh with a forged token: %d", got)
	}
	res = get("POST", "/dev/token", bearer(first))
	if res.Code != 200 || token(res.Body.String()) == "" {
		t.Errorf("refresh: %d", res.Code)
	}
	foreign := func(r *http.Request) { bearer(first)(r); r.Header.Set("Origin", "http://evil.example") }
	if got := get("POST", "/dev/token", foreign).Code; got != 403 {
		t.Errorf("refresh from another origin: %d", got)
	}
}
