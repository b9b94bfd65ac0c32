package main

import (
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// TestOperatorsSeeAKnownLoad runs a real server, gives it a load whose figures
// are known, and scrapes it.
func TestOperatorsSeeAKnownLoad(t *testing.T) {
	const rooms, turns = 5, 4
	p := newProcess(t, "data", "drain: 10ms\n")
	if !p.start() {
		t.Fatal(p.log())
	}
	var wg sync.WaitGroup
	for i := range rooms {
		room := "room-" + string(rune('a'+i))
		speaker, listener := p.mustSit(room, "speaker"), p.mustSit(room, "listener")
		wg.Go(func() {
			for k := range turns {
				if err := speaker.turn(room + string(rune('0'+k))); err != nil {
					t.Errorf("%s: %v", room, err)
					return
				}
			}
		})
		wg.Go(func() {
			for ended := 0; ended < turns; {
				f, err := listener.read()
				if err != nil {
					t.Errorf("%s: %v", room, err)
					return
				}
				for _, i := range f.Items {
					if i.Body.Type == "completed" {
						ended++
					}
				}
			}
			if err := listener.ws.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	p.until("parley_connections_open", rooms) // the listeners have gone
	got := p.metrics()
	// Of a turn: the input, the start of its attempt, 1 progress, 20 deltas, the end.
	// Of a room: its configuration.
	const entries = rooms + rooms*turns*(1+1+1+20+1)
	for key, want := range map[string]float64{
		`parley_commit_entries_sum`:                                           entries,
		`parley_store_entries_total`:                                          entries,
		`parley_commit_entries_count`:                                         got["parley_commit_seconds_count"],
		`parley_store_batches_total`:                                          got["parley_commit_seconds_count"],
		`parley_rooms_awake`:                                                  rooms,
		`parley_room_activations_total`:                                       rooms,
		`parley_rooms_connected`:                                              rooms,
		`parley_recovery_seconds_count{result="ok"}`:                          rooms,
		`parley_attempts_total{resumed="false"}`:                              rooms * turns,
		`parley_runs_active`:                                                  0,
		`parley_connects_total`:                                               2 * rooms,
		`parley_closes_total{by="client",code="none",reason="none"}`:          rooms,
		`parley_closes_total{by="server",code="4421",reason="slow_consumer"}`: 0,
		`parley_connections_held`:                                             0,
		`parley_panics_total{place="driver"}`:                                 0,
		`parley_driver_failures_total`:                                        0,
	} {
		if v, ok := got[key]; !ok || v != want {
			t.Errorf("%s = %v (there: %t), want %v", key, v, ok, want)
		}
	}
	if n := got["parley_feed_lag_seconds_count"]; n < 2*rooms*turns || n > 2*entries {
		t.Errorf("%v frames were sent", n)
	}
	if n := got["parley_store_commit_seconds_count"]; n == 0 || n > got["parley_store_batches_total"]+rooms {
		t.Errorf("%v commits of the store for %v batches", n, got["parley_store_batches_total"])
	}
	if in, out := got["parley_received_bytes_total"], got["parley_sent_bytes_total"]; in < 100*rooms*turns || out < 2*100*entries {
		t.Errorf("%v bytes in, %v out", in, out)
	}
	for _, key := range []string{"go_goroutines", "process_resident_memory_bytes", "parley_disk_free_ratio"} {
		if got[key] <= 0 {
			t.Errorf("%s = %v", key, got[key])
		}
	}
	// What operators see is at no address of the clients.
	for _, path := range []string{"/metrics", "/debug/pprof/", "/debug/pprof/heap", "/debug/vars"} {
		if status, _ := p.get("http://" + p.address + path); status != http.StatusNotFound {
			t.Errorf("%s at the clients' address: %d", path, status)
		}
	}
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/goroutine?debug=2", "/debug/pprof/cmdline"} {
		if status, body := p.get(p.admin + path); status != http.StatusOK || body == "" {
			t.Errorf("%s at the admin address: %d", path, status)
		}
	}
	if status, _ := p.get(p.admin + "/v1/rooms/room-a/ws"); status != http.StatusNotFound {
		t.Errorf("rooms at the admin address: %d", status)
	}
	p.signal(syscall.SIGTERM)
	if err := p.wait(); err != nil {
		t.Errorf("%v: %s", err, p.log())
	}
}

// TestTheAdminAddressAnswersThisMachineOnly: a page under another name gets nothing.
func TestTheAdminAddressAnswersThisMachineOnly(t *testing.T) {
	for _, exposed := range []bool{false, true} {
		h, err := newAdmin(prometheus.NewGauge(prometheus.GaugeOpts{Name: "parley_x", Help: "x"}), exposed, zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		for host, here := range map[string]bool{
			"127.0.0.1:8081": true, "localhost:8081": true, "[::1]:8081": true, "localhost": true,
			"evil.example:8081": false, "127.0.0.1.evil.example": false, "10.0.0.7:8081": false, "": false,
		} {
			for _, path := range []string{"/metrics", "/debug/pprof/cmdline"} {
				w := &answer{header: http.Header{}, status: http.StatusOK}
				r, err := http.NewRequest(http.MethodGet, "http://x"+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				r.Host = host
				h.ServeHTTP(w, r)
				if want := here || exposed; (w.status == http.StatusOK) != want || (w.body.Len() > 0 && strings.Contains(w.body.String(), "localhost only")) == want {
					t.Errorf("exposed %t, host %q, %s: %d", exposed, host, path, w.status)
				}
			}
		}
	}
}

// answer is a ResponseWriter.
type answer struct {
	header http.Header
	status int
	body   strings.Builder
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(status int)      { a.status = status }
func (a *answer) Write(b []byte) (int, error) { return a.body.Write(b) }
