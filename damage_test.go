package parley_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"parley"
	"parley/driver"
	"parley/event"
)

// The parts of a room's keys in the store, behind its number; see package persistence.
const (
	blocks   = 1
	snapshot = 3
)

// harm changes what the store of a closed data directory holds of rooms by their
// numbers: f gets the rows of one part of a room, in order.
func harm(t *testing.T, dir string, f func(rows func(room, part byte) [][]byte, db *pebble.DB)) {
	t.Helper()
	db, err := pebble.Open(dir, &pebble.Options{FormatMajorVersion: pebble.FormatTableFormatV6})
	if err != nil {
		t.Fatal(err)
	}
	rows := func(room, part byte) (keys [][]byte) {
		t.Helper()
		it, err := db.NewIter(&pebble.IterOptions{LowerBound: []byte{0x11, room, part}, UpperBound: []byte{0x11, room, part + 1}})
		if err != nil {
			t.Fatal(err)
		}
		for ok := it.First(); ok; ok = it.Next() {
			keys = append(keys, append([]byte{}, it.Key()...))
		}
		if err := it.Close(); err != nil || len(keys) == 0 {
			t.Fatalf("room %d has no part %d, %v", room, part, err)
		}
		return keys
	}
	f(rows, db)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// flip turns bits in the middle of a value.
func flip(t *testing.T, db *pebble.DB, key []byte) {
	t.Helper()
	raw, closer, err := db.Get(key)
	if err != nil {
		t.Fatal(err)
	}
	raw = append([]byte{}, raw...)
	if err := closer.Close(); err != nil {
		t.Fatal(err)
	}
	for i := len(raw) / 3; i < len(raw)/2; i++ {
		raw[i] ^= 0xff
	}
	if err := db.Set(key, raw, pebble.Sync); err != nil {
		t.Fatal(err)
	}
}

// TestADamagedRoomHarmsNoOther damages rooms in all the ways that its journal can
// be: what can be read from its entries is, what cannot is refused with a word to
// the operator, and the others go on.
func TestADamagedRoomHarmsNoOther(t *testing.T) {
	dir := t.TempDir()
	drivers := map[string]driver.Driver{"echo": echo}
	say := func(rt *parley.Runtime, room int, id string) (*parley.Run, error) {
		in := hello(event.InputID(id))
		in.Room = event.RoomID(fmt.Sprint("table-", room))
		run, err := rt.Begin(t.Context(), in)
		if err == nil {
			_, err = run.Result(t.Context())
		}
		return run, err
	}
	const rooms = 6
	var kept [rooms + 1]*parley.Run
	rt := begin(t, dir, drivers, table("echo"))
	for room := 1; room <= rooms; room++ { // its number in the store
		for i := range 5 {
			run, err := say(rt, room, fmt.Sprint("i-", i))
			if err != nil {
				t.Fatal(err)
			}
			kept[room] = run
		}
	}
	stop(t, rt)
	del := func(db *pebble.DB, key []byte) {
		if err := db.Delete(key, pebble.Sync); err != nil {
			t.Fatal(err)
		}
	}
	harm(t, dir, func(rows func(room, part byte) [][]byte, db *pebble.DB) {
		flip(t, db, rows(1, snapshot)[0]) // 1: only its snapshot
		del(db, rows(2, snapshot)[0])     // 2: its snapshot is missing
		del(db, rows(3, snapshot)[0])     // 3: that, and an entry in the middle
		flip(t, db, rows(3, blocks)[2])
		del(db, rows(4, snapshot)[0]) // 4: that, and some are missing
		del(db, rows(4, blocks)[2])
		del(db, rows(5, blocks)[0]) // 5: the snapshot is there, but not its history
	}) // 6: nothing

	core, logs := observer.New(zap.InfoLevel)
	rt, err := parley.New(parley.Config{Data: dir, Drivers: drivers, Templates: table("echo"), Logger: zap.New(core)})
	if err != nil {
		t.Fatal(err)
	}
	if err := rt.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for room := 1; room <= rooms; room++ {
		run, err := say(rt, room, "i-4")
		if room == 3 || room == 4 {
			if reason(err) != event.RoomFailed || strings.Contains(err.Error(), "Hello") {
				t.Errorf("room %d, whose entries are damaged: %v", room, err)
			}
			continue
		}
		if err != nil || !run.Duplicate || run.ID != kept[room].ID {
			t.Errorf("room %d lost what was acknowledged: %v", room, err)
		}
		if _, err := say(rt, room, "more"); err != nil {
			t.Errorf("room %d does not go on: %v", room, err)
		}
	}
	told := func(message, room string) bool {
		return logs.FilterMessageSnippet(message).Filter(func(e observer.LoggedEntry) bool { return e.ContextMap()["room"] == room }).Len() > 0
	}
	if !told("snapshot", "table-1") || !told("could not be loaded", "table-3") || !told("could not be loaded", "table-4") || told("could not be loaded", "table-5") {
		t.Error("the operator was not told")
	}
	for _, l := range logs.FilterMessageSnippet("could not be loaded").All() {
		if text := fmt.Sprint(l.ContextMap()["error"]); !strings.Contains(text, "position ") || !strings.Contains(text, "damaged; restore it from a backup") || strings.Contains(text, "Hello") {
			t.Errorf("the operator was told %q", text)
		}
	}
	got := scrape(t, rt)
	if got[`parley_recovery_seconds_count{result="failed"}`] < 2 || got[`parley_refusals_total{by="room",code="room_failed"}`] < 2 || got[`parley_panics_total{place="room"}`] != 0 {
		t.Errorf("figures: %v failed, %v refused", got[`parley_recovery_seconds_count{result="failed"}`], got[`parley_refusals_total{by="room",code="room_failed"}`])
	}
	stop(t, rt)

	j, err := parley.OpenJournal(dir)
	if err != nil {
		t.Fatal(err)
	}
	for room, damaged := range map[event.RoomID]bool{"table-1": false, "table-2": false, "table-3": true, "table-4": true, "table-5": true, "table-6": false} {
		var failed error
		for _, err := range j.Entries(room, 0) {
			failed = errors.Join(failed, err)
		}
		if (failed != nil) != damaged {
			t.Errorf("%s reads with %v", room, failed)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if m, err := filepath.Glob(filepath.Join(dir, "unfinished-*")); err != nil || len(m) > 0 {
		t.Errorf("files were put aside: %v, %v", m, err)
	}
}
