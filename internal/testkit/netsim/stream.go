package netsim

import (
	"bytes"
	"math/rand/v2"
)

// A stream of bytes that is known everywhere: byte i is tile[(i+base) % tileLen]. The length is a
// prime, so that bytes which are out of place by a segment, a window or a power of two show.
const (
	tileLen  = 65_521
	tileMore = 1 << 16 // a piece of any place so long lies in one piece
)

var tile = func() []byte {
	b := make([]byte, tileLen+tileMore)
	rng := rand.NewPCG(0x6d696c6c, 0x72616365)
	for i := range tileLen {
		b[i] = byte(rng.Uint64() >> 24)
	}
	for i := tileLen; i < len(b); i++ {
		b[i] = b[i-tileLen] // longer than a tile: copy would not see its own bytes
	}
	return b
}()

// stream is one direction of a flow.
type stream struct{ base uint64 }

// at lends n bytes, at most tileMore, from offset off on.
func (s stream) at(off uint64, n int) []byte {
	k := (s.base + off) % tileLen
	return tile[k : k+uint64(n)]
}

// mismatch returns the index of the first byte of b that is not what the stream has at off, -1 where all
// are.
func (s stream) mismatch(off uint64, b []byte) int {
	for done := 0; done < len(b); {
		n := min(len(b)-done, tileMore)
		want := s.at(off+uint64(done), n)
		if got := b[done : done+n]; !bytes.Equal(got, want) {
			for i := range got {
				if got[i] != want[i] {
					return done + i
				}
			}
		}
		done += n
	}
	return -1
}
