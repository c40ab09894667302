package config

import (
	"strings"
	"testing"
)

func TestAutoHashSizeGoesByBackendsAndWeights(t *testing.T) {
	equal := func(n int) (b []Backend) {
		for range n {
			b = append(b, Backend{Weight: 1})
		}
		return b
	}
	for _, c := range []struct {
		name     string
		backends []Backend
		want     int
	}{
		{"one backend", equal(1), 1021},
		{"ten", equal(10), 1021},
		{"eleven", equal(11), 8191},
		{"81", equal(81), 8191},
		{"82", equal(82), 65537},
		{"655", equal(655), 65537},
		{"656", equal(656), 524287},
		{"the most", equal(maxBackends), 524287},
		{"larger weights of one proportion", []Backend{{Weight: 1000}, {Weight: 1000}}, 1021},
		{"1:1000", []Backend{{Weight: 1}, {Weight: 1000}}, 8191},
		{"1:1000:1000", []Backend{{Weight: 1}, {Weight: 1000}, {Weight: 1000}}, 65537},
		{"no weight at all", []Backend{{}, {}}, 1021},
		{"a state does not count", []Backend{{Weight: 1, State: StateInactive}, {Weight: 1}}, 1021},
	} {
		if got := autoHashSize(c.backends); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
	for _, size := range hashSizes {
		if !prime(size) {
			t.Errorf("%d is not a prime", size)
		}
	}
	for _, given := range []string{"", "hash_size: auto", "hash_size: 65537"} {
		c, err := Parse("test.yaml", []byte("devices: [{name: gw0}]\nservices:\n  - name: web\n    source: client\n    "+
			given+"\n    address: 198.18.1.1:80\n    backends: [{name: b11, address: 198.18.2.11:80}, {name: b12, address: 198.18.2.12:80}]\n"))
		if err != nil {
			t.Fatal(err)
		}
		if want := map[bool]int{true: 65537, false: 1021}[strings.Contains(given, "65537")]; c.Services[0].HashSize != want {
			t.Errorf("%q is %d", given, c.Services[0].HashSize)
		}
	}
}
