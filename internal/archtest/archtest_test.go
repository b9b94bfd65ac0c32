package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

func TestTheModuleKeepsThePolicy(t *testing.T) {
	module := os.DirFS(moduleRoot(t))
	found, err := Check(module)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		t.Error(f)
	}

	// A walk that saw nothing would find nothing.
	m, err := load(module)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"event", "internal/archtest"} {
		if !slices.ContainsFunc(m.packages, func(p *sourcePackage) bool { return p.name == name && len(p.files) > 0 }) {
			t.Errorf("the walk did not reach %s", name)
		}
	}
}

// moduleRoot is the nearest folder upwards that holds go.mod.
func moduleRoot(t *testing.T) string {
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatal("no go.mod in any folder above the test")
		}
		dir = up
	}
}

// files maps names to Go source. A text that does not begin with a comment or
// a package clause is a list of imports, for which a file is made up.
type files map[string]string

func (f files) module() fs.FS {
	fake := fstest.MapFS{"go.mod": {Data: []byte("// A fake.\nmodule parley\n\ngo 1.26\n")}}
	for name, text := range f {
		if !strings.HasPrefix(text, "/") && !strings.HasPrefix(text, "package") {
			var b strings.Builder
			b.WriteString("// Package p is made up.\npackage p\n")
			for _, target := range strings.Fields(text) {
				b.WriteString("import _ \"" + target + "\"\n")
			}
			text = b.String()
		}
		fake[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return fake
}

func TestPlantedViolations(t *testing.T) {
	tests := []struct {
		name  string
		files files
		want  []string // how the sentences begin; all of them, in order
	}{
		// The graph.
		{
			"event imports a package of the module",
			files{"event/a.go": "parley/room"},
			[]string{"event/a.go:3: event imports parley/room: only actors and parley may: an actor runs the state"},
		},
		{
			"a lane knows the floor",
			files{"channel/a.go": "parley/event parley/speech"},
			[]string{"channel/a.go:4: channel imports parley/speech: only room may: the floor changes only"},
		},
		{
			"the room reaches up",
			files{"room/a.go": "parley/actors"},
			[]string{"room/a.go:3: room imports parley/actors: only parley may"},
		},
		{
			"the room knows drivers",
			files{"room/a.go": "parley/driver"},
			[]string{"room/a.go:3: room imports parley/driver: only actors, driver/*, parley and cmd/parley may"},
		},
		{
			"actors import persistence",
			files{"actors/a.go": "parley/persistence"},
			[]string{"actors/a.go:3: actors imports parley/persistence: only parley may: actors and gateway declare"},
		},
		{
			"actors import gateway",
			files{"actors/a.go": "parley/gateway"},
			[]string{"actors/a.go:3: actors imports parley/gateway: only parley may"},
		},
		{
			"actors know frames",
			files{"actors/a.go": "parley/gateway/wire"},
			[]string{"actors/a.go:3: actors imports parley/gateway/wire: only gateway, client, bench, parley and cmd/parley may"},
		},
		{
			"gateway imports actors",
			files{"gateway/a.go": "parley/actors"},
			[]string{"gateway/a.go:3: gateway imports parley/actors: only parley may"},
		},
		{
			"gateway imports persistence",
			files{"gateway/a.go": "parley/persistence"},
			[]string{"gateway/a.go:3: gateway imports parley/persistence: only parley may"},
		},
		{
			"gateway imports room",
			files{"gateway/a.go": "parley/room"},
			[]string{"gateway/a.go:3: gateway imports parley/room: only actors and parley may"},
		},
		{
			"persistence imports actors",
			files{"persistence/a.go": "parley/actors"},
			[]string{"persistence/a.go:3: persistence imports parley/actors: only parley may"},
		},
		{
			"persistence imports room",
			files{"persistence/a.go": "parley/room"},
			[]string{"persistence/a.go:3: persistence imports parley/room: only actors and parley may"},
		},
		{
			"a driver imports another",
			files{"driver/script/a.go": "parley/driver parley/driver/guide"},
			[]string{"driver/script/a.go:4: driver/script imports parley/driver/guide: only parley and cmd/parley may"},
		},
		{
			"the contract imports a driver",
			files{"driver/a.go": "parley/driver/guide"},
			[]string{"driver/a.go:3: driver imports parley/driver/guide: only parley and cmd/parley may"},
		},
		{
			"a driver without an edge is imported",
			files{"parley.go": "parley/driver/http"},
			[]string{"parley.go:3: parley imports parley/driver/http: no package may: to allow it, add an edge to graph"},
		},
		{
			"the client imports the server's side",
			files{"client/a.go": "parley/gateway"},
			[]string{"client/a.go:3: client imports parley/gateway: only parley may"},
		},
		{
			"bench reaches into the server",
			files{"bench/a.go": "parley/client parley/persistence"},
			[]string{"bench/a.go:4: bench imports parley/persistence: only parley may"},
		},
		{
			"a part imports the runtime",
			files{"gateway/a.go": "parley"},
			[]string{"gateway/a.go:3: gateway imports parley: only cmd/parley may: the binary is the runtime with flags"},
		},
		{
			"the runtime imports bench",
			files{"parley.go": "parley/bench"},
			[]string{"parley.go:3: parley imports parley/bench: only cmd/parley may"},
		},
		{
			"the binary goes past the runtime",
			files{"cmd/parley/a.go": "parley/actors"},
			[]string{"cmd/parley/a.go:3: cmd/parley imports parley/actors: only parley may"},
		},
		{
			"a product package imports test support",
			files{"actors/a.go": "parley/internal/roomtest"},
			[]string{"actors/a.go:3: actors imports parley/internal/roomtest: only tests and internal packages may"},
		},

		// Engines.
		{
			"actors import Pebble",
			files{"actors/a.go": "github.com/cockroachdb/pebble/v2/vfs"},
			[]string{"actors/a.go:3: actors imports github.com/cockroachdb/pebble/v2/vfs: only persistence and bench may: persistence owns"},
		},
		{
			"the runtime imports protoactor",
			files{"parley.go": "github.com/asynkron/protoactor-go/actor"},
			[]string{"parley.go:3: parley imports github.com/asynkron/protoactor-go/actor: only actors may"},
		},
		{
			"the console imports a WebSocket",
			files{"console/a.go": "github.com/gorilla/websocket"},
			[]string{"console/a.go:3: console imports github.com/gorilla/websocket: only gateway, client and bench may"},
		},
		{
			"the frames import a WebSocket",
			files{"gateway/wire/a.go": "github.com/gorilla/websocket"},
			[]string{"gateway/wire/a.go:3: gateway/wire imports github.com/gorilla/websocket: only gateway, client and bench may"},
		},

		// Purity.
		{
			"a pure package imports a library",
			files{"event/a.go": "github.com/google/uuid"},
			[]string{"event/a.go:3: event imports github.com/google/uuid: pure packages import the standard library only"},
		},
		{
			"a pure package without leave cuts text",
			files{"room/a.go": "github.com/rivo/uniseg"},
			[]string{"room/a.go:3: room imports github.com/rivo/uniseg: pure packages import the standard library only"},
		},
		{"each banned part", files{
			"event/a.go":        "os",
			"channel/a.go":      "os/signal net",
			"speech/a.go":       "net/http sync",
			"cue/a.go":          "sync/atomic context",
			"interaction/a.go":  "log log/slog",
			"room/a.go":         "math/rand math/rand/v2 crypto/rand hash/maphash",
			"gateway/wire/a.go": "syscall C",
		}, []string{
			"channel/a.go:3: channel imports os/signal: pure packages may not: files,",
			"channel/a.go:4: channel imports net: pure packages may not: the network",
			"cue/a.go:3: cue imports sync/atomic: pure packages may not: pure state has one owner",
			"cue/a.go:4: cue imports context: pure packages may not: a decision does not wait",
			"event/a.go:3: event imports os: pure packages may not: files,",
			"gateway/wire/a.go:3: gateway/wire imports syscall: pure packages may not: files,",
			"gateway/wire/a.go:4: gateway/wire imports C: pure packages may not: foreign code",
			"interaction/a.go:3: interaction imports log: pure packages may not: a decision returns",
			"interaction/a.go:4: interaction imports log/slog: pure packages may not: a decision returns",
			"room/a.go:3: room imports math/rand: pure packages may not: randomness comes in",
			"room/a.go:4: room imports math/rand/v2: pure packages may not: randomness comes in",
			"room/a.go:5: room imports crypto/rand: pure packages may not: randomness comes in",
			"room/a.go:6: room imports hash/maphash: pure packages may not: its seed differs",
			"speech/a.go:3: speech imports net/http: pure packages may not: the network",
			"speech/a.go:4: speech imports sync: pure packages may not: pure state has one owner",
		}},
		{"a pure package reads the clock", files{"room/a.go": `// Package room is made up.
package room

import "time"

var started = time.Now()

func age() time.Duration { return time.Since(started) }

func wait() { time.Sleep(time.Second); <-time.After(1); <-time.NewTimer(1).C }
`}, []string{
			"room/a.go:6: room uses time.Now: pure packages take the time as a value",
			"room/a.go:8: room uses time.Since: ",
			"room/a.go:10: room uses time.Sleep: ",
			"room/a.go:10: room uses time.After: ",
			"room/a.go:10: room uses time.NewTimer: ",
		}},
		{"a pure package passes the clock on", files{"cue/a.go": `// Package cue is made up.
package cue

import clock "time"

var now = clock.Now
`}, []string{"cue/a.go:6: cue uses time.Now: "}},
		{"a pure package hides the clock", files{"cue/a.go": `// Package cue is made up.
package cue

import . "time"

var now = Now
`}, []string{"cue/a.go:4: cue imports time with a dot: "}},
		{
			"a build tag hides nothing",
			files{"room/a.go": "//go:build never\n\n// Package room is made up.\npackage room\n\nimport _ \"os\"\n"},
			[]string{"room/a.go:6: room imports os: "},
		},

		// Folders.
		{
			"a new folder at the top",
			files{"util/a.go": ""},
			[]string{"util: this folder may not hold Go code: put the code in a package that exists, or add the folder to folders and graph in internal/archtest/policy.go"},
		},
		{
			"a new folder with tests only",
			files{"scripts/a_test.go": ""},
			[]string{"scripts: this folder may not hold Go code"},
		},
		{
			"a new folder below a known one",
			files{"gateway/auth/a.go": ""},
			[]string{"gateway/auth: this folder may not hold Go code"},
		},
		{
			"a second binary",
			files{"cmd/tool/a.go": ""},
			[]string{"cmd/tool: this folder may not hold Go code"},
		},
		{
			"a folder called like the root package",
			files{"parley/a.go": ""},
			[]string{"./parley: this folder may not hold Go code"},
		},
		{
			"Go in the TypeScript client",
			files{"client/ts/a.go": ""},
			[]string{"client/ts: this folder may not hold Go code"},
		},
		{
			"Go in the Godot client",
			files{"client/godot/a.go": ""},
			[]string{"client/godot: this folder may not hold Go code"},
		},
		{
			"an unknown folder is imported",
			files{"room/a.go": "parley/util"},
			[]string{"room/a.go:3: room imports parley/util: no package may: "},
		},

		// Package comments.
		{
			"no package comment",
			files{"event/a.go": "package event\n", "event/b.go": "//go:build linux\npackage event\n"},
			[]string{"event: no file has a package comment: "},
		},
		{
			"two package comments",
			files{"event/a.go": "", "event/b.go": "", "event/c.go": "package p\n"},
			[]string{"event: 2 files have a package comment (event/a.go and event/b.go): keep one"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			found, err := Check(tt.files.module())
			if err != nil {
				t.Fatal(err)
			}
			if len(found) != len(tt.want) {
				t.Fatalf("found %d violations, want %d:\n%s", len(found), len(tt.want), strings.Join(found, "\n"))
			}
			for i, want := range tt.want {
				if !strings.HasPrefix(found[i], want) {
					t.Errorf("found  %s\nwant … %s", found[i], want)
				}
			}
		})
	}
}

func TestWhatThePolicyAllows(t *testing.T) {
	found, err := Check(files{
		"event/a.go":             "time encoding/json crypto/sha256",
		"channel/a.go":           "parley/event github.com/rivo/uniseg",
		"speech/a.go":            "parley/event github.com/rivo/uniseg",
		"cue/a.go":               "parley/event",
		"interaction/a.go":       "parley/event",
		"room/a.go":              "parley/event parley/channel parley/speech parley/cue parley/interaction",
		"room/b.go":              "package p\n\nimport \"time\"\n\nfunc at() time.Time { return time.Unix(0, 0) }\n",
		"room/a_test.go":         "os parley/internal/roomtest github.com/cockroachdb/pebble/v2",
		"persistence/a.go":       "parley/event github.com/cockroachdb/pebble/v2 github.com/cockroachdb/pebble/v2/vfs",
		"driver/a.go":            "parley/event context net/http",
		"driver/guide/a.go":      "parley/event parley/driver",
		"driver/script/a.go":     "parley/event parley/driver",
		"driver/openai/a.go":     "parley/event parley/driver",
		"driver/http/a.go":       "parley/event parley/driver",
		"driver/drivertest/a.go": "parley/event parley/driver testing",
		"actors/a.go":            "parley/event parley/room parley/driver github.com/asynkron/protoactor-go/actor",
		"gateway/wire/a.go":      "parley/event crypto/hmac crypto/rand",
		"gateway/a.go":           "parley/event parley/gateway/wire github.com/gorilla/websocket",
		"client/a.go":            "parley/event parley/gateway/wire github.com/gorilla/websocket",
		"console/a.go":           "embed parley/client",
		"bench/a.go":             "parley/event parley/client parley/gateway/wire github.com/cockroachdb/pebble/v2 github.com/gorilla/websocket",
		"parley.go":              "parley/event parley/room parley/persistence parley/driver parley/actors parley/gateway parley/client parley/console parley/driver/guide parley/driver/script",
		"cmd/parley/a.go":        "parley parley/bench parley/event parley/driver parley/driver/guide parley/driver/script",
		"internal/roomtest/a.go": "parley/room parley/internal/invariants github.com/cockroachdb/datadriven",
		"internal/wsconn/a.go":   "net parley/gateway github.com/gorilla/websocket",

		// What the go command or npm owns is nobody's package.
		"testdata/a.go":                  "parley/room",
		"room/testdata/a.go":             "os",
		"client/ts/node_modules/p/a.go":  "parley/room",
		"client/ts/node_modules/p/b.txt": "",
		".hidden/a.go":                   "os",
		"_old/a.go":                      "os",
	}.module())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		t.Error(f)
	}
}

func TestAModuleThatCannotBeReadIsAnError(t *testing.T) {
	tests := []struct {
		name string
		fsys fstest.MapFS
		want string
	}{
		{"no go.mod", fstest.MapFS{}, "go.mod"},
		{"no module line", fstest.MapFS{"go.mod": {Data: []byte("go 1.26\n")}}, "no module line"},
		{"a broken file", fstest.MapFS{
			"go.mod":     {Data: []byte("module parley\n")},
			"event/a.go": {Data: []byte("package event\nfunc {\n")},
		}, "event/a.go:2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Check(tt.fsys)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

// A row with a misspelled name would allow or refuse nothing.
func TestTheTablesNameKnownFoldersAndGiveReasons(t *testing.T) {
	known := func(row, name string) {
		if name == anyone {
			return
		}
		if _, ok := folderOf(name); !ok {
			t.Errorf("the row of %s names %s, which is not in folders", row, name)
		}
	}
	reason := func(row, why string) {
		if why == "" {
			t.Errorf("the row of %s has no reason", row)
		}
	}
	for _, f := range folders {
		reason(f.name, f.why)
	}
	below := map[string]bool{}
	for _, e := range graph {
		reason(e.below, e.why)
		known(e.below, e.below)
		if below[e.below] {
			t.Errorf("%s has two rows; only the first would count", e.below)
		}
		below[e.below] = true
		for _, name := range e.above {
			known(e.below, name)
		}
	}
	for _, l := range slices.Concat(engines, admitted) {
		reason(l.path, l.why)
		for _, name := range l.above {
			known(l.path, name)
		}
	}
	for _, b := range banned {
		reason(b.path, b.why)
		for _, name := range b.except {
			known(b.path, name)
		}
	}
}
