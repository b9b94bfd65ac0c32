package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"parley/bench"
)

type benchCommand struct {
	Turn       benchTurn       `cmd:"" help:"W1: durable events per second at 1, 16, 128 and 512 rooms, with baselines."`
	Kill       benchKill       `cmd:"" help:"W6: kill -9 under load, and what was lost."`
	Fanout     benchFanout     `cmd:"" help:"W2: one room with many viewers, one event at a time and in streams, with baselines."`
	Idle       benchIdle       `cmd:"" help:"W3: memory per idle connection, resident room and hibernated room, beside raw gorilla."`
	Activation benchActivation `cmd:"" help:"W4: the first input to rooms that sleep, and a start with many open runs."`
	Storm      benchStorm      `cmd:"" help:"W5: 5,000 connections lost at once come back with their cursors."`
	Soak       benchSoak       `cmd:"" help:"W7: ten minutes of turns in rooms that sleep and wake; do memory and goroutines grow?"`
	Neighbours benchNeighbours `cmd:"" help:"W8: what a viewer that never reads, a driver that never returns and a client that floods do to other rooms."`
	All        benchAll        `cmd:"" help:"All workloads in turn, about 40 minutes."`

	Serve benchServe `cmd:"" hidden:"" help:"The server under test."`
	Raw   benchRaw   `cmd:"" hidden:"" help:"The baseline of fan-out and idle connections."`
}

type benchTurn struct {
	Rooms    []int         `default:"1,16,128,512" help:"Numbers of rooms, one client each."`
	Duration time.Duration `default:"5s" help:"How long to measure each."`
	Dir      string        `type:"existingdir" help:"Where the data goes; default: the system's temporary directory."`
	JSON     string        `type:"path" placeholder:"FILE" help:"Write the results to this file, too."`
}

// Run measures, prints a line per figure and writes the results.
func (c *benchTurn) Run(ctx context.Context) error {
	res, err := bench.Turn(ctx, bench.TurnConfig{Dir: c.Dir, Rooms: c.Rooms, Duration: c.Duration, Out: os.Stdout})
	if err != nil || c.JSON == "" {
		return err
	}
	return bench.Write(c.JSON, res)
}

type benchKill struct {
	Rooms   int           `default:"64" help:"Number of rooms, one client each."`
	Rounds  int           `default:"20" help:"How often the server is killed."`
	Most    time.Duration `default:"2s" help:"The longest load before a kill."`
	Prefill int           `default:"0" help:"Entries that the store holds before, in other rooms."`
	Seed    uint64        `help:"Seed of the instants; default: from the clock. It is printed."`
	Dir     string        `type:"existingdir" help:"Where the data goes; default: the system's temporary directory."`
	JSON    string        `type:"path" placeholder:"FILE" help:"Write the results to this file, too."`
}

// Run kills, counts, and fails when anything was lost, doubled or shown too early.
func (c *benchKill) Run(ctx context.Context) error {
	res, err := bench.Kill(ctx, bench.KillConfig{
		Dir: c.Dir, Rooms: c.Rooms, Rounds: c.Rounds, Most: c.Most, Prefill: c.Prefill, Seed: c.Seed, Out: os.Stdout,
	})
	if err != nil {
		return err
	}
	res.Print(os.Stdout)
	if c.JSON != "" {
		err = bench.Write(c.JSON, res)
	}
	if res.Bad() {
		err = errors.Join(err, fmt.Errorf("something was lost, doubled or shown too early (seed %d)", res.Seed))
	}
	return err
}

// benchServe is parley serve in a process that a bench may look into.
type benchServe struct {
	serveCommand
	Probe string `type:"path" required:"" help:"Unix socket on which a bench may ask for memory and profiles."`
}

// Run serves, and answers the bench meanwhile.
func (c *benchServe) Run(ctx context.Context) (err error) {
	stop, err := bench.ServeProbe(c.Probe)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	return c.serveCommand.Run(ctx)
}

// benchRaw is the baseline beside the server.
type benchRaw struct {
	Probe string `type:"path" required:"" help:"Unix socket on which a bench may ask for memory and profiles."`
}

