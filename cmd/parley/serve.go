package main

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"text/template"
	"time"

	"go.uber.org/zap"

	"parley"
)

//go:embed example.yaml.tmpl
var example string

// The bounds of a graceful shutdown. Beyond the time over which connections are
// spread, drivers and rooms have drainGrace to come to rest.
const (
	maxDrain     = 5 * time.Minute
	defaultDrain = 5 * time.Second
	drainGrace   = 20 * time.Second
)

type serveCommand struct {
	Config      string `type:"path" placeholder:"FILE" help:"Configuration file (YAML)."`
	PrintConfig bool   `help:"Print a complete, commented example configuration with fresh secrets, and exit."`
}

// Run serves until it is told to stop.
func (c *serveCommand) Run(ctx context.Context) error {
	if c.PrintConfig {
		t := template.Must(template.New("example").Parse(example))
		return t.Execute(os.Stdout, map[string]string{"Secret": newSecret(), "Key": newSecret()})
	}
	if c.Config == "" {
		return errors.New("--config FILE is missing; parley serve --print-config prints an example to start from")
	}
	l, err := loadConfig(c.Config)
	if err != nil {
		return err
	}
	log, err := newLogger(l.file.Log.Level)
	if err != nil {
		return err
	}
	l.config.Logger = log
	rt, err := parley.New(l.config)
	if err != nil {
		return err
	}
	stopAdmin, err := serveAdmin(l.file.Admin, rt.Collector(), log)
	if err != nil {
		return errors.Join(err, rt.Shutdown(context.Background()))
	}
	ln, err := net.Listen("tcp", l.file.Listen)
	if err != nil {
		return errors.Join(fmt.Errorf("listen %s: %w", l.file.Listen, err), stopAdmin(), rt.Shutdown(context.Background()))
	}
	srv := newServer(rt.Handler())
	serve := func() error { return srv.Serve(ln) }
	if l.file.TLS.Cert != "" {
		serve = func() error { return srv.ServeTLS(ln, l.file.TLS.Cert, l.file.TLS.Key) }
	}
	bound := drainGrace + cmp.Or(l.config.DrainSpread, defaultDrain)
	err = run(ctx, rt, srv, serve, bound, log, func() { log.Info("serving", zap.String("address", ln.Addr().String())) })
	return errors.Join(err, stopAdmin())
}

func newServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 32 << 10,
	}
}

// run starts the runtime, serves until ctx is done, then shuts down in good
// order, which may take as long as bound.
func run(ctx context.Context, rt *parley.Runtime, srv *http.Server, serve func() error, bound time.Duration, log *zap.Logger, up func()) error {
	failed := make(chan error, 1) // Serve returns once
	go func() { failed <- serve() }()
	err := rt.Start(ctx)
	if err == nil {
		up()
		select {
		case <-ctx.Done():
			log.Info("shutting down")
		case err = <-failed:
		}
	}
	limit, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	err = errors.Join(err, rt.Shutdown(limit), srv.Shutdown(limit))
	writeCounters(rt, log)
	if err == nil {
		log.Info("stopped")
	}
	_ = log.Sync() // standard error may not support it
	return err
}

// writeCounters writes what the runtime counted to the file that
// PARLEY_COUNTERS names, for a bench that ran the server.
func writeCounters(rt *parley.Runtime, log *zap.Logger) {
	path := os.Getenv("PARLEY_COUNTERS")
	if path == "" {
		return
	}
	raw, err := json.Marshal(rt.Counters())
	if err == nil {
		err = os.WriteFile(path, append(raw, '\n'), 0o600)
	}
	if err != nil {
		log.Error("counters could not be written", zap.String("error", strings.TrimSpace(err.Error())))
	}
}
