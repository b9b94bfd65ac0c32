package bench

import (
	"errors"
	"math"
	"slices"
)

// slope is a trend of samples, per unit of x, with the interval in which it lies
// with 95 % confidence.
type slope struct{ Value, Low, High float64 }

// grows reports whether the interval lies above 0: the samples rise, and chance
// does not explain it.
func (s slope) grows() bool { return s.Low > 0 }

// theilSen estimates the slope of y over x as the median of the slopes of all
// pairs, which outliers do not move. The interval is Sen's, from the normal
// approximation of Kendall's statistic, ties counted; it takes the samples to be
// independent of each other. At least 10 samples are needed, at distinct x.
func theilSen(x, y []float64) (slope, error) {
	n := len(x)
	if n != len(y) || n < 10 {
		return slope{}, errors.New("a trend needs at least 10 samples")
	}
	slopes := make([]float64, 0, n*(n-1)/2)
	for i := range n {
		for j := i + 1; j < n; j++ {
			if x[i] == x[j] {
				return slope{}, errors.New("a trend needs samples at distinct instants")
			}
			slopes = append(slopes, (y[j]-y[i])/(x[j]-x[i]))
		}
	}
	slices.Sort(slopes)
	at := func(rank float64) float64 { // from 1; between two ranks, between their values
		rank = min(max(rank, 1), float64(len(slopes)))
		low := int(rank)
		v := slopes[low-1]
		if low < len(slopes) {
			v += (rank - float64(low)) * (slopes[low] - v)
		}
		return v
	}
	total := float64(len(slopes))
	half := 1.959964 * math.Sqrt(kendallVariance(y)) / 2
	return slope{Value: at((total + 1) / 2), Low: at(total/2 - half), High: at(total/2 + half + 1)}, nil
}

// kendallVariance is the variance of Kendall's S when there is no trend.
func kendallVariance(y []float64) float64 {
	of := func(n float64) float64 { return n * (n - 1) * (2*n + 5) }
	v := of(float64(len(y)))
	count := map[float64]int{}
	for _, value := range y {
		count[value]++
	}
	for _, ties := range count {
		v -= of(float64(ties))
	}
	return v / 18
}
