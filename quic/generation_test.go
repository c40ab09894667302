package quic

import "testing"

// TestGenerationOfPackets has packets of both header forms, with IDs of this generation, of another one with the same secret, of one with
// another secret, and with random ones.
func TestGenerationOfPackets(t *testing.T) {
	generation := func(number uint8, secret string) *Generation {
		g, err := NewGeneration(number, []byte(secret))
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	const secret = "0123456789abcdef"
	own := generation(9, secret)
	short := func(id []byte) []byte { return append([]byte{0x41}, id...) }
	long := func(id []byte) []byte {
		b := append([]byte{0xe3, 0, 0, 0, 1, byte(len(id))}, id...)
		return append(b, 0) // no source connection ID
	}
	id := func(g *Generation) []byte {
		b := make([]byte, generationLength)
		if err := g.IDs().Fill(b); err != nil {
			t.Fatal(err)
		}
		return b
	}
	for range 1000 {
		random := make([]byte, generationLength)
		if err := randomID(random); err != nil {
			t.Fatal(err)
		}
		random[0] = 3
		for _, form := range []func([]byte) []byte{short, long} {
			for want, id := range map[uint8][]byte{3: id(generation(3, secret)), 9: id(generation(3, "another secret 16")), 0: id(generation(0, secret))} {
				if got := own.of(form(id)); got != want {
					t.Fatalf("% x is of generation %d, want %d", form(id), got, want)
				}
			}
			if got := own.of(form(random)); got != 9 {
				t.Fatalf("a random ID is of generation %d", got)
			}
			if got := own.of(form(id(own))); got != 9 {
				t.Fatalf("an ID of its own is of generation %d", got)
			}
		}
	}
	whole := long(id(generation(3, secret)))
	for n := range whole[:len(whole)-1] {
		if got := own.of(whole[:n]); got != 9 {
			t.Errorf("%d bytes are of generation %d", n, got)
		}
	}
	whole[5] = 13
	if got := own.of(whole); got != 9 {
		t.Errorf("an ID of another length is of generation %d", got)
	}
}
