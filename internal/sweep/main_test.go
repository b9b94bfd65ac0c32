package sweep

import (
	"flag"
	"math/rand/v2"
	"testing"

	"go.uber.org/goleak"
)

var (
	fullFlag   = flag.Bool("full", false, "sweep every point, not a sample")
	seedFlag   = flag.Uint64("seed", 0, "seed of the sweeps; 0: a new one each time")
	roundsFlag = flag.Int("rounds", 1, "how many seeds the crash sweep plays")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// seed returns the seed of a test and prints it.
func seed(t *testing.T) uint64 {
	n := *seedFlag
	if n == 0 {
		n = rand.Uint64()
	}
	t.Logf("run with -seed=%d", n)
	return n
}

// dice returns a source of randomness for one purpose of a seeded test.
func dice(seed, purpose uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, purpose)) }
