package gateway

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"parley/event"
)

func prefixes(list ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func TestTokensThatAreTaken(t *testing.T) {
	now := time.Date(2026, 11, 30, 21, 0, 0, 0, time.UTC)
	hmac := bytes.Repeat([]byte{9}, 32)
	v, err := NewVerifier(Auth{
		Keys: []Key{{ID: "e", Ed25519: testAuth.Keys[0].Ed25519}, {ID: "h", HS256: hmac}}, Issuer: testIssuer, Audience: testAudience,
	})
	if err != nil {
		t.Fatal(err)
	}
	a := player("ann")
	a.Name, a.Role = "Ann", "player"
	a.Channels = append(a.Channels, event.ChannelRule{Match: "table:*", Can: []event.Scope{event.ScopeRead}, Disclosure: event.ToNone()})
	for _, key := range []SigningKey{{ID: "e", Ed25519: testSigning.Ed25519}, {ID: "h", HS256: hmac}} {
		s, err := Mint(key, Claims{Issuer: testIssuer, Audience: testAudience, Access: a, IssuedAt: now, Expires: now.Add(time.Hour), ID: "j1"})
		if err != nil {
			t.Fatal(err)
		}
		got, err := v.Verify(s, now.Add(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		if got.ID != "j1" || !got.Expires.Equal(now.Add(time.Hour)) || got.Access.Name != "Ann" || got.Access.Role != "player" {
			t.Errorf("got %+v", got)
		}
		if !slices.Equal(got.Access.Scopes, a.Scopes) || !got.Access.Covers("room-7") || got.Access.Covers("hall") {
			t.Errorf("scopes %v, rooms %v", got.Access.Scopes, got.Access.Rooms)
		}
		if d := got.Access.On("private:ann").Disclosure; !d.Equal(event.ToParticipants("ann")) {
			t.Errorf("{sub} in a disclosure became %+v", d)
		}
		if d := got.Access.On("table:1").Disclosure; !d.Equal(event.ToNone()) {
			t.Errorf("got %+v", d)
		}
		// The clocks of two machines may differ by half a minute.
		if _, err := v.Verify(s, now.Add(time.Hour+29*time.Second)); err != nil {
			t.Errorf("within the leeway: %v", err)
		}
		if _, err := v.Verify(s, now.Add(time.Hour+31*time.Second)); !errors.Is(err, ErrTokenExpired) {
			t.Errorf("beyond the leeway: %v", err)
		}
	}
}

func TestShortWordsOfADisclosure(t *testing.T) {
	now := time.Now()
	v, err := NewVerifier(testAuth)
	if err != nil {
		t.Fatal(err)
	}
	for raw, want := range map[string]event.Disclosure{
		`"room"`: event.ToRoom(), `"none"`: event.ToNone(), `"{sub}"`: event.ToParticipants("ann"), `null`: {},
		`{"kind":"participants","participantIds":["{sub}","bob"]}`: event.ToParticipants("ann", "bob"),
		`"everybody"`: {}, `{"kind":"all"}`: {}, `7`: {},
	} {
		c := map[string]any{
			"iss": testIssuer, "aud": testAudience, "sub": "ann", "exp": now.Add(time.Hour).Unix(), "rooms": []string{"*"}, "scope": "read",
			"channels": []any{map[string]any{"match": "c", "can": []string{"read"}, "disclosure": json.RawMessage(raw)}},
		}
		got, err := v.Verify(sign(t, jwt.SigningMethodEdDSA, testSigning.Ed25519, "", c), now)
		valid := want.Stated() || raw == "null"
		if (err == nil) != valid || valid && !got.Access.On("c").Disclosure.Equal(want) {
			t.Errorf("%s: got %+v, %v", raw, got, err)
		}
	}
}

func sign(t *testing.T, m jwt.SigningMethod, key any, kid string, c map[string]any) string {
	t.Helper()
	tok := jwt.NewWithClaims(m, jwt.MapClaims(c))
	if kid != "" {
		tok.Header["kid"] = kid
	}
	s, err := tok.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestTokensThatAreNotTaken(t *testing.T) {
	now := time.Now()
	hmac := bytes.Repeat([]byte{9}, 32)
	pub := testAuth.Keys[0].Ed25519
	v, err := NewVerifier(Auth{
		Keys: []Key{{ID: "e", Ed25519: pub}, {ID: "h", HS256: hmac}}, Issuer: testIssuer, Audience: testAudience,
	})
	if err != nil {
		t.Fatal(err)
	}
	good := func(change ...any) map[string]any {
		c := map[string]any{
			"iss": testIssuer, "aud": testAudience, "sub": "ann", "exp": now.Add(time.Hour).Unix(),
			"rooms": []string{"*"}, "scope": "read input",
		}
		for i := 0; i < len(change); i += 2 {
			if change[i+1] == nil {
				delete(c, change[i].(string))
			} else {
				c[change[i].(string)] = change[i+1]
			}
		}
		return c
	}
	ed := func(kid string, c map[string]any) string {
		return sign(t, jwt.SigningMethodEdDSA, testSigning.Ed25519, kid, c)
	}
	if _, err := v.Verify(ed("e", good()), now); err != nil {
		t.Fatalf("the token that all others are made of: %v", err)
	}
	other := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{4}, 32))
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","kid":"e"}`)) + "." + strings.Split(ed("e", good()), ".")[1] + "."
	for name, c := range map[string]struct {
		token string
		want  error
	}{
		"nothing":                            {"", ErrToken},
		"no kid among several keys":          {ed("", good()), ErrToken},
		"an unknown kid":                     {ed("x", good()), ErrToken},
		"another key's signature":            {sign(t, jwt.SigningMethodEdDSA, other, "e", good()), ErrToken},
		"the public key as an HMAC secret":   {sign(t, jwt.SigningMethodHS256, []byte(pub), "e", good()), ErrToken},
		"EdDSA for the HMAC key":             {ed("h", good()), ErrToken},
		"HS512":                              {sign(t, jwt.SigningMethodHS512, hmac, "h", good()), ErrToken},
		"no algorithm":                       {none, ErrToken},
		"another issuer":                     {ed("e", good("iss", "https://other.example")), ErrToken},
		"no issuer":                          {ed("e", good("iss", nil)), ErrToken},
		"another audience":                   {ed("e", good("aud", "other")), ErrToken},
		"no audience":                        {ed("e", good("aud", nil)), ErrToken},
		"no subject":                         {ed("e", good("sub", nil)), ErrToken},
		"a subject with a control character": {ed("e", good("sub", "a\nb")), ErrToken},
		"a subject that is too long":         {ed("e", good("sub", strings.Repeat("a", 129))), ErrToken},
		"no exp":                             {ed("e", good("exp", nil)), ErrToken},
		"exp in more than a day":             {ed("e", good("exp", now.Add(25*time.Hour).Unix())), ErrToken},
		"a life of more than a day":          {ed("e", good("iat", now.Add(-24*time.Hour).Unix())), ErrToken},
		"not yet":                            {ed("e", good("nbf", now.Add(time.Minute).Unix())), ErrToken},
		"expired":                            {ed("e", good("exp", now.Add(-time.Minute).Unix())), ErrTokenExpired},
		"expired and of another issuer":      {ed("e", good("exp", now.Add(-time.Minute).Unix(), "iss", "x")), ErrToken},
		"expired and signed by another":      {sign(t, jwt.SigningMethodEdDSA, other, "e", good("exp", now.Add(-time.Minute).Unix())), ErrToken},
		"a scope that is a list":             {ed("e", good("scope", []string{"read"})), ErrToken},
	} {
		got, err := v.Verify(c.token, now)
		if !errors.Is(err, c.want) || got != nil {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
		if !errors.Is(c.want, ErrTokenExpired) && errors.Is(err, ErrTokenExpired) {
			t.Errorf("%s: would be taken for expired: %v", name, err)
		}
	}
}

func TestConfigNamesAllThatIsWrong(t *testing.T) {
	_, err := New(Config{
		Secret:  []byte("short"),
		Origins: []string{"https://ok.example", "game.example", "https://x.example/path", "*"},
		Auth:    Auth{Keys: []Key{{}, {ID: "a", HS256: []byte("short")}, {ID: "a", Ed25519: make([]byte, 5)}}},
		Limits:  Limits{Ping: -1},
	})
	if err == nil {
		t.Fatal("taken")
	}
	for _, want := range []string{
		"rooms:", "secret: has 5 bytes", "origins[1]", "origins[2]", "origins[3]", "auth.keys[0]: must have either",
		"auth.keys[0].id", "auth.keys[1]: an HS256 secret", "auth.keys[2]: an Ed25519", `auth.keys[2].id: "a"`, "auth.issuer", "auth.audience",
		"limits.ping",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "origins[0]") {
		t.Errorf("a good origin is refused: %v", err)
	}
}

func TestMintRefusesWhatNobodyWouldTake(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		key SigningKey
		c   Claims
	}{
		"no key":     {SigningKey{}, Claims{IssuedAt: now, Expires: now.Add(time.Hour)}},
		"two keys":   {SigningKey{HS256: []byte("x"), Ed25519: testSigning.Ed25519}, Claims{IssuedAt: now, Expires: now.Add(time.Hour)}},
		"no life":    {testSigning, Claims{IssuedAt: now, Expires: now}},
		"a long one": {testSigning, Claims{IssuedAt: now, Expires: now.Add(25 * time.Hour)}},
	} {
		if s, err := Mint(c.key, c.c); err == nil {
			t.Errorf("%s: minted %s", name, s)
		}
	}
}

func TestTokensThatAllowTheSameShareOnlyThat(t *testing.T) {
	var r rights
	access := func(sub string, rooms []string, can ...event.Scope) event.Access {
		a := event.Access{
			Subject: event.ParticipantID(sub), Rooms: rooms, Scopes: []event.Scope{event.ScopeRead},
			Channels: []event.ChannelRule{{Match: "public", Can: can, Disclosure: event.ToRoom()}},
		}
		r.share(&a)
		return a
	}
	a := access("ann", []string{"hall"}, event.ScopeRead)
	b := access("bob", []string{"hall"}, event.ScopeRead)
	if &a.Rooms[0] != &b.Rooms[0] || &a.Channels[0] != &b.Channels[0] || a.Subject != "ann" || b.Subject != "bob" {
		t.Error("equal rights are not shared, or more than the rights are")
	}
	for name, other := range map[string]event.Access{
		"other rooms":        access("eve", []string{"hall", "den"}, event.ScopeRead),
		"other rights":       access("eve", []string{"hall"}, event.ScopeRead, event.ScopeInput),
		"a name like a list": access("eve", []string{"hall\x00den"}, event.ScopeRead),
	} {
		if sameRights(a, other) || &a.Rooms[0] == &other.Rooms[0] {
			t.Errorf("%s: shared", name)
		}
	}
	if x := access("eve", []string{"hall", "den"}, event.ScopeRead); len(x.Rooms) != 2 {
		t.Errorf("a list with a colliding key was taken for another: %q", x.Rooms)
	}
	own := event.Access{Subject: "ann", Channels: []event.ChannelRule{{Match: "public", Disclosure: event.ToParticipants("ann")}}}
	r.share(&own)
	theirs := event.Access{Subject: "bob", Channels: []event.ChannelRule{{Match: "public", Disclosure: event.ToParticipants("bob")}}}
	r.share(&theirs)
	if !theirs.Channels[0].Disclosure.Includes("bob") || theirs.Channels[0].Disclosure.Includes("ann") {
		t.Error("a rule that names its subject was shared")
	}
	for i := range 2 * maxRights {
		access("ann", []string{fmt.Sprint("room", i)}, event.ScopeRead)
	}
	if len(r.known) > maxRights {
		t.Errorf("%d lists are remembered", len(r.known))
	}
}
