package room_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"time"

	"parley/event"
	"parley/internal/invariants"
	"parley/room"
)

// began is when every test's clock starts.
var began = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// world is a room with a clock and a store, and no shell: what it decides is
// durable at once. With every message it asserts the laws of the core, so that
// a script or a property fails at the message that breaks one:
//
//   - Decide changes nothing, asks for at most 16 rows, and gives the same again
//     when asked again, and when asked of the state restored from a snapshot;
//   - Apply takes what Decide lets through, in the form in which the journal
//     gives it back, and leaves the same rows;
//   - the state is the one that a replay of the journal from nothing gives, and
//     the one from the last snapshot;
//   - the journal keeps the laws of package invariants, and the rows are those
//     that the journal implies.
type world struct {
	fail    func(format string, args ...any)
	state   *room.State
	replica *room.State // follows the journal from nothing, in its stored form
	journal []*event.Entry
	rows    map[event.Key]event.Row
	check   *invariants.Checker
	ambient room.Ambient
	now     time.Time
	draws   uint64
	// rand, when set, replaces the fresh randomness: the laws hold for any.
	rand func() [16]byte
}

const roomID event.RoomID = "hall"

func newWorld(t fatal) *world {
	return &world{
		fail:  t.Fatalf,
		state: room.New(roomID), replica: room.New(roomID),
		rows: map[event.Key]event.Row{}, check: invariants.NewChecker(), now: began,
	}
}

func (w *world) fresh() [16]byte {
	if w.rand != nil {
		return w.rand()
	}
	w.draws++
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(nil, w.draws))
	return [16]byte(sum[:16])
}

// do has one message decided and applied. The rows are those that it wrote.
func (w *world) do(msg any) (room.Decision, []event.KeyedRow, error) {
	in := room.Input{Now: w.now, Rand: w.fresh(), Msg: msg}
	facts := room.Facts{Ambient: w.ambient, Rows: map[event.Key]event.Row{}}
	needs := w.state.Needs(in)
	if len(needs) > 16 {
		w.fail("Needs names %d rows", len(needs))
	}
	for _, key := range needs {
		if row, ok := w.rows[key]; ok {
			facts.Rows[key] = row
		}
	}
	before := w.state.Snapshot()
	restored := w.restore(before)
	d, err := w.state.Decide(in, facts)
	again, err2 := w.state.Decide(in, facts)
	w.same("Decide asked twice", d, again, err, err2)
	if !bytes.Equal(before, w.state.Snapshot()) {
		w.fail("Decide of %T changed the state", msg)
	}
	again, err2 = restored.Decide(in, facts)
	w.same("Decide of the state from a snapshot", d, again, err, err2)
	if err != nil {
		if _, refused := event.AsRefusal(err); !refused && !errors.Is(err, room.ErrStale) {
			w.fail("the error %v is neither a refusal nor stale", err)
		}
		if len(d.Entries)+len(d.After) > 0 || d.Reply != nil {
			w.fail("a refusal came with %d entries, %d effects and reply %T", len(d.Entries), len(d.After), d.Reply)
		}
		return d, nil, err
	}
	return d, w.apply(d.Entries, restored), nil
}

// same fails unless two decisions are equal.
func (w *world) same(what string, a, b room.Decision, aerr, berr error) {
	if fmt.Sprint(a.Fault) != fmt.Sprint(b.Fault) || fmt.Sprint(aerr) != fmt.Sprint(berr) {
		w.fail("%s: fault %v and %v, error %v and %v", what, a.Fault, b.Fault, aerr, berr)
	}
	a.Fault, b.Fault = nil, nil
	if !reflect.DeepEqual(a, b) {
		w.fail("%s differs:\n%#v\n%#v", what, a, b)
	}
}

// apply makes the entries of one decision durable.
func (w *world) apply(entries []*event.Entry, restored *room.State) []event.KeyedRow {
	var written []event.KeyedRow
	for _, e := range entries {
		stored, err := event.DecodeEntry(e.Seq, event.AppendEntry(nil, e))
		if err != nil {
			w.fail("entry %d does not decode: %v", e.Seq, err)
		}
		rows := w.state.Apply(e)
		w.sameRows(e.Seq, rows, w.replica.Apply(stored))
		w.sameRows(e.Seq, rows, restored.Apply(stored))
		for _, r := range rows {
			row, err := event.DecodeRow(event.AppendRow(nil, r.Row))
			if err != nil {
				w.fail("a row of entry %d does not decode: %v", e.Seq, err)
			}
			w.rows[r.Key] = row
		}
		written = append(written, rows...)
		w.journal = append(w.journal, stored)
		if err := w.check.Add(stored); err != nil {
			w.fail("the journal breaks a law: %v", err)
		}
	}
	w.sameState("a replay from nothing", w.replica)
	w.sameState("a replay from a snapshot", restored)
	return written
}

func (w *world) restore(snapshot []byte) *room.State {
	s, err := room.Restore(roomID, snapshot)
	if err != nil {
		w.fail("the snapshot does not restore: %v", err)
	}
	if again := s.Snapshot(); !bytes.Equal(snapshot, again) {
		w.fail("the restored state has another snapshot:\n%s", difference(snapshot, again))
	}
	return s
}

