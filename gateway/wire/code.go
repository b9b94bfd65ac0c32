package wire

import (
	"fmt"

	"parley/event"
)

// Code is the word by which an error frame or an HTTP problem says what was refused.
type Code string

// The codes.
const (
	CodeBadRequest           Code = "bad_request"
	CodeUnknownType          Code = "unknown_type"
	CodeInvalidText          Code = "invalid_text"
	CodeBlankText            Code = "blank_text"
	CodeTextTooLong          Code = "text_too_long"
	CodeForbidden            Code = "forbidden"
	CodeChannelForbidden     Code = "channel_forbidden"
	CodeDisclosureRequired   Code = "disclosure_required"
	CodeDisclosureEmpty      Code = "disclosure_empty"
	CodeNoAgent              Code = "no_agent"
	CodeAgentUnknown         Code = "agent_unknown"
	CodeInputConflict        Code = "input_conflict"
	CodeRunConflict          Code = "run_conflict"
	CodeQueueFull            Code = "queue_full"
	CodeNotWaiting           Code = "not_waiting"
	CodeAlreadyResolved      Code = "already_resolved"
	CodeContinuationMismatch Code = "continuation_mismatch"
	CodeSupersessionInvalid  Code = "supersession_invalid"
	CodeProtectedSpeech      Code = "protected_speech"
	CodeNotFound             Code = "not_found"
	CodeRateLimited          Code = "rate_limited"
	CodeUnavailable          Code = "unavailable"
	CodeRoomFailed           Code = "room_failed"
	CodeInternal             Code = "internal"
	CodeCursorInvalid        Code = "cursor_invalid"
	CodeCursorExpired        Code = "cursor_expired"
	CodeCursorAhead          Code = "cursor_ahead"
)

// CodeInfo is a row of the table of codes.
type CodeInfo struct {
	Code   Code
	Reason event.Reason // the reason of a room or shell that it stands for; 0: only the wire has it
	Status int          // of an HTTP problem
	Retry  bool         // whether the same request may succeed later, unchanged
}

// Codes is the one table of error codes.
var Codes = []CodeInfo{
	{CodeBadRequest, event.BadRequest, 400, false},
	{CodeUnknownType, 0, 400, false},
	{CodeInvalidText, event.InvalidText, 400, false},
	{CodeBlankText, event.BlankText, 400, false},
	{CodeTextTooLong, event.TextTooLong, 413, false},
	{CodeForbidden, event.Forbidden, 403, false},
	{CodeChannelForbidden, event.ChannelForbidden, 403, false},
	{CodeDisclosureRequired, event.DisclosureRequired, 403, false},
	{CodeDisclosureEmpty, event.DisclosureEmpty, 403, false},
	{CodeNoAgent, event.NoAgent, 409, false},
	{CodeAgentUnknown, event.AgentUnknown, 404, false},
	{CodeInputConflict, event.InputConflict, 409, false},
	{CodeRunConflict, event.RunConflict, 409, true},
	{CodeQueueFull, event.QueueFull, 429, true},
	{CodeNotWaiting, event.NotWaiting, 409, false},
	{CodeAlreadyResolved, event.AlreadyResolved, 409, false},
	{CodeContinuationMismatch, event.ContinuationMismatch, 409, false},
	{CodeSupersessionInvalid, event.SupersessionInvalid, 409, false},
	{CodeProtectedSpeech, event.ProtectedSpeech, 409, true},
	{CodeNotFound, event.NotFound, 404, false},
	{CodeRateLimited, event.RateLimited, 429, true},
	{CodeUnavailable, event.Unavailable, 503, true},
	{CodeRoomFailed, event.RoomFailed, 503, true},
	{CodeInternal, event.Internal, 500, false},
	{CodeCursorInvalid, event.CursorInvalid, 400, false},
	{CodeCursorExpired, event.CursorExpired, 410, false},
	{CodeCursorAhead, event.CursorAhead, 400, false},
}

// CodeOf returns the row of a reason. A reason without a row is a fault of the
// program and is shown as internal.
func CodeOf(r event.Reason) CodeInfo {
	for _, c := range Codes {
		if c.Reason == r && r != 0 {
			return c
		}
	}
	return Codes[len(Codes)-4] // internal; held by a test
}

// StatusOf returns the status of an HTTP problem with that code.
func StatusOf(c Code) int {
	for _, i := range Codes {
		if i.Code == c {
			return i.Status
		}
	}
	return 500
}

// ErrorOf returns the error frame for a refusal. What is not a refusal is a
// fault of the server, of which the client learns nothing but that.
func ErrorOf(ref string, err error) Error {
	r, ok := event.AsRefusal(err)
	if !ok {
		return Error{Ref: ref, Code: CodeInternal, Message: "The server failed to handle the request."}
	}
	return Error{
		Ref: ref, Code: CodeOf(r.Reason).Code, Message: r.Message, Run: string(r.Run), RetryMs: r.Retry.Milliseconds(),
	}
}

// Close is the code of a WebSocket close frame.
type Close int

// The close codes.
const (
	CloseNormal             Close = 1000
	CloseProtocolError      Close = 1002
	CloseUnsupported        Close = 1003 // a binary frame
	CloseInvalidUTF8        Close = 1007
	CloseTooLarge           Close = 1009
	CloseInternal           Close = 1011
	CloseRestarting         Close = 1012 // after goaway
	CloseOverloaded         Close = 1013
	CloseGap                Close = 4000 // sent by a client that saw a gap in n
	CloseBadRequest         Close = 4400
	CloseUnauthenticated    Close = 4401
	CloseForbidden          Close = 4403
	CloseRoomNotFound       Close = 4404
	CloseVersionUnsupported Close = 4406
	CloseHelloTimeout       Close = 4408 // no hello, or no pong
	CloseReplaced           Close = 4409
	CloseRoomClosed         Close = 4410
	CloseTokenExpired       Close = 4420
	CloseSlowConsumer       Close = 4421
	CloseMoved              Close = 4423
	CloseRateLimited        Close = 4429
)

// CloseInfo is a row of the table of close codes.
type CloseInfo struct {
	Close Close
	Word  string // the reason in the close frame
	Retry bool   // whether a client may connect again
}

// Closes is the one table of close codes.
var Closes = []CloseInfo{
	{CloseNormal, "normal", true},
	{CloseProtocolError, "protocol_error", false},
	{CloseUnsupported, "unsupported_data", false},
	{CloseInvalidUTF8, "invalid_utf8", false},
	{CloseTooLarge, "frame_too_large", false},
	{CloseInternal, "internal", true},
	{CloseRestarting, "restarting", true},
	{CloseOverloaded, "overloaded", true},
	{CloseGap, "gap", true},
	{CloseBadRequest, "bad_request", false},
	{CloseUnauthenticated, "unauthenticated", false},
	{CloseForbidden, "forbidden", false},
	{CloseRoomNotFound, "room_not_found", false},
	{CloseVersionUnsupported, "version_unsupported", false},
	{CloseHelloTimeout, "hello_timeout", true},
	{CloseReplaced, "replaced", false},
	{CloseRoomClosed, "room_closed", false},
	{CloseTokenExpired, "token_expired", true},
	{CloseSlowConsumer, "slow_consumer", true},
	{CloseMoved, "moved", true},
	{CloseRateLimited, "rate_limited", true},
}

// Word returns the reason that goes with the code.
func (c Close) Word() string {
	for _, i := range Closes {
		if i.Close == c {
			return i.Word
		}
	}
	return fmt.Sprintf("code_%d", int(c))
}
