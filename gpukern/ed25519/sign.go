package ed25519

// Request asks for a signature of a message.
type Request struct {
	Key     *Key
	Message []byte

	Signature [64]byte
	Right     bool // the signature has been verified; if not, the machine has computed wrongly, and it may not leave
}

// Sign makes the signatures of the requests (RFC 8032 5.1.6), of which there are up to as many as lanes, and verifies each. It clears
// its memory.
func (p *Pass) Sign(requests []Request) {
	defer p.Clear()
	p.nonces(requests)
	p.check(requests)
}

// nonces makes the signatures: all that works on secrets.
func (p *Pass) nonces(requests []Request) {
	for lane := range requests {
		r := &requests[lane]
		p.r[lane] = hash(r.Key.prefix[:], r.Message)
	}
	p.infinity(&p.sum)
	for w := range windows {
		p.setIndex(&p.r, w)
		p.f.Choose(p.entry, p.generator.window(w), p.index)
		p.addEntry(&p.sum, p.entry)
	}
	var points [MaxLanes][32]byte
	p.encode(points[:len(requests)], &p.sum, p.powers)
	copy(p.key.x, p.sum.x)
	copy(p.key.y, p.sum.y)
	for lane := range requests {
		r := &requests[lane]
		k := hash(points[lane][:], r.Key.public[:], r.Message)
		s := product(&k, &r.Key.a)
		s = sum(&s, &p.r[lane])
		copy(r.Signature[:], points[lane][:])
		s.put(r.Signature[32:])
	}
}

// check verifies the signatures by the tables of their keys: sB - kA is R, whose affine coordinates are those of key. It hashes and
// encodes again, as a wrong hash or encoding discloses the key too.
func (p *Pass) check(requests []Request) {
	var keys [MaxLanes]table
	for lane := range keys {
		r := &requests[min(lane, len(requests)-1)]
		keys[lane] = r.Key.inverse
		if lane < len(requests) {
			p.s[lane] = scalarOf(r.Signature[32:])
			p.k[lane] = hash(r.Signature[:32], r.Key.public[:], r.Message)
		}
	}
	p.infinity(&p.sum)
	generators := p.generators()
	p.addPublic(&generators, &p.s)
	p.addPublic(&keys, &p.k)
	x, y := p.t[0], p.t[1]
	p.f.Multiply(x, p.key.x, p.sum.z)
	p.f.Multiply(y, p.key.y, p.sum.z)
	for lane := range requests {
		r := &requests[lane]
		r.Right = p.s[lane].reduced() && p.equal(x, p.sum.x, lane) && p.equal(y, p.sum.y, lane)
		var point [32]byte
		p.encodeLane(&point, &p.key, lane)
		if r.Right = r.Right && same(point[:], r.Signature[:32]); !r.Right {
			clear(r.Signature[:])
		}
	}
}

// equal reports whether a lane of public numbers is the same.
func (p *Pass) equal(a, b element, lane int) bool {
	var x, y [32]byte
	p.f.Bytes(&x, a, lane)
	p.f.Bytes(&y, b, lane)
	return x == y
}
