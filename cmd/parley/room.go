package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"parley"
	"parley/client"
	"parley/event"
	"parley/gateway/wire"
)

type roomCommand struct {
	Replay  replayCommand  `cmd:"" help:"Print a room's journal (the server must be stopped)."`
	Inspect inspectCommand `cmd:"" help:"Print what a room's journal comes to (the server must be stopped)."`
	Tail    tailCommand    `cmd:"" help:"Follow a room through its server, as the holder of a token."`
}

type offline struct {
	Data string `type:"path" default:"parley-data" help:"Data directory."`
	Room string `arg:"" optional:"" help:"Name of the room; without it, the names of all rooms are printed."`
}

// open opens the data directory, and lists its rooms when none was named.
func (o offline) open() (j *parley.Journal, done bool, err error) {
	if j, err = parley.OpenJournal(o.Data); err != nil {
		return nil, false, err
	}
	if o.Room != "" {
		return j, false, nil
	}
	names, err := j.Rooms()
	for _, n := range names {
		fmt.Println(n)
	}
	return nil, true, errors.Join(err, j.Close())
}

// replayAll prints the entries of every room as JSON.
func (c *replayCommand) replayAll() error {
	j, err := parley.OpenJournal(c.Data)
	if err != nil {
		return err
	}
	defer func() { _ = j.Close() }() // read only
	names, err := j.Rooms()
	if err != nil {
		return err
	}
	out := bufio.NewWriter(os.Stdout)
	for _, n := range names {
		if _, err := c.lines(j, n, json.NewEncoder(out)); err != nil {
			return err
		}
	}
	return out.Flush()
}

