// Command parley is the one binary: a server of rooms, its tools and its bench.
//
// It reads flags, environment and files, and calls the packages that do the
// work; no rule lives here.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// cli is the command line. Each command's Run does the work.
type cli struct {
	Dev   devCommand   `cmd:"" help:"Try it: a server on this machine with a page to talk to a rules guide. Needs no key and no network."`
	Serve serveCommand `cmd:"" help:"Serve rooms with a configuration file."`
	Token tokenCommand `cmd:"" help:"Make a token that a server with that configuration accepts."`
	Room  roomCommand  `cmd:"" help:"Look at a room."`
	Bench benchCommand `cmd:"" help:"Measure a server on this machine, with baselines."`
}

func main() {
	var c cli
	k, err := kong.New(&c, kong.Name("parley"), kong.Description("Rooms in which people talk with agents."), kong.UsageOnError())
	if err != nil {
		panic(err) // the command line is wrong in the program text
	}
	cmd, err := k.Parse(os.Args[1:])
	k.FatalIfErrorf(err)
	cmd.BindTo(untilSignal(), (*context.Context)(nil))
	err = cmd.Run()
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "parley:", err)
		os.Exit(1)
	}
}

// untilSignal returns a context that the first SIGINT or SIGTERM ends. A second
// one does not wait for a graceful end: the process dies of it, however soon
// after the first it comes.
func untilSignal() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2) // a third one would die of the second anyway
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		cancel()
		second := (<-signals).(syscall.Signal)
		signal.Reset(second)
		_ = syscall.Kill(os.Getpid(), second) // one's own process may always be signaled
	}()
	return ctx
}

// newLogger writes JSON lines to standard error.
func newLogger(level string) (*zap.Logger, error) {
	if level == "" {
		level = "info"
	}
	l, err := zapcore.ParseLevel(level)
	if err != nil {
		return nil, fmt.Errorf("log level %q: must be debug, info, warn or error", level)
	}
	c := zap.NewProductionConfig()
	c.Level = zap.NewAtomicLevelAt(l)
	c.EncoderConfig.EncodeTime = zapcore.ISO8601TimeEncoder
	c.DisableStacktrace = true // an operator's message says what to do; where in the program it arose does not help
	return c.Build()
}
