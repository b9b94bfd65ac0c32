package actors

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"parley/event"
)

func TestATurnIsJournaledInOrder(t *testing.T) {
	in(t, func(r *rig) {
		r.create("hall")
		got := r.say("hall", "i1")
		synctest.Wait()
		want := []string{"room", "input", "attempt_started/1", "progress/1", "assistant_output/1", "assistant_output/1", "completed/1"}
		if ks := r.journal.kinds("hall"); !slices.Equal(ks, want) {
			t.Errorf("journal: %v, want %v", ks, want)
		}
		if got.Entry != 2 || got.Duplicate {
			t.Errorf("receipt: %+v", got)
		}
	})
}

func TestNothingLeavesBeforeItIsDurable(t *testing.T) {
	in(t, func(r *rig) {
		r.create("hall")
		synctest.Wait()
		hold := make(chan struct{})
		r.journal.set(func(j *memJournal) { j.fate = func(int, *event.Batch) fate { return fate{hold: hold} } })
		heads := 0
		defer r.Follow("hall", func(event.Seq) { heads++ })()

		accepted := r.do("hall", submit("public", "i1"))
		again := r.do("hall", submit("public", "i1"))
		view := r.do("hall", event.ReadView{})
		bad := submit("public", "i2")
		bad.Input.Text = " "
		refused := r.do("hall", bad)
		synctest.Wait()
		for i, o := range []*outcome{accepted, again, view, refused} {
			if _, n, _ := o.get(); n != 0 {
				t.Errorf("answer %d left before its batch was durable", i)
			}
		}
		if es, head, _ := r.Read("hall", 0, 100); head != 1 || len(es) != 1 {
			t.Errorf("a reader sees %d entries up to %d before they are durable", len(es), head)
		}
		if heads != 0 {
			t.Error("a follower was told of a head that is not durable")
		}
		if v := r.View("hall"); v != nil {
			t.Errorf("a view at %d is public", v.Head)
		}

		close(hold)
		synctest.Wait()
		reply, _, _ := accepted.get()
		if x, ok := reply.(event.Receipt); !ok || x.Duplicate {
			t.Errorf("accepted: %+v", reply)
		}
		reply, _, _ = again.get()
		if x, ok := reply.(event.Receipt); !ok || !x.Duplicate {
			t.Errorf("an exact retry is no duplicate: %+v", reply)
		}
		reply, _, _ = view.get()
		if v, ok := reply.(*event.View); !ok || v.Head < 3 {
			t.Errorf("view: %+v", reply)
		}
		r.refusedFor(refused, event.BlankText)
		if heads == 0 {
			t.Error("the follower was not told")
		}
	})
}

func TestAnAnswerComesBeforeTheFollowersAreTold(t *testing.T) {
	in(t, func(r *rig) {
		r.create("hall")
		synctest.Wait()
		var order []string
		defer r.Follow("hall", func(event.Seq) { order = append(order, "moved") })()
		r.Do("hall", submit("public", "i1"), func(event.Reply, error) {
			order = append(order, "answered")
			if es, _, err := r.Read("hall", 1, 10); err != nil || len(es) == 0 {
				t.Errorf("whoever is answered cannot read what he wrote: %d entries, %v", len(es), err)
			}
		})
		synctest.Wait()
		if len(order) < 2 || order[0] != "answered" || order[1] != "moved" {
			t.Errorf("order: %v", order)
		}
	})
}

func TestAnswersKeepTheOrderOfTheirCommands(t *testing.T) {
	in(t, func(r *rig) {
		r.create("hall")
		r.journal.set(func(j *memJournal) { j.fate = func(int, *event.Batch) fate { return fate{after: time.Millisecond} } })
		var got, want []int
		for i := range 600 {
			want = append(want, i)
			var cmd event.Command
			switch i % 3 {
			case 0:
				cmd = submit(event.ChannelID(fmt.Sprintf("c%d", i%50)), event.InputID(fmt.Sprintf("i%d", i)))
			case 1:
				cmd = event.ReadView{}
			case 2:
				s := submit("public", "x")
				s.Input.Text = ""
				cmd = s
			}
			r.Do("hall", cmd, func(event.Reply, error) { got = append(got, i) })
		}
		synctest.Wait()
		time.Sleep(time.Second)
		synctest.Wait()
		if !slices.Equal(got, want) {
			t.Errorf("answered in the order %v", got)
		}
	})
}

