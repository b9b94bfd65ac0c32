package parley_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"parley"
	"parley/driver"
	"parley/event"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// Example embeds the runtime with a driver of one's own.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "parley-example")
	check(err)
	defer func() { check(os.RemoveAll(dir)) }()
	room := event.RoomConfig{
		Agents:        []event.Agent{{ID: "parrot", Label: "Parrot", Role: "character", Driver: "echo"}},
		FallbackAgent: "parrot",
	}

	echo := driver.RunFunc(func(ctx context.Context, turn *driver.Turn, out driver.Emitter) error {
		return driver.Say(out, "answer", "You said: "+turn.Text)
	})
	rt, err := parley.New(parley.Config{
		Data:      dir,
		Drivers:   map[string]driver.Driver{"echo": echo},
		Templates: []parley.Template{{Match: "table-*", Room: room}}, // an agent "parrot" with the driver echo
	})
	check(err)
	check(rt.Start(ctx))
	res, err := rt.Submit(ctx, parley.Input{
		Room: "table-7", Channel: "public", Speaker: "ann", ID: "i-1", Text: "Hello there", Disclosure: event.ToRoom(),
	})
	check(err)
	fmt.Println(res.Status, res.Text())
	check(rt.Shutdown(ctx))
	// Output: completed You said: Hello there
}

// TestREADME holds the README's example equal to Example, and its two commands to what they are.
func TestREADME(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(string(readme), "```go\n")
	code, _, _ = strings.Cut(code, "```")
	for line := range strings.Lines(code) {
		if line = strings.TrimRight(line, "\n"); line != "" && !strings.Contains(string(source), "\t"+line+"\n") {
			t.Errorf("the README shows a line that Example does not have: %s", line)
		}
	}
	for _, cmd := range []string{"go run ./cmd/parley dev", "go test ./..."} {
		if !strings.Contains(string(readme), cmd+"\n") {
			t.Errorf("the README lacks the command %q", cmd)
		}
	}
}
