package gateway

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/golang-jwt/jwt/v5"

	"parley/event"
)

// The reasons for which a token is not taken. What else is wrong with it is in
// the text of the error, for the log of whoever issues tokens.
var (
	ErrToken        = errors.New("gateway: the token is not valid here")
	ErrTokenExpired = errors.New("gateway: the token has expired")
)

const (
	tokenLeeway = 30 * time.Second
	tokenLife   = 24 * time.Hour
	minHMACKey  = 32
)

// Key verifies tokens with one algorithm: EdDSA with Ed25519, or HS256 with a
// secret of at least 32 bytes. Exactly one of the two is set.
type Key struct {
	ID      string // the token's kid; required with more than one key
	Ed25519 ed25519.PublicKey
	HS256   []byte
}

func (k Key) algorithm() string {
	if k.Ed25519 != nil {
		return jwt.SigningMethodEdDSA.Alg()
	}
	return jwt.SigningMethodHS256.Alg()
}

func (k Key) material() any {
	if k.Ed25519 != nil {
		return k.Ed25519
	}
	return k.HS256
}

// Auth says whose tokens are taken.
type Auth struct {
	Keys     []Key
	Issuer   string // the token's iss
	Audience string // must be among the token's aud
}

// Validate reports all that is wrong at once.
func (a Auth) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(a.Keys) == 0 {
		bad("auth.keys: at least one key is needed")
	}
	seen := map[string]bool{}
	for i, k := range a.Keys {
		switch {
		case (k.Ed25519 == nil) == (k.HS256 == nil):
			bad("auth.keys[%d]: must have either an Ed25519 public key or an HS256 secret", i)
		case k.Ed25519 != nil && len(k.Ed25519) != ed25519.PublicKeySize:
			bad("auth.keys[%d]: an Ed25519 public key has %d bytes, this one has %d", i, ed25519.PublicKeySize, len(k.Ed25519))
		case k.HS256 != nil && len(k.HS256) < minHMACKey:
			bad("auth.keys[%d]: an HS256 secret has at least %d bytes, this one has %d", i, minHMACKey, len(k.HS256))
		}
		if k.ID == "" && len(a.Keys) > 1 {
			bad("auth.keys[%d].id: is missing; with more than one key each has an id", i)
		}
		if k.ID != "" && seen[k.ID] {
			bad("auth.keys[%d].id: %q: is used twice", i, k.ID)
		}
		seen[k.ID] = true
	}
	if a.Issuer == "" {
		bad("auth.issuer: is missing; tokens must say who issued them")
	}
	if a.Audience == "" {
		bad("auth.audience: is missing; tokens must say whom they are for")
	}
	return errors.Join(errs...)
}

// Token is a verified token.
type Token struct {
	Access  event.Access
	Expires time.Time
	ID      string // jti; "" when it has none
}

// Verifier verifies tokens. Safe for concurrent use.
type Verifier struct {
	auth   Auth
	rights rights
}

// NewVerifier returns a Verifier, or all that is wrong with a.
func NewVerifier(a Auth) (*Verifier, error) {
	if err := a.Validate(); err != nil {
		return nil, err
	}
	return &Verifier{auth: a}, nil
}

type claims struct {
	jwt.RegisteredClaims
	Name     string        `json:"name,omitempty"`
	Role     string        `json:"role,omitempty"`
	Rooms    []string      `json:"rooms"`
	Scope    string        `json:"scope"`
	Channels []channelRule `json:"channels,omitempty"`
}

type channelRule struct {
	Match      string          `json:"match"`
	Can        []event.Scope   `json:"can"`
	Disclosure json.RawMessage `json:"disclosure,omitempty"`
}

// Verify checks a token at an instant. The error wraps ErrTokenExpired when all
// but its time is right, else ErrToken.
func (v *Verifier) Verify(token string, now time.Time) (*Token, error) {
	var c claims
	parser := jwt.NewParser(
		jwt.WithValidMethods([]string{jwt.SigningMethodEdDSA.Alg(), jwt.SigningMethodHS256.Alg()}),
		jwt.WithIssuer(v.auth.Issuer), jwt.WithAudience(v.auth.Audience), jwt.WithExpirationRequired(),
		jwt.WithLeeway(tokenLeeway), jwt.WithTimeFunc(func() time.Time { return now }), jwt.WithStrictDecoding(),
	)
	if _, err := parser.ParseWithClaims(token, &c, v.key); err != nil {
		if errors.Is(err, jwt.ErrTokenExpired) && !errors.Is(err, jwt.ErrTokenInvalidIssuer) &&
			!errors.Is(err, jwt.ErrTokenInvalidAudience) {
			return nil, fmt.Errorf("%w: at %s", ErrTokenExpired, c.ExpiresAt.UTC().Format(time.RFC3339))
		}
		return nil, fmt.Errorf("%w: %w", ErrToken, err)
	}
	if c.ExpiresAt.Sub(now) > tokenLife+tokenLeeway ||
		c.IssuedAt != nil && c.ExpiresAt.Sub(c.IssuedAt.Time) > tokenLife+tokenLeeway {
		return nil, fmt.Errorf("%w: exp lies more than %v ahead", ErrToken, tokenLife)
	}
	a, err := c.access()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrToken, err)
	}
	v.rights.share(&a)
	return &Token{Access: a, Expires: c.ExpiresAt.Time, ID: c.ID}, nil
}

