package gateway

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"parley/event"
	"parley/gateway/wire"
)

// TestWhatIsCounted plays a scene with a known number of everything.
func TestWhatIsCounted(t *testing.T) {
	f := &tape{}
	var lags []time.Duration
	lagged := func(c *Config) { c.Observer = func(d time.Duration) { lags = append(lags, d) } }
	bubble(t, func() Rooms { return f }, func(t *testing.T, s *memory) {
		ann := mint(t, player("ann"))
		p := s.dial(t).hello(ann, []string{"public"})
		ready := p.expect("ready")
		p.until("caught_up")
		atStart := s.Stats()
		e := delta("public", event.ToRoom(), "x")
		e.At = time.Now().Add(-3 * time.Second)
		f.add(e)
		p.expect("events")
		p.send(frame{"type": "dance"})
		p.expect("error")
		synctest.Wait()
		if got := s.Stats(); got.BytesOut <= atStart.BytesOut+80 || got.BytesIn != atStart.BytesIn+uint64(len(`{"type":"dance"}`)) {
			t.Errorf("bytes: %d in, %d out; before %d in, %d out", got.BytesIn, got.BytesOut, atStart.BytesIn, atStart.BytesOut)
		}
		if len(lags) != 1 || lags[0] != 3*time.Second {
			t.Errorf("lags %v, want 3s", lags)
		}
		if err := p.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(int(wire.CloseGap), ""), time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		p.ws.Close()
		synctest.Wait()

		p = s.dial(t).hello(ann, []string{"public"}, "cursor", ready["cursor"])
		p.until("caught_up") // what it missed is replayed, and is no lag
		p.ws.Close()
		p = s.dial(t).hello(ann, []string{"public", "private:ann"}, "cursor", ready["cursor"])
		p.until("caught_up")
		p.sendRaw("{")
		p.closed(wire.CloseBadRequest)
		d := websocket.Dialer{NetDialContext: s.listener.Dial}
		if _, r := dialWith(t, d, "ws://memory/v1/rooms/r/ws", nil); r == nil || r.status != 403 {
			t.Errorf("without origin: %+v", r)
		}
		synctest.Wait()

		got := s.Stats()
		if got.Connections != 0 || got.Connects != 3 || got.Closed[wire.CloseBadRequest] != 1 || got.Left[wire.CloseGap] != 1 || got.Left[LeftSilent] != 1 {
			t.Errorf("connections: %+v", got)
		}
		if got.Resumed != 1 || got.Reset[wire.ResetChannelsChanged] != 1 {
			t.Errorf("resumed %d, not resumed %v", got.Resumed, got.Reset)
		}
		if got.Refused[wire.CodeUnknownType] != 1 || got.Refused[wire.CodeBadRequest] != 1 || got.TurnedAway[wire.CodeForbidden] != 1 {
			t.Errorf("refused %v, turned away %v", got.Refused, got.TurnedAway)
		}
		ends := uint64(0)
		for _, n := range got.Closed {
			ends += n
		}
		for _, n := range got.Left {
			ends += n
		}
		if ends != got.Connects {
			t.Errorf("%d connections, %d ends", got.Connects, ends)
		}
		if len(lags) != 1 {
			t.Errorf("lags %v", lags)
		}
	}, lagged)
}

func TestTheLongestWaitForAnAckIsSeen(t *testing.T) {
	f := &tape{}
	bubble(t, func() Rooms { return f }, func(t *testing.T, s *memory) {
		p := s.live(t, time.Hour)
		for range 3 {
			f.add(delta("public", event.ToRoom(), "x"))
		}
		time.Sleep(7 * time.Second)
		if got := s.Stats(); got.Held != 1 || got.HeldFor != 7*time.Second {
			t.Errorf("held %d for %v", got.Held, got.HeldFor)
		}
		p.until("events")
		p.send(frame{"type": "ack", "n": 2})
		synctest.Wait()
		if got := s.Stats(); got.Held != 0 || got.HeldFor != 0 {
			t.Errorf("after an ack: held %d for %v", got.Held, got.HeldFor)
		}
	}, func(c *Config) { c.Limits.Window = 2 })
}

// bomb is a tape that panics with what somebody said.
type bomb struct {
	tape
	inRead, inDo atomic.Bool
}

func (b *bomb) Read(room event.RoomID, after event.Seq, most int) ([]*event.Entry, event.Seq, error) {
	if b.inRead.Load() {
		panic("secret words")
	}
	return b.tape.Read(room, after, most)
}

func (b *bomb) Do(room event.RoomID, cmd event.Command, done func(event.Reply, error)) {
	if _, ok := cmd.(event.Submit); ok && b.inDo.Load() {
		panic("secret words")
	}
	b.tape.Do(room, cmd, done)
}

func TestAPanicInAConnectionEndsThatConnectionOnly(t *testing.T) {
	for _, where := range []string{"reader", "writer"} {
		t.Run(where, func(t *testing.T) {
			f := &bomb{}
			core, logs := observer.New(zap.DebugLevel)
			bubble(t, func() Rooms { return f }, func(t *testing.T, s *memory) {
				p := s.live(t, time.Hour)
				if where == "reader" {
					f.inDo.Store(true)
					p.send(frame{"type": "input", "id": "i1", "channel": "public", "text": "secret words", "modality": "text"})
					p.closed(wire.CloseInternal)
				} else {
					f.inRead.Store(true)
					f.add(delta("public", event.ToRoom(), "x"))
					if _, err := p.read(); err == nil {
						t.Error("the connection whose writer panicked goes on")
					}
				}
				synctest.Wait()
				f.inDo.Store(false)
				f.inRead.Store(false)
				if got := s.Stats(); got.Panics != 1 || got.Closed[wire.CloseInternal] != got.Panics {
					t.Errorf("%d panics, closed %v", got.Panics, got.Closed)
				}
				again := s.live(t, time.Hour)
				again.send(frame{"type": "input", "id": "i2", "channel": "public", "text": "hello", "modality": "text"})
				again.until("accepted")
			}, func(c *Config) { c.Logger = zap.New(core) })
			if logs.FilterMessageSnippet("panic in a connection").Len() == 0 {
				t.Error("the operator was not told")
			}
			for _, l := range logs.All() {
				for _, x := range l.Context {
					if strings.Contains(x.String, "secret") || x.Interface != nil && strings.Contains(string(x.Interface.([]byte)), "secret") {
						t.Errorf("%s: %s holds the panic's value", l.Message, x.Key)
					}
				}
			}
		})
	}
}
