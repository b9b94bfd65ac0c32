package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"parley"
	"parley/driver"
	"parley/driver/guide"
	"parley/driver/script"
	"parley/event"
)

type devCommand struct {
	Addr string `default:"127.0.0.1:8321" help:"Loopback address to listen at; port 0 takes a free one."`
	Data string `type:"path" default:"parley-data" help:"Data directory; it is created when missing."`
	Log  string `default:"warn" help:"Log level: debug, info, warn or error."`
}

// Run serves the page until it is told to stop.
func (c *devCommand) Run(ctx context.Context) error {
	log, err := newLogger(c.Log)
	if err != nil {
		return err
	}
	host, _, err := net.SplitHostPort(c.Addr)
	if err != nil || !loopback(host) {
		return fmt.Errorf("--addr %q: must be a loopback host:port, such as 127.0.0.1:8321; parley serve is for everything else", c.Addr)
	}
	ln, err := net.Listen("tcp", c.Addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%s is in use; stop what listens there, or give another with --addr 127.0.0.1:0", c.Addr)
	}
	if err != nil {
		return fmt.Errorf("--addr %q: %w", c.Addr, err)
	}
	g, err := guide.New(guide.Config{Pace: 250 * time.Millisecond})
	if err != nil {
		return err
	}
	d, err := parley.NewDev(ln.Addr().String(), parley.Config{
		Data:      c.Data,
		Logger:    log,
		Drivers:   map[string]driver.Driver{"guide": g, "storyteller": script.New(script.Storyteller())},
		Templates: []parley.Template{{Match: "demo-*", ParticipantsCreate: true, Room: demoRoom()}},
	})
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	srv := newServer(d.Handler())
	return run(ctx, d.Runtime, srv, func() error { return srv.Serve(ln) }, drainGrace+defaultDrain, log, func() {
		_, _ = fmt.Fprintln(os.Stdout, "Talk with the rules guide at", d.URL())
	})
}

// demoRoom is the room of the page: a rules guide, and a storyteller whose
// answers take a while.
func demoRoom() event.RoomConfig {
	return event.RoomConfig{
		Agents: []event.Agent{
			{
				ID: "guide", Label: "Rules guide", Role: "guide", Driver: "guide", Version: "1",
				Description: "Answers questions about the rules of backgammon.",
			},
			{
				ID: "storyteller", Label: "Storyteller", Role: "character", Driver: "storyteller", Version: "1",
				Description: "Tells a short story, slowly. Address it with @storyteller.",
			},
		},
		FallbackAgent: "guide",
		// A question that nobody answers holds the public channel; not for long here.
		WaitMs: (2 * time.Minute).Milliseconds(),
	}
}
