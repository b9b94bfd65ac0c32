// Package parley is the embeddable runtime: rooms in which people talk with
// agents, durable in one data directory and reached over WebSocket.
//
// A product makes a Runtime with New, calls Start, serves Handler with its own
// HTTP server, and ends with Shutdown. It brings its drivers, and may submit
// inputs itself (Submit, Begin) and follow their runs. The program cmd/parley
// is a thin shell around this package.
//
// The package decides nothing: it plugs the rooms (actors), their journal
// (persistence) and the sockets (gateway) together, which do not know each
// other. A Runtime is safe for concurrent use. One process at a time has a data
// directory.
package parley

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"parley/actors"
	"parley/driver"
	"parley/event"
	"parley/gateway"
	"parley/persistence"
)

// Config is what a Runtime is made of. The zero value of a member means its default.
type Config struct {
	// Data is the data directory. It is created when missing. Required.
	Data string
	// Secret is the secret of this server or cluster, at least 32 bytes: cursors
	// and entry ids are made with it. Empty: one is kept in the data directory.
	Secret []byte
	// Auth says whose tokens are accepted. Without keys nobody comes in over
	// WebSocket; the product's own calls work.
	Auth Auth
	// Origins are the exact origins of pages that may connect from a browser.
	Origins []string
	// Drivers are the drivers that agents of rooms may name.
	Drivers map[string]driver.Driver
	// Templates make rooms on demand; the first that matches a name is used.
	Templates []Template
	// Limits bounds what clients may do.
	Limits Limits
	// DrainSpread is the time over which Shutdown closes connections, so that not
	// everybody reconnects at once; 0: 5 s.
	DrainSpread time.Duration
	// Logger gets operational facts, never a text of people or models. Nil: none.
	Logger *zap.Logger
}

// Auth says which tokens are accepted (spec: EdDSA and HS256, iss, aud and exp required).
type Auth struct {
	Issuer   string
	Audience string
	Keys     []Key
}

// Key is one key that signs tokens. ID is required with more than one key.
type Key struct {
	ID     string
	Alg    string // HS256 with Secret, or EdDSA with Public
	Secret []byte
	Public ed25519.PublicKey
}

// Template makes the rooms whose name matches (see event.Match).
type Template struct {
	Match string
	// ParticipantsCreate lets anybody whose token covers the room create it;
	// else only a host does.
	ParticipantsCreate bool
	Room               event.RoomConfig
}

// Limits bounds clients and rooms: each from 1 to MaxLimit. Zero members mean the default.
type Limits struct {
	Connections           int `yaml:"connections"`           // open, of the node; 50,000
	ConnectionsPerSubject int `yaml:"connectionsPerSubject"` // open, of one subject; 64
	ConnectionsPerAddress int `yaml:"connectionsPerAddress"` // open, from one address; 1,024
	InputsPerSecond       int `yaml:"inputsPerSecond"`       // of a subject in a room, on average; 5
	InputBurst            int `yaml:"inputBurst"`            // and at once; 10
	FramesPerSecond       int `yaml:"framesPerSecond"`       // of a connection, on average; 50
	CreatesPerMinute      int `yaml:"createsPerMinute"`      // rooms that one participant creates; 10
	JournalBytesPerSecond int `yaml:"journalBytesPerSecond"` // that the drivers of one room write; 262,144
}

// MaxLimit is the largest value of a limit: more than any machine serves, and
// far from where the arithmetic of rates overflows.
const MaxLimit = 1 << 30

// validate holds every limit there is to one rule. None is lifted by being
// negative: who wants none says so by a large number.
func (l Limits) validate() (errs []error) {
	v := reflect.ValueOf(l)
	for i := range v.NumField() {
		if n := v.Field(i).Int(); n < 0 || n > MaxLimit {
			errs = append(errs, fmt.Errorf("limits.%s: %d: must be 0 (the default) to %d", v.Type().Field(i).Tag.Get("yaml"), n, MaxLimit))
		}
	}
	return errs
}

// Validate reports all that is wrong at once, each with its key, its value and what is allowed.
func (c Config) Validate() error {
	var errs []error
	if c.Data == "" {
		errs = append(errs, errors.New(`data: "": must name the data directory`))
	}
	if len(c.Secret) > 0 && len(c.Secret) < 32 {
		errs = append(errs, fmt.Errorf("secret: %d bytes: must have at least 32", len(c.Secret)))
	}
	errs = append(errs, c.Limits.validate()...)
	if c.DrainSpread < 0 {
		errs = append(errs, fmt.Errorf("drainSpread: %v: must be a duration, or 0 for the default, 5s", c.DrainSpread))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Drivers)) {
		if err := driver.Check(name, c.Drivers[name]); err != nil {
			errs = append(errs, err)
		}
	}
	for i, t := range c.Templates {
		if t.Match == "" {
			errs = append(errs, fmt.Errorf(`templates[%d].match: "": must be a pattern of room names, such as demo-*`, i))
		}
		if err := t.Room.Validate(); err != nil {
			for line := range strings.Lines(err.Error()) {
				errs = append(errs, fmt.Errorf("templates[%d].room.%s", i, strings.TrimSuffix(line, "\n")))
			}
		}
	}
	return errors.Join(errs...)
}

