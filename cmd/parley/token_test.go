package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"parley/event"
)

func TestParseRule(t *testing.T) {
	r, err := parseRule("private:{sub}=read,input:{sub}+host-1", "ann")
	if err != nil || r.Match != "private:{sub}" || len(r.Can) != 2 || !r.Disclosure.Equal(event.ToParticipants("ann", "host-1")) {
		t.Errorf("rule %+v, %v", r, err)
	}
	for _, bad := range []string{
		"", "public", "public=read", "=read:room", "public=:room", "public=fly:room", "pub lic=read:room", "public=read:a++b",
	} {
		if _, err := parseRule(bad, "ann"); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// TestTokenIsOneThatTheServerTakes: flags that make a token for nothing are refused.
func TestTokenIsOneThatTheServerTakes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "parley.yaml")
	if err := os.WriteFile(path, []byte(exampleConfig(t)), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*tokenCommand)
		want   string
	}{
		"no subject":   {func(c *tokenCommand) { c.Sub = "" }, "sub must have"},
		"long subject": {func(c *tokenCommand) { c.Sub = strings.Repeat("a", 300) }, "sub must have"},
		"control":      {func(c *tokenCommand) { c.Sub = "a\nb" }, "sub must have"},
		"long name":    {func(c *tokenCommand) { c.Name = strings.Repeat("a", 300) }, "a claim holds more"},
		"no room":      {func(c *tokenCommand) { c.Room = nil }, "--room"},
		"room":         {func(c *tokenCommand) { c.Room = []string{"a b"} }, `--room "a b": must be made of names`},
		"scope":        {func(c *tokenCommand) { c.Scope = []string{"fly"} }, `--scope "fly": must be of read`},
		"rule":         {func(c *tokenCommand) { c.Channel = []string{"public=fly:room"} }, `"fly": must be of read`},
		"life":         {func(c *tokenCommand) { c.TTL = time.Millisecond }, "--ttl 1ms: must be 1s to 24h"},
	} {
		cmd := tokenCommand{
			Config: path, Sub: "ann", Room: []string{"demo-*", "hall:*", "x:{sub}:**"}, Scope: []string{"read"},
			Channel: []string{"public=read:room"}, TTL: time.Hour,
		}
		c.change(&cmd)
		if err := cmd.Run(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
