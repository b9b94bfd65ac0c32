package console

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

var bootElement = regexp.MustCompile(`(?s)<script type="application/json" id="parley-boot">(.*?)</script>`)

func render(t *testing.T, p PageData) string {
	t.Helper()
	var page bytes.Buffer
	if err := Page(&page, p); err != nil {
		t.Fatal(err)
	}
	return page.String()
}

func TestPageCarriesItsDataUnharmedWhateverItContains(t *testing.T) {
	for _, text := range []string{
		"visitor-7",
		`</script><script>alert(1)</script>`,
		`<!-- <script>`,
		`"quotes" and \ backslash`,
		"line\u2028separator & ampersand",
		"{{boot}}",
	} {
		want := PageData{
			Token: text, Room: text, Path: "/v1/rooms/x/ws", Sub: text, Name: text,
			Channels: []string{"public", text},
		}
		page := render(t, want)
		found := bootElement.FindStringSubmatch(page)
		if found == nil {
			t.Fatalf("%q: the page has no data element", text)
		}
		if strings.ContainsAny(found[1], "<>&\u2028") {
			t.Errorf("%q: the data stands unescaped in the page", text)
		}
		var got PageData
		if err := json.Unmarshal([]byte(found[1]), &got); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}

func TestPageNamesTheChannelsOfItsPerson(t *testing.T) {
	page := render(t, PageData{Sub: "visitor-7"})
	if want := `"channels":["public","private:visitor-7"]`; !strings.Contains(page, want) {
		t.Errorf("the page lacks %s", want)
	}
}

// A strict content security policy refuses all of these.
func TestPageHasNothingInline(t *testing.T) {
	page := bootElement.ReplaceAllString(render(t, PageData{}), "")
	for _, inline := range []string{`<script>`, `<style`, ` style=`, ` onclick=`, ` onload=`, `javascript:`, `http://`, `https://`} {
		if inline == `http://` {
			page = strings.ReplaceAll(page, "http://www.w3.org/2000/svg", "") // A name, not an address.
		}
		if strings.Contains(page, inline) {
			t.Errorf("the page contains %q", inline)
		}
	}
}

func TestPageAsksForItsFilesByTheirContent(t *testing.T) {
	page := render(t, PageData{})
	found := regexp.MustCompile(`"/assets/([a-z.]+)\?v=([0-9a-f]+)"`).FindAllStringSubmatch(page, -1)
	if len(found) != 2 {
		t.Fatalf("the page asks for %d files, want 2", len(found))
	}
	for _, name := range found {
		content, err := fs.ReadFile(Assets(), name[1])
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(content)
		if !strings.HasPrefix(hex.EncodeToString(sum[:]), name[2]) {
			t.Errorf("%s: the page names another content", name[1])
		}
	}
}

type failingWriter struct{ after int }

func (w *failingWriter) Write(p []byte) (int, error) {
	if w.after--; w.after < 0 {
		return 0, errors.New("broken pipe")
	}
	return len(p), nil
}

func TestPageReportsAWriterThatFails(t *testing.T) {
	for after := range 3 {
		if err := Page(&failingWriter{after: after}, PageData{}); err == nil {
			t.Errorf("failing after %d writes: no error", after)
		}
	}
	if err := Page(&failingWriter{after: 3}, PageData{}); err != nil {
		t.Error(err)
	}
}