// Runtime is one running server of rooms.
type Runtime struct {
	config  Config
	log     *zap.Logger
	store   *persistence.Store
	rooms   *actors.System
	gate    *gateway.Gateway
	metrics *metrics

	shutdown sync.Once
	err      error // of Shutdown
}

// New opens the data directory and makes a Runtime. Nothing runs before Start.
func New(c Config) (*Runtime, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	rt := &Runtime{config: c, log: c.Logger, metrics: newMetrics()}
	store, err := persistence.Open(persistence.Config{Dir: c.Data, Logger: c.Logger, Observer: rt.metrics.storeCommitted})
	if err != nil {
		return nil, err
	}
	rt.store = store
	if err := rt.plug(); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return rt, nil
}

func (rt *Runtime) plug() error {
	secret := rt.config.Secret
	if len(secret) == 0 {
		var err error
		if secret, err = keptSecret(filepath.Join(rt.config.Data, secretFile)); err != nil {
			return err
		}
	}
	rooms, err := actors.New(actors.Config{
		Journal: rt.store, Drivers: rt.driver, Logger: rt.log, Observer: rt.metrics,
		JournalQuota: rt.config.Limits.JournalBytesPerSecond,
	})
	if err != nil {
		return err
	}
	rt.rooms = rooms
	auth := rt.config.Auth.gatewayAuth()
	if len(auth.Keys) == 0 {
		auth = closed()
	}
	l := rt.config.Limits
	rt.gate, err = gateway.New(gateway.Config{
		Rooms: rooms, Auth: auth, Secret: secret, Origins: rt.config.Origins, Logger: rt.log, Observer: rt.metrics.sent,
		Templates: func(room event.RoomID) (*event.RoomConfig, bool) {
			t, ok := rt.template(room)
			if !ok {
				return nil, false
			}
			return &t.Room, t.ParticipantsCreate
		},
		Limits: gateway.Limits{
			Connections: l.Connections, PerSubject: l.ConnectionsPerSubject, PerAddress: l.ConnectionsPerAddress,
			InputsPerSec: l.InputsPerSecond, InputBurst: l.InputBurst, FramesPerSec: l.FramesPerSecond,
			CreatesPerMin: l.CreatesPerMinute, DrainSpread: rt.config.DrainSpread,
		},
	})
	return err
}

// driver returns the driver with that name.
func (rt *Runtime) driver(name string) (driver.Driver, bool) {
	d, ok := rt.config.Drivers[name]
	return d, ok
}

func (rt *Runtime) template(room event.RoomID) (Template, bool) {
	for _, t := range rt.config.Templates {
		if event.Match(t.Match, string(room), "") {
			return t, true
		}
	}
	return Template{}, false
}

// Start resumes the rooms whose work was cut short and lets clients in.
func (rt *Runtime) Start(ctx context.Context) error {
	if err := rt.rooms.Start(ctx); err != nil {
		return err
	}
	rt.gate.SetReady(true)
	return nil
}

// Handler serves /v1/rooms/{room}/ws, /healthz and /readyz.
func (rt *Runtime) Handler() http.Handler { return rt.gate.Handler() }

// Shutdown tells clients to go (goaway), lets the attempts in flight go in good
// order, and closes the data directory. What was acknowledged is durable
// whether or not it is called; runs that were let go resume at the next Start.
// ctx bounds it. A second call returns what the first one returned.
func (rt *Runtime) Shutdown(ctx context.Context) error {
	rt.shutdown.Do(func() {
		rt.gate.SetReady(false)
		rt.err = errors.Join(rt.gate.Drain(ctx), rt.rooms.Shutdown(ctx))
		rt.gate.Close()
		rt.err = errors.Join(rt.err, rt.store.Close())
	})
	return rt.err
}

// secretFile holds the secret of a data directory whose server was given none.
const secretFile = "secret.key"

// keptSecret reads the secret of a data directory, or makes one, readable by its owner only.
func keptSecret(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if err == nil {
		if len(b) < 32 {
			return nil, fmt.Errorf("%s holds %d bytes where a secret has at least 32; remove it to make a new one, which costs clients a reload", filepath.Base(path), len(b))
		}
		return b, nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("the secret of the data directory cannot be read: %w", err)
	}
	b = make([]byte, 32)
	_, _ = rand.Read(b) // never fails (crypto/rand)
	if err := writeWhole(path, b); err != nil {
		return nil, fmt.Errorf("the secret of the data directory cannot be written: %w", err)
	}
	return b, nil
}

// writeWhole makes a file that only its owner reads. After a crash or on a full
// disk it is there with all of its content or not at all.
func writeWhole(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
