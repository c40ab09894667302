package websocket

import (
	"math/rand/v2"
	"testing"
	"unicode/utf8"
)

// validPrefix reports whether p can be continued to valid UTF-8, by trial.
func validPrefix(p []byte) bool {
	if utf8.Valid(p) {
		return true
	}
	for cut := 1; cut <= 3 && cut <= len(p); cut++ {
		head, tail := p[:len(p)-cut], p[len(p)-cut:]
		if !utf8.Valid(head) {
			continue
		}
		// The second byte alone has narrow ranges.
		for second := 0x80; second <= 0xBF; second++ {
			whole := append([]byte(nil), tail...)
			if len(whole) == 1 {
				whole = append(whole, byte(second))
			}
			for len(whole) < 4 && !utf8.Valid(whole) {
				whole = append(whole, 0x80)
			}
			if utf8.Valid(whole) && utf8.RuneCount(whole) == 1 {
				return true
			}
		}
	}
	return false
}

func TestUTF8FailsAtTheFirstImpossibleByte(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	// Bytes at the borders of all ranges are likelier than others.
	border := []byte{0, 0x41, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xc1, 0xc2, 0xdf, 0xe0, 0xe1, 0xec, 0xed, 0xee, 0xef, 0xf0, 0xf1, 0xf3, 0xf4, 0xf5, 0xff}
	for range 200_000 {
		p := make([]byte, rnd.IntN(9))
		for i := range p {
			p[i] = border[rnd.IntN(len(border))]
		}
		for n := range len(p) + 1 {
			var c utf8Checker
			cut := rnd.IntN(n + 1)
			got := c.write(p[:cut]) && c.write(p[cut:n])
			if want := validPrefix(p[:n]); got != want {
				t.Fatalf("% x cut at %d: %v, want %v", p[:n], cut, got, want)
			}
			if got && c.complete() != utf8.Valid(p[:n]) {
				t.Fatalf("% x: complete is %v", p[:n], c.complete())
			}
		}
	}
}

func TestUTF8TakesEveryCharacterByteByByte(t *testing.T) {
	for r := rune(0); r <= utf8.MaxRune; r++ {
		if !utf8.ValidRune(r) {
			continue
		}
		var c utf8Checker
		for _, b := range utf8.AppendRune(nil, r) {
			if !c.write([]byte{b}) {
				t.Fatalf("%U refused", r)
			}
		}
		if !c.complete() {
			t.Fatalf("%U not complete", r)
		}
	}
}
