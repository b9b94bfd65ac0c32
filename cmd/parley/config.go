package main

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"parley"
	"parley/driver"
	"parley/driver/guide"
	"parley/driver/script"
	"parley/event"
)

// fileConfig is the configuration file of `parley serve`, as YAML. Every member
// it may have is here; an unknown one is refused. Relative paths are relative to
// the file.
type fileConfig struct {
	Listen    string                  `yaml:"listen"`
	Data      string                  `yaml:"data"`
	Secret    string                  `yaml:"secret"`
	TLS       tlsConfig               `yaml:"tls"`
	Auth      authConfig              `yaml:"auth"`
	Origins   []string                `yaml:"origins"`
	Drivers   map[string]driverConfig `yaml:"drivers"`
	Templates []templateConfig        `yaml:"templates"`
	Limits    parley.Limits           `yaml:"limits"`
	Drain     time.Duration           `yaml:"drain"`
	Admin     adminConfig             `yaml:"admin"`
	Log       logConfig               `yaml:"log"`
}

type tlsConfig struct {
	Cert  string `yaml:"cert"`
	Key   string `yaml:"key"`
	Proxy bool   `yaml:"proxy"` // TLS ends at a proxy in front
}

type authConfig struct {
	Issuer   string      `yaml:"issuer"`
	Audience string      `yaml:"audience"`
	Keys     []keyConfig `yaml:"keys"`
}

type keyConfig struct {
	ID     string `yaml:"kid"`
	Alg    string `yaml:"alg"`
	Secret string `yaml:"secret"` // HS256: base64 of at least 32 bytes
	Public string `yaml:"public"` // EdDSA: file with a PEM public key
}

type driverConfig struct {
	Kind     string `yaml:"kind"`
	Manifest string `yaml:"manifest"`
	File     string `yaml:"file"`
	Builtin  string `yaml:"builtin"`
}

type templateConfig struct {
	Match  string     `yaml:"match"`
	Create string     `yaml:"create"`
	Room   roomConfig `yaml:"room"`
}

type roomConfig struct {
	Agents        []agentConfig     `yaml:"agents"`
	FallbackAgent string            `yaml:"fallbackAgentId"`
	Phase         string            `yaml:"phase"`
	PhaseAgents   map[string]string `yaml:"phaseAgents"`
	Channels      []channelConfig   `yaml:"channels"`
	Deadline      time.Duration     `yaml:"deadline"`
	Wait          time.Duration     `yaml:"wait"`
}

type agentConfig struct {
	ID          string   `yaml:"id"`
	Label       string   `yaml:"label"`
	Role        string   `yaml:"role"`
	Description string   `yaml:"description"`
	Voice       string   `yaml:"voice"`
	Lang        string   `yaml:"lang"`
	VisibleTo   []string `yaml:"visibleTo"`
	Version     string   `yaml:"version"`
	Driver      string   `yaml:"driver"`
	Recovery    string   `yaml:"recovery"`
}

type channelConfig struct {
	Match  string `yaml:"match"`
	OnBusy string `yaml:"onBusy"`
	Fixed  bool   `yaml:"fixed"`
}

type logConfig struct {
	Level string `yaml:"level"`
}

// adminConfig is the address at which operators look into the process. It is
// another one than the clients': a heap dump holds what people say.
type adminConfig struct {
	Listen  string `yaml:"listen"`  // empty: there is none
	Exposed bool   `yaml:"exposed"` // it may be another address than loopback
}

// loaded is what a configuration file gives.
type loaded struct {
	file   fileConfig
	config parley.Config
}

// loadConfig reads a configuration file and reports all that is wrong with it at
// once, each with its key, its value and what is allowed.
func loadConfig(path string) (*loaded, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("the configuration cannot be read: %w", err)
	}
	var f fileConfig
	if err := decodeConfig(raw, &f); err != nil {
		return nil, fmt.Errorf("%s is not a usable configuration:\n%w", path, err)
	}
	l := &loaded{file: f}
	if err := l.build(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("%s is not a usable configuration:\n%w", path, err)
	}
	return l, nil
}

