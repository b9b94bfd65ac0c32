package actors

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"parley/event"
)

func TestAlarmsGoOffInOrderThoughOnlySomeAreHeld(t *testing.T) {
	n := seed(t)
	rnd := rand.New(rand.NewPCG(n, 0))
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	j := newMemJournal()
	want := map[event.RoomID]time.Time{}
	for i := range 500 {
		id, at := event.RoomID(fmt.Sprint("r", i)), now.Add(time.Duration(1+rnd.IntN(1000))*time.Second)
		j.room(id).alarm, want[id] = at, at
	}
	due, a, err := scan(j, now, 20)
	if err != nil || len(due) != 0 {
		t.Fatal(due, err)
	}
	for len(want) > 0 {
		next := a.next()
		if next.IsZero() {
			t.Fatalf("%d alarms are forgotten", len(want))
		}
		now = next
		took := a.due(now)
		if a.rescan(now) {
			more, later, err := scan(j, now, 20)
			if err != nil {
				t.Fatal(err)
			}
			took = append(took, more...)
			for _, x := range later.heap {
				a.set(x.room, time.UnixMilli(x.at))
			}
			a.horizon = later.horizon
		}
		if len(a.heap) > 40 || len(a.by) != len(a.heap) {
			t.Fatalf("%d alarms are held, %d indexed", len(a.heap), len(a.by))
		}
		for _, id := range took {
			at, ok := want[id]
			if !ok {
				continue // from the heap and the journal
			}
			if at.After(now) || now.Sub(at) > 0 {
				t.Errorf("the alarm of %v went off at %v", at, now)
			}
			delete(want, id)
			a.remove(id)
			j.room(id).alarm = time.Time{}
		}
	}
}

func TestWhatIsDueAtTheStartComesLatestFirst(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	j := newMemJournal()
	for i := range 50 {
		j.room(event.RoomID(fmt.Sprint("r", i))).alarm = now.Add(-time.Duration(i*7%50) * time.Second)
	}
	due, _, _ := scan(j, now, 20)
	if len(due) != 50 || !slices.IsSortedFunc(due, func(x, y event.RoomID) int {
		return cmp.Compare(now.Sub(j.room(x).alarm), now.Sub(j.room(y).alarm))
	}) {
		t.Errorf("due: %v", due)
	}
}

func TestAQuotaAveragesOverItsWindow(t *testing.T) {
	q := newQuota(1000, 10*time.Second)
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	q.charge(10_000, now)
	if d := q.wait(now); d != 0 {
		t.Errorf("a whole window at once waits %v", d)
	}
	q.charge(5_000, now)
	if d := q.wait(now); d < 5*time.Second || d > 5*time.Second+10*time.Millisecond {
		t.Errorf("half a window more waits %v, want 5 s", d)
	}
	if d := q.wait(now.Add(6 * time.Second)); d != 0 {
		t.Errorf("six seconds later it waits %v", d)
	}
	q.charge(1, now.Add(-time.Hour)) // a clock that went back changes nothing
	if d := q.wait(now.Add(1000 * time.Hour)); d != 0 {
		t.Errorf("much later it waits %v", d)
	}
}

func TestTheQueueKeepsItsOrder(t *testing.T) {
	var q queue
	at := func(i int) item { return item{msg: i} }
	for i := range 5 {
		q.push(at(i))
	}
	q.pop()
	q.pop()
	q.unshift(at(10), at(11))
	q.keep(func(x item) bool { return x.msg != 3 })
	q.push(at(5))
	var got []any
	for q.len() > 0 {
		got = append(got, q.front().msg)
		q.pop()
	}
	if want := []any{10, 11, 2, 4, 5}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestAConfigurationReportsAllThatIsWrongAtOnce(t *testing.T) {
	_, err := New(Config{IdleAfter: -1, StuckAfter: time.Second, EmitEvents: -5})
	for _, want := range []string{"Journal", "Drivers", "IdleAfter", "StuckAfter: 1s", "EmitEvents: -5"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
}
