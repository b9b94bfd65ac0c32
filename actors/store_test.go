package actors

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"parley/driver"
	"parley/event"
	"parley/persistence"
)

// openStore opens the real journal on a file system.
func openStore(t *testing.T, fs vfs.FS) *persistence.Store {
	t.Helper()
	s, err := persistence.Open(persistence.Config{Dir: "data", FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// slowSyncs makes every sync of a file take some time.
func slowSyncs(fs vfs.FS, d time.Duration) vfs.FS {
	return errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
			time.Sleep(d)
		}
		return nil
	}))
}

// journaled returns all entries of a room.
func journaled(t *testing.T, s *System, id event.RoomID) []*event.Entry {
	t.Helper()
	var out []*event.Entry
	for {
		es, head, err := s.Read(id, event.Seq(len(out)), 100)
		if err != nil {
			t.Fatal(err)
		}
		if out = append(out, es...); event.Seq(len(out)) >= head {
			return out
		}
	}
}

func words(es []*event.Entry) []string {
	var out []string
	for _, e := range es {
		w := e.Body.Kind().String()
		if x, ok := e.Body.(*event.RunEvent); ok {
			w = fmt.Sprintf("%s/%d", x.Event.RunKind(), x.Attempt)
		}
		out = append(out, w)
	}
	return out
}

func TestOnTheRealJournalACrashedRunIsResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewCrashableMem()
		store := openStore(t, mem)
		r := unstarted(t, store, nil, nil)
		r.start()
		r.create("hall", "slow")
		r.drive("slow", driver.RunFunc(hang))
		x := r.say("hall", "i1")
		synctest.Wait()
		crashed := mem.CrashClone(vfs.CrashCloneCfg{})

		again := openStore(t, crashed)
		next := unstarted(t, again, nil, nil)
		var turn *driver.Turn
		next.drive("slow", driver.RunFunc(func(_ context.Context, x *driver.Turn, out driver.Emitter) error {
			turn = x
			return driver.Say(out, "a", "Here it is.")
		}))
		next.start()
		synctest.Wait()
		if turn == nil || !turn.Resumed || turn.Attempt != 2 || string(turn.Checkpoint) != `{"step":1}` {
			t.Errorf("turn: %+v", turn)
		}
		want := []string{"room", "input", "attempt_started/1", "checkpoint/1", "attempt_started/2", "assistant_output/2", "completed/2"}
		if got := words(journaled(t, next.System, "hall")); !slices.Equal(got, want) {
			t.Errorf("journal: %v", got)
		}
		if y := next.say("hall", "i1"); !y.Duplicate || y.Entry != x.Entry || y.Incarnation != x.Incarnation {
			t.Errorf("receipt %+v, before the crash %+v", y, x)
		}
		for _, r := range []*rig{r, next} {
			r.stop()
		}
		for _, s := range []*persistence.Store{store, again} {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// stream is a driver that speaks in many small pieces, some of which take time.
func stream(ctx context.Context, turn *driver.Turn, out driver.Emitter) error {
	for i := range 20 {
		if err := out.Emit(event.AssistantOutput{Output: "a", Delta: fmt.Sprint(i, " "), Final: i == 19}); err != nil {
			return err
		}
		if i%4 == 0 {
			select {
			case <-time.After(3 * time.Millisecond):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
	return nil
}

// TestOnTheRealJournalNoCrashTakesBackWhatWasSeen crashes at random instants
// while people talk in several rooms: what was accepted or seen before is there
// after, once, at its place, and every run comes to its end.
func TestOnTheRealJournalNoCrashTakesBackWhatWasSeen(t *testing.T) {
	n := seed(t)
	for round := range 8 {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(n, uint64(round)))
			mem := vfs.NewCrashableMem()
			store := openStore(t, slowSyncs(mem, time.Millisecond))
			r := unstarted(t, store, nil, func(c *Config) { c.IdleAfter = 20 * time.Millisecond })
			r.start()
			r.drive("stream", driver.RunFunc(stream))
			ids := []event.RoomID{"a", "b", "c"}

			var mu sync.Mutex
			accepted := map[event.RoomID]map[event.InputID]event.Receipt{"a": {}, "b": {}, "c": {}}
			seen := map[event.RoomID][]string{}
			quit := make(chan struct{})
			var wg sync.WaitGroup
			for _, id := range ids {
				r.create(id, "stream")
				pauses := rnd.Perm(60)
				wg.Go(func() {
					for i, p := range pauses {
						in := event.InputID(fmt.Sprint("i", i))
						r.Do(id, submit(event.ChannelID(fmt.Sprint("c", i%3)), in), func(reply event.Reply, err error) {
							if err == nil {
								mu.Lock()
								accepted[id][in] = reply.(event.Receipt)
								mu.Unlock()
							}
						})
						select {
						case <-quit:
							return
						case <-time.After(time.Duration(p) * time.Millisecond):
						}
					}
				})
				wg.Go(func() {
					wake := make(chan struct{}, 1)
					defer r.Follow(id, func(event.Seq) {
						select {
						case wake <- struct{}{}:
						default:
						}
					})()
					var at event.Seq
					for {
						es, _, err := r.Read(id, at, 50)
						if err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						seen[id] = append(seen[id], words(es)...)
						mu.Unlock()
						if at += event.Seq(len(es)); len(es) > 0 {
							continue
						}
						select {
						case <-wake:
						case <-quit:
							return
						}
					}
				})
			}
			time.Sleep(time.Duration(rnd.IntN(1500_000)) * time.Microsecond)
			mu.Lock()
			was := map[event.RoomID]int{}
			for _, id := range ids {
				was[id] = len(seen[id])
				c := map[event.InputID]event.Receipt{}
				for in, x := range accepted[id] {
					c[in] = x
				}
				accepted[id] = c
			}
			kept := accepted
			accepted = map[event.RoomID]map[event.InputID]event.Receipt{"a": {}, "b": {}, "c": {}}
			mu.Unlock()
			crashed := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rand.New(rand.NewPCG(n, 99))})
			close(quit)
			wg.Wait()
			r.stop()
			if err := store.Close(); err != nil {
				t.Error(err)
			}

			again := openStore(t, crashed)
			next := unstarted(t, again, nil, nil)
			next.drive("stream", driver.RunFunc(stream))
			next.start()
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			for _, id := range ids {
				es := journaled(t, next.System, id)
				check(t, es)
				if got := words(es); len(got) < was[id] || !slices.Equal(got[:was[id]], seen[id][:was[id]]) {
					t.Errorf("room %s: %d entries were seen, %d are there, or others", id, was[id], len(got))
				}
				at := map[event.InputID]event.Seq{}
				open := map[event.RunID]bool{}
				for _, e := range es {
					switch x := e.Body.(type) {
					case *event.InputAdmitted:
						at[x.Input] = e.Seq
						open[x.Run] = true
					case *event.RunEvent:
						switch x.Event.(type) {
						case event.Completed, event.RunCanceled, event.RunFailed, event.DeadlineExceeded:
							delete(open, x.Run)
						}
					}
				}
				if len(open) > 0 {
					t.Errorf("room %s: %d runs never ended", id, len(open))
				}
				for in, x := range kept[id] {
					if at[in] != x.Entry {
						t.Errorf("room %s: input %s was accepted at %d and is at %d", id, in, x.Entry, at[in])
					}
				}
			}
			next.stop()
			if err := again.Close(); err != nil {
				t.Error(err)
			}
		})
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
}
