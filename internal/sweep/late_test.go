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

	"parley/event"
)

// How long an fsync hangs, and what happens meanwhile: long enough for the
// callers to be told, too short for the process to give up.
const (
	hangs   = 9 * time.Second
	probeAt = commitDeadline + time.Second
	shootAt = probeAt + time.Second
)

// hangman lets one fsync of the log hang. Safe for concurrent use; mu guards
// what follows it.
type hangman struct {
	ledger *ledger
	stage  *stage
	at     int // which one
	rng    *rand.Rand

	mu      sync.Mutex
	mem     *vfs.MemFS
	n       int
	since   time.Time // of the hang; zero: none
	until   time.Time
	shot    *shot
	probed  bool // an input was sent while it hung
	refused bool // and refused as unavailable
	errs    []error
}

func (h *hangman) operation(op errorfs.Op) error {
	if !isLogSync(op) || !h.ledger.alive.Load() {
		return nil
	}
	h.mu.Lock()
	n := h.n
	h.n++
	if n != h.at {
		h.mu.Unlock()
		return nil
	}
	h.since = time.Now()
	h.until = h.since.Add(hangs)
	h.mu.Unlock()

	time.Sleep(probeAt)
	h.probe()
	time.Sleep(shootAt - probeAt)
	rec := h.ledger.copy()
	h.mu.Lock()
	h.shot = &shot{what: fmt.Sprintf("crash while fsync %d hangs", h.at), rec: rec, at: time.Now(), disk: crash(h.mem, 50, h.rng)}
	var err error
	h.shot.tear, err = tearOf(h.shot.disk, crash(h.mem, 100, h.rng), crash(h.mem, 0, h.rng))
	h.errs = append(h.errs, err)
	h.mu.Unlock()
	time.Sleep(hangs - shootAt)
	return nil
}

// probe sends an input that nobody can write. The room knows by now that the
// disk does not answer, and says so at once.
func (h *hangman) probe() {
	x := h.stage.living()
	if x == nil {
		return
	}
	in := sent{ID: "z1"}
	x.sent(in)
	began := time.Now()
	h.mu.Lock()
	h.probed = true
	h.mu.Unlock()
	x.sys.Do(hall, submit(in), func(_ event.Reply, err error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if refusal, ok := event.AsRefusal(err); ok && refusal.Reason == event.Unavailable && time.Since(began) == 0 {
			h.refused = true
			return
		}
		h.errs = append(h.errs, fmt.Errorf("an input sent while the fsync hung was answered after %v: %w", time.Since(began), err))
	})
}

// promise refuses what is promised while the fsync hangs.
func (h *hangman) promise() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now := time.Now(); now.After(h.since) && now.Before(h.until) {
		h.errs = append(h.errs, fmt.Errorf("something was promised %v after the fsync had begun to hang", now.Sub(h.since)))
	}
}

// hangOnce plays the script while the at-th fsync of the log hangs, and looks at
// the room in the end.
func hangOnce(t *testing.T, n uint64, at int) *hangman {
	t.Helper()
	var h *hangman
	synctest.Test(t, func(t *testing.T) {
		l, err := newLedger(record{})
		if err != nil {
			t.Fatal(err)
		}
		s := &stage{ledger: l, rng: dice(n, 1), fatal: func(msg string) { t.Errorf("the process ended: %s", msg) }}
		h = &hangman{ledger: l, stage: s, at: at, rng: dice(n, uint64(at)), mem: vfs.NewCrashableMem()}
		s.disk = newDisk(h.mem, h.operation)
		s.moved = func(mem *vfs.MemFS) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.mem = mem
		}
		l.noted = h.promise
		x, err := s.script()
		if err == nil {
			l.noted = nil
			err = errors.Join(x.settled(false), x.end())
		}
		if err := errors.Join(append(h.errs, err, l.err())...); err != nil {
			t.Errorf("fsync %d hangs: %v", at, err)
		}
	})
	return h
}

// Each fsync of the log hangs once for longer than a commit may take. Callers
// learn in time that the outcome is not known, nothing new is taken or shown;
// then the fsync ends and all goes on, or the machine loses its power.
func TestSweepLate(t *testing.T) {
	n := seed(t)
	rng := dice(n, 4)
	all := hangOnce(t, n, -1)
	step := 13
	if *fullFlag {
		step = 1
	}
	var sum found
	points, hung, probed, refused := 0, 0, 0, 0
	tears := map[tear]int{}
	for at := rng.IntN(step); at < all.n; at += step {
		points++
		h := hangOnce(t, n, at)
		if h.since.IsZero() {
			continue // there were fewer this time
		}
		hung++
		if h.probed {
			probed++
		}
		if h.refused {
			refused++
		}
		if h.shot == nil {
			t.Fatalf("fsync %d: no shot was taken", at)
		}
		tears[h.shot.tear]++
		f, _ := h.shot.verify(t, rng, 0)
		sum.resumed, sum.resent, sum.more = sum.resumed+f.resumed, sum.resent+f.resent, sum.more+f.more
		if t.Failed() {
			return
		}
	}
	t.Logf("seed %d: %d fsyncs, %d points, %d hung; of %d inputs sent meanwhile %d were refused; logs: %v; %d runs resumed, %d inputs without an answer found, %d entries found that nobody had seen",
		n, all.n, points, hung, probed, refused, tears, sum.resumed, sum.resent, sum.more)
	if hung < points*9/10 || refused == 0 {
		t.Error("the sweep did not reach what it is for")
	}
}
