package bench

import (
	"testing"
	"time"
)

// TestFanout: W2 gives figures of both parts, with its baselines, and every
// viewer gets the same.
func TestFanout(t *testing.T) {
	t.Parallel() // it waits more than it works
	res, err := Fanout(t.Context(), FanoutConfig{
		Place: Place{Binary: binary, Dir: t.TempDir(), Out: t.Output(), Profiles: t.TempDir()}, Viewers: 20, Duration: 600 * time.Millisecond, Stream: 100, Node: "node",
	})
	if err != nil {
		t.Fatal(err)
	}
	if res.Bad() {
		t.Errorf("viewers differ: %+v %+v %+v", res.Single, res.Stream, res.Endless)
	}
	if s := res.Single; s.PerSecond <= 0 || s.RawPerSecond <= 0 || s.ToRaw <= 0 || s.CommitsPerEvent < 0.9 || s.BytesPerFrame < 200 {
		t.Errorf("one event at a time: %+v", s)
	}
	if s := res.Stream; s.PerSecond <= 0 || s.RawPerSecond <= 0 || s.ItemsPerFrame <= 1 || s.Runs == 0 || s.CommitsPerRun <= 1 {
		t.Errorf("streams: %+v", s)
	}
	if s := res.Endless; s.PerSecond <= 0 || s.ItemsPerFrame <= 1 {
		t.Errorf("without end: %+v", s)
	}
}

// TestViewersNotice: what is missing, doubled or out of order among viewers of
// one room is noticed.
func TestViewersNotice(t *testing.T) {
	frame := func(n string, ids ...string) []byte {
		raw := `{"type":"events","n":` + n + `,"cursor":"c","items":[`
		for i, id := range ids {
			if i > 0 {
				raw += ","
			}
			raw += `{"id":"` + id + `","kind":"input","body":{"speaker":{"kind":"participant","id":"x"}}}`
		}
		return []byte(raw + "]}")
	}
	see := func(c *crowd, frames ...[]byte) error {
		v := &viewer{crowd: c, whole: true}
		c.viewers = append(c.viewers, v)
		for _, f := range frames {
			if err := v.events(f); err != nil {
				return err
			}
		}
		return nil
	}
	for name, c := range map[string]struct {
		first, second [][]byte
		differ        int
		cutOff        bool
		fault         bool
	}{
		"the same":            {[][]byte{frame("1", "a", "b"), frame("3", "c")}, [][]byte{frame("1", "a"), frame("2", "b", "c")}, 0, false, false},
		"a gap":               {[][]byte{frame("1", "a")}, [][]byte{frame("1", "a"), frame("3", "b")}, 0, false, true},
		"less than it says":   {[][]byte{frame("1", "a")}, [][]byte{frame("1"), frame("2", "b")}, 0, false, true},
		"one fewer":           {[][]byte{frame("1", "a", "b")}, [][]byte{frame("1", "a")}, 1, false, false},
		"one fewer, cut off":  {[][]byte{frame("1", "a", "b")}, [][]byte{frame("1", "a")}, 0, true, false},
		"another order":       {[][]byte{frame("1", "a", "b")}, [][]byte{frame("1", "b", "a")}, 1, false, false},
		"the same item twice": {[][]byte{frame("1", "a", "a")}, [][]byte{frame("1", "a", "a")}, 1, false, false},
	} {
		crowd := newCrowd()
		err := see(crowd, c.first...)
		if err == nil {
			err = see(crowd, c.second...)
		}
		if (err != nil) != c.fault {
			t.Errorf("%s: error %v", name, err)
		}
		if n := crowd.check(c.cutOff); err == nil && n != c.differ {
			t.Errorf("%s: %d viewers differ, want %d", name, n, c.differ)
		}
	}
}

