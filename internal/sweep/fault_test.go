package sweep

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"parley/persistence"
)

// faultEnv makes a test process the one in which an operation fails: the file
// for what is left, the operation's number, the seed and "for ever" or "once".
const faultEnv = "SWEEP_FAULT"

// remains is what a process with a fault has left.
type remains struct {
	Outcome string // how the process ended
	Failed  string // the operation that failed; "": none did
	Faults  int    // how many operations failed
	Ops     int    // how many there were
	Broken  string // a law that was broken while it lived
	At      time.Time
	Disk    image
	Rec     record
}

// The outcomes.
const (
	finished = "the script was played to its end"
	fatal    = "the process was ended by its fatal"
	notOpen  = "the store did not open"
	badEnd   = "the store did not close in order"
	stuck    = "it lived on and did not do its work"
	inMiddle = "it ended by a panic of the engine"
)

// faulty is a process in which an operation of the disk fails.
type faulty struct {
	path    string
	at      int
	forEver bool
	ledger  *ledger
	rng     *rand.Rand

	mu   sync.Mutex
	mem  *vfs.MemFS
	left remains
}

// operation counts the operations of all lives and fails one of them.
func (f *faulty) operation(op errorfs.Op) error {
	rec := f.ledger.copy()
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.left.Ops
	f.left.Ops++
	if n != f.at && !(f.forEver && n > f.at && f.at >= 0 && isWrite(op)) {
		return nil
	}
	if f.left.Faults++; f.left.Faults == 1 {
		f.left.Failed = fmt.Sprintf("%s of %s", kindOf(op), fileOf(op.Path))
		f.write(inMiddle, rec) // in case that the process does not survive it
	}
	return errorfs.ErrInjected
}

// fatal ends the process.
func (f *faulty) fatal(string) {
	rec := f.ledger.copy()
	f.mu.Lock()
	f.write(fatal, rec)
	os.Exit(persistence.ExitFatal)
}

// write leaves what a later process will find. It is called with mu held.
func (f *faulty) write(outcome string, rec record) {
	f.left.Outcome, f.left.At, f.left.Rec = outcome, time.Now(), rec
	var err error
	if f.left.Disk, err = read(crash(f.mem, []int{0, 50, 100}[f.rng.IntN(3)], f.rng)); err != nil {
		panic(err)
	}
	raw, err := json.Marshal(f.left)
	if err != nil {
		panic(err)
	}
	// Whole or not at all: a panic elsewhere can end the process meanwhile.
	if err := os.WriteFile(f.path+".new", raw, 0o600); err != nil {
		panic(err)
	}
	if err := os.Rename(f.path+".new", f.path); err != nil {
		panic(err)
	}
}

// TestOneFault is the process in which an operation fails.
func TestOneFault(t *testing.T) {
	env, ok := os.LookupEnv(faultEnv)
	if !ok {
		t.Skip("plays a part in the sweep of errors")
	}
	args := strings.Split(env, "\n")
	at, err := strconv.Atoi(args[1])
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseUint(args[2], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		l, err := newLedger(record{})
		if err != nil {
			t.Fatal(err)
		}
		f := &faulty{path: args[0], at: at, forEver: args[3] == "for ever", ledger: l, rng: dice(n, uint64(at)), mem: vfs.NewCrashableMem()}
		s := &stage{ledger: l, rng: dice(n, 1), fatal: f.fatal}
		s.disk = newDisk(f.mem, f.operation)
		s.moved = func(mem *vfs.MemFS) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.mem = mem
		}
		x, err := s.script()
		if err == nil {
			if err = x.end(); err != nil {
				err = fmt.Errorf("%w: %w", errEnd, err)
			}
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		outcome := finished
		switch {
		case errors.Is(err, errOpen):
			outcome = notOpen
		case errors.Is(err, errEnd):
			outcome = badEnd
		case err != nil:
			outcome, f.left.Broken = stuck, err.Error()
		}
		if broken := l.err(); broken != nil {
			f.left.Broken = broken.Error()
		}
		f.write(outcome, l.copy())
		os.Exit(0) // Pebble leaves a goroutine behind when it cannot open
	})
}

// inPebble reports whether a process was ended by a panic in a goroutine of
// Pebble's own. It panics when it cannot change to a new log or manifest, and
// when a compaction is at work while an Open that failed takes things apart;
// nobody else can recover there. What is durable is compared all the same.
func inPebble(out []byte) bool {
	_, stack, ok := strings.Cut(string(out), "\ngoroutine ")
	if !ok || !bytes.HasPrefix(out, []byte("panic: ")) || bytes.HasPrefix(out, []byte("panic: test timed out")) {
		return false
	}
	stack, _, _ = strings.Cut(stack, "\n\n")
	return strings.Contains(stack, "github.com/cockroachdb/pebble/v2") && !strings.Contains(stack, "\nparley/")
}

