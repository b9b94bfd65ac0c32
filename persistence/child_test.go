package persistence

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// childEnv tells this test binary that it runs as another process: a command
// and its arguments, separated by new lines.
const childEnv = "PERSISTENCE_TEST_CHILD"

// runChild runs a command in a process of its own and returns what it printed
// and its exit status.
func runChild(t *testing.T, args ...string) (string, int) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childEnv+"="+strings.Join(args, "\n"))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// child runs the command of a child process and reports whether this is one.
func child() bool {
	env, is := os.LookupEnv(childEnv)
	if !is {
		return false
	}
	args := strings.Split(env, "\n")
	if err := childCommands[args[0]](args[1:]); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	return true
}

var childCommands = map[string]func(args []string) error{
	// open DIR opens a store and closes it.
	"open": func(args []string) error {
		s, err := Open(Config{Dir: args[0]})
		if err != nil {
			return err
		}
		return s.Close()
	},
	// openOnDeadDisk opens a store with a tail of the log on a disk that makes no tables.
	"openOnDeadDisk": func([]string) error {
		mem := vfs.NewMem()
		s, err := Open(Config{Dir: "data", FS: mem})
		if err != nil {
			return err
		}
		r, err := s.Recover("den")
		if err != nil {
			return err
		}
		o := &owner{s: s, room: "den", term: r.Term}
		if err := errors.Join(appendWait(s, o.batch(3)), s.Close()); err != nil {
			return err
		}
		_, err = Open(Config{Dir: "data", FS: errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpCreate && strings.HasSuffix(op.Path, ".sst") {
				return errorfs.ErrInjected
			}
			return nil
		}))})
		return fmt.Errorf("opened: %w", err)
	},
	// scenario DIR K plays the scenario and fails the K-th write operation.
	"scenario": func(args []string) error {
		k, err := strconv.Atoi(args[1])
		if err != nil {
			return err
		}
		var n atomic.Int64
		fs := errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && n.Add(1) == int64(k)+1 {
				fmt.Println("failed", op.Kind)
				return errorfs.ErrInjected
			}
			return nil
		}))
		s, err := Open(Config{Dir: args[0], FS: fs})
		if err != nil {
			return err
		}
		for _, step := range scenario() {
			if err := step(s); err != nil {
				return err
			}
			fmt.Println("step")
		}
		return s.Close()
	},
}

// Each write operation of a scenario fails once. Whatever the process makes of
// it, a later one finds every answered step, and at most the one on its way beside.
func TestAnErrorOfEveryWriteLosesNothingThatWasAnswered(t *testing.T) {
	want := []image{{}}
	ops := sweepOnce(t, func(errorfs.Op) {}, func(s *Store) { want = append(want, imageOf(t, s)) })
	every := 1
	if testing.Short() {
		every = 10
	}
	var mu sync.Mutex // guards failures and ends
	failures, ends := 0, map[int]int{}
	// The processes wait for the disk nearly all the time.
	t.Run("writes", func(t *testing.T) {
		for k := 0; k < ops; k += every {
			t.Run(strconv.Itoa(k), func(t *testing.T) {
				t.Parallel()
				dir := filepath.Join(t.TempDir(), "data")
				out, code := runChild(t, "scenario", dir, strconv.Itoa(k))
				mu.Lock()
				failures += strings.Count(out, "failed")
				ends[code]++
				mu.Unlock()
				// Pebble panics when it cannot change to a new log, which ends the process too.
				if strings.Contains(out, "goroutine") && !strings.Contains(out, "pebble/v2.(*DB).rotateWAL") {
					t.Fatalf("the process crashed for another reason:\n%s", out)
				}
				s, err := Open(Config{Dir: dir})
				if err != nil {
					t.Fatalf("opened again: %v", err)
				}
				got := imageOf(t, s)
				closeStore(t, s)
				at := strings.Count(out, "step\n")
				if !reflect.DeepEqual(got, want[at]) && (at+1 == len(want) || !reflect.DeepEqual(got, want[at+1])) {
					t.Errorf("exit %d, after step %d:\n%+v\nwant\n%+v\n%s", code, at, got, want[at], out)
				}
			})
		}
	})
	t.Logf("%d failures; exits: %v", failures, ends)
	if failures < ops/every/2 || ends[ExitFatal] == 0 || ends[1] == 0 {
		t.Errorf("%d failures in %d operations; exits: %v", failures, ops, ends)
	}
}
