package guide

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"parley/driver"
	"parley/driver/drivertest"
)

func TestTune(t *testing.T) {
	start := time.Now()
	g, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("new", time.Since(start))
	for _, f := range []string{"questions", "heldout", "offtopic"} {
		if f == "heldout" && os.Getenv("HELDOUT") == "" {
			continue
		}
		raw, _ := os.ReadFile("testdata/" + f + ".txt")
		good, n := 0, 0
		for _, line := range strings.Split(strings.TrimSpace(string(raw)), "\n") {
			if strings.HasPrefix(line, "#") {
				continue
			}
			n++
			q, want, _ := strings.Cut(line, " = ")
			rec, err := drivertest.Attempt(t.Context(), g, driver.Turn{Text: q})
			if err != nil {
				t.Error(err)
			}
			cited := g.citations(rec.Text())
			got := "?"
			if len(cited) > 0 {
				got = cited[0]
			}
			ok := false
			for _, w := range strings.Split(want, "|") {
				ok = ok || w == got
			}
			if f == "offtopic" {
				ok = rec.Request() != "" && got == "?"
			}
			if ok {
				good++
				continue
			}
			qq, _ := g.read(t.Context(), q)
			hits, _ := g.index.search(t.Context(), qq)
			fmt.Printf("%s\n   want %s got %s; words", q, want, got)
			for _, w := range qq.words {
				fmt.Printf(" %s%v%v", w.text, w.stems, w.known)
			}
			fmt.Println()
			for _, h := range hits[:min(4, len(hits))] {
				fmt.Printf("      %s %.2f cov %.2f words %b keyed %b wording %d\n", g.index.rules[h.rule].ID, h.score, h.coverage, h.words, h.keyed, h.wording)
			}
		}
		fmt.Println(f, good, "of", n)
	}
	fmt.Println(time.Since(start))
}