func TestABatchTakesAllThatGatheredAndStaysBounded(t *testing.T) {
	in(t, func(r *rig) {
		r.create("hall")
		var sizes []int
		hold := make(chan struct{})
		r.journal.set(func(j *memJournal) {
			j.fate = func(k int, b *event.Batch) fate {
				sizes = append(sizes, len(b.Entries))
				if len(sizes) == 1 {
					return fate{hold: hold}
				}
				return fate{}
			}
		})
		set := func(i int) event.Command {
			return event.SetFocus{Access: event.Access{
				Subject: event.ParticipantID(fmt.Sprintf("p%d", i%200)), Scopes: []event.Scope{event.ScopeInput},
			}, Agent: []event.AgentID{"guide", ""}[i/200%2]}
		}
		r.do("hall", set(0))
		synctest.Wait()
		for i := 1; i < 600; i++ {
			r.do("hall", set(i))
		}
		synctest.Wait()
		if len(sizes) != 1 {
			t.Errorf("%d batches while one was in flight", len(sizes)-1)
		}
		close(hold)
		synctest.Wait()
		if !slices.Equal(sizes, []int{1, 256, 256, 87}) {
			t.Errorf("entries of the batches: %v", sizes)
		}
	})
}

func TestABatchIsBoundedInBytes(t *testing.T) {
	in(t, func(r *rig) {
		r.create("hall")
		var sizes []int
		hold := make(chan struct{})
		r.journal.set(func(j *memJournal) {
			j.fate = func(k int, b *event.Batch) fate {
				n := 0
				for _, e := range b.Entries {
					n += len(event.AppendEntry(nil, e))
				}
				for _, row := range b.Rows {
					n += len(event.AppendRow(nil, row.Row))
				}
				sizes = append(sizes, n)
				return fate{hold: hold}
			}
		})
		for i := range 200 {
			s := submit(event.ChannelID(fmt.Sprintf("c%d", i)), event.InputID(fmt.Sprintf("i%d", i)))
			s.Input.Text = strings.Repeat("x", event.MaxText)
			r.do("hall", s)
		}
		synctest.Wait()
		close(hold)
		synctest.Wait()
		if len(sizes) < 7 || slices.Max(sizes) > 512<<10 {
			t.Errorf("bytes of the batches: %v", sizes)
		}
	})
}

func TestOneViewServesAllWhoAskAtAHead(t *testing.T) {
	in(t, func(r *rig) {
		r.create("hall")
		var asked []*outcome
		for range 1000 {
			asked = append(asked, r.do("hall", event.ReadView{}))
		}
		synctest.Wait()
		first, _, _ := asked[0].get()
		for i, o := range asked {
			if v, _, err := o.get(); err != nil || v != first {
				t.Fatalf("view %d is another one (%v)", i, err)
			}
		}
		if r.View("hall") != first.(*event.View) {
			t.Error("the view is not to be had without asking the room")
		}
		r.say("hall", "i1")
		if v := r.View("hall"); v != nil {
			t.Errorf("an old view at %d is still to be had", v.Head)
		}
	})
}

func TestOfOneRowOnlyTheLastIsWritten(t *testing.T) {
	in(t, func(r *rig) {
		r.create("hall")
		r.journal.set(func(j *memJournal) {
			j.fate = func(_ int, b *event.Batch) fate {
				seen := map[event.Key]bool{}
				for _, row := range b.Rows {
					if seen[row.Key] {
						t.Errorf("a row of table %d is twice in a batch", row.Key.Table)
					}
					seen[row.Key] = true
				}
				return fate{}
			}
		})
		for i := range 5 {
			r.do("hall", submit("public", event.InputID(fmt.Sprintf("i%d", i)))) // each supersedes the one before
		}
		synctest.Wait()
	})
}

func TestAPanicInACallersFunctionHarmsNobody(t *testing.T) {
	in(t, func(r *rig) {
		r.create("hall")
		r.Do("hall", event.ReadView{}, func(event.Reply, error) { panic("What is this?") })
		defer r.Follow("hall", func(event.Seq) { panic("What is this?") })()
		r.say("hall", "i1")
		synctest.Wait()
		if n := len(r.journal.kinds("hall")); n != 7 {
			t.Errorf("%d entries", n)
		}
		if r.counts.recovered.Load() != 1 {
			t.Error("the room was recovered")
		}
		r.quiet("What is this?")
	})
}

// quiet fails when a text of people shows in the logs above debug.
func (r *rig) quiet(text string) {
	r.Helper()
	for _, e := range r.logs.All() {
		if e.Level >= 0 && strings.Contains(fmt.Sprint(e.Message, e.ContextMap()), text) {
			r.Errorf("the log line %q holds what somebody said", e.Message)
		}
	}
}
