package main

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"parley/gateway/wire"
)

// talker says one thing after the other until it is sent away.
type talker struct {
	*seat
	room     string
	accepted []string // ids
	open     string   // the id that was sent and not answered; empty: none
	after    time.Duration
	took     time.Duration // from the signal to the close
	err      error
}

func closed(err error) int {
	if x, ok := errors.AsType[*websocket.CloseError](err); ok {
		return x.Code
	}
	return 0
}

// run reads, and talks when it is to, until the end.
func (k *talker) run(talks bool, began func() time.Time, told func()) {
	say := func() {
		if talks {
			k.open = fmt.Sprint(k.room, "-", len(k.accepted))
			_ = k.say(k.open) // when it fails, the read says why
		}
	}
	say()
	for {
		f, err := k.read()
		if err != nil {
			k.err, k.took = err, time.Since(began())
			return
		}
		switch {
		case f.Type == "goaway":
			k.after = time.Duration(f.AfterMs) * time.Millisecond
			told()
		case f.Type == "accepted" && f.ID == k.open:
			k.accepted = append(k.accepted, f.ID)
			say()
		case f.Type == "error":
			k.err = fmt.Errorf("refused: %s", f.Code)
			return
		}
	}
}

// TestDrainOfARealServer: on SIGTERM a server with 208 connections says at once
// that it takes no more, sends clients away at instants spread over the time that
// was set, acknowledges what it took, and exits with 0. What was not acknowledged
// is taken by the next process, what was is known to it, and its runs go on.
func TestDrainOfARealServer(t *testing.T) {
	const rooms, each, slow, spread = 26, 8, 4, 1500 * time.Millisecond
	p := newProcess(t, "data", "drain: 1500ms\n")
	if !p.start() {
		t.Fatal(p.log())
	}
	for i := range slow {
		s := p.mustSit(fmt.Sprint("slow-", i), "x")
		if err := s.say("i"); err != nil {
			t.Fatal(err)
		}
		for said := false; !said; {
			f, err := s.read()
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range f.Items {
				said = said || i.Body.Type == "assistant_output"
			}
		}
		if err := s.ws.Close(); err != nil {
			t.Fatal(err)
		}
	}
	var talkers []*talker
	for i := range rooms {
		for j := range each {
			room := fmt.Sprint("room-", i)
			talkers = append(talkers, &talker{seat: p.mustSit(room, fmt.Sprint(j)), room: room})
		}
	}
	p.until("parley_runs_active", slow)
	p.until("parley_connections_open", rooms*each)
	var mu sync.Mutex
	var began time.Time
	since := func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return began
	}
	// Whoever is sent away finds that the server is not ready, for those who look
	// for another.
	told := sync.OnceFunc(func() {
		if status, _ := p.get("http://" + p.address + "/readyz"); status != http.StatusServiceUnavailable {
			t.Errorf("/readyz after goaway: %d", status)
		}
	})
	var wg sync.WaitGroup
	for i, k := range talkers {
		wg.Go(func() { k.run(i%each == 0, since, told) })
	}
	for got := 0.0; got < 2*rooms; { // everybody who talks is at it
		got = p.metrics()[`parley_attempts_total{resumed="false"}`]
	}

	mu.Lock()
	began = time.Now()
	mu.Unlock()
	p.signal(syscall.SIGTERM)
	for status := 0; status != http.StatusServiceUnavailable && !t.Failed(); {
		status, _ = p.get("http://" + p.address + "/readyz")
	}
	notReady := time.Since(began)
	if _, err := p.sit("room-0", "new"); !errors.Is(err, errTurnedAway) {
		t.Errorf("a new connection while the server drains: %v", err)
	}
	if status, _ := p.get("http://" + p.address + "/healthz"); status != http.StatusOK {
		t.Errorf("/healthz while the server drains: %d", status)
	}
	wg.Wait()
	if err := p.wait(); err != nil {
		t.Errorf("%v: %s", err, p.log())
	}
	took := time.Since(began)
	first, last, instants, accepted := spread, time.Duration(0), map[time.Duration]bool{}, 0
	for _, k := range talkers {
		if closed(k.err) != int(wire.CloseRestarting) || k.after > spread || k.took < k.after {
			t.Errorf("%s: told to go after %v, ended after %v with %v", k.room, k.after, k.took, k.err)
		}
		first, last = min(first, k.took), max(last, k.took)
		instants[k.after] = true
		accepted += len(k.accepted)
	}
	t.Logf("not ready after %v; %d clients left from %v to %v at %d instants; %d inputs acknowledged; exit after %v",
		notReady, len(talkers), first, last, len(instants), accepted, took)
	if first > spread/2 || last < spread/2 || len(instants) < len(talkers)/3 {
		t.Error("the end was not spread")
	}
	if log := p.log(); strings.Contains(log, `"level":"error"`) || !strings.Contains(log, `"msg":"stopped"`) {
		t.Errorf("the log of a drain: %s", log)
	}

	if !p.start() {
		t.Fatal(p.log())
	}
	for got := 0.0; got < slow; { // a short answer may have been let go as well
		got = p.metrics()[`parley_attempts_total{resumed="true"}`]
	}
	for _, k := range talkers {
		if len(k.accepted) == 0 {
			continue
		}
		s := p.mustSit(k.room, "0")
		for _, id := range append(k.accepted[max(0, len(k.accepted)-3):], k.open) {
			if err := s.say(id); err != nil {
				t.Fatal(err)
			}
			code, duplicate, err := s.answer(id)
			if err != nil || code != "" || !duplicate && id != k.open {
				t.Errorf("%s after the restart: %q, duplicate %t, %v", id, code, duplicate, err)
			}
		}
	}
}

// TestASecondSignalEndsADrainAtOnce: what was acknowledged is there all the same.
func TestASecondSignalEndsADrainAtOnce(t *testing.T) {
	p := newProcess(t, "data", "drain: 5m\n")
	if !p.start() {
		t.Fatal(p.log())
	}
	s := p.mustSit("room-0", "x")
	if err := s.turn("i"); err != nil {
		t.Fatal(err)
	}
	p.signal(syscall.SIGTERM)
	for {
		f, err := s.read()
		if err != nil {
			t.Fatal(err)
		}
		if f.Type == "goaway" {
			break
		}
	}
	p.signal(syscall.SIGINT)
	_ = p.wait()
	if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !status.Signaled() || status.Signal() != syscall.SIGINT {
		t.Errorf("ended with %v", p.cmd.ProcessState)
	}
	if !p.start() {
		t.Fatal(p.log())
	}
	again := p.mustSit("room-0", "x")
	if err := again.say("i"); err != nil {
		t.Fatal(err)
	}
	if code, duplicate, err := again.answer("i"); err != nil || code != "" || !duplicate {
		t.Errorf("after the restart: %q, duplicate %t, %v", code, duplicate, err)
	}
	p.signal(syscall.SIGKILL)
	_ = p.wait()
}
