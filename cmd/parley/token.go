package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"parley"
	"parley/event"
)

type tokenCommand struct {
	Config  string        `type:"existingfile" required:"" placeholder:"FILE" help:"Configuration of the server; the token is signed with its first HS256 key."`
	Sub     string        `required:"" help:"Who the token is for."`
	Name    string        `help:"What to call them."`
	Role    string        `help:"A describing word; never authority."`
	Room    []string      `required:"" help:"Pattern of room names, such as demo-*; repeat for more."`
	Scope   []string      `default:"read,input,cancel" help:"Scopes: read, input, cancel, moderate, host, console."`
	Channel []string      `default:"public=read,input,cancel:room" sep:"none" help:"A channel rule match=can,can:disclosure; disclosure is room, none, {sub} or ids joined by +. Repeat for more; the first that matches decides."`
	TTL     time.Duration `name:"ttl" default:"1h" help:"How long it is good, at most 24h."`
}

// Run prints one token.
func (c *tokenCommand) Run() error {
	l, err := loadConfig(c.Config)
	if err != nil {
		return err
	}
	spec := parley.TokenSpec{
		Issuer: l.config.Auth.Issuer, Audience: l.config.Auth.Audience, Life: c.TTL,
		Access: event.Access{Subject: event.ParticipantID(c.Sub), Name: c.Name, Role: c.Role, Rooms: c.Room},
	}
	if c.TTL < time.Second || c.TTL > 24*time.Hour {
		return fmt.Errorf("--ttl %s: must be 1s to 24h", c.TTL)
	}
	if len(c.Room) == 0 {
		return errors.New(`--room "": must be a pattern of room names, such as demo-*`)
	}
	for _, p := range c.Room {
		if err := checkPattern(p); err != nil {
			return fmt.Errorf("--room %q: %w", p, err)
		}
	}
	for _, s := range c.Scope {
		if !slices.Contains(scopes, event.Scope(s)) {
			return fmt.Errorf("--scope %q: %s", s, scopeWords)
		}
		spec.Access.Scopes = append(spec.Access.Scopes, event.Scope(s))
	}
	for _, rule := range c.Channel {
		ch, err := parseRule(rule, event.ParticipantID(c.Sub))
		if err != nil {
			return err
		}
		spec.Access.Channels = append(spec.Access.Channels, ch)
	}
	for _, key := range l.config.Auth.Keys {
		if key.Alg == "HS256" {
			token, err := parley.MintToken(key, spec)
			if err != nil {
				return err
			}
			fmt.Println(token)
			return nil
		}
	}
	return errors.New("auth.keys has no HS256 key; tokens of an EdDSA key are made by whoever has its private key")
}

// scopes are what a token can carry. Without them a slip of the pen makes a
// token that is good for nothing.
var scopes = []event.Scope{
	event.ScopeRead, event.ScopeInput, event.ScopeCancel, event.ScopeModerate, event.ScopeHost, event.ScopeConsole,
}

const scopeWords = "must be of read, input, cancel, moderate, host, console"

// parseRule reads match=can,can:disclosure. The match may hold colons itself, so
// it ends at the last '=', and the disclosure begins at the last ':' after it.
func parseRule(s string, sub event.ParticipantID) (event.ChannelRule, error) {
	bad := fmt.Errorf("--channel %q: must be match=can,can:disclosure, such as public=read,input:room", s)
	at := strings.LastIndexByte(s, '=')
	if at <= 0 {
		return event.ChannelRule{}, bad
	}
	out := event.ChannelRule{Match: s[:at]}
	if err := checkPattern(out.Match); err != nil {
		return event.ChannelRule{}, fmt.Errorf("--channel %q: the match %w", s, err)
	}
	can, to, ok := strings.Cut(s[at+1:], ":")
	if !ok || can == "" {
		return event.ChannelRule{}, bad
	}
	for w := range strings.SplitSeq(can, ",") {
		if !slices.Contains(scopes, event.Scope(w)) {
			return event.ChannelRule{}, fmt.Errorf("--channel %q: %q: %s", s, w, scopeWords)
		}
		out.Can = append(out.Can, event.Scope(w))
	}
	switch to {
	case "room":
		out.Disclosure = event.ToRoom()
	case "none":
		out.Disclosure = event.ToNone()
	case "":
		return event.ChannelRule{}, bad
	default:
		var ids []event.ParticipantID
		for id := range strings.SplitSeq(to, "+") {
			if id == "{sub}" {
				id = string(sub)
			}
			if id == "" {
				return event.ChannelRule{}, bad
			}
			ids = append(ids, event.ParticipantID(id))
		}
		out.Disclosure = event.ToParticipants(ids...)
	}
	return out, nil
}
