package audience

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"parley/actors"
	"parley/driver"
	"parley/event"
	"parley/gateway"
	"parley/internal/wsconn"
	"parley/persistence"
)

// sample is how many rooms each test draws unless -rapid.checks says otherwise.
const sample = "20"

func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", sample); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	goleak.VerifyTestMain(m)
}

const hall event.RoomID = "hall"

const (
	origin = "https://game.example"
	issuer = "https://issuer.example"
)

var (
	secret = bytes.Repeat([]byte{7}, 32)
	hmac   = bytes.Repeat([]byte{5}, 32)
)

// stack is a server with its disk. Owned by the goroutine of the test.
type stack struct {
	disk     *vfs.MemFS
	limits   gateway.Limits
	run      driver.RunFunc
	store    *persistence.Store
	rooms    *actors.System
	gate     *gateway.Gateway
	listener *wsconn.Listener
	http     *http.Server
	served   chan error
}

// start opens the disk and lets clients in.
func (s *stack) start() error {
	if s.disk == nil {
		s.disk = vfs.NewMem()
	}
	var err error
	fatal := func(msg string) { panic("the process ended: " + msg) }
	if s.store, err = persistence.Open(persistence.Config{Dir: "data", FS: s.disk, Fatal: fatal, CacheBytes: 1 << 20}); err != nil {
		return err
	}
	s.rooms, err = actors.New(actors.Config{
		Journal: s.store, Fatal: fatal, IdleAfter: 2 * time.Second, ShedAfter: time.Second,
		Drivers:     func(string) (driver.Driver, bool) { return s.run, true },
		TailEntries: 32, SnapshotEntries: 64,
	})
	if err != nil {
		return errors.Join(err, s.store.Close())
	}
	s.gate, err = gateway.New(gateway.Config{
		Rooms: s.rooms, Secret: secret, Origins: []string{origin}, Limits: s.limits,
		Auth: gateway.Auth{Keys: []gateway.Key{{HS256: hmac}}, Issuer: issuer, Audience: "parley"},
	})
	if err != nil {
		return errors.Join(err, s.rooms.Shutdown(context.Background()), s.store.Close())
	}
	s.listener = wsconn.Listen(16 << 10)
	s.http = &http.Server{Handler: s.gate.Handler()}
	s.served = make(chan error, 1)
	go func(srv *http.Server, l *wsconn.Listener, served chan error) { served <- srv.Serve(l) }(s.http, s.listener, s.served)
	return s.rooms.Start(context.Background())
}

// stop ends the server in good order. Its disk stays.
func (s *stack) stop() error {
	err := s.rooms.Shutdown(context.Background())
	s.gate.Close()
	err = errors.Join(err, s.http.Close())
	if served := <-s.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return errors.Join(err, s.store.Close())
}

// ask gives the room a command and waits for the answer.
func (s *stack) ask(cmd event.Command) (event.Reply, error) {
	return s.rooms.Ask(context.Background(), hall, cmd)
}

// journal reads all entries.
func (s *stack) journal() ([]*event.Entry, error) {
	var es []*event.Entry
	for {
		more, head, err := s.rooms.Read(hall, event.Seq(len(es)), 512)
		if err != nil {
			return nil, err
		}
		if es = append(es, more...); event.Seq(len(es)) >= head {
			return es, nil
		}
		if len(more) == 0 {
			return nil, fmt.Errorf("the journal ends at %d, its head is %d", len(es), head)
		}
	}
}

func mint(a event.Access) (string, error) {
	now := time.Now()
	return gateway.Mint(gateway.SigningKey{HS256: hmac}, gateway.Claims{
		Issuer: issuer, Audience: "parley", Access: a, IssuedAt: now, Expires: now.Add(12 * time.Hour),
	})
}

func host() event.Access {
	return event.Access{Subject: "the-host", Rooms: []string{"**"}, Scopes: []event.Scope{event.ScopeHost}}
}

// The agents: all are played alike; shadow and owl are for some only.
func config(phase string) event.RoomConfig {
	return event.RoomConfig{
		Agents: []event.Agent{
			{ID: "guide", Label: "Guide", Role: "guide", Driver: "play", Voice: &event.Voice{ID: "warm", Lang: "en"}},
			{ID: "shadow", Label: "Label of shadow", Role: "character", Driver: "play", Visibility: event.ToParticipants("bob", "cat")},
			{ID: "owl-for-ann", Label: "Label of owl", Role: "character", Driver: "play", Visibility: event.ToParticipants("ann", "bob")},
		},
		FallbackAgent: "guide", Phase: phase,
		Channels:   []event.ChannelPolicy{{Match: "table:*", OnBusy: event.BusyReject}},
		DeadlineMs: 20_000, WaitMs: 40_000,
	}
}

// lines joins errors to one that is nil when there are none.
type lines []string

func (l *lines) add(format string, args ...any) { *l = append(*l, fmt.Sprintf(format, args...)) }

func (l lines) err() error {
	if len(l) == 0 {
		return nil
	}
	const most = 12
	if n := len(l); n > most {
		l = append(l[:most:most], fmt.Sprintf("and %d more", n-most))
	}
	return errors.New(strings.Join(l, "\n"))
}
