package bench

import (
	"testing"
	"time"
)

// TestFanout: W2 gives figures of both parts, with its baselines, and every
// viewer gets the same.
func TestFanout(t *testing.T) {
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
