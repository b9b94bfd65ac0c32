package client

import "time"

// The bounds of waiting between tries (K5).
const (
	MinWait = 300 * time.Millisecond
	MaxWait = 20 * time.Second
	// DefaultBudget is the number of tries without progress before a client stops.
	DefaultBudget = 30
)

// backoff counts tries and draws the waits between them. Owned by one Machine.
type backoff struct {
	budget int
	random func() float64
	tries  int
}

// next takes one try from the budget and returns the wait before it, drawn
// evenly from MinWait to a ceiling that doubles with each try up to MaxWait.
// It reports false when the budget is used up.
func (b *backoff) next() (time.Duration, bool) {
	if b.tries >= b.budget {
		return 0, false
	}
	b.tries++
	ceiling := min(MaxWait, MinWait<<min(b.tries, 16))
	return MinWait + time.Duration(b.random()*float64(ceiling-MinWait)), true
}

// progress restores the budget and the shortest wait.
func (b *backoff) progress() { b.tries = 0 }