// TestIdle: W3 gives figures of connections and rooms that do nothing.
func TestIdle(t *testing.T) {
	t.Parallel() // it waits more than it works
	res, err := Idle(t.Context(), IdleConfig{
		Place: Place{Binary: binary, Dir: t.TempDir(), Out: t.Output()}, Connections: 200, Rooms: []int{5}, Resident: 100, Hibernated: 100,
		Sleep: 200 * time.Millisecond, Forget: 300 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	c := res.Connections[0]
	if c.Count != 200 || c.Rooms != 5 || c.Asleep.RSS <= 0 || c.Asleep.Goroutines < 0.9 || res.RawPerConn <= 0 || res.RawRoutines < 0.9 {
		t.Errorf("connections: %+v, raw %v", c, res.RawPerConn)
	}
	if r := res.Resident; r.Count != 100 || r.SecondsToMake <= 0 || r.WereAwake != 101 || r.AwakeVisited.HeapInUse <= 0 {
		t.Errorf("resident rooms: %+v", r)
	}
	if r := res.Hibernated; r.Count != 100 || r.Reopened == (Footprint{}) {
		t.Errorf("hibernated rooms: %+v", r)
	}
}

// TestActivation: W4 gives figures of rooms that are woken and of runs that go on.
func TestActivation(t *testing.T) {
	t.Parallel() // it waits more than it works
	res, err := Activation(t.Context(), ActivationConfig{
		Place: Place{Binary: binary, Dir: t.TempDir(), Out: t.Output()}, Large: 1000, Rooms: 2, Rounds: 1, OpenRuns: 50,
	})
	if err != nil {
		t.Fatal(err)
	}
	if res.Bad() {
		t.Errorf("open runs: %+v", res.OpenRuns)
	}
	for _, w := range []Waking{res.Warm, res.Cold} {
		if w.Samples != 2 || w.SmallAcceptedMs <= 0 || w.LargeAcceptedMs <= 0 || w.LargeFirstMs < w.LargeAcceptedMs/2 || w.Ratio <= 0 {
			t.Errorf("waking: %+v", w)
		}
	}
	if r := res.OpenRuns; r.Count != 50 || r.ReadyMs <= 0 || r.FirstInputMs <= 0 || r.ResumedSeconds <= 0 {
		t.Errorf("open runs: %+v", r)
	}
}

// TestOpenRunsNotice: a run that did not go on is noticed, and one that was resumed twice.
func TestOpenRunsNotice(t *testing.T) {
	began := time.Now()
	at := func(seconds int) time.Time { return began.Add(time.Duration(seconds) * time.Second) }
	r := OpenRuns{Count: 3}
	r.judge(map[string][]entry{
		"bench-hold-0": {
			{Type: "attempt_started", Attempt: 1},
			{Type: "progress", Attempt: 1},
			{Type: "attempt_started", Attempt: 2},
			{Type: "progress", Attempt: 2, At: at(2)},
		},
		"bench-hold-1": {{Type: "attempt_started", Attempt: 1}, {Type: "progress", Attempt: 1}, {Type: "attempt_started", Attempt: 2}},
		"bench-hold-2": {{Type: "attempt_started", Attempt: 2}, {Type: "attempt_started", Attempt: 3}, {Type: "progress", Attempt: 3, At: at(5)}},
	}, began)
	if r.NotResumed != 1 || r.ResumedTwice != 1 || r.ResumedSeconds != 5 {
		t.Errorf("%+v", r)
	}
}

// TestStorm: connections that are lost at once, with and without the server,
// get everything once.
func TestStorm(t *testing.T) {
	t.Parallel() // it waits more than it works
	res, err := Storm(t.Context(), StormConfig{
		Place: Place{Binary: binary, Dir: t.TempDir(), Out: t.Output()}, Connections: 60, Rooms: 3, Losses: 2, Kills: 1,
		Pace: 40 * time.Millisecond, Calm: 150 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	if res.Bad() {
		t.Errorf("%+v", res)
	}
	if len(res.Storms) != 3 || res.Items < 60*50 {
		t.Errorf("%d items in %d storms", res.Items, len(res.Storms))
	}
	for _, s := range res.Storms {
		if s.CaughtUpMaxMs <= 0 || s.CaughtUpP50Ms > s.CaughtUpMaxMs || (s.Kind == "kill") != (s.ReadyMs > 0) {
			t.Errorf("%+v", s)
		}
	}
}

// TestStormNotices: what a connection lost, got twice or got in another order is noticed.
func TestStormNotices(t *testing.T) {
	journal := map[string][]entry{"r": {
		{ID: "a", Kind: "input"},
		{ID: "b", Kind: "run.event", Type: "completed"},
		{ID: "c", Kind: "input"},
		{ID: "h", Kind: "run.event", Type: "checkpoint"},
		{ID: "d", Kind: "run.event", Type: "completed"},
	}}
	for _, c := range []struct {
		ids                   []string
		lost, doubled, differ int
	}{
		{[]string{"c", "d"}, 0, 0, 0},
		{[]string{"c"}, 1, 0, 0},
		{nil, 2, 0, 0},
		{[]string{"c", "c", "d"}, 0, 1, 0},
		{[]string{"b", "c", "d"}, 0, 1, 0},
		{[]string{"d", "c"}, 0, 0, 1},
		{[]string{"c", "c"}, 0, 0, 1},
	} {
		v := &viewer{room: "r", total: uint64(len(c.ids))}
		for _, id := range c.ids {
			v.sum = addID(v.sum, id)
		}
		var r StormResult
		if r.judge([]*viewer{v}, journal); r.Lost != c.lost || r.Doubled != c.doubled || r.Differ != c.differ {
			t.Errorf("%v: %+v", c.ids, r)
		}
	}
}

// TestSoak: W7 gives a trend of memory and goroutines under load.
func TestSoak(t *testing.T) {
	t.Parallel() // it waits more than it works
	res, err := Soak(t.Context(), SoakConfig{
		Place: Place{Binary: binary, Dir: t.TempDir(), Out: t.Output()}, Rooms: 4, Duration: 600 * time.Millisecond, Stay: 100 * time.Millisecond, Each: 2, Samples: 12,
	})
	if err != nil {
		t.Fatal(err)
	}
	if res.Turns == 0 || res.PerSecond <= 0 || res.Commits < 1 || res.RSS.Median < 5 || res.Goroutines.Median < 5 || res.Live.Median <= 0 {
		t.Errorf("%+v", res)
	}
	if len(res.RSS.Samples) < 10 || res.RSS.Low > res.RSS.PerHour || res.RSS.High < res.RSS.PerHour {
		t.Errorf("trend of RSS: %+v", res.RSS)
	}
}

// TestNeighbours: W8 compares rooms with and without bad neighbours, which are
// really bad, and the rooms are served all the time.
func TestNeighbours(t *testing.T) {
	t.Parallel() // it waits more than it works
	res, err := Neighbours(t.Context(), NeighboursConfig{
		Place: Place{Binary: binary, Dir: t.TempDir(), Out: t.Output()}, Rooms: 4, Rounds: 1, Window: 1500 * time.Millisecond, Deaf: 2,
	})
	if err != nil {
		t.Fatal(err)
	}
	if res.Bad() {
		t.Errorf("faults: %v", res.Faults)
	}
	if res.FirstRatio <= 0 || res.TurnRatio <= 0 || len(res.Rounds) != 1 || res.Rounds[0].Turns < 30 || res.Rounds[0].TurnP50 <= 0 {
		t.Errorf("%+v", res)
	}
	if res.Flooded < 100 || res.Refused == 0 || res.Closed == 0 || res.Hung < 4 || res.Deafened < 2 {
		t.Errorf("the neighbours were not bad: %+v", res)
	}
}
