package clienthello

import "testing"

func BenchmarkPeekAndJA4(b *testing.B) {
	raw := stream(b, chromeConfig)
	var p Peeker
	var fingerprint [36]byte
	b.ReportAllocs()
	for b.Loop() {
		p.Reset()
		h, err := p.Parse(raw)
		if err != nil {
			b.Fatal(err)
		}
		h.AppendJA4(fingerprint[:0], 't')
	}
}