// Run serves until standard input ends.
func (c *benchRaw) Run(ctx context.Context) (err error) {
	stop, err := bench.ServeProbe(c.Probe)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // whatever ends it, the bench has gone
		cancel()
	}()
	return bench.ServeRaw(ctx, func(addr string) error {
		_, err := fmt.Println(addr)
		return err
	})
}

// benchPlace are the flags that all workloads have.
type benchPlace struct {
	Dir      string `type:"existingdir" help:"Where the data goes; default: the system's temporary directory."`
	JSON     string `type:"path" placeholder:"FILE" help:"Write the results to this file, too."`
	Profiles string `type:"path" placeholder:"DIR" help:"Write CPU and heap profiles of the server to this directory."`
}

func (p benchPlace) place() bench.Place {
	return bench.Place{Dir: p.Dir, Profiles: p.Profiles, Out: os.Stdout}
}

// finish writes the result and fails when something is wrong with it.
func (p benchPlace) finish(res any, err error, bad bool, what string) error {
	if err != nil {
		return err
	}
	if p.JSON != "" {
		err = bench.Write(p.JSON, res)
	}
	if bad {
		err = errors.Join(err, errors.New(what))
	}
	return err
}

type benchFanout struct {
	benchPlace
	Viewers  int           `default:"1000" help:"Connections that watch the one room."`
	Duration time.Duration `default:"15s" help:"How long to measure each part."`
	Stream   int           `default:"1000" help:"Deltas of a run that streams; at most 9000."`
	Only     string        `enum:"both,W2a,W2b" default:"both" help:"One of W2a and W2b."`
	Node     string        `type:"path" default:"bench/node" help:"Directory in which npm has installed ws for the baseline."`
}

// Run measures fan-out.
func (c *benchFanout) Run(ctx context.Context) error {
	only := c.Only
	if only == "both" {
		only = ""
	}
	res, err := bench.Fanout(ctx, bench.FanoutConfig{
		Place: c.place(), Viewers: c.Viewers, Duration: c.Duration, Stream: c.Stream, Node: c.Node, Only: only,
	})
	return c.finish(res, err, err == nil && res.Bad(), "viewers of one room got different items")
}

type benchIdle struct {
	benchPlace
	Connections int   `default:"5000" help:"Idle connections."`
	Rooms       []int `help:"Over how many rooms they are spread; one measurement each. Default: 50, and one room each."`
	Resident    int   `default:"10000" help:"Rooms that are awake without a connection; -1: not measured."`
	Hibernated  int   `default:"100000" help:"Rooms that are only in the store; -1: not measured."`
}

// Run measures what idle connections and rooms cost.
func (c *benchIdle) Run(ctx context.Context) error {
	res, err := bench.Idle(ctx, bench.IdleConfig{
		Place: c.place(), Connections: c.Connections, Rooms: c.Rooms, Resident: c.Resident, Hibernated: c.Hibernated,
	})
	return c.finish(res, err, false, "")
}

type benchActivation struct {
	benchPlace
	Small    int `default:"100" help:"Entries of a short room."`
	Large    int `default:"1000000" help:"Entries of a long room."`
	Rooms    int `default:"3" help:"Rooms of each kind that are woken after a start."`
	Rounds   int `default:"5" help:"Starts with a warm page cache, and as many with a cold one."`
	OpenRuns int `default:"10000" help:"Runs that are open when the server is killed; -1: not measured."`
}

// Run measures how long rooms take to wake.
func (c *benchActivation) Run(ctx context.Context) error {
	res, err := bench.Activation(ctx, bench.ActivationConfig{
		Place: c.place(), Small: c.Small, Large: c.Large, Rooms: c.Rooms, Rounds: c.Rounds, OpenRuns: c.OpenRuns,
	})
	return c.finish(res, err, err == nil && res.Bad(), "open runs were not resumed, or more than once")
}

type benchStorm struct {
	benchPlace
	Connections int           `default:"5000" help:"Connections that are lost at once."`
	Rooms       int           `default:"50" help:"Rooms over which they are spread."`
	Losses      int           `default:"3" help:"How often all connections are reset."`
	Kills       int           `default:"1" help:"How often the server is killed instead."`
	Pace        time.Duration `default:"2s" help:"Between the turns of each room."`
}

