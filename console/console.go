// Package console holds the page of parley dev: one conversation view for one
// room, for a browser. Its script and style are built from src with the
// TypeScript client and embedded, so that running the page needs only Go.
//
// It renders the page and hands out its files. It is not a server: addresses,
// tokens and headers are its caller's. The page keeps to a content security
// policy without inline scripts or styles; what it has to know at the start
// stands in an element of type application/json, which no browser executes.
//
// Everything here is immutable after the program has started and safe for
// concurrent use.
package console

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
)

//go:embed dist
var dist embed.FS

// mark is the place in index.html where the page's data goes.
var mark = []byte("{{boot}}")

// PageData is what one load of the page starts with. It is shown to the person
// who loads the page and to nobody else.
type PageData struct {
	// Token is a valid token of the person, for the hello frame.
	Token string `json:"token"`
	// Room is the room's name.
	Room string `json:"room"`
	// Path is the path of the room's WebSocket; empty means /v1/rooms/{room}/ws.
	Path string `json:"path"`
	// Sub is the token's subject.
	Sub string `json:"sub"`
	// Name is what the person is called; empty means the subject.
	Name string `json:"name"`
	// Channels are the two channels to read: the one that everyone in the room
	// reads, then the person's own. Empty means public and private:{sub}.
	Channels []string `json:"channels"`
}

// Page writes the page with its data inside. The data cannot end the element
// it stands in, whatever it contains. The answer must not be cached, because it
// holds a token.
func Page(w io.Writer, p PageData) error {
	html, err := dist.ReadFile("dist/index.html")
	if err != nil {
		return fmt.Errorf("console: read the page: %w", err)
	}
	before, after, found := bytes.Cut(html, mark)
	if !found {
		return errors.New("console: the page has no place for its data")
	}
	if len(p.Channels) == 0 {
		p.Channels = []string{"public", "private:" + p.Sub}
	}
	// Marshal writes <, > and & as escapes, so no text can close the element.
	boot, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("console: encode the page's data: %w", err)
	}
	for _, part := range [][]byte{before, boot, after} {
		if _, err := w.Write(part); err != nil {
			return fmt.Errorf("console: write the page: %w", err)
		}
	}
	return nil
}

// Assets returns the page's script and style, to be served under /assets/. The
// page asks for them with the hash of their content in the query, so an answer
// to such a request may be cached for ever.
func Assets() fs.FS {
	assets, err := fs.Sub(dist, "dist/assets")
	if err != nil {
		panic("console: the embedded folder has no valid name") // Cannot happen: the name is a constant.
	}
	return assets
}