// oneFault plays the script in a process of its own in which an operation fails.
func oneFault(t *testing.T, at int, n uint64, forEver bool) remains {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "left")
	often := "once"
	if forEver {
		often = "for ever"
	}
	cmd := exec.Command(self, "-test.run=^TestOneFault$", "-test.timeout=30s")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s\n%d\n%d\n%s", faultEnv, path, at, n, often))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("the process left nothing: %v\n%s", err, out.Bytes())
	}
	var left remains
	if err := json.Unmarshal(raw, &left); err != nil {
		t.Fatal(err)
	}
	code := cmd.ProcessState.ExitCode()
	switch {
	case left.Outcome == fatal && code == persistence.ExitFatal:
	case left.Outcome != inMiddle && code == 0:
	case left.Outcome == inMiddle && code == 2 && inPebble(out.Bytes()):
	default:
		t.Errorf("operation %d, %s: %s with status %d:\n%s", at, left.Failed, left.Outcome, code, out.Bytes())
	}
	return left
}

// Each operation of the disk fails, reads and those of two recoveries included,
// once or from then on; an fsync that fails ends the process. A later process
// without faults finds all that was promised.
func TestSweepErrors(t *testing.T) {
	n := seed(t)
	rng := dice(n, 3)
	ops := oneFault(t, -1, n, false).Ops
	step := 31
	if *fullFlag {
		step = 1
	}
	for _, forEver := range []bool{false, true} {
		points, faults := 0, 0
		outcomes, kinds := map[string]int{}, map[string]int{}
		var sum found
		for at := rng.IntN(step); at < ops; at += step {
			points++
			left := oneFault(t, at, n, forEver)
			if left.Faults == 0 {
				continue // there were fewer operations this time
			}
			faults++
			outcomes[left.Outcome]++
			kinds[strings.Fields(left.Failed)[0]]++
			what := fmt.Sprintf("operation %d of %d, %s, fails (%d times) and %s", at, ops, left.Failed, left.Faults, left.Outcome)
			if left.Outcome == stuck && !forEver || left.Broken != "" && left.Outcome != stuck {
				t.Errorf("%s: %s", what, left.Broken)
			}
			mem, err := left.Disk.mem()
			if err != nil {
				t.Fatal(err)
			}
			s := shot{what: what, disk: mem, rec: left.Rec, at: left.At}
			f, _ := s.verify(t, rng, 0)
			sum.resumed, sum.resent, sum.more = sum.resumed+f.resumed, sum.resent+f.resent, sum.more+f.more
			if t.Failed() {
				return
			}
		}
		t.Logf("seed %d, for ever %v: %d operations, %d points, %d of them failed; outcomes %v; operations %v; %d runs resumed, %d inputs without an answer found, %d entries found that nobody had seen",
			n, forEver, ops, points, faults, outcomes, kinds, sum.resumed, sum.resent, sum.more)
		if faults < points*9/10 || outcomes[fatal] == 0 {
			t.Error("the sweep did not reach what it is for")
		}
		if *fullFlag && len(kinds) < 8 {
			t.Errorf("only these operations failed: %v", kinds)
		}
	}
}

// kindOf names an operation.
func kindOf(op errorfs.Op) string {
	for name, k := range map[string]errorfs.OpKind{
		"create": errorfs.OpCreate, "link": errorfs.OpLink, "open": errorfs.OpOpen, "openDir": errorfs.OpOpenDir,
		"remove": errorfs.OpRemove, "removeAll": errorfs.OpRemoveAll, "rename": errorfs.OpRename,
		"reuse": errorfs.OpReuseForWrite, "mkdir": errorfs.OpMkdirAll, "lock": errorfs.OpLock, "list": errorfs.OpList,
		"preallocate": errorfs.OpFilePreallocate, "stat": errorfs.OpStat, "read": errorfs.OpFileRead,
		"readAt": errorfs.OpFileReadAt, "write": errorfs.OpFileWrite, "writeAt": errorfs.OpFileWriteAt,
		"fileStat": errorfs.OpFileStat, "sync": errorfs.OpFileSync, "syncData": errorfs.OpFileSyncData,
		"syncTo": errorfs.OpFileSyncTo, "flush": errorfs.OpFileFlush,
	} {
		if k == op.Kind {
			return name
		}
	}
	return fmt.Sprint(op.Kind)
}

// fileOf names the sort of a file: its name without numbers.
func fileOf(path string) string {
	return strings.Trim(strings.Map(func(r rune) rune {
		if '0' <= r && r <= '9' {
			return -1
		}
		return r
	}, filepath.Base(path)), "-.")
}