func (w *world) sameRows(at event.Seq, a, b []event.KeyedRow) {
	if len(a) != len(b) {
		w.fail("entry %d leaves %d rows and replayed %d", at, len(a), len(b))
	}
	for i := range a {
		if a[i].Key != b[i].Key || !bytes.Equal(event.AppendRow(nil, a[i].Row), event.AppendRow(nil, b[i].Row)) {
			w.fail("entry %d leaves another row replayed:\n%+v\n%+v", at, a[i].Row, b[i].Row)
		}
	}
}

func (w *world) sameState(what string, s *room.State) {
	if a, b := w.state.Snapshot(), s.Snapshot(); !bytes.Equal(a, b) {
		w.fail("%s gives another state:\n%s", what, difference(a, b))
	}
	if a, b := w.state.View(), s.View(); !reflect.DeepEqual(a, b) {
		w.fail("%s gives another view:\n%+v\n%+v", what, a, b)
	}
	if a, b := w.state.Outstanding(w.now), s.Outstanding(w.now); !reflect.DeepEqual(a, b) {
		w.fail("%s gives other work:\n%+v\n%+v", what, a, b)
	}
	if !w.state.Wake().Equal(s.Wake()) || !w.state.NextTick().Equal(s.NextTick()) || w.state.Active() != s.Active() {
		w.fail("%s wakes at another time", what)
	}
}

// checkRows asserts that the rows written so far are those that the journal implies.
func (w *world) checkRows() {
	model := invariants.Rows(w.journal)
	for key, want := range model {
		got, ok := w.rows[key]
		if !ok {
			w.fail("the row %v was never written", key)
		}
		if !bytes.Equal(event.AppendRow(nil, got), event.AppendRow(nil, want)) {
			w.fail("the row %v is\n%+v, want\n%+v", key, got, want)
		}
	}
	if len(model) != len(w.rows) {
		w.fail("%d rows were written, %d follow from the journal", len(w.rows), len(model))
	}
}

// crash loses everything but the journal and the rows. With a snapshot, the
// state is made of it and of the entries after it.
func (w *world) crash(snapshot []byte) {
	w.ambient = room.Ambient{}
	s := room.New(roomID)
	if snapshot != nil {
		s = w.restore(snapshot)
	}
	for _, e := range w.journal[s.Head():] {
		s.Apply(e)
	}
	w.sameState("the restart", s)
	w.state = s
}

// person is the token of a visitor: may read and speak on "public" and on any
// team channel, where everybody reads along, and on a private channel of its own.
func person(name event.ParticipantID) event.Access {
	can := []event.Scope{event.ScopeRead, event.ScopeInput, event.ScopeCancel}
	return event.Access{
		Subject: name, Rooms: []string{"*"}, Scopes: can,
		Channels: []event.ChannelRule{
			{Match: "public", Can: can, Disclosure: event.ToRoom()},
			{Match: "team:*", Can: can, Disclosure: event.ToRoom()},
			{Match: "private:{sub}", Can: can, Disclosure: event.ToParticipants(name)},
		},
	}
}

// hostAccess is the token of a product's server.
func hostAccess() event.Access {
	return event.Access{Subject: "host", Rooms: []string{"*"}, Scopes: []event.Scope{event.ScopeHost}}
}

// moderator may read every channel and cancel what it sees.
func moderator() event.Access {
	can := []event.Scope{event.ScopeRead, event.ScopeModerate}
	return event.Access{
		Subject: "mod", Rooms: []string{"*"}, Scopes: can,
		Channels: []event.ChannelRule{{Match: "**", Can: can, Disclosure: event.ToRoom()}},
	}
}

// digest stands for the hash of an input as received (A5).
func digest(in event.FinalInput) [32]byte {
	deadline := "none"
	if in.Deadline != nil {
		deadline = in.Deadline.String()
	}
	return sha256.Sum256(fmt.Appendf(nil, "%q %q %v %q %q %v %v %v %s %v", in.ID, in.Text, in.Modality, in.Lang, in.Agents,
		in.Disclosure, in.OnBusy, in.Continuation, deadline, in.EndedAt.UnixMilli()))
}

// difference shows two snapshots from shortly before they part.
func difference(a, b []byte) string {
	i := 0
	for i < min(len(a), len(b)) && a[i] == b[i] {
		i++
	}
	from := max(0, i-60)
	return fmt.Sprintf("…%s\n…%s", a[from:min(len(a), i+60)], b[from:min(len(b), i+60)])
}

// visible returns the entries of a journal that the holder of a token may see.
func visible(journal []*event.Entry, a event.Access) []*event.Entry {
	var out []*event.Entry
	for _, e := range journal {
		if a.Sees(e.Channel, e.Disclosure) {
			out = append(out, e)
		}
	}
	return out
}

// fatal is what a world needs of a test; *rapid.T is another.
type fatal interface{ Fatalf(string, ...any) }