// Run measures how fast lost connections are caught up again, and fails when
// they lost or doubled anything.
func (c *benchStorm) Run(ctx context.Context) error {
	res, err := bench.Storm(ctx, bench.StormConfig{
		Place: c.place(), Connections: c.Connections, Rooms: c.Rooms, Losses: orNever(c.Losses), Kills: orNever(c.Kills), Pace: c.Pace,
	})
	return c.finish(res, err, err == nil && res.Bad(), "something was lost or doubled")
}

// orNever takes a 0 of the command line for what it says.
func orNever(n int) int {
	if n == 0 {
		return -1
	}
	return n
}

type benchSoak struct {
	benchPlace
	Rooms    int           `default:"64" help:"Clients, each in one room at a time."`
	Duration time.Duration `default:"10m" help:"How long to measure after the warm-up."`
	Warm     time.Duration `default:"0s" help:"The warm-up; default: a third of the duration, at most 3m."`
}

// Run loads a server for a long time and fails when its memory or its
// goroutines grow.
func (c *benchSoak) Run(ctx context.Context) error {
	res, err := bench.Soak(ctx, bench.SoakConfig{Place: c.place(), Rooms: c.Rooms, Duration: c.Duration, Warm: c.Warm})
	return c.finish(res, err, err == nil && res.Bad(), "memory or goroutines grow")
}

type benchNeighbours struct {
	benchPlace
	Rooms  int           `default:"64" help:"Rooms that behave."`
	Pace   time.Duration `default:"250ms" help:"Between the inputs of such a room."`
	Rounds int           `default:"5" help:"Rounds, each with and without the bad neighbours."`
	Window time.Duration `default:"10s" help:"How long each half of a round is."`
	Flood  int           `default:"2000" help:"Frames a second of the client that floods."`
	Deaf   int           `default:"8" help:"Viewers that never read."`
}

// Run measures what bad neighbours do to other rooms, and fails when those were
// not served.
func (c *benchNeighbours) Run(ctx context.Context) error {
	res, err := bench.Neighbours(ctx, bench.NeighboursConfig{
		Place: c.place(), Rooms: c.Rooms, Pace: c.Pace, Rounds: c.Rounds, Window: c.Window, Flood: c.Flood, Deaf: c.Deaf,
	})
	return c.finish(res, err, err == nil && res.Bad(), "rooms that behave were not served")
}

// benchAll runs every workload, one after the other.
type benchAll struct {
	Dir      string `type:"path" default:"bench/results" help:"Where a file of results is written for each workload."`
	Data     string `type:"existingdir" help:"Where the data goes; default: the system's temporary directory."`
	Profiles string `type:"path" placeholder:"DIR" help:"Write CPU and heap profiles of the server to this directory."`
	Node     string `type:"path" default:"bench/node" help:"Directory in which npm has installed ws for the baseline."`
}

// Run runs all workloads with their own defaults. One that fails does not keep
// the others from running.
func (c *benchAll) Run(ctx context.Context) error {
	place := func(name string) benchPlace {
		return benchPlace{Dir: c.Data, JSON: filepath.Join(c.Dir, name+".json"), Profiles: c.Profiles}
	}
	turn := benchTurn{Dir: c.Data, JSON: filepath.Join(c.Dir, "w1-turn.json")}
	kill := benchKill{
		Rooms: 64, Rounds: 20, Most: 2 * time.Second, Prefill: 1_000_000, Dir: c.Data, JSON: filepath.Join(c.Dir, "w6-kill-1m-entries.json"),
	}
	var errs []error
	for _, w := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"W1", turn.Run},
		{"W2", (&benchFanout{benchPlace: place("w2-fanout"), Node: c.Node}).Run},
		{"W3", (&benchIdle{benchPlace: place("w3-idle")}).Run},
		{"W4", (&benchActivation{benchPlace: place("w4-activation")}).Run},
		{"W5", (&benchStorm{benchPlace: place("w5-storm"), Losses: 3, Kills: 1}).Run},
		{"W6", kill.Run},
		{"W7", (&benchSoak{benchPlace: place("w7-soak")}).Run},
		{"W8", (&benchNeighbours{benchPlace: place("w8-neighbours")}).Run},
	} {
		if ctx.Err() != nil {
			break
		}
		if err := w.run(ctx); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", w.name, err))
		}
	}
	return errors.Join(errs...)
}