// problems collects what is wrong with a configuration.
type problems []error

func (p *problems) add(key string, value any, allowed string) {
	*p = append(*p, fmt.Errorf("%s: %v: %s", key, value, allowed))
}

func (l *loaded) build(dir string) error {
	f, bad := &l.file, &problems{}
	at := func(path string) string {
		if path == "" || filepath.IsAbs(path) {
			return path
		}
		return filepath.Join(dir, path)
	}
	c := &l.config
	if _, _, err := net.SplitHostPort(f.Listen); err != nil {
		bad.add("listen", quoted(f.Listen), "must be host:port, such as 127.0.0.1:8080")
	}
	c.Data = at(f.Data)
	secret, err := base64.StdEncoding.DecodeString(f.Secret)
	if err != nil || len(secret) < 32 {
		bad.add("secret", "(not shown)", "must be base64 of at least 32 random bytes; parley serve --print-config makes one")
	}
	c.Secret = secret
	if (f.TLS.Cert == "") != (f.TLS.Key == "") {
		bad.add("tls", "(one of cert and key)", "must have both cert and key, or neither")
	}
	if host, _, err := net.SplitHostPort(f.Listen); err == nil && f.TLS.Cert == "" && !f.TLS.Proxy && !loopback(host) {
		bad.add("tls", "(none)", "must have cert and key, or proxy: true when TLS ends at a proxy in front, unless listen is a loopback address")
	}
	f.TLS.Cert, f.TLS.Key = at(f.TLS.Cert), at(f.TLS.Key)
	if f.TLS.Cert != "" && f.TLS.Key != "" {
		if _, err := tls.LoadX509KeyPair(f.TLS.Cert, f.TLS.Key); err != nil {
			bad.add("tls", "(cert and key)", "must be PEM files that belong together: "+err.Error())
		}
	}
	l.auth(bad, at)
	for i, o := range f.Origins {
		if u, err := url.Parse(o); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.Scheme+"://"+u.Host != o {
			bad.add(fmt.Sprintf("origins[%d]", i), quoted(o), "must be a web origin such as https://game.example, without a path")
		}
	}
	c.Origins = f.Origins
	c.Limits = f.Limits
	if f.Drain < 0 || f.Drain > maxDrain {
		bad.add("drain", f.Drain, "must be a duration up to "+maxDrain.String()+", or 0 for the default, 5s")
	} else {
		c.DrainSpread = f.Drain
	}
	f.Admin.check(bad, f.Listen)
	l.drivers(bad, at)
	l.templates(bad)
	switch f.Log.Level {
	case "", "debug", "info", "warn", "error":
	default:
		bad.add("log.level", quoted(f.Log.Level), "must be debug, info, warn or error")
	}
	if err := c.Validate(); err != nil {
		*bad = append(*bad, err)
	}
	return errors.Join(*bad...)
}

