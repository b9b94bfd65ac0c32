package client

import "time"

// The times and bounds of the protocol that a client keeps by itself.
const (
	greetingTime = 15 * time.Second // for a socket to open, and for ready to arrive
	silenceGrace = 10 * time.Second // beyond the ping interval, after which silence is death
	ackInterval  = time.Second
	ackItems     = 64
	refreshRetry = 10 * time.Second // after a token source failed while the old token still holds
	defaultRetry = time.Second      // after a passing refusal that does not say when
	// Remembered ids of items and of ended runs. It is many times the window, so
	// that what a resume repeats is always known.
	remembered = 4096
)
