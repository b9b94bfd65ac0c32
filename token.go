package parley

import (
	"crypto/rand"
	"errors"
	"time"

	"parley/event"
	"parley/gateway"
)

// TokenSpec says what a token is to allow.
type TokenSpec struct {
	Issuer   string
	Audience string
	Access   event.Access
	Life     time.Duration // at most 24 h
}

// MintToken signs a token with an HS256 key. It refuses to make one that a
// server with that key would not take.
func MintToken(k Key, spec TokenSpec) (string, error) {
	if k.Alg != "HS256" {
		return "", errors.New("this key only verifies tokens; sign with an HS256 key")
	}
	now := time.Now()
	token, err := gateway.Mint(gateway.SigningKey{ID: k.ID, HS256: k.Secret}, gateway.Claims{
		Issuer: spec.Issuer, Audience: spec.Audience, Access: spec.Access, IssuedAt: now, Expires: now.Add(spec.Life),
	})
	if err != nil {
		return "", err
	}
	v, err := gateway.NewVerifier(Auth{Issuer: spec.Issuer, Audience: spec.Audience, Keys: []Key{k}}.gatewayAuth())
	if err != nil {
		return "", err
	}
	if _, err := v.Verify(token, now); err != nil {
		return "", err
	}
	return token, nil
}

// gatewayAuth is the form in which the gateway takes the keys.
func (a Auth) gatewayAuth() gateway.Auth {
	out := gateway.Auth{Issuer: a.Issuer, Audience: a.Audience}
	for _, k := range a.Keys {
		out.Keys = append(out.Keys, gateway.Key{ID: k.ID, Ed25519: k.Public, HS256: k.Secret})
	}
	return out
}

// closed accepts no token: its key is random and kept nowhere.
func closed() gateway.Auth {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails (crypto/rand)
	return gateway.Auth{Issuer: "nobody", Audience: "nobody", Keys: []gateway.Key{{HS256: key}}}
}
