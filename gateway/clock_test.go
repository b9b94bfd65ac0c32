package gateway

import (
	"fmt"
	"reflect"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"parley/gateway/wire"
)

// stepped returns a reading of the clock as it would be had the wall clock been
// set by d and the monotonic clock gone on. No function of package time makes
// one, and a test cannot set the machine's clock; so the seconds are added where
// a Time with both readings keeps them (bits 30 to 62 of its first word).
func stepped(t *testing.T, now time.Time, d time.Duration) time.Time {
	t.Helper()
	word := (*uint64)(unsafe.Pointer(&now))
	if *word>>63 != 1 {
		t.Fatal("the reading has no monotonic part")
	}
	before := now
	*word += uint64(int64(d/time.Second)) << 30
	if now.Unix()-before.Unix() != int64(d/time.Second) || now.Sub(before) != 0 {
		t.Fatalf("package time keeps its readings otherwise now: %v after %v", now, before)
	}
	return now
}

// A step of the wall clock while the node runs changes nothing: the node's time
// goes on from what it read at its start.
func TestTheClockIsReadOnce(t *testing.T) {
	step := time.Duration(0)
	clock := steady(func() time.Time { return stepped(t, time.Now(), step) })
	last := clock()
	for _, step = range []time.Duration{time.Hour, -time.Hour, 30 * 24 * time.Hour, -400 * 24 * time.Hour, 0} {
		now := clock()
		if d := now.Round(0).Sub(last.Round(0)); d < 0 || d > time.Minute {
			t.Errorf("a step by %v moves the node's clock by %v", step, d)
		}
		last = now
	}
	// A gateway that is given no clock does not follow the machine's.
	var c Config
	c.fill()
	if reflect.ValueOf(c.Clock).Pointer() == reflect.ValueOf(time.Now).Pointer() {
		t.Error("the clock of a gateway is the machine's")
	}
	if age := time.Since(last); age > time.Minute || age < -time.Minute {
		t.Errorf("the clock is %v off without a step", age)
	}
}

// Nothing that a connection lives by follows a step: not its token, not its
// rates, not its cursors, not its pings. The gateway is given its own clock over
// a wall clock that the test steps.
func TestStepsOfTheWallClockChangeNothing(t *testing.T) {
	for _, step := range []time.Duration{2 * time.Hour, -2 * time.Hour, 90 * 24 * time.Hour, -90 * 24 * time.Hour} {
		t.Run(step.String(), func(t *testing.T) {
			var off atomicDuration
			s := serve(t, newCoreRooms(), func(c *Config) {
				c.Clock = steady(func() time.Time { return stepped(t, time.Now(), off.get()) })
				c.Limits.InputsPerSec, c.Limits.InputBurst, c.Limits.FrameBurst = 1, 4, 60
			})
			p := s.live(t, "room-1", "ann", "public")
			p.send(input("i0", "hello"))
			p.until("accepted")
			off.set(step)
			for i := range 3 { // what is left of the burst, no more and no less
				p.send(input(fmt.Sprint("i", i+1), "hello"))
				p.until("accepted")
			}
			p.send(input("i4", "hello"))
			if f := p.until("error"); f["code"] != "rate_limited" || f["retryMs"].(float64) > 1000 {
				t.Errorf("the rate after the step: %v", f)
			}
			for i := range 40 {
				p.send(frame{"type": "cancel", "ref": fmt.Sprint("c", i), "run": "none"})
			}
			for i := range 40 {
				if f := p.until("done"); f["ref"] != fmt.Sprint("c", i) {
					t.Fatalf("got %v", f)
				}
			}
			p.send(frame{"type": "auth", "ref": "a", "token": mint(t, player("ann"))})
			if f := p.until("done"); f["expiresIn"].(float64) < 3500 || f["expiresIn"].(float64) > 3600 {
				t.Errorf("a fresh token: %v", f)
			}
			// Who comes now, with a cursor of before, is let in and resumes.
			q := s.dial(t, "room-1").hello(mint(t, player("ann")), []string{"public"})
			cursor := q.expect("ready")["cursor"]
			q.ws.Close()
			off.set(0)
			q = s.dial(t, "room-1").hello(mint(t, player("ann")), []string{"public"}, "cursor", cursor)
			if r := q.expect("ready"); r["resumed"] != true {
				t.Errorf("a cursor of before the step: %v", r)
			}
			if got := s.Stats().Closed; got[wire.CloseTokenExpired]+got[wire.CloseRateLimited]+got[wire.CloseSlowConsumer] != 0 {
				t.Errorf("closed: %v", got)
			}
		})
	}
}

// atomicDuration is a duration that a test changes while a gateway reads it.
type atomicDuration struct{ ns atomic.Int64 }

func (d *atomicDuration) get() time.Duration  { return time.Duration(d.ns.Load()) }
func (d *atomicDuration) set(v time.Duration) { d.ns.Store(int64(v)) }
