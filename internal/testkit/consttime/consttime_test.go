package consttime

import (
	"math/rand/v2"
	"os"
	"testing"
)

var sink int

// equal compares as code must not that works on secrets.
//
//go:noinline
func equal(a, b []byte) bool {
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// equalAlways compares all bytes.
//
//go:noinline
func equalAlways(a, b []byte) bool {
	var differ byte
	for i := range a {
		differ |= a[i] ^ b[i]
	}
	return differ == 0
}

func comparison(compare func(a, b []byte) bool) func(int) func() {
	return func(secret int) func() {
		a, b := make([]byte, 64), make([]byte, 64)
		a[7*secret] = 1
		return func() {
			if compare(a, b) {
				sink++
			}
		}
	}
}

func TestMain(m *testing.M) {
	Subject("equal", comparison(equal))
	Subject("equalAlways", comparison(equalAlways))
	os.Exit(Main(m))
}

// TestTimingThatDiffers is found, and the noise of two equal classes is not.
func TestTimingThatDiffers(t *testing.T) {
	for name, c := range map[string]struct {
		cost   [2]float64
		differ bool
	}{
		"same":    {[2]float64{100, 100}, false},
		"differs": {[2]float64{100, 101}, true},
	} {
		r := rand.New(rand.NewPCG(1, 2))
		var s [2]sample
		for i := range 20000 {
			class := i % 2
			cost := c.cost[class] + 5*r.Float64()
			if r.IntN(50) == 0 {
				cost *= 30 // an interrupt
			}
			s[class] = append(s[class], cost)
		}
		if worst := worstT(s); worst > limitT != c.differ {
			t.Errorf("%s: t is %.1f", name, worst)
		}
	}
}
