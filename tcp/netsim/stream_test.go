package netsim

import "testing"

// A piece as long as pieces may be is the stream's, wherever it begins.
func TestLongestPieceOfAStream(t *testing.T) {
	var s stream
	for _, off := range []uint64{0, 1, tileLen - 1, 5 * tileLen / 2} {
		for i, x := range s.at(off, tileMore) {
			if want := tile[(off+uint64(i))%tileLen]; x != want {
				t.Fatalf("byte %d from %d is %d, want %d", i, off, x, want)
			}
		}
	}
}