func (v *Verifier) key(t *jwt.Token) (any, error) {
	kid, _ := t.Header["kid"].(string)
	for _, k := range v.auth.Keys {
		if k.ID != kid && !(kid == "" && len(v.auth.Keys) == 1) {
			continue
		}
		// One algorithm per key: a public key must never serve as an HMAC secret.
		if t.Method.Alg() != k.algorithm() {
			return nil, errors.New("the key is for another algorithm")
		}
		return k.material(), nil
	}
	return nil, errors.New("no key has this kid")
}

const maxClaim = 256

func (c *claims) access() (event.Access, error) {
	a := event.Access{Subject: event.ParticipantID(c.Subject), Name: c.Name, Role: c.Role, Rooms: c.Rooms}
	if !printable(c.Subject) || c.Subject == "" || len(c.Subject) > event.MaxName {
		return a, fmt.Errorf("sub must have 1 to %d bytes and no control characters", event.MaxName)
	}
	if len(c.Rooms) > maxClaim || len(c.Channels) > maxClaim || len(c.Name) > maxClaim || len(c.Role) > maxClaim {
		return a, fmt.Errorf("a claim holds more than %d elements or bytes", maxClaim)
	}
	for s := range strings.FieldsSeq(c.Scope) {
		a.Scopes = append(a.Scopes, event.Scope(s))
	}
	for i, r := range c.Channels {
		d, err := ruleDisclosure(r.Disclosure, a.Subject)
		if err != nil {
			return a, fmt.Errorf("channels[%d].disclosure: %w", i, err)
		}
		a.Channels = append(a.Channels, event.ChannelRule{Match: r.Match, Can: r.Can, Disclosure: d})
	}
	return a, nil
}

// ruleDisclosure reads the disclosure of a channel rule: the object of the
// wire, or one of the short words room, none and {sub}. In both {sub} stands
// for the subject.
func ruleDisclosure(raw json.RawMessage, sub event.ParticipantID) (event.Disclosure, error) {
	var d event.Disclosure
	if len(raw) == 0 {
		return d, nil
	}
	var short string
	if json.Unmarshal(raw, &short) == nil && raw[0] == '"' {
		switch short {
		case "room":
			return event.ToRoom(), nil
		case "none":
			return event.ToNone(), nil
		case "{sub}":
			return event.ToParticipants(sub), nil
		}
		return d, errors.New("must be room, none, {sub} or an object")
	}
	if err := json.Unmarshal(raw, &d); err != nil {
		return d, err
	}
	if d.Kind == event.DiscloseParticipants {
		ids := slices.Clone(d.Participants)
		for i := range ids {
			if ids[i] == "{sub}" {
				ids[i] = sub
			}
		}
		d = event.ToParticipants(ids...)
	}
	return d, nil
}

func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r >= 0x7f && r <= 0x9f })
}

// SigningKey issues tokens. Exactly one of Ed25519 and HS256 is set.
type SigningKey struct {
	ID      string // becomes kid
	Ed25519 ed25519.PrivateKey
	HS256   []byte
}

// Claims is what a minted token says. In the disclosure of a channel rule the
// participant {sub} stands for the subject.
type Claims struct {
	Issuer, Audience string
	Access           event.Access
	IssuedAt         time.Time
	Expires          time.Time // at most 24 h after IssuedAt
	ID               string    // jti; may be empty
}

// Mint issues a token, for the command line, for development and for tests.
func Mint(key SigningKey, c Claims) (string, error) {
	if (key.Ed25519 == nil) == (key.HS256 == nil) {
		return "", errors.New("gateway: a signing key has either an Ed25519 private key or an HS256 secret")
	}
	if life := c.Expires.Sub(c.IssuedAt); life <= 0 || life > tokenLife {
		return "", fmt.Errorf("gateway: a token lives for up to %v, this one for %v", tokenLife, life)
	}
	scopes := make([]string, len(c.Access.Scopes))
	for i, s := range c.Access.Scopes {
		scopes[i] = string(s)
	}
	out := claims{
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer: c.Issuer, Audience: jwt.ClaimStrings{c.Audience}, Subject: string(c.Access.Subject), ID: c.ID,
			IssuedAt: jwt.NewNumericDate(c.IssuedAt), ExpiresAt: jwt.NewNumericDate(c.Expires),
		},
		Name: c.Access.Name, Role: c.Access.Role, Rooms: c.Access.Rooms, Scope: strings.Join(scopes, " "),
	}
	for _, r := range c.Access.Channels {
		rule := channelRule{Match: r.Match, Can: r.Can}
		if r.Disclosure.Stated() {
			raw, err := json.Marshal(r.Disclosure)
			if err != nil {
				return "", fmt.Errorf("gateway: mint a token: %w", err)
			}
			rule.Disclosure = raw
		}
		out.Channels = append(out.Channels, rule)
	}
	var method jwt.SigningMethod = jwt.SigningMethodHS256
	var material any = key.HS256
	if key.Ed25519 != nil {
		method, material = jwt.SigningMethodEdDSA, key.Ed25519
	}
	t := jwt.NewWithClaims(method, out)
	if key.ID != "" {
		t.Header["kid"] = key.ID
	}
	s, err := t.SignedString(material)
	if err != nil {
		return "", fmt.Errorf("gateway: mint a token: %w", err)
	}
	return s, nil
}
