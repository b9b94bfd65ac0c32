package bench

import (
	"flag"
	"math"
	"math/rand/v2"
	"testing"
)

var trendSeed = flag.Uint64("trend.seed", 7, "seed of the samples of TestTrendCoverage")

// TestTheilSen: the slope of samples whose slope is known, and whether it is held to grow.
func TestTheilSen(t *testing.T) {
	line := func(n int, f func(i int) float64) (x, y []float64) {
		for i := range n {
			x, y = append(x, float64(i)), append(y, f(i))
		}
		return x, y
	}
	for name, c := range map[string]struct {
		f     func(int) float64
		value float64
		grows bool
	}{
		"a line":                 {func(i int) float64 { return 3 + 2*float64(i) }, 2, true},
		"a line down":            {func(i int) float64 { return -0.5 * float64(i) }, -0.5, false},
		"nothing":                {func(int) float64 { return 5 }, 0, false},
		"a sawtooth":             {func(i int) float64 { return float64(i % 4) }, 0, false},
		"a line with an outlier": {func(i int) float64 { return float64(i) + map[int]float64{7: 1e6}[i] }, 1, true},
		"a saw on a slope":       {func(i int) float64 { return float64(i%4) + 0.5*float64(i) }, 0.5, true},
	} {
		s, err := theilSen(line(24, c.f))
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(s.Value-c.value) > 1e-9 || s.grows() != c.grows || s.Low > s.Value || s.High < s.Value {
			t.Errorf("%s: %+v, want %v, growing %v", name, s, c.value, c.grows)
		}
	}
	// (10·9·25 - 2·1·9 - 3·2·11) / 18
	if v := kendallVariance([]float64{1, 1, 2, 2, 2, 3, 4, 5, 6, 7}); math.Abs(v-2166.0/18) > 1e-9 {
		t.Errorf("the variance with ties is %v", v)
	}
	if _, err := theilSen(line(9, func(i int) float64 { return float64(i) })); err == nil {
		t.Error("a trend was seen in nine samples")
	}
	if _, err := theilSen(make([]float64, 12), make([]float64, 12)); err == nil {
		t.Error("a trend was seen at one instant")
	}
}

// TestTrendCoverage: of noise around a line the interval misses the slope in
// about one of twenty cases.
func TestTrendCoverage(t *testing.T) {
	t.Logf("seed %d", *trendSeed)
	random := rand.New(rand.NewPCG(*trendSeed, 1))
	const tries, n, truth = 1000, 50, 0.03
	missed := 0
	for range tries {
		var x, y []float64
		for i := range n {
			x, y = append(x, float64(i)), append(y, truth*float64(i)+random.NormFloat64())
		}
		s, err := theilSen(x, y)
		if err != nil {
			t.Fatal(err)
		}
		if truth < s.Low || truth > s.High {
			missed++
		}
	}
	if missed < tries/50 || missed > tries/11 {
		t.Errorf("the interval of 95 %% missed the slope in %d of %d cases", missed, tries)
	}
}