func (l *loaded) auth(bad *problems, at func(string) string) {
	a := l.file.Auth
	if a.Issuer == "" {
		bad.add("auth.issuer", `""`, "must be the iss of the tokens")
	}
	if a.Audience == "" {
		bad.add("auth.audience", `""`, "must be the aud of the tokens")
	}
	if len(a.Keys) == 0 {
		bad.add("auth.keys", "[]", "must hold at least one key")
	}
	auth := parley.Auth{Issuer: a.Issuer, Audience: a.Audience}
	for i, k := range a.Keys {
		key := fmt.Sprintf("auth.keys[%d]", i)
		if k.ID == "" && len(a.Keys) > 1 {
			bad.add(key+".kid", `""`, "must be set when there is more than one key")
		}
		if k.ID != "" && slices.ContainsFunc(a.Keys[:i], func(o keyConfig) bool { return o.ID == k.ID }) {
			bad.add(key+".kid", quoted(k.ID), "is used twice; each key has its own")
		}
		if k.Alg == "HS256" && k.Public != "" {
			bad.add(key+".public", quoted(k.Public), "an HS256 key has none; it has a secret")
		}
		if k.Alg == "EdDSA" && k.Secret != "" {
			bad.add(key+".secret", "(not shown)", "an EdDSA key has none here; it has public")
		}
		out := parley.Key{ID: k.ID, Alg: k.Alg}
		switch k.Alg {
		case "HS256":
			b, err := base64.StdEncoding.DecodeString(k.Secret)
			if err != nil || len(b) < 32 {
				bad.add(key+".secret", "(not shown)", "must be base64 of at least 32 random bytes")
			}
			out.Secret = b
		case "EdDSA":
			pub, err := readPublic(at(k.Public))
			if err != nil {
				bad.add(key+".public", quoted(k.Public), err.Error())
			}
			out.Public = pub
		default:
			bad.add(key+".alg", quoted(k.Alg), "must be EdDSA or HS256")
		}
		auth.Keys = append(auth.Keys, out)
	}
	l.config.Auth = auth
}

func readPublic(path string) (ed25519.PublicKey, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, errors.New("must name a readable file with a PEM public key")
	}
	block, _ := pem.Decode(raw)
	if block == nil {
		return nil, errors.New("must name a file with a PEM public key; this one holds none")
	}
	pub, err := x509.ParsePKIXPublicKey(block.Bytes)
	if ed, ok := pub.(ed25519.PublicKey); err == nil && ok {
		return ed, nil
	}
	return nil, errors.New("must name a file with an Ed25519 public key")
}

func (l *loaded) drivers(bad *problems, at func(string) string) {
	l.config.Drivers = map[string]driver.Driver{}
	for _, name := range sortedKeys(l.file.Drivers) {
		d, key := l.file.Drivers[name], "drivers."+name
		switch d.Kind {
		case "guide":
			if d.File != "" || d.Builtin != "" {
				bad.add(key, fmt.Sprintf("{file: %q, builtin: %q}", d.File, d.Builtin), "a guide has neither; its rules are its manifest")
			}
			var m *guide.Manifest // nil: backgammon
			if d.Manifest != "" {
				raw, err := os.ReadFile(at(d.Manifest))
				if err != nil {
					bad.add(key+".manifest", quoted(d.Manifest), "must name a readable file")
					continue
				}
				if m, err = guide.Parse(raw); err != nil {
					bad.add(key+".manifest", quoted(d.Manifest), err.Error())
					continue
				}
			}
			g, err := guide.New(guide.Config{Manifest: m})
			if err != nil {
				bad.add(key+".manifest", quoted(d.Manifest), err.Error())
				continue
			}
			l.config.Drivers[name] = g
		case "script":
			if d.Manifest != "" {
				bad.add(key+".manifest", quoted(d.Manifest), "a script has none; it has file or builtin")
			}
			s, err := readScript(d, at)
			if err != nil {
				bad.add(key, fmt.Sprintf("{file: %q, builtin: %q}", d.File, d.Builtin), err.Error())
				continue
			}
			l.config.Drivers[name] = script.New(s)
		default:
			bad.add(key+".kind", quoted(d.Kind), "must be guide or script")
		}
	}
}

// readScript reads the script that a driver names: a file, or one that comes with the program.
func readScript(d driverConfig, at func(string) string) (*script.Script, error) {
	if (d.File == "") == (d.Builtin == "") {
		return nil, errors.New("must have either file or builtin")
	}
	if d.Builtin != "" {
		return script.Named(d.Builtin)
	}
	raw, err := os.ReadFile(at(d.File))
	if err != nil {
		return nil, errors.New("file must name a readable script file")
	}
	return script.Parse(raw)
}

