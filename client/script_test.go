package client

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"parley/event"
	"parley/gateway/wire"
)

// TestScripts plays testdata: each command is something that happens to a
// machine, and its output is what the machine wants done.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/machine", func(t *testing.T, path string) {
		s := &script{now: time.Unix(0, 0)}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			return s.play(t, d)
		})
	})
}

type script struct {
	m    *Machine
	now  time.Time
	conn int
}

func (s *script) play(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	arg := func(i int) string { return d.CmdArgs[i].Key }
	value := func(name string) string {
		for _, a := range d.CmdArgs {
			if a.Key == name && len(a.Vals) > 0 {
				return a.Vals[0]
			}
		}
		return ""
	}
	var out strings.Builder
	switch d.Cmd {
	case "new":
		o := Options{Session: "s", Channels: []event.ChannelID{"public"}, Cursor: value("cursor"), Random: func() float64 { return 0.5 }}
		_, _ = fmt.Sscan(value("budget"), &o.Budget)
		if bad := value("refuse"); bad != "" {
			o.Check = func(i Item) (Item, error) {
				if strings.Contains(string(i.Body), bad) {
					return i, errors.New("not to the product's liking")
				}
				return i, nil
			}
		}
		s.m, s.conn = NewMachine(o), 0
	case "start":
		s.m.Start()
	case "stop":
		s.m.Stop()
	case "token":
		s.m.Token(s.now, "jwt")
	case "token-failed":
		err := errors.New("the issuer is down")
		if len(d.CmdArgs) > 0 {
			err = fmt.Errorf("%w: signed out", ErrTokenRefused)
		}
		s.m.TokenFailed(s.now, err)
	case "opened":
		s.m.Opened(s.now, s.conn)
	case "frames":
		for line := range strings.Lines(d.Input) {
			s.m.Frame(s.now, s.conn, []byte(strings.TrimSpace(line)))
		}
	case "closed":
		var code int
		_, _ = fmt.Sscan(arg(0), &code)
		after, _ := time.ParseDuration(value("after"))
		s.m.Closed(s.now, s.conn, wire.Close(code), "", after)
	case "after":
		by, err := time.ParseDuration(arg(0))
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		s.now = s.now.Add(by)
		s.m.Tick(s.now)
	case "take":
		switch d, ok := s.m.Delivery(); {
		case !ok:
			out.WriteString("nothing\n")
		case d.Item != nil:
			fmt.Fprintf(&out, "item %s %s\n", d.Item.ID, d.Item.Body)
		default:
			fmt.Fprintf(&out, "reset %q phase=%s focus=%s", d.Why, d.State.Phase, d.State.Focus)
			for _, a := range d.State.Agents {
				fmt.Fprintf(&out, " agent=%s", a.ID)
			}
			for _, r := range d.State.Runs {
				fmt.Fprintf(&out, " run=%s%v", r.Run, r.Outputs)
			}
			out.WriteByte('\n')
		}
	case "handled":
		s.m.Handled(s.now)
	case "handler-failed":
		s.m.HandlerFailed(errors.New("the product is at a loss"))
	case "submit":
		for _, a := range d.CmdArgs {
			if err := s.m.Submit(s.now, Input{ID: event.InputID(a.Key), Channel: "public", Text: "hello <you>"}); err != nil {
				fmt.Fprintf(&out, "error: %v\n", err)
			}
		}
	case "request":
		s.m.Request(arg(0), encode(map[string]string{"type": arg(1), "ref": arg(0)}))
	case "cursor":
		fmt.Fprintf(&out, "%q\n", s.m.Cursor())
	default:
		d.Fatalf(t, "unknown command %s", d.Cmd)
	}
	for e, ok := s.m.Next(); ok; e, ok = s.m.Next() {
		s.print(&out, e)
	}
	if d.Cmd != "take" && d.Cmd != "cursor" {
		if at := s.m.Wake(); !at.IsZero() {
			fmt.Fprintf(&out, "-- next in %v\n", at.Sub(s.now))
		}
	}
	return out.String()
}

func (s *script) print(out *strings.Builder, e Effect) {
	switch e := e.(type) {
	case Open:
		s.conn = e.Conn
		fmt.Fprintf(out, "open %d with %s\n", e.Conn, e.Token)
	case Send:
		fmt.Fprintf(out, "send %s\n", e.Frame)
	case Close:
		fmt.Fprintf(out, "close %d with %d\n", e.Conn, e.Code)
	case SaveOutbox:
		out.WriteString("save outbox")
		for _, in := range e.Inputs {
			fmt.Fprintf(out, " %s", in.ID)
		}
		out.WriteByte('\n')
	case StatusChanged:
		fmt.Fprintf(out, "is %s", e.Phase)
		if e.Err != nil {
			fmt.Fprintf(out, ": %v", e.Err)
		}
		out.WriteByte('\n')
	case InputAccepted:
		fmt.Fprintf(out, "accepted %s run=%s state=%s duplicate=%t\n", e.ID, e.Run, e.State, e.Duplicate)
	case RequestDone:
		fmt.Fprintf(out, "done %s %s\n", e.Ref, e.Result)
	default:
		fmt.Fprintf(out, "%s %+v\n", strings.TrimPrefix(fmt.Sprintf("%T", e), "client."), e)
	}
}
