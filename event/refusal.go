package event

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
)

// Reason is why a command was refused. gateway/wire gives each its wire code.
type Reason uint8

// The reasons for which a room or its shell refuses a command.
const (
	BadRequest Reason = iota + 1
	InvalidText
	BlankText
	TextTooLong
	Forbidden
	ChannelForbidden
	DisclosureRequired
	DisclosureEmpty
	NoAgent
	AgentUnknown
	InputConflict
	RunConflict
	QueueFull
	NotWaiting
	AlreadyResolved
	ContinuationMismatch
	SupersessionInvalid
	ProtectedSpeech
	NotFound
	Unavailable
	RoomFailed
	Internal
	CursorInvalid
	CursorExpired
	CursorAhead
	RateLimited
)

// Refusal is a command that was refused before anything was written. Message
// tells a person what to do and never holds what somebody else said or is.
type Refusal struct {
	Reason  Reason
	Message string
	Run     RunID         // the run in the way, only when the caller may see it (A7)
	Retry   time.Duration // when to try again; zero: do not, or at will
}

// Error implements error.
func (r *Refusal) Error() string { return r.Message }

// Refuse makes a Refusal.
func Refuse(why Reason, format string, args ...any) *Refusal {
	return &Refusal{Reason: why, Message: fmt.Sprintf(format, args...)}
}

// AsRefusal returns the refusal in an error's chain.
func AsRefusal(err error) (*Refusal, bool) {
	var r *Refusal
	ok := errors.As(err, &r)
	return r, ok
}

// Blank reports whether a text has no visible character: nothing but white space
// and characters without a width of their own, such as joiners and marks of direction.
func Blank(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsSpace(r) && !unicode.Is(unicode.Cf, r) })
}
