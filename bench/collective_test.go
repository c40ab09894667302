package main

import "testing"

func TestCollectiveOutputsAreRead(t *testing.T) {
	s, err := parseCollective([]byte(`{"median_us": 50.5, "min_us": 1, "cpu_us": 200}`))
	if err != nil || s.Rate() < 19801 || s.Rate() > 19803 || s.Cost() != 200e3 {
		t.Error(s, err)
	}
	for _, out := range []string{"", "{}", `{"median_us": 0}`, "mpirun: not found"} {
		if _, err := parseCollective([]byte(out)); err == nil {
			t.Errorf("%q passes", out)
		}
	}
}
