package persistence

import (
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/zap"
)

// diskWatch knows whether the disk has room for new commits. Writers to a full
// disk can block for ever without an error, so commits stop well before.
//
// full, avail and total may be read by anyone; the rest is owned by the goroutine of run.
type diskWatch struct {
	full         atomic.Bool
	avail, total atomic.Uint64 // bytes, as of the last look; zero: not known

	fs      vfs.FS
	dir     string
	percent uint64
	log     *zap.Logger
	look    chan struct{} // of one: look now; a second wish for it is dropped
	quit    chan struct{}
	ended   chan struct{}
}

func newDiskWatch(cfg Config) *diskWatch {
	return &diskWatch{
		fs:      cfg.disk(),
		dir:     cfg.Dir,
		percent: uint64(cfg.MinFreePercent),
		log:     cfg.Logger,
		look:    make(chan struct{}, 1),
		quit:    make(chan struct{}),
		ended:   make(chan struct{}),
	}
}

// run looks at the disk each second, and when Pebble says that it gets full.
func (d *diskWatch) run() {
	defer close(d.ended)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-d.quit:
			return
		case <-tick.C:
		case <-d.look:
		}
		d.sample()
	}
}

func (d *diskWatch) stop() {
	close(d.quit)
	<-d.ended
}

// hurry asks for a look before the next second.
func (d *diskWatch) hurry() {
	select {
	case d.look <- struct{}{}:
	default:
	}
}

// sample looks at the disk. A file system that cannot say leaves things as they are.
func (d *diskWatch) sample() {
	u, err := d.fs.GetDiskUsage(d.dir)
	if err != nil || u.TotalBytes == 0 {
		return
	}
	d.avail.Store(u.AvailBytes)
	d.total.Store(u.TotalBytes)
	full := u.AvailBytes <= u.TotalBytes/100*d.percent
	if d.full.Swap(full) == full {
		return
	}
	fields := []zap.Field{zap.Uint64("availableBytes", u.AvailBytes), zap.Uint64("totalBytes", u.TotalBytes)}
	if full {
		d.log.Error("the disk is almost full; new commits are refused", fields...)
	} else {
		d.log.Info("the disk has room again; commits are taken", fields...)
	}
}
