package parley

import (
	"fmt"
	"iter"
	"os"
	"path/filepath"

	"go.uber.org/zap"

	"parley/event"
	"parley/gateway/wire"
	"parley/persistence"
	"parley/room"
)

// Journal reads the rooms of a data directory that no server has open, for
// inspection. Reading changes nothing in a room.
type Journal struct {
	dir   string
	store *persistence.Store
}

// OpenJournal opens a data directory. It fails when a server has it.
func OpenJournal(dir string) (*Journal, error) {
	if !persistence.Exists(dir) { // opening would make one
		return nil, fmt.Errorf("%s is not a data directory", dir)
	}
	store, err := persistence.Open(persistence.Config{Dir: dir, Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	return &Journal{dir: dir, store: store}, nil
}

// Close lets the directory go.
func (j *Journal) Close() error { return j.store.Close() }

// Rooms returns the names of the rooms that exist, in order.
func (j *Journal) Rooms() (names []event.RoomID, err error) {
	err = j.store.Rooms(func(r event.RoomID) bool {
		names = append(names, r)
		return true
	})
	return names, err
}

// Entries yields a room's entries after a position, 0 for all.
func (j *Journal) Entries(id event.RoomID, after event.Seq) iter.Seq2[*event.Entry, error] {
	return func(yield func(*event.Entry, error) bool) {
		head, err := j.store.Head(id)
		if err != nil {
			yield(nil, err)
			return
		}
		for after < head {
			entries, err := j.store.Read(id, after, head, 512)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, e := range entries {
				after = e.Seq
				if !yield(e, nil) {
					return
				}
			}
			if len(entries) == 0 {
				return
			}
		}
	}
}

// View rebuilds a room from its whole journal, without its snapshot, and returns
// what there is to see.
func (j *Journal) View(id event.RoomID) (*event.View, error) {
	s := room.New(id)
	for e, err := range j.Entries(id, 0) {
		if err != nil {
			return nil, err
		}
		s.Apply(e)
	}
	if !s.Exists() {
		return nil, event.Refuse(event.NotFound, "there is no room %s in this data directory", id)
	}
	return s.View(), nil
}

// EntryIDs returns the function that gives entries of a room the id that they
// have on the wire. Secret is the server's; empty: the data directory's own.
func (j *Journal) EntryIDs(id event.RoomID, secret []byte) (func(event.Seq) string, error) {
	if len(secret) == 0 {
		var err error
		if secret, err = os.ReadFile(filepath.Join(j.dir, secretFile)); err != nil {
			return nil, fmt.Errorf("the data directory has no secret of its own; give the server's configuration: %w", err)
		}
	}
	var inc event.Incarnation
	for e, err := range j.Entries(id, 0) {
		if err != nil {
			return nil, err
		}
		if c, ok := e.Body.(*event.RoomConfigured); ok {
			inc = c.Incarnation
		}
		break
	}
	return entryIDs(secret, id, inc)
}

func entryIDs(secret []byte, id event.RoomID, inc event.Incarnation) (func(event.Seq) string, error) {
	keys, err := wire.NewKeys(secret, id)
	if err != nil {
		return nil, err
	}
	return func(at event.Seq) string { return keys.EntryID(inc, at) }, nil
}
