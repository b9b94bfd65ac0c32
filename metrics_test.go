package parley_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"parley"
	"parley/driver"
	"parley/event"
)

// scraped is what a scrape gives: figures by their name and labels in the text
// form of Prometheus; of a histogram NAME_count and NAME_sum.
type scraped map[string]float64

func scrape(t *testing.T, rt *parley.Runtime) scraped {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	if err := reg.Register(rt.Collector()); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := scraped{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			key := func(suffix string) string {
				if len(labels) == 0 {
					return f.GetName() + suffix
				}
				return f.GetName() + suffix + "{" + strings.Join(labels, ",") + "}"
			}
			switch f.GetType() {
			case dto.MetricType_HISTOGRAM:
				out[key("_count")], out[key("_sum")] = float64(m.GetHistogram().GetSampleCount()), m.GetHistogram().GetSampleSum()
			case dto.MetricType_COUNTER:
				out[key("")] = m.GetCounter().GetValue()
			default:
				out[key("")] = m.GetGauge().GetValue()
			}
		}
	}
	return out
}

// want fails unless the figures are as given.
func (s scraped) want(t *testing.T, figures map[string]float64) {
	t.Helper()
	for key, want := range figures {
		got, ok := s[key]
		if !ok || got != want {
			t.Errorf("%s = %v (there: %t), want %v", key, got, ok, want)
		}
	}
}

func TestMetricsFollowTheConventions(t *testing.T) {
	rt := begin(t, t.TempDir(), map[string]driver.Driver{"echo": echo}, table("echo"))
	defer stop(t, rt)
	reg := prometheus.NewPedanticRegistry()
	if err := reg.Register(rt.Collector()); err != nil {
		t.Fatal(err)
	}
	problems, err := testutil.GatherAndLint(reg)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	families, err := reg.Gather()
	if err != nil || len(families) < 30 {
		t.Fatalf("%d families, %v", len(families), err)
	}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "parley_") {
			t.Errorf("%s has another prefix", f.GetName())
		}
	}
}

// TestMetricsCountAKnownLoad: three inputs in two rooms, one of them again, one
// refused, one whose driver fails and one whose driver panics.
func TestMetricsCountAKnownLoad(t *testing.T) {
	drivers := map[string]driver.Driver{
		"echo":  echo,
		"fails": driver.RunFunc(func(context.Context, *driver.Turn, driver.Emitter) error { return errors.New("secret words") }),
		"panics": driver.RunFunc(func(context.Context, *driver.Turn, driver.Emitter) error {
			panic("secret words")
		}),
	}
	dir := t.TempDir()
	rt := begin(t, dir, drivers, table("echo", "fails", "panics"))
	for i, in := range []struct{ room, agent, id string }{
		{"table-1", "echo", "i-1"},
		{"table-2", "echo", "i-2"},
		{"table-1", "echo", "i-3"},
		{"table-1", "echo", "i-3"},
		{"table-1", "fails", "i-4"},
		{"table-2", "panics", "i-5"},
	} {
		x := hello(event.InputID(in.id))
		x.Room, x.Agents = event.RoomID(in.room), []event.AgentID{event.AgentID(in.agent)}
		run, err := rt.Begin(t.Context(), x)
		if err != nil || run.Duplicate != (i == 3) {
			t.Fatalf("%s: %+v, %v", in.id, run, err)
		}
		if _, err := run.Result(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	other := hello("i-1")
	other.Text = "Something else"
	if _, err := rt.Begin(t.Context(), other); reason(err) != event.InputConflict {
		t.Fatal(err)
	}
	got, c := scrape(t, rt), rt.Counters()
	stop(t, rt)
	entries := 0.0
	j, err := parley.OpenJournal(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, room := range []event.RoomID{"table-1", "table-2"} {
		for _, err := range j.Entries(room, 0) {
			if err != nil {
				t.Fatal(err)
			}
			entries++
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	got.want(t, map[string]float64{
		`parley_rooms_awake`:                                        2,
		`parley_room_activations_total`:                             2,
		`parley_rooms_failed`:                                       0,
		`parley_commit_entries_sum`:                                 entries,
		`parley_commit_entries_count`:                               got[`parley_commit_seconds_count`],
		`parley_store_batches_total`:                                got[`parley_commit_seconds_count`],
		`parley_store_entries_total`:                                entries,
		`parley_attempts_total{resumed="false"}`:                    5,
		`parley_attempts_total{resumed="true"}`:                     0,
		`parley_driver_failures_total`:                              2,
		`parley_panics_total{place="driver"}`:                       1,
		`parley_panics_total{place="room"}`:                         0,
		`parley_refusals_total{by="room",code="input_conflict"}`:    1,
		`parley_refusals_total{by="gateway",code="input_conflict"}`: 0,
		`parley_recovery_seconds_count{result="ok"}`:                2,
		`parley_recovery_seconds_count{result="failed"}`:            0,
		`parley_disk_full`:                                          0,
	})
	if float64(c.Entries) != entries || float64(c.Batches) != got[`parley_commit_seconds_count`] ||
		float64(c.Store.Commits) != got[`parley_store_commit_seconds_count`] || c.Bytes == 0 || c.BatchSeconds == 0 {
		t.Errorf("counters %+v", c)
	}
	if free := got[`parley_disk_free_ratio`]; free <= 0 || free > 1 {
		t.Errorf("the free share of the disk is %v", free)
	}
	if n := got[`parley_store_commit_seconds_count`]; n == 0 || n > got[`parley_store_batches_total`]+2 { // and a grant per room
		t.Errorf("%v commits for %v batches", n, got[`parley_store_batches_total`])
	}
	for key := range got {
		for _, word := range []string{"table", "echo", `"ann`, "secret", "Hello"} {
			if strings.Contains(key, word) {
				t.Errorf("%s tells %s", key, word)
			}
		}
	}
}
