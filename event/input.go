package event

import (
	"time"
	"unicode/utf8"
)

// Modality is how a final input came about.
type Modality uint8

// The modalities.
const (
	Speech Modality = iota + 1
	Text
)

var modalityNames = [...]string{Speech: "speech", Text: "text"}

// String returns the wire word of m.
func (m Modality) String() string { return word(modalityNames[:], int(m)) }

// ParseModality returns the modality with that wire word.
func ParseModality(s string) (Modality, bool) { return parse[Modality](modalityNames[:], s) }

// BusyPolicy says what an input does when a run is open on its channel (A7).
// The zero value leaves the choice to the channel.
type BusyPolicy uint8

// The busy policies.
const (
	BusyDefault BusyPolicy = iota
	BusySupersede
	BusyAppend
	BusyQueue
	BusyReject
)

var busyNames = [...]string{BusySupersede: "supersede", BusyAppend: "append", BusyQueue: "queue", BusyReject: "reject"}

// String returns the wire word of p.
func (p BusyPolicy) String() string { return word(busyNames[:], int(p)) }

// ParseBusyPolicy returns the policy with that wire word.
func ParseBusyPolicy(s string) (BusyPolicy, bool) { return parse[BusyPolicy](busyNames[:], s) }

// Admission says what became of an input, in its receipt and its transcript row (A7).
type Admission uint8

// The admissions.
const (
	Started Admission = iota + 1
	Continued
	Merged
	Queued
)

var admissionNames = [...]string{Started: "started", Continued: "continued", Merged: "merged", Queued: "queued"}

// String returns the wire word of a.
func (a Admission) String() string { return word(admissionNames[:], int(a)) }

// ContinuationRef names the waiting run that an input answers (W2). One of
// Request and Token is set. It correlates and never authorizes.
type ContinuationRef struct {
	Run     RunID
	Request RequestID
	Token   string
}

// FinalInput is one finished utterance with a stable id (A1). Zero members were not given.
type FinalInput struct {
	ID           InputID
	Text         string
	Modality     Modality
	Lang         string
	Agents       []AgentID // addressed, in order of preference
	Disclosure   Disclosure
	OnBusy       BusyPolicy
	Continuation *ContinuationRef
	Deadline     *time.Duration // nil: the room's
	EndedAt      time.Time      // when the utterance ended, as the client says
}

// MaxText is the greatest size of an input's text, in bytes (A1).
const MaxText = 8 << 10

// MaxInputID is the greatest length of an input id, in bytes.
const MaxInputID = 128

// CheckText holds A1 for the text of an input: valid UTF-8, not blank after
// trimming, at most MaxText bytes, no control characters but newline and tab
// (C0, DEL and C1). The text itself is never changed.
func CheckText(s string) error {
	if len(s) > MaxText {
		return Refuse(TextTooLong, "the text has %d bytes; at most %d are allowed", len(s), MaxText)
	}
	if !utf8.ValidString(s) {
		return Refuse(InvalidText, "the text is not valid UTF-8")
	}
	for _, r := range s {
		if r < 0x20 && r != '\n' && r != '\t' || r >= 0x7f && r <= 0x9f {
			return Refuse(InvalidText, "the text holds the control character U+%04X; only newline and tab are allowed", r)
		}
	}
	if Blank(s) {
		return Refuse(BlankText, "the text is blank; send at least one visible character")
	}
	return nil
}
