package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

var tmpfs = flag.Bool("tmpfs", false, "run the test that fills a real file system; it mounts one in memory, for which it must be root")

// disk is a small file system with a file that fills it. Owned by the test's goroutine.
type disk struct {
	*testing.T
	dir string
}

// mount makes a file system of 256 MiB.
func mount(t *testing.T) *disk {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("parley-test", dir, "tmpfs", 0, "size=256m"); err != nil {
		t.Fatalf("mount: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return &disk{T: t, dir: dir}
}

func (d *disk) filler() string { return filepath.Join(d.dir, "filler") }

// fill leaves so many bytes free.
func (d *disk) fill(leave int64) {
	d.Helper()
	f, err := os.OpenFile(d.filler(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		d.Fatal(err)
	}
	var s syscall.Statfs_t
	for {
		if err := syscall.Statfs(d.dir, &s); err != nil {
			d.Fatal(err)
		}
		n := min(int64(s.Bavail)*s.Bsize-leave, 1<<20)
		if n <= 0 {
			break
		}
		if _, err := f.Write(make([]byte, n)); err != nil && !errors.Is(err, syscall.ENOSPC) {
			d.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		d.Fatal(err)
	}
}

func (d *disk) free() {
	d.Helper()
	if err := os.Remove(d.filler()); err != nil {
		d.Fatal(err)
	}
}

// TestAFullDiskThatRecovers fills the disk under a real server, twice: once it
// goes on by itself when there is space again, and once it is killed, and started
// while the disk is still full.
func TestAFullDiskThatRecovers(t *testing.T) {
	if !*tmpfs {
		t.Skip("run with -tmpfs as root; the same rules are held on a file system in memory by package actors")
	}
	d := mount(t)
	p := newProcess(t, filepath.Join(d.dir, "data"), "drain: 10ms\n")
	if !p.start() {
		t.Fatal(p.log())
	}
	accepted := []string{}
	s := p.mustSit("room-1", "x")
	turn := func(n int) {
		t.Helper()
		for range n {
			id := fmt.Sprint("i", len(accepted))
			if err := s.turn(id); err != nil {
				t.Fatalf("%s: %v; the log: %s", id, err, p.log())
			}
			accepted = append(accepted, id)
		}
	}
	turn(100)
	long := p.mustSit("long-1", "x")
	if err := long.say("l"); err != nil {
		t.Fatal(err)
	}
	if code, _, err := long.answer("l"); code != "" || err != nil {
		t.Fatal(code, err)
	}

	d.fill(8 << 20) // three per cent
	p.until("parley_disk_full", 1)
	entries := p.metrics()["parley_store_entries_total"]
	d.fill(0)
	for i := range 20 {
		if err := s.say(fmt.Sprint("full-", i)); err != nil {
			t.Fatal(err)
		}
		f, err := s.read()
		if err != nil || f.Type != "error" || f.Code != "unavailable" || !strings.Contains(f.Message, "almost full; free some space") || f.RetryMs == 0 {
			t.Fatalf("an input on a full disk: %+v, %v", f, err)
		}
	}
	if err := s.say(accepted[7]); err != nil {
		t.Fatal(err)
	}
	if code, duplicate, err := s.answer(accepted[7]); code != "" || !duplicate || err != nil {
		t.Errorf("an exact repetition on a full disk: %q, %t, %v", code, duplicate, err)
	}
	got := p.metrics()
	if got["parley_store_entries_total"] != entries || got["parley_runs_active"] != 1 || got[`parley_refusals_total{by="room",code="unavailable"}`] != 20 {
		t.Errorf("on a full disk: %v entries, before %v; %v runs; %v refused", got["parley_store_entries_total"], entries,
			got["parley_runs_active"], got[`parley_refusals_total{by="room",code="unavailable"}`])
	}
	if !strings.Contains(p.log(), "the disk is almost full; new commits are refused") {
		t.Errorf("the operator was not told: %s", p.log())
	}

	d.free()
	p.until("parley_disk_full", 0)
	turn(100)
	for done := false; !done; {
		f, err := long.read()
		if err != nil {
			t.Fatalf("the run that waited for the disk: %v; the log: %s", err, p.log())
		}
		for _, i := range f.Items {
			done = done || i.Body.Type == "completed"
		}
	}
	if n := p.metrics()[`parley_attempts_total{resumed="true"}`]; n != 0 {
		t.Errorf("%v attempts were lost for want of space", n)
	}

	if err := long.say("l2"); err != nil {
		t.Fatal(err)
	}
	if code, _, err := long.answer("l2"); code != "" || err != nil {
		t.Fatal(code, err)
	}
	d.fill(8 << 20)
	p.until("parley_disk_full", 1)
	d.fill(0)
	p.signal(syscall.SIGKILL)
	_ = p.wait()
	if p.start() {
		t.Error("started although nothing can be written")
	}
	if log := p.log(); !strings.Contains(log, "the disk that holds the data directory is full; free some space and start again (its log needs ") {
		t.Errorf("it does not say why it does not start: %s", log)
	}
	d.free()
	d.fill(8 << 20) // enough to start and not enough to write
	if !p.start() {
		t.Fatal(p.log())
	}
	s = p.mustSit("room-1", "x")
	if err := s.say("full-again"); err != nil {
		t.Fatal(err)
	}
	if code, _, err := s.answer("full-again"); code != "unavailable" || err != nil {
		t.Errorf("an input after a start on a full disk: %q, %v", code, err)
	}
	if err := s.say(accepted[99]); err != nil {
		t.Fatal(err)
	}
	if code, duplicate, err := s.answer(accepted[99]); code != "" || !duplicate || err != nil {
		t.Errorf("an exact repetition after a start on a full disk: %q, %t, %v", code, duplicate, err)
	}
	d.free()
	p.until("parley_disk_full", 0)
	for _, id := range accepted {
		if err := s.say(id); err != nil {
			t.Fatal(err)
		}
		if code, duplicate, err := s.answer(id); code != "" || !duplicate || err != nil {
			t.Errorf("%s after all of it: %q, %t, %v", id, code, duplicate, err)
		}
	}
	turn(1)
	p.until(`parley_attempts_total{resumed="true"}`, 1)
	p.until("parley_runs_active", 0)
	p.signal(syscall.SIGTERM)
	if err := p.wait(); err != nil {
		t.Errorf("%v: %s", err, p.log())
	}
}
