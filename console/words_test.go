package console_test

import (
	"os"
	"reflect"
	"regexp"
	"strconv"
	"testing"

	"parley/event"
	"parley/gateway/wire"
)

// The words of the TypeScript client, which the page is built with, are the
// words of the server (K6).
func TestThePageSpeaksTheWordsOfTheServer(t *testing.T) {
	source, err := os.ReadFile("../client/ts/src/words.ts")
	if err != nil {
		t.Fatal(err)
	}
	list := func(name string) []string {
		t.Helper()
		table := regexp.MustCompile(`(?s)export const ` + name + ` = \[(.*?)\] as const;`).FindSubmatch(source)
		if table == nil {
			t.Fatalf("words.ts has no table %s", name)
		}
		var words []string
		for _, word := range regexp.MustCompile(`"([^"]*)"`).FindAllSubmatch(table[1], -1) {
			words = append(words, string(word[1]))
		}
		return words
	}
	same := func(name string, want []string) {
		t.Helper()
		if got := list(name); !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n got %q\nwant %q", name, got, want)
		}
	}

	same("clientFrameTypes", wire.ClientTypes)
	same("serverFrameTypes", wire.ServerTypes)
	same("itemKinds", wire.ItemKinds)
	var resets []string
	for _, reason := range wire.Resets {
		resets = append(resets, string(reason))
	}
	same("resetReasons", resets)
	var codes []string
	for _, row := range wire.Codes {
		codes = append(codes, string(row.Code))
	}
	same("errorCodes", codes)
	for _, word := range list("runStatuses") {
		if _, ok := event.ParseStatus(word); !ok {
			t.Errorf("runStatuses: %q is no status of a run", word)
		}
	}

	table := regexp.MustCompile(`(?s)export const closeCodes = \{(.*?)\} as const;`).FindSubmatch(source)
	if table == nil {
		t.Fatal("words.ts has no table closeCodes")
	}
	closes := map[string]wire.Close{}
	for _, row := range regexp.MustCompile(`(\w+): (\d+)`).FindAllSubmatch(table[1], -1) {
		code, err := strconv.Atoi(string(row[2]))
		if err != nil {
			t.Fatal(err)
		}
		closes[string(row[1])] = wire.Close(code)
	}
	want := map[string]wire.Close{}
	for _, row := range wire.Closes {
		want[row.Word] = row.Close
	}
	if !reflect.DeepEqual(closes, want) {
		t.Errorf("closeCodes:\n got %v\nwant %v", closes, want)
	}
	if found := regexp.MustCompile(`SUBPROTOCOL = "([^"]+)"`).FindSubmatch(source); found == nil || string(found[1]) != wire.Subprotocol {
		t.Errorf("SUBPROTOCOL is not %q", wire.Subprotocol)
	}
}
