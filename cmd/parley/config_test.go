package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/template"
)

func exampleConfig(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	if err := template.Must(template.New("").Parse(example)).Execute(&b, map[string]string{"Secret": newSecret(), "Key": newSecret()}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func load(t *testing.T, text string) (*loaded, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "parley.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return loadConfig(path)
}

// TestExampleConfig: what --print-config prints is a usable configuration.
func TestExampleConfig(t *testing.T) {
	l, err := load(t, exampleConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(l.config.Templates) != 1 || l.config.Drivers["guide"] == nil || len(l.config.Auth.Keys) != 1 {
		t.Errorf("configuration %+v", l.config)
	}
}

// TestExampleNamesEverySetting: no setting is missing in the example.
func TestExampleNamesEverySetting(t *testing.T) {
	text := exampleConfig(t)
	source, err := os.ReadFile("config.go")
	if err != nil {
		t.Fatal(err)
	}
	limits, err := os.ReadFile("../../parley.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, src := range []string{string(source), string(limits)} {
		for _, part := range strings.Split(src, "`yaml:\"")[1:] {
			name, _, _ := strings.Cut(part, `"`)
			if !strings.Contains(text, name+":") {
				t.Errorf("the example does not show the setting %s", name)
			}
		}
	}
}

// TestBadConfig: every problem is reported at once, with key, value and what is allowed.
func TestBadConfig(t *testing.T) {
	for name, c := range map[string]struct {
		old, new string
		want     []string
	}{
		"not YAML":         {"listen:", "listen", []string{"not a usable configuration"}},
		"unknown key":      {"origins:", "orgins:", []string{"orgins"}},
		"wrong type":       {"connections: 50000", "connections: many", []string{"not a usable configuration"}},
		"address":          {"listen: 127.0.0.1:8080", "listen: nowhere", []string{`listen: "nowhere": must be host:port`}},
		"no TLS":           {"listen: 127.0.0.1:8080", "listen: 0.0.0.0:8080", []string{"tls: (none): must have cert and key"}},
		"data":             {"data: parley-data", `data: ""`, []string{"data:"}},
		"algorithm":        {"alg: HS256", "alg: none", []string{`auth.keys[0].alg: "none": must be EdDSA or HS256`}},
		"driver kind":      {"kind: guide\n\n", "kind: oracle\n\n", []string{`drivers.guide.kind: "oracle": must be`}},
		"role":             {"role: guide", "role: wizard", []string{`templates[0].room.agents[0].role: "wizard": must be`}},
		"fallback":         {"fallbackAgentId: guide", "fallbackAgentId: ghost", []string{`templates[0].room.fallbackAgentId: "ghost"`}},
		"unknown driver":   {"driver: guide", "driver: ghost", []string{`templates[0].room.agents[0].driver: "ghost": must be one of drivers: guide`}},
		"busy policy":      {"onBusy: supersede", "onBusy: shout", []string{"channels[0].onBusy"}},
		"level":            {"level: info", "level: loud", []string{`log.level: "loud": must be`}},
		"several at once":  {"listen: 127.0.0.1:8080\n", "listen: nowhere\nlog: {level: loud}\n", nil},
		"negative":         {"deadline: 2m", "deadline: -2m", []string{"templates[0].room.deadlineMs: -120000: must be"}},
		"create":           {"    create: participants", "    create: all", []string{`templates[0].create: "all": must be host or participants`}},
		"empty":            {"", "", []string{"it is empty"}},
		"two documents":    {"log:\n", "log:\n  level: info\n---\nlog:\n", []string{"more than one document"}},
		"bare number":      {"deadline: 2m ", "deadline: 2 ", []string{"must be a duration such as 30s"}},
		"word for number":  {"inputBurst: 10 ", "inputBurst: ten ", []string{"must be a whole number"}},
		"append":           {"onBusy: supersede", "onBusy: append", []string{`channels[0].onBusy: "append": must be supersede, queue or reject`}},
		"pattern":          {"match: demo-*", "match: de**mo", []string{`templates[0].match: "de**mo": must be made of names`}},
		"certificate":      {"cert: \"\"\n  key: \"\"", "cert: no.pem\n  key: no.key", []string{"tls: (cert and key): must be PEM files that belong together"}},
		"stray file":       {"    kind: guide\n", "    kind: guide\n    file: x.yaml\n", []string{"a guide has neither"}},
		"stray public key": {"kid: k1\n", "kid: k1\n      public: k1.pem\n", []string{`auth.keys[0].public: "k1.pem"`}},
		"admin address":    {"listen: 127.0.0.1:8081", "listen: here", []string{`admin.listen: "here": must be host:port`}},
		"admin for all":    {"listen: 127.0.0.1:8081", "listen: 0.0.0.0:8081", []string{`admin.listen: "0.0.0.0:8081": must be a loopback address, or exposed: true`}},
		"admin for all 2":  {"listen: 127.0.0.1:8081", "listen: :8081", []string{`admin.listen: ":8081": must be a loopback address, or exposed: true`}},
		"one address":      {"listen: 127.0.0.1:8081", "listen: 127.0.0.1:8080", []string{`admin.listen: "127.0.0.1:8080": must have another port than listen`}},
		"one port":         {"listen: 127.0.0.1:8081", "listen: localhost:8080", []string{`admin.listen: "localhost:8080": must have another port than listen`}},
		"long drain":       {"drain: 5s", "drain: 1h", []string{"drain: 1h0m0s: must be a duration up to 5m0s"}},
		"negative drain":   {"drain: 5s", "drain: -1s", []string{"drain: -1s: must be a duration up to 5m0s"}},
		"missing manifest": {"    kind: guide\n", "    kind: guide\n    manifest: nothing.yaml\n", []string{`drivers.guide.manifest: "nothing.yaml"`}},
	} {
		text := exampleConfig(t)
		if !strings.Contains(text, c.old) {
			t.Errorf("%s: the example no longer holds %q", name, c.old)
			continue
		}
		text = strings.Replace(text, c.old, c.new, 1)
		if name == "empty" {
			text = ""
		}
		if name == "several at once" {
			text = strings.Replace(text[:strings.LastIndex(text, "\nlog:")], "issuer: parley-example", `issuer: ""`, 1)
			c.want = []string{`listen: "nowhere"`, `auth.issuer: ""`, `log.level: "loud"`}
		}
		_, err := load(t, text)
		if err == nil {
			t.Errorf("%s: the configuration was taken", name)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q does not tell %q", name, err, w)
			}
		}
		lines := strings.Split(err.Error(), "\n")
		slices.Sort(lines)
		if len(slices.Compact(slices.Clone(lines))) != len(lines) || strings.Contains(err.Error(), "unmarshal") {
			t.Errorf("%s: a problem is told twice or in words of the program: %q", name, err)
		}
	}
}

// TestBadSecretIsNotShown: an error about a secret does not repeat it.
func TestBadSecretIsNotShown(t *testing.T) {
	text := exampleConfig(t)
	at := strings.Index(text, "\nsecret: ") + len("\nsecret: ")
	text = text[:at] + "c2hvcnQ= # " + text[at:]
	if _, err := load(t, text); err == nil || !strings.Contains(err.Error(), "secret: (not shown)") || strings.Contains(err.Error(), "c2hvcnQ") {
		t.Errorf("a short secret: %v", err)
	}
}
