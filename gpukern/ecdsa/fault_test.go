package ecdsa

import (
	"crypto/rand"
	"testing"
)

// TestFaultsAreFound spoils one number at a time, between the steps: the pass refuses all signatures.
func TestFaultsAreFound(t *testing.T) {
	const last = Lanes - 1
	flipBit := func(x element, lane int) { x[1][lane] ^= 1 << 17 }
	for name, fault := range map[string]struct {
		step  int // after this one
		spoil func(p *Pass)
	}{
		"private key":        {0, func(p *Pass) { flipBit(p.d, 0) }},
		"digits of a nonce":  {1, func(p *Pass) { flipBit(p.k, last) }},
		"nonce times R":      {1, func(p *Pass) { flipBit(p.kR, 3) }},
		"x of the sum":       {2, func(p *Pass) { flipBit(p.sum.x, 0) }},
		"y of the sum":       {2, func(p *Pass) { flipBit(p.sum.y, last) }},
		"z of the sum":       {2, func(p *Pass) { flipBit(p.sum.z, 5) }},
		"z is 0":             {2, func(p *Pass) { clear(p.sum.z) }},
		"sign of a point":    {2, func(p *Pass) { p.odd[2] ^= 1 }},
		"r":                  {3, func(p *Pass) { flipBit(p.r, 0) }},
		"r is 0":             {3, func(p *Pass) { clear(p.r) }},
		"x":                  {3, func(p *Pass) { flipBit(p.x, last) }},
		"y":                  {3, func(p *Pass) { flipBit(p.y, 0) }},
		"s":                  {4, func(p *Pass) { flipBit(p.s, 0) }},
		"s is 0":             {4, func(p *Pass) { clear(p.s) }},
		"inverse of s":       {4, func(p *Pass) { flipBit(p.w, last) }},
		"digest":             {4, func(p *Pass) { flipBit(p.e, 6) }},
		"s and its inverse":  {4, func(p *Pass) { p.s[0][0], p.w[0][0] = 1, 1 }},
		"r of two exchanged": {4, func(p *Pass) { swapLanes(p.r) }},
	} {
		forms(t, func(t *testing.T) {
			for _, curve := range curves {
				c := curve()
				key := randomKey(t, c)
				p := NewPass(c)
				for range Lanes {
					nonce, digest := make([]byte, 2*c.size), make([]byte, 32)
					rand.Read(nonce)
					rand.Read(digest)
					p.Set(key.key, digest, nonce)
				}
				for i, step := range []func(){func() {}, p.reduceNonces, p.multiplyGenerator, p.toAffine, p.solve} {
					step()
					if i == fault.step {
						fault.spoil(p)
					}
				}
				if p.verify() {
					t.Errorf("%s, P-%d: the pass accepts its signatures", name, c.params.BitSize)
				}
			}
		})
	}
}

func swapLanes(x element) {
	for i := range x {
		x[i][0], x[i][1] = x[i][1], x[i][0]
	}
}

// TestFaultsOfTables has a wrong entry of a table found: of the key's, or of another key.
func TestFaultsOfTables(t *testing.T) {
	for _, curve := range curves {
		c := curve()
		key, other := randomKey(t, c), randomKey(t, c)
		for name, wrong := range map[string]*Key{
			"another key": {c: c, d: key.key.d, public: other.key.public},
			"no table":    {c: c, d: key.key.d, public: &table{keyBits, key.key.public.windows, key.key.public.stride, make([]uint64, len(key.key.public.words))}},
		} {
			p := NewPass(c)
			nonce := make([]byte, 2*c.size)
			rand.Read(nonce)
			p.Set(wrong, []byte{1}, nonce)
			if p.Run() {
				t.Errorf("%s: accepted", name)
			}
		}
	}
}

// TestSumsThatAreInverse: the end of a verification takes two points other than infinity, one the inverse of the other, and
// nothing else: above all not numbers that a fault has made zero.
func TestSumsThatAreInverse(t *testing.T) {
	forms(t, func(t *testing.T) {
		for _, curve := range curves {
			c := curve()
			p := NewPass(c)
			set := func() {
				for lane := range 2 {
					setLane(p.sum.x, lane, c.p.residue(c.params.Gx))
					setLane(p.sum.y, lane, c.p.residue(c.params.Gy))
				}
				copy(p.sum.z, c.p.one)
			}
			for name, s := range map[string]struct {
				change func()
				want   bool
			}{
				"inverses":   {func() { negateLane(p.sum.y, 1, c.p) }, true},
				"the same":   {func() {}, false},
				"z is 0":     {func() { negateLane(p.sum.y, 1, c.p); clear(p.sum.z) }, false},
				"one z is 0": {func() { negateLane(p.sum.y, 1, c.p); clearLane(p.sum.z, 1) }, false},
				"all is 0":   {func() { clear(p.sum.x); clear(p.sum.y); clear(p.sum.z) }, false},
				"y differs":  {func() { p.sum.y[0][1] ^= 2 }, false},
				"x differs":  {func() { negateLane(p.sum.y, 1, c.p); p.sum.x[0][1] ^= 2 }, false},
				"other z":    {func() { negateLane(p.sum.y, 1, c.p); p.sum.z[0][0] ^= 2 }, false},
			} {
				set()
				s.change()
				if p.lanesAreInverse() != s.want {
					t.Errorf("P-%d, %s: %v", c.params.BitSize, name, !s.want)
				}
			}
		}
	})
}

func clearLane(x element, lane int) {
	for i := range x {
		x[i][lane] = 0
	}
}
