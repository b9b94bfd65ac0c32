package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/gorilla/websocket"

	"parley/gateway/wire"
)

// writeTime bounds a write: a socket that takes nothing for that long is dead.
const writeTime = 10 * time.Second

func jitter() float64 { return rand.Float64() }

// effects carries out what the machine wants.
func (r *run) effects() {
	for {
		e, ok := r.machine.Next()
		if !ok {
			return
		}
		r.carryOut(e)
	}
}

func (r *run) carryOut(e Effect) {
	o := &r.config.Observer
	switch e := e.(type) {
	case FetchToken:
		r.work.Go(r.fetchToken)
	case Open:
		r.open(e)
	case Send:
		r.send(e)
	case Close:
		if e.Conn == r.conn {
			r.closeSocket(e.Code)
		}
	case SaveCursor:
		if s := r.config.Storage; s != nil {
			r.stored(s.SaveCursor(context.WithoutCancel(r.ctx), e.Cursor))
		}
	case SaveOutbox:
		if s := r.config.Storage; s != nil {
			r.stored(s.SaveOutbox(context.WithoutCancel(r.ctx), e.Inputs))
		}
	case InputAccepted:
		r.answerInput(e.ID, receipt{Accepted: e.Accepted})
		call(o.Accepted, e.Accepted)
	case InputDeferred:
		if o.Deferred != nil {
			o.Deferred(e.ID, e.Code)
		}
	case InputRefused:
		r.answerInput(e.ID, receipt{err: e.Err})
		if o.Refused != nil {
			o.Refused(e.ID, e.Err)
		}
	case RequestDone:
		r.answerRequest(e.Ref, reply{frame: e.Result})
	case RequestFailed:
		r.answerRequest(e.Ref, reply{err: e.Err})
	case StatusChanged:
		r.status.Store(&e.Status)
		call(o.Status, e.Status)
	case Faulted:
		call(o.Fault, e.Err)
	case Received:
		call(o.Other, e.Other)
	default:
		panic(fmt.Sprintf("client: effect %T is not carried out", e))
	}
}

func call[T any](f func(T), v T) {
	if f != nil {
		f(v)
	}
}

// stored ends the run when the storage failed: without it the promises of
// cursor and outbox do not hold over a restart.
func (r *run) stored(err error) {
	if err != nil && r.failed == nil {
		r.failed = fmt.Errorf("client: save: %w", err)
	}
}

func (r *run) fetchToken() {
	token, err := r.config.Token(r.ctx)
	r.tell(func() {
		if err != nil {
			r.machine.TokenFailed(time.Now(), err)
			return
		}
		r.machine.Token(time.Now(), token)
	})
}

// open dials and then reads, on a goroutine that ends with its connection.
func (r *run) open(e Open) {
	ctx, cancel := context.WithCancel(r.ctx)
	r.conn, r.giveUp = e.Conn, cancel
	r.work.Go(func() {
		defer cancel()
		header := http.Header{"Authorization": {"Bearer " + e.Token}}
		ws, resp, err := r.dialer.DialContext(ctx, r.address, header) //nolint:bodyclose // the dialer keeps the body in memory
		if err != nil {
			code, reason, after := refusal(resp, err)
			r.tell(func() { r.machine.Closed(time.Now(), e.Conn, code, reason, after) })
			return
		}
		defer ws.Close()
		if ws.Subprotocol() != wire.Subprotocol {
			r.tell(func() {
				r.machine.Closed(time.Now(), e.Conn, wire.CloseVersionUnsupported, "the server does not speak "+wire.Subprotocol, 0)
			})
			return
		}
		// Room for a server that counts its bounds a little otherwise.
		ws.SetReadLimit(2 * wire.LargestMaxFrame)
		current := make(chan bool, 1)
		r.tell(func() {
			if e.Conn == r.conn && r.giveUp != nil {
				r.socket = ws
				r.machine.Opened(time.Now(), e.Conn)
				current <- true
				return
			}
			current <- false
		})
		select {
		case ok := <-current:
			if !ok {
				return
			}
		case <-r.ended:
			return
		}
		r.read(ws, e.Conn)
	})
}

func (r *run) read(ws *websocket.Conn, conn int) {
	for {
		kind, frame, err := ws.ReadMessage()
		if err != nil {
			code, reason := closeGone, ""
			var closed *websocket.CloseError
			if errors.As(err, &closed) {
				code, reason = wire.Close(closed.Code), closed.Text
			}
			r.tell(func() {
				r.machine.Closed(time.Now(), conn, code, reason, 0)
				if conn == r.conn {
					r.socket = nil
				}
			})
			return
		}
		if kind == websocket.TextMessage { // binary frames carry audio, which this client does not render
			r.tell(func() { r.machine.Frame(time.Now(), conn, frame) })
		}
	}
}

func (r *run) send(e Send) {
	if e.Conn != r.conn || r.socket == nil {
		return
	}
	err := r.socket.SetWriteDeadline(time.Now().Add(writeTime))
	if err == nil {
		err = r.socket.WriteMessage(websocket.TextMessage, e.Frame)
	}
	if err != nil {
		// What broke it may have been sent before by the server: its close frame
		// says more than a failed write, and the reader is about to find either.
		_ = r.socket.SetReadDeadline(time.Now().Add(time.Second))
		r.socket = nil
	}
}

// closeSocket leaves a connection. Its reader ends by itself; what it still sees is void.
func (r *run) closeSocket(code wire.Close) {
	if r.socket != nil {
		msg := websocket.FormatCloseMessage(int(code), code.Word())
		_ = r.socket.WriteControl(websocket.CloseMessage, msg, time.Now().Add(time.Second))
		r.socket.Close()
		r.socket = nil
	}
	if r.giveUp != nil {
		r.giveUp()
		r.giveUp = nil
	}
}

// refusal says what a handshake that failed means, as a close code would.
func refusal(resp *http.Response, err error) (wire.Close, string, time.Duration) {
	if resp == nil {
		return closeGone, err.Error(), 0
	}
	reason := "HTTP status " + strconv.Itoa(resp.StatusCode)
	switch resp.StatusCode {
	case http.StatusBadRequest, http.StatusUpgradeRequired:
		return wire.CloseBadRequest, reason, 0
	case http.StatusUnauthorized:
		var problem struct {
			Code string `json:"code"`
		}
		// The dialer keeps the beginning of the body in memory. A body that cannot be read tells nothing.
		if json.NewDecoder(resp.Body).Decode(&problem) == nil && problem.Code == wire.CloseTokenExpired.Word() {
			return wire.CloseTokenExpired, reason, 0
		}
		return wire.CloseUnauthenticated, reason, 0
	case http.StatusForbidden:
		return wire.CloseForbidden, reason, 0
	case http.StatusNotFound:
		return wire.CloseRoomNotFound, reason, 0
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
		if err != nil || seconds < 0 {
			seconds = 0
		}
		return wire.CloseOverloaded, reason, min(time.Duration(seconds)*time.Second, time.Minute)
	}
	return closeGone, reason, 0
}
