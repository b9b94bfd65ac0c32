package audience

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"parley/event"
	"parley/gateway"
)

// However many hidden entries lie between visible ones, a replay is cut into
// the same frames.
func TestTwinJournalsLookTheSameOverManyHiddenEntries(t *testing.T) {
	plain, err := replayOver(t, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, hidden := range []int{4150} {
		mixed, err := replayOver(t, hidden)
		if err != nil {
			t.Fatal(err)
		}
		if len(plain) != len(mixed) {
			t.Errorf("%d frames over %d hidden entries, %d without", len(mixed), hidden, len(plain))
			continue
		}
		for i := range plain {
			if plain[i] != mixed[i] {
				t.Errorf("over %d hidden entries frame %d is\n%s\nwithout it is\n%s", hidden, i, mixed[i], plain[i])
				break
			}
		}
	}
}

// replayOver returns the shapes of replays from the start and from a cursor
// over so many hidden entries between a few visible ones.
func replayOver(t *testing.T, hidden int) (shape []string, err error) {
	synctest.Test(t, func(*testing.T) {
		w := &twin{from: time.Now()}
		w.limits = gateway.Limits{InputsPerSec: -1, InputBurst: -1}
		player := play{pace: w.pace}
		w.run = player.run
		if err = w.start(); err != nil {
			return
		}
		if _, e := w.ask(event.Configure{Access: host(), Config: config("day")}); e != nil {
			w.failed.add("configure: %v", e)
		}
		w.connect("tail", "")
		early := w.last("cursor")
		w.connect("tail", "", "channels", []string{"private:ann"})
		for i := range 3 {
			w.hear("bob", "public", fmt.Sprintf("v%d d1 f1", i), event.ToRoom(), 0, "guide")
			time.Sleep(100 * time.Millisecond)
			if hidden > 0 && i == 1 {
				w.hear("bob", "private:bob", fmt.Sprintf("h n%d", hidden), event.ToRoom(), 0, "guide")
			}
			time.Sleep(20 * time.Second) // the quota of the journal lets all of it through
		}
		for _, how := range [][2]string{{"start", ""}, {"tail", early}} {
			w.connect(how[0], how[1])
			time.Sleep(time.Second)
			synctest.Wait()
		}
		names := newShapes()
		for _, t := range w.tabs {
			t.leave(true)
			frames, _ := t.got()
			for _, f := range frames {
				shape = append(shape, names.of(f))
			}
		}
		if e := w.stop(); e != nil {
			w.failed.add("stop: %v", e)
		}
		err = w.failed.err()
	})
	return shape, err
}
