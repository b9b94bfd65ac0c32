package sweep

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// camera takes shots of a life: what a loss of power would leave, at each step-th
// point of [from, to). The points are the write operations of the disk, before
// they are done, and the promises, after they were made. Safe for concurrent
// use; mu guards what follows it.
type camera struct {
	ledger    *ledger
	disk      *vfs.MemFS
	from, to  int
	step      int
	what      string
	exact     bool
	rng       *rand.Rand
	mu        sync.Mutex
	n, writes int
	shots     []shot
	errs      []error
}

func (c *camera) operation(op errorfs.Op) error {
	if isWrite(op) {
		c.point(fmt.Sprintf("%s of %s", kindOf(op), fileOf(op.Path)), true)
	}
	return nil
}

func (c *camera) promise() { c.point("promise", false) }

func (c *camera) point(what string, write bool) {
	// First what was promised, then the disk: it must hold at least that.
	rec := c.ledger.copy()
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.n
	c.n++
	if write {
		c.writes++
	}
	if n < c.from || n >= c.to || (n-c.from)%c.step != 0 {
		return
	}
	s := shot{what: fmt.Sprintf("%s point %d, %s", c.what, n, what), rec: rec, at: time.Now(), exact: c.exact}
	s.disk = crash(c.disk, 50, c.rng)
	var err error
	s.tear, err = tearOf(s.disk, crash(c.disk, 100, c.rng), crash(c.disk, 0, c.rng))
	c.errs = append(c.errs, err)
	c.shots = append(c.shots, s)
}

// film plays the script and returns the shots of some of its points, how many
// points there were, and how many of them were writes.
func film(t *testing.T, n uint64, from, to, step int) (shots []shot, points, writes int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l, err := newLedger(record{})
		if err != nil {
			t.Fatal(err)
		}
		c := &camera{ledger: l, from: from, to: to, step: step, rng: dice(n, uint64(from)), what: "crash at", exact: true}
		s := &stage{ledger: l, rng: dice(n, 1), strict: true, fatal: func(msg string) { t.Errorf("the process ended: %s", msg) }}
		c.disk = vfs.NewCrashableMem()
		s.disk = newDisk(c.disk, c.operation)
		s.moved = func(mem *vfs.MemFS) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.disk = mem
		}
		l.noted = c.promise
		x, err := s.script()
		if err != nil {
			t.Error(err)
		} else if err := x.end(); err != nil {
			t.Error(err)
		}
		if err := errors.Join(append(c.errs, l.err())...); err != nil {
			t.Error(err)
		}
		shots, points, writes = c.shots, c.n, c.writes
	})
	return shots, points, writes
}

// The machine loses its power at every point of the script, and at a part of
// them again while it recovers.
func TestSweepCrash(t *testing.T) {
	n := seed(t)
	for round := range *roundsFlag {
		crashSweep(t, n+uint64(round))
		if t.Failed() {
			t.Fatalf("with -seed=%d", n+uint64(round))
		}
	}
}

func crashSweep(t *testing.T, n uint64) {
	rng := dice(n, 2)
	const window = 64 // shots held in memory at once
	step, first := 11, rng.IntN(11)
	if *fullFlag {
		step, first = 1, 0
	}
	var sum found
	tears := map[tear]int{}
	points, writes, once, twice := 0, 0, 0, 0
	for from := first; from == first || from < points; from += window * step {
		var shots []shot
		shots, points, writes = film(t, n, from, from+window*step, step)
		for _, s := range shots {
			fuse := 0
			if once++; *fullFlag && once%3 == 0 || once%5 == 0 {
				fuse = 1 + rng.IntN(150)
			}
			tears[s.tear]++
			f, second := s.verify(t, rng, fuse)
			sum.resumed, sum.resent, sum.more = sum.resumed+f.resumed, sum.resent+f.resent, sum.more+f.more
			if second != nil && !t.Failed() {
				twice++
				tears[second.tear]++
				second.verify(t, rng, 0)
			}
			if t.Failed() {
				return
			}
		}
	}
	t.Logf("seed %d: %d points of which %d are writes; %d crashes, %d more during a recovery; logs: %v; "+
		"%d runs resumed, %d inputs without an answer found, %d entries found that nobody had seen",
		n, points, writes, once, twice, tears, sum.resumed, sum.resent, sum.more)
	// Few of a sample meet a part of the log that is not synced.
	unsynced := tears[torn] > 0 && tears[lost] > 0 && tears[kept] > 0 || !*fullFlag && tears[torn]+tears[lost]+tears[kept] > 0
	if writes < 200 || once < points/step-1 || twice == 0 || !unsynced || sum.resumed == 0 {
		t.Error("the sweep did not reach what it is for")
	}
}
