package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"parley/bench"
)

type benchCommand struct {
	Turn benchTurn `cmd:"" help:"W1: durable events per second at 1, 16, 128 and 512 rooms, with baselines."`
	Kill benchKill `cmd:"" help:"W6: kill -9 under load, and what was lost."`
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