// lines prints the entries of one room as JSON and returns how many there were.
func (c *replayCommand) lines(j *parley.Journal, room event.RoomID, out *json.Encoder) (n int, err error) {
	id, err := c.ids(j, room)
	if err != nil {
		return 0, err
	}
	for e, err := range j.Entries(room, event.Seq(c.After)) {
		if err == nil {
			err = out.Encode(lineOf(room, e, id(e.Seq)))
		}
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

type replayCommand struct {
	offline
	After  uint64 `help:"Begin after this position."`
	JSON   bool   `help:"One JSON object per entry, with its id on the wire and without texts; without ROOM, of all rooms."`
	Config string `type:"existingfile" placeholder:"FILE" help:"Configuration of the server, for its secret (ids on the wire). Without it, the data directory's own."`
}

// Run prints the entries in order.
func (c *replayCommand) Run() error {
	if c.JSON && c.Room == "" {
		return c.replayAll()
	}
	j, done, err := c.open()
	if done || err != nil {
		return err
	}
	defer func() { _ = j.Close() }() // read only
	n := 0
	if c.JSON {
		n, err = c.lines(j, event.RoomID(c.Room), json.NewEncoder(os.Stdout))
	} else {
		for e, failed := range j.Entries(event.RoomID(c.Room), event.Seq(c.After)) {
			if err = failed; err != nil {
				break
			}
			n++
			printEntry(os.Stdout, e)
		}
	}
	if err != nil || n > 0 {
		return err
	}
	names, err := j.Rooms()
	if err == nil && !slices.Contains(names, event.RoomID(c.Room)) {
		err = fmt.Errorf("there is no room %s in %s", c.Room, c.Data)
	}
	return err
}

// ids returns what gives entries their ids on the wire.
func (c *replayCommand) ids(j *parley.Journal, room event.RoomID) (func(event.Seq) string, error) {
	var secret []byte
	if c.Config != "" {
		l, err := loadConfig(c.Config)
		if err != nil {
			return nil, err
		}
		secret = l.config.Secret
	}
	return j.EntryIDs(room, secret)
}

// journalLine is one entry for programs: ids and kinds, no texts.
type journalLine struct {
	Room     event.RoomID    `json:"room"`
	Seq      event.Seq       `json:"seq"`
	ID       string          `json:"id"`
	At       string          `json:"at"`
	Kind     string          `json:"kind"`
	Channel  event.ChannelID `json:"channel,omitempty"`
	Run      event.RunID     `json:"run,omitempty"`
	Attempt  uint32          `json:"attempt,omitempty"`
	Sequence uint64          `json:"sequence,omitempty"`
	Input    event.InputID   `json:"input,omitempty"`
	Speaker  string          `json:"speaker,omitempty"`
	Type     string          `json:"type,omitempty"`
}

const timeFormat = "2006-01-02T15:04:05.000Z07:00"

func lineOf(room event.RoomID, e *event.Entry, id string) journalLine {
	l := journalLine{Room: room, Seq: e.Seq, ID: id, At: e.At.Format(timeFormat), Kind: e.Body.Kind().String(), Channel: e.Channel}
	switch x := e.Body.(type) {
	case *event.InputAdmitted:
		l.Run, l.Input, l.Speaker, l.Type = x.Run, x.Input, x.Speaker.ID, x.State.String()
	case *event.RunEvent:
		l.Run, l.Attempt, l.Sequence, l.Input, l.Type = x.Run, x.Attempt, x.Sequence, x.Input, x.Event.RunKind().String()
	}
	return l
}

// printEntry prints an entry for a person who may see the whole journal.
func printEntry(w io.Writer, e *event.Entry) {
	to, _ := json.Marshal(e.Disclosure) // plain data
	_, _ = fmt.Fprintf(w, "%6d  %s  %-10s %-9s %s", e.Seq, e.At.Format(timeFormat), e.Channel, e.Body.Kind(), to)
	switch x := e.Body.(type) {
	case *event.InputAdmitted:
		_, _ = fmt.Fprintf(w, "  %s %s → %s (%s, %s): %q", x.Speaker.Kind, x.Speaker.ID, x.Agent, x.State, x.Run, x.Text)
	case *event.RunEvent:
		_, _ = fmt.Fprintf(w, "  %s #%d attempt %d %s", x.Run, x.Sequence, x.Attempt, x.Event.RunKind())
		printRunEvent(w, x)
	case *event.FocusSet:
		_, _ = fmt.Fprintf(w, "  %s → %q", x.Subject, x.Agent)
	case *event.RoomConfigured:
		_, _ = fmt.Fprintf(w, "  %d agents, phase %q", len(x.Config.Agents), x.Config.Phase)
	}
	_, _ = fmt.Fprintln(w)
}

func printRunEvent(w io.Writer, x *event.RunEvent) {
	switch b := x.Event.(type) {
	case event.AssistantOutput:
		_, _ = fmt.Fprintf(w, " %s (%s, %s, final %t): %q", x.Logical, b.Purpose, b.History, b.Final, b.Delta)
	case event.Progress:
		_, _ = fmt.Fprintf(w, " %s", b.Stage)
	case event.Checkpoint:
		_, _ = fmt.Fprintf(w, " %d bytes", len(b.Value))
	case event.InputRequested:
		_, _ = fmt.Fprintf(w, " %s until %s", b.Request, b.ExpiresAt.Format(timeFormat))
	case event.RunCanceled:
		_, _ = fmt.Fprintf(w, " %s", b.Reason)
	case event.RunFailed:
		_, _ = fmt.Fprintf(w, " %s", b.Code)
	case event.AttemptStarted:
		_, _ = fmt.Fprintf(w, " resumed %t", b.Resumed)
	}
}

type inspectCommand struct{ offline }

// Run prints the room's state as its journal gives it.
func (c *inspectCommand) Run() error {
	j, done, err := c.open()
	if done || err != nil {
		return err
	}
	defer func() { _ = j.Close() }() // read only
	v, err := j.View(event.RoomID(c.Room))
	if err != nil {
		return err
	}
	fmt.Printf("room     %s\nhead     %d\nat       %s\nphase    %q\nfallback %s\n", v.Room, v.Head, v.At.Format(timeFormat), v.Phase, v.Fallback)
	for _, a := range v.Agents {
		fmt.Printf("agent    %s (%s, driver %s, version %q)\n", a.ID, a.Role, a.Driver, a.Version)
	}
	for _, f := range v.Focus {
		fmt.Printf("focus    %s → %s\n", f.Subject, f.Agent)
	}
	for _, r := range v.Runs {
		fmt.Printf("run      %s on %s by %s: %s, attempt %d, %d events", r.Run, r.Channel, r.Agent, r.Status, r.Attempt, r.Sequence)
		if !r.Deadline.IsZero() {
			fmt.Printf(", deadline %s", r.Deadline.Format(timeFormat))
		}
		fmt.Println()
	}
	return nil
}

type tailCommand struct {
	Room    string   `arg:"" help:"Name of the room."`
	URL     string   `default:"ws://127.0.0.1:8080" help:"Address of the server."`
	Token   string   `env:"PARLEY_TOKEN" required:"" help:"A token that may read; better given as PARLEY_TOKEN than on the command line."`
	Channel []string `default:"public" help:"Channels to follow."`
	From    string   `default:"tail" enum:"tail,start" help:"Where to begin: tail or start."`
}

// Run prints items as they come, one JSON object per line, until it is told to stop.
func (c *tailCommand) Run(ctx context.Context) error {
	config := client.Config{
		URL: c.URL, Room: event.RoomID(c.Room), Client: "parley-tail", From: wire.From(c.From),
		Token:    func(context.Context) (string, error) { return c.Token, nil },
		Observer: client.Observer{Status: tellStatus(os.Stderr)},
	}
	for _, ch := range c.Channel {
		config.Channels = append(config.Channels, event.ChannelID(ch))
	}
	cl, err := client.New(config)
	if err != nil {
		return err
	}
	if err := cl.Run(ctx, printer{json.NewEncoder(os.Stdout)}); ctx.Err() == nil {
		return err
	}
	return nil
}

// tellStatus tells why there is nothing to see yet.
func tellStatus(w io.Writer) func(client.Status) {
	return func(s client.Status) {
		if s.Phase == client.Waiting && s.Err != nil {
			_, _ = fmt.Fprintf(w, "parley: trying again in %s: %v\n", time.Until(s.RetryAt).Round(100*time.Millisecond), s.Err)
		}
	}
}

// printer prints what a room shows to the holder of a token.
type printer struct{ out *json.Encoder }

// Reset implements client.Handler.
func (p printer) Reset(_ context.Context, s *client.State, why wire.Reset) error {
	return p.out.Encode(map[string]any{"kind": "state", "reason": why, "state": s})
}

// Item implements client.Handler.
func (p printer) Item(_ context.Context, i *client.Item) error {
	return p.out.Encode(map[string]any{
		"id": i.ID, "at": i.At.Format(timeFormat), "channel": i.Channel, "kind": i.Kind, "run": i.Run,
		"attempt": i.Attempt, "disclosure": i.Disclosure, "body": i.Body,
	})
}
