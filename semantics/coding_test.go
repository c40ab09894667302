package semantics

import (
	"strings"
	"testing"
)

func TestCodings(t *testing.T) {
	offer := []string{"zstd", "br", "gzip"}
	for accept, want := range map[string]string{
		"": "", "gzip": "gzip", "GZIP": "gzip", "x-gzip": "gzip", "gzip, deflate, br, zstd": "zstd br gzip", "gzip;q=1.0, br;q=0.9": "gzip br", "br ; q=0.5 , gzip ; Q=0.6": "gzip br",
		"*": "zstd br gzip", "*;q=0": "", "*;q=0, gzip": "gzip", "gzip;q=0, *": "zstd br", "identity": "", "identity;q=0": "", "identity;q=0, *": "zstd br gzip",
		"gzip;q=0.5, identity;q=0.6": "", "gzip;q=0.5, identity;q=0.5": "gzip", "gzip;q=0": "", "gzip;q=0.000": "", "gzip;q=0.001": "gzip", "gzip;q=1.001": "", "gzip;q=2": "", "gzip;q=0.1234": "",
		"gzip;q=": "", "gzip;q=x": "", "gzip;x=1": "", "gzip;;": "", ",,gzip,,": "gzip", "deflate, compress": "", "gzip br": "", "br;q=0.2, zstd;q=0.3, gzip;q=0.3": "zstd gzip br", "\tgzip\t": "gzip",
		strings.Repeat("a,", 10000) + "gzip": "gzip", "gzip;q=1;q=0": "", "gzip;q=.5": "", "brotli": "",
	} {
		if got := strings.Join(Codings(accept, offer), " "); got != want {
			t.Errorf("%.60q: %q, want %q", accept, got, want)
		}
	}
}

func FuzzCodings(f *testing.F) {
	f.Add("gzip;q=0.5, *;q=0")
	f.Fuzz(func(t *testing.T, accept string) {
		offer := []string{"a", "b", "c"}
		seen := map[string]bool{}
		for _, c := range Codings(accept, offer) {
			if seen[c] || !strings.Contains("abc", c) || quality(accept, c) <= 0 {
				t.Errorf("%q: %s", accept, c)
			}
			seen[c] = true
		}
	})
}
