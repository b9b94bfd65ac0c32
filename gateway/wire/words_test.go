package wire

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"parley/event"
)

func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestEveryReasonHasItsCode(t *testing.T) {
	for r := event.BadRequest; r <= event.RateLimited; r++ {
		info := CodeOf(r)
		if info.Reason != r {
			t.Errorf("reason %d has no code", r)
		}
	}
	if got := CodeOf(200).Code; got != CodeInternal {
		t.Errorf("a reason without a code is shown as %s, want internal", got)
	}
}

func TestCodesAreUniqueAndDocumented(t *testing.T) {
	doc := readFile(t, "../../docs/PROTOCOL.md")
	words := map[string]bool{}
	reasons := map[event.Reason]bool{}
	for _, c := range Codes {
		if words[string(c.Code)] {
			t.Errorf("code %s stands twice", c.Code)
		}
		words[string(c.Code)] = true
		if c.Reason != 0 && reasons[c.Reason] {
			t.Errorf("reason %d has two codes", c.Reason)
		}
		reasons[c.Reason] = true
		if c.Status < 400 || c.Status > 599 {
			t.Errorf("code %s has the status %d", c.Code, c.Status)
		}
		if !strings.Contains(doc, "| `"+string(c.Code)+"` | "+strconv.Itoa(c.Status)+" |") {
			t.Errorf("code %s with status %d is not documented", c.Code, c.Status)
		}
	}
	numbers, names := map[Close]bool{}, map[string]bool{}
	for _, c := range Closes {
		if numbers[c.Close] || names[c.Word] {
			t.Errorf("close code %d %s stands twice", c.Close, c.Word)
		}
		numbers[c.Close], names[c.Word] = true, true
		if len(c.Word) > 123 {
			t.Errorf("the reason of %d does not fit into a close frame", c.Close)
		}
		if !strings.Contains(doc, "| "+strconv.Itoa(int(c.Close))+" | `"+c.Word+"` |") {
			t.Errorf("close code %d %s is not documented", c.Close, c.Word)
		}
	}
	for _, list := range [][]string{ClientTypes, ServerTypes, ItemKinds, resetWords()} {
		for _, w := range list {
			if !strings.Contains(doc, "`"+w+"`") {
				t.Errorf("the word %s is not documented", w)
			}
		}
	}
}

func resetWords() []string {
	var out []string
	for _, r := range Resets {
		out = append(out, string(r))
	}
	return out
}

// The TypeScript client has the same tables in a file of its own.
func TestWordsOfTypeScriptAreTheSame(t *testing.T) {
	src := readFile(t, "../../client/ts/src/words.ts")
	list := func(name string) []string {
		t.Helper()
		m := regexp.MustCompile(`(?s)export const ` + name + ` = \[(.*?)\] as const`).FindStringSubmatch(src)
		if m == nil {
			t.Fatalf("words.ts has no list %s", name)
		}
		var out []string
		for _, w := range regexp.MustCompile(`"([^"]*)"`).FindAllStringSubmatch(m[1], -1) {
			out = append(out, w[1])
		}
		return out
	}
	same := func(name string, want []string) {
		t.Helper()
		if got := list(name); !slices.Equal(got, want) {
			t.Errorf("%s:\n got %v\nwant %v", name, got, want)
		}
	}
	same("clientFrameTypes", ClientTypes)
	same("serverFrameTypes", ServerTypes)
	same("itemKinds", ItemKinds)
	same("resetReasons", resetWords())
	var codes []string
	for _, c := range Codes {
		codes = append(codes, string(c.Code))
	}
	same("errorCodes", codes)
	words := func(n int, word func(int) string) []string {
		var out []string
		for i := 1; i <= n; i++ {
			out = append(out, word(i))
		}
		return out
	}
	same("runStatuses", words(7, func(i int) string { return event.Status(i).String() }))
	same("inputStates", words(4, func(i int) string { return event.Admission(i).String() }))
	same("modalities", words(2, func(i int) string { return event.Modality(i).String() }))
	same("busyPolicies", words(4, func(i int) string { return event.BusyPolicy(i).String() }))
	same("purposes", words(3, func(i int) string { return event.Purpose(i).String() }))
	same("disclosureKinds", words(3, func(i int) string { return event.DisclosureKind(i).String() }))
	known := list("runEventTypes")
	for k := event.KindProgress; k <= event.KindRunBlocked; k++ {
		if !slices.Contains(known, k.String()) {
			t.Errorf("runEventTypes lacks %s", k)
		}
	}
	closes := regexp.MustCompile(`(?s)export const closeCodes = \{(.*?)\} as const`).FindStringSubmatch(src)
	if closes == nil {
		t.Fatal("words.ts has no closeCodes")
	}
	found := regexp.MustCompile(`(\w+): (\d+)`).FindAllStringSubmatch(closes[1], -1)
	if len(found) != len(Closes) {
		t.Errorf("words.ts has %d close codes, want %d", len(found), len(Closes))
	}
	for i, m := range found {
		if i < len(Closes) && (m[1] != Closes[i].Word || m[2] != strconv.Itoa(int(Closes[i].Close))) {
			t.Errorf("close code %d: got %s %s, want %s %d", i, m[1], m[2], Closes[i].Word, Closes[i].Close)
		}
	}
	if !strings.Contains(src, `SUBPROTOCOL = "`+Subprotocol+`"`) {
		t.Error("words.ts names another subprotocol")
	}
}
