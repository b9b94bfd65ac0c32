package main

import (
	"context"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"parley"
)

// knownSecret stands for all secrets in the files that the fuzzer begins with.
const knownSecret = "S0VFUC1USElTLUtFRVAtVEhJUy1LRUVQLVRISVMtS0VFUC1USElT"

// FuzzConfig: whatever the file holds, reading it does not panic. It gives a
// configuration within all bounds, with which a server starts, or an error that
// says where it is wrong, in words of the file and without its secrets.
func FuzzConfig(f *testing.F) {
	for _, text := range configSeeds(f) {
		f.Add([]byte(text))
	}
	dir := f.TempDir()
	taken := 0
	f.Fuzz(func(t *testing.T, raw []byte) {
		l := &loaded{}
		err := decodeConfig(raw, &l.file)
		if err == nil {
			err = l.build(dir)
		}
		if err != nil {
			checkConfigError(t, err)
			return
		}
		checkBounds(t, l)
		// Opening a store takes a thousand times as long as reading a file.
		if taken++; taken%256 == 1 {
			l.config.Data = filepath.Join(t.TempDir(), "data")
			rt, err := parley.New(l.config)
			if err != nil {
				t.Fatalf("it was taken, but does not start: %v", err)
			}
			if err := rt.Shutdown(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func checkConfigError(t *testing.T, err error) {
	t.Helper()
	text := err.Error()
	for _, word := range []string{knownSecret, "unmarshal", "reflect", "main.", "runtime error"} {
		if strings.Contains(text, word) {
			t.Fatalf("the error holds %q: %s", word, text)
		}
	}
	for line := range strings.Lines(text) {
		// A setting with its value, a line of the file, or what is wrong with the whole.
		if line = strings.TrimSpace(line); line != "" && !strings.ContainsAny(line, ":[") && !strings.HasPrefix(line, "it ") {
			t.Fatalf("%q names no setting and no place in %q", line, text)
		}
	}
}

func checkBounds(t *testing.T, l *loaded) {
	t.Helper()
	limits := reflect.ValueOf(l.config.Limits)
	for i := range limits.NumField() {
		if n := limits.Field(i).Int(); n < 0 || n > parley.MaxLimit {
			t.Fatalf("%s is %d", limits.Type().Field(i).Name, n)
		}
	}
	if d := l.config.DrainSpread; d < 0 || d > maxDrain {
		t.Fatalf("drain is %v", d)
	}
	for _, c := range l.config.Templates {
		if c.Match == "" || c.Room.Deadline() <= 0 || c.Room.Wait() <= 0 || c.Room.Deadline() > 8*24*time.Hour {
			t.Fatalf("template %+v", c)
		}
	}
	if len(l.config.Secret) < 32 || len(l.config.Auth.Keys) == 0 || l.config.Auth.Issuer == "" || l.config.Data == "" {
		t.Fatal("something that is required is missing")
	}
}

// configSeeds are the example, every change of it that TestBadConfig knows, and
// what YAML offers beyond it.
func configSeeds(t testing.TB) []string {
	t.Helper()
	text := strings.NewReplacer("{{.Secret}}", knownSecret, "{{.Key}}", knownSecret).Replace(example)
	seeds := []string{
		text, "", "\x00", "{", "- a\n- b", "listen: &a [*a]", "a: &a\n  <<: *a", "? listen\n: x", "listen: !!binary x", "--- ---", "%YAML 1.2\n---\nlisten: 1",
		"limits: &l\n  connections: 5\ntls:\n  <<: *l\n", "{listen: 127.0.0.1:1, data: d}", "listen: |\n  127.0.0.1:8080\n",
		"limits: {connections: .nan, inputBurst: .inf, inputsPerSecond: -1, framesPerSecond: 0x7fffffffffffffff, createsPerMinute: 1e3}",
		"drain: 9223372036854775807ns\ntemplates:\n- room: {deadline: 1ns, wait: -1ns}\n",
	}
	short := text
	for _, line := range strings.Split(text, "\n") { // without comments there is more to mutate
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			short = strings.Replace(short, line+"\n", "", 1)
		}
	}
	seeds = append(seeds, short)
	for _, c := range configChanges {
		if strings.Contains(text, c.old) {
			seeds = append(seeds, strings.Replace(text, c.old, c.new, 1))
		}
	}
	return seeds
}

// configChanges are changes of the example of kinds that a file may have anywhere.
var configChanges = []struct{ old, new string }{
	{"connections: 50000", "connections: -1"},
	{"connections: 50000", "connections: 1.5"},
	{"connections: 50000", "connections: .nan"},
	{"connections: 50000", "connections: .inf"},
	{"connections: 50000", "connections: 99999999999999999999"},
	{"connections: 50000", "connections: \"5\""},
	{"connections: 50000", "connections: [5]"},
	{"drain: 5s", "drain: 5"},
	{"drain: 5s", "drain: NaN"},
	{"drain: 5s", "drain: 999999999h"},
	{"deadline: 2m ", "deadline: 1ns "},
	{"exposed: false", "exposed: no"},
	{"origins:\n", "origins: &o\n"},
	{"- http://localhost:8080", "- http://localhost:8080/path"},
	{"version: \"1\"", "version: 1"},
	{"phaseAgents: {}", "phaseAgents: {a: b}"},
	{"kid: k1", "kid: 1"},
}

// TestEveryKindOfWrongValueIsNamed: for each setting that there is, a value of
// another kind is refused by its name, and so is a setting that there is not.
func TestEveryKindOfWrongValueIsNamed(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{"connections: 50000", "connections: -1", "limits.connections: -1: must be 0 (the default) to"},
		{"connectionsPerSubject: 64", "connectionsPerSubject: -2", "limits.connectionsPerSubject: -2: must be 0"},
		{"connectionsPerAddress: 1024", "connectionsPerAddress: -2", "limits.connectionsPerAddress: -2: must be 0"},
		{"inputsPerSecond: 5", "inputsPerSecond: -2", "limits.inputsPerSecond: -2: must be 0"},
		{"inputBurst: 10", "inputBurst: -2", "limits.inputBurst: -2: must be 0"},
		{"framesPerSecond: 50", "framesPerSecond: -2", "limits.framesPerSecond: -2: must be 0"},
		{"createsPerMinute: 10", "createsPerMinute: -2", "limits.createsPerMinute: -2: must be 0"},
		{"journalBytesPerSecond: 262144", "journalBytesPerSecond: -2", "limits.journalBytesPerSecond: -2: must be 0"},
		{"connections: 50000", "connections: 2000000000", "limits.connections: 2000000000: must be 0 (the default) to 1073741824"},
		{"connections: 50000", "connections: 99999999999999999999", "limits.connections (line"},
		{"connections: 50000", "connections: 18446744073709551615", "limits.connections (line"},
		{"connections: 50000", "connections: .nan", "limits.connections (line"},
		{"connections: 50000", "connections: -.inf", "limits.connections (line"},
		{"connections: 50000", "connections: 1.5", "limits.connections (line"},
		{"connections: 50000", "connections: \"5\"", "limits.connections (line"},
		{"drain: 5s", "drain: .nan", "drain (line"},
		{"drain: 5s", "drain: 5", "drain (line"},
		{"drain: 5s", "drain: 99999999999h", "drain (line"},
		{"deadline: 2m ", "deadline: 1ns ", "templates[0].room.deadline: 1ns: must be whole milliseconds"},
		{"wait: 15m ", "wait: -1ns ", "templates[0].room.wait: -1ns: must be whole milliseconds"},
		{"wait: 15m ", "wait: 9999h ", "templates[0].room.waitMs"},
		{"proxy: false", "proxy: perhaps", "tls.proxy (line"},
		{"exposed: false", "exposed: 1", "admin.exposed (line"},
		{"level: info", "level: [info]", "log.level (line"},
		{"- http://localhost:8080", "- http://localhost:8080/x", `origins[0]: "http://localhost:8080/x": must be a web origin`},
		{"- http://localhost:8080", "- {a: b}", "origins[0] (line"},
		{"phaseAgents: {}", "phaseAgents: []", "templates[0].room.phaseAgents (line"},
		{"phaseAgents: {}", `phaseAgents: {"a\nb": guide}`, `templates[0].room.phaseAgents."a\nb" (line`},
		{"level: info", knownSecret + ": info", "log.(a long name) (line"},
		{"level: info", "level: info\n  level: warn", "this setting is given twice"},
		{"level: info", "level: |" + knownSecret, "[100:10] invalid header option"},
		{"level: info", "\"lev\\nel\": info", `log."lev\nel" (line`},
		{"label: Rules guide", "label: {a: b}", "templates[0].room.agents[0].label (line"},
		{"    - kid: k1", "    - kid: k1\n      alg: HS256\n      secret: " + knownSecret + "\n    - kid: k1", `auth.keys[1].kid: "k1": is used twice`},
		{"level: info", "levl: info", "log.levl (line"},
		{"connections: 50000", "conections: 50000", "limits.conections (line"},
		{"fixed: false", "fixd: false", "templates[0].room.channels[0].fixd (line"},
		{"level: info", "level: !x info", "log.level (line"},
		{"level: info", "level: *nobody", "log.level (line"},
	} {
		text := exampleConfig(t)
		if !strings.Contains(text, c.old) {
			t.Errorf("the example no longer holds %q", c.old)
			continue
		}
		_, err := load(t, strings.Replace(text, c.old, c.new, 1))
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), knownSecret) {
			t.Errorf("%q: got %v, want %q", c.new, err, c.want)
		}
	}
}

// TestAllThatDoesNotFitIsToldAtOnce: wrong types and unknown settings, in
// whatever number and place, come in one answer.
func TestAllThatDoesNotFitIsToldAtOnce(t *testing.T) {
	_, err := load(t, `listen: [1]
orgins: []
tls: {proxy: maybe, crt: x}
auth: {keys: [{kid: a}, {kid: {b: c}}, 5]}
limits: {connections: many, inputBurst: 1.5, framesPerSecond: 3}
drain: soon
`)
	if err == nil {
		t.Fatal("it was taken")
	}
	for _, want := range []string{
		"listen (line 1)", "orgins (line 2)", "tls.proxy (line 3)", "tls.crt (line 3)", "auth.keys[1].kid (line 4)", "auth.keys[2] (line 4)",
		"limits.connections (line 5)", "limits.inputBurst (line 5)", "drain (line 6)",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not told in %q", want, err)
		}
	}
	if strings.Contains(err.Error(), "framesPerSecond (") {
		t.Errorf("what fits is told too: %q", err)
	}
}

// TestAliasesAndMergedSettingsAreTaken: a file may repeat itself by YAML's own means.
func TestAliasesAndMergedSettingsAreTaken(t *testing.T) {
	text := exampleConfig(t)
	text = strings.Replace(text, "label: Rules guide", "label: &name Rules guide", 1)
	text = strings.Replace(text, "description: Answers questions about the rules of backgammon.", "description: *name", 1)
	text = strings.Replace(text, "limits:\n", "limits:\n  <<: &few {createsPerMinute: 3}\n", 1)
	text = strings.Replace(text, "  createsPerMinute: 10 ", "  # createsPerMinute: 10 ", 1)
	l, err := load(t, text)
	if err != nil {
		t.Fatal(err)
	}
	if a := l.config.Templates[0].Room.Agents[0]; a.Description != "Rules guide" || l.config.Limits.CreatesPerMinute != 3 {
		t.Errorf("got %+v and %+v", a, l.config.Limits)
	}
	// A file that grows by repeating itself, or has no end, ends all the same.
	for _, text := range []string{"a: &a\n  <<: *a\nlisten: *a\n", "limits: &l\n  <<: *l\n", "origins: &o [*o, *o]\n"} {
		if _, err := load(t, text); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}
