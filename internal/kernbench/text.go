package kernbench

// payload returns what writes the payload of packet i: random text, no two packets alike.
func payload(seed uint64, size string) func(i int, p []byte) {
	g := newGenerator(seed, "text"+size)
	block := make([]byte, 1<<20)
	for i := range block {
		block[i] = byte(' ' + g.IntN(95))
	}
	return func(_ int, p []byte) {
		at := g.IntN(len(block) - len(p))
		copy(p, block[at:])
	}
}
