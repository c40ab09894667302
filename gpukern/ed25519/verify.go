package ed25519

import (
	standard "crypto/ed25519"

	"github.com/millrace/millrace/gpukern/field25519"
)

// Check asks whether a signature is right.
type Check struct {
	Key       standard.PublicKey
	Message   []byte
	Signature []byte

	Valid bool
}

// wellFormed reports whether key and signature have their lengths.
func (c *Check) wellFormed() bool {
	return len(c.Key) == standard.PublicKeySize && len(c.Signature) == standard.SignatureSize
}

// Verify sets Valid of checks, of which there are up to as many as lanes (RFC 8032 5.1.7). Each is verified by itself: the encoding of
// sB - kA is compared with that of R.
func (p *Pass) Verify(checks []Check) {
	var keys [MaxLanes][32]byte
	for lane := range checks {
		c := &checks[lane]
		c.Valid = false
		p.s[lane], p.k[lane] = scalar{}, scalar{}
		if !c.wellFormed() {
			continue
		}
		keys[lane] = [32]byte(c.Key)
		if p.s[lane] = scalarOf(c.Signature[32:]); p.s[lane].reduced() {
			p.k[lane] = hash(c.Signature[:32], c.Key, c.Message)
			c.Valid = true
		}
	}
	right := p.decompress(&p.key, p.powers, keys[:])
	p.negate(&p.key)
	p.multiply()
	generators := p.generators()
	p.addPublic(&generators, &p.s)
	var points [MaxLanes][32]byte
	p.encode(points[:len(checks)], &p.sum, p.powers)
	for lane := range checks {
		c := &checks[lane]
		c.Valid = c.Valid && right[lane] && same(points[lane][:], c.Signature[:32])
	}
}

// multiply sets sum to k times the key, which has no table: by its first 16 multiples.
func (p *Pass) multiply() {
	entry := func(e int) []field25519.Row { return p.multiples[e*pointRows:][:pointRows] }
	p.infinity(&p.sum)
	p.projective(entry(0), &p.sum)
	p.projective(entry(1), &p.key)
	p.sum.set(&p.key)
	for e := 2; e < field25519.Entries; e++ {
		p.addProjective(&p.sum, entry(1))
		p.projective(entry(e), &p.sum)
	}
	p.infinity(&p.sum)
	for w := windows - 1; w >= 0; w-- {
		if w < windows-1 {
			for i := range 4 {
				p.double(&p.sum, i == 3)
			}
		}
		p.setIndex(&p.k, w)
		p.f.Lookup(p.entry, p.multiples, 4, p.index)
		p.addProjective(&p.sum, p.entry)
	}
}

// VerifyAll sets Valid of checks on the calling core: several at once where the CPU has the lanes, else by crypto/ed25519.
func VerifyAll(checks []Check) {
	if !Supported() {
		for i := range checks {
			c := &checks[i]
			c.Valid = c.wellFormed() && standard.Verify(c.Key, c.Message, c.Signature)
		}
		return
	}
	p := NewPass()
	for i := 0; i < len(checks); i += p.Lanes() {
		p.Verify(checks[i:min(len(checks), i+p.Lanes())])
	}
}
