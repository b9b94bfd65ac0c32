package client

import "parley/gateway/wire"

// action is what a client does after a connection ended (K5).
type action uint8

const (
	retry action = iota + 1 // after a wait of the backoff
	fresh                   // at once: only the token was too old
	stop                    // the same would happen again
)

// closeAction decides by the code. What the table of the protocol does not know
// stops when it is 44xx; all else, 1001, 1005 and 1006 of a failed network
// included, is tried again.
func closeAction(c wire.Close) action {
	if c == wire.CloseTokenExpired {
		return fresh
	}
	for _, i := range wire.Closes {
		switch {
		case i.Close != c:
		case i.Retry:
			return retry
		default:
			return stop
		}
	}
	if c >= 4400 && c <= 4499 {
		return stop
	}
	return retry
}