func (l *loaded) templates(bad *problems) {
	for i, t := range l.file.Templates {
		key := fmt.Sprintf("templates[%d]", i)
		if err := checkPattern(t.Match); err != nil && t.Match != "" {
			bad.add(key+".match", quoted(t.Match), err.Error())
		}
		switch t.Create {
		case "", "host", "participants":
		default:
			bad.add(key+".create", quoted(t.Create), "must be host or participants")
		}
		for j, ch := range t.Room.Channels {
			switch ch.OnBusy {
			case "", "supersede", "queue", "reject":
			default:
				bad.add(fmt.Sprintf("%s.room.channels[%d].onBusy", key, j), quoted(ch.OnBusy), "must be supersede, queue or reject")
			}
		}
		// What is below a millisecond would be cut off, and a little more than nothing be the default.
		if d := t.Room.Deadline; d%time.Millisecond != 0 {
			bad.add(key+".room.deadline", d, "must be whole milliseconds")
		}
		if d := t.Room.Wait; d%time.Millisecond != 0 {
			bad.add(key+".room.wait", d, "must be whole milliseconds")
		}
		room := t.Room.event()
		for j, a := range room.Agents {
			if _, ok := l.file.Drivers[a.Driver]; !ok && a.Driver != "" {
				bad.add(fmt.Sprintf("%s.room.agents[%d].driver", key, j), quoted(a.Driver), "must be one of drivers: "+strings.Join(sortedKeys(l.file.Drivers), ", "))
			}
		}
		l.config.Templates = append(l.config.Templates, parley.Template{
			Match: t.Match, ParticipantsCreate: t.Create == "participants", Room: room,
		})
	}
}

// checkPattern says what is wrong with a pattern of room or channel names (see event.Match).
func checkPattern(p string) error {
	segments := strings.Split(p, ":")
	for i, s := range segments {
		last := i == len(segments)-1
		if s == "" && len(segments) > 1 || s == "{sub}" || s == "*" || s == "**" && last {
			continue
		}
		if event.CheckName(strings.TrimSuffix(s, "*")) != nil {
			return errors.New("must be made of names, with * at the end of a segment between colons, ** as the last segment, or {sub}")
		}
	}
	return nil
}

// event returns the room's configuration. A word for onBusy that there is not
// gives the zero policy.
func (r roomConfig) event() event.RoomConfig {
	out := event.RoomConfig{
		FallbackAgent: event.AgentID(r.FallbackAgent), Phase: r.Phase,
		DeadlineMs: r.Deadline.Milliseconds(), WaitMs: r.Wait.Milliseconds(),
	}
	for phase, a := range r.PhaseAgents {
		if out.PhaseAgents == nil {
			out.PhaseAgents = map[string]event.AgentID{}
		}
		out.PhaseAgents[phase] = event.AgentID(a)
	}
	for _, ch := range r.Channels {
		busy, _ := event.ParseBusyPolicy(ch.OnBusy)
		out.Channels = append(out.Channels, event.ChannelPolicy{Match: ch.Match, OnBusy: busy, Fixed: ch.Fixed})
	}
	for _, a := range r.Agents {
		e := event.Agent{
			ID: event.AgentID(a.ID), Label: a.Label, Role: a.Role, Description: a.Description,
			Version: a.Version, Driver: a.Driver, Recovery: event.Recovery(a.Recovery),
		}
		if a.Voice != "" {
			e.Voice = &event.Voice{ID: a.Voice, Lang: a.Lang}
		}
		if len(a.VisibleTo) > 0 {
			var ids []event.ParticipantID
			for _, id := range a.VisibleTo {
				ids = append(ids, event.ParticipantID(id))
			}
			e.Visibility = event.ToParticipants(ids...)
		}
		out.Agents = append(out.Agents, e)
	}
	return out
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

func newSecret() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return base64.StdEncoding.EncodeToString(b[:])
}

func quoted(s string) string { return fmt.Sprintf("%q", s) }

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
