package sketch

import "math"

// Distinct returns an estimate of how many different sources sent packets in this window. The estimator
// is that of Ertl, "New cardinality estimation algorithms for HyperLogLog sketches", 2017, section 3: it has
// no bias anywhere, so that neither a table of corrections nor a switch to linear counting is needed for
// small numbers (Heule, Nunkesser, Hall, 2013, have both).
func (s *Sketch) Distinct() float64 {
	m := float64(len(s.registers))
	top := 65 - s.precision // the highest rank
	var count [66]float64   // registers by rank
	for _, r := range s.registers {
		count[r]++
	}
	z := m * tau(1-count[top]/m)
	for rank := top - 1; rank >= 1; rank-- {
		z = (z + count[rank]) / 2
	}
	z += m * sigma(count[0]/m)
	return m * m / (2 * math.Ln2 * z)
}

// sigma is x + sum over k >= 1 of x^(2^k) * 2^(k-1): what the empty registers add, for x of them.
func sigma(x float64) float64 {
	if x == 1 {
		return math.Inf(1)
	}
	sum, weight := x, 1.0
	for last := -1.0; sum != last; weight *= 2 {
		x *= x
		last = sum
		sum += x * weight
	}
	return sum
}

// tau is (1 - x - sum over k >= 1 of (1 - x^(2^-k))^2 * 2^-k) / 3: what the registers at their highest
// rank add, for 1-x of them.
func tau(x float64) float64 {
	if x == 0 || x == 1 {
		return 0
	}
	sum, weight := 1-x, 1.0
	for last := -1.0; sum != last; {
		x = math.Sqrt(x)
		weight /= 2
		last = sum
		sum -= (1 - x) * (1 - x) * weight
	}
	return sum / 3
}
