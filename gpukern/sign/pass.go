package sign

import (
	"crypto/subtle"

	"github.com/millrace/millrace/gpukern/montgomery"
)

// pass is the work on up to AtOnce signatures. Lane i has signature i modulo p, lane AtOnce+i modulo q.
type pass struct {
	n        int
	requests [AtOnce]*Request
	encoded  [AtOnce][]byte
	digits   [AtOnce][]uint64 // the encoded digest, then the signature
}

func (s *pass) add(r *Request, encoded []byte) {
	s.requests[s.n], s.encoded[s.n] = r, encoded
	s.digits[s.n] = make([]uint64, 2*len(r.Key.qDigits))
	montgomery.SetBytes(s.digits[s.n], encoded)
	s.n++
}

// power raises the encoded digests to the private exponents (RFC 8017 5.2.1, step 2b): m1 and m2 are the powers modulo p and q,
// and the signature is m2 + q*h with h = (m1 - m2) / q modulo p.
func (s *pass) power(p *montgomery.Power) {
	defer p.Clear()
	for i, r := range s.requests[:s.n] {
		k := r.Key
		p.SetModulus(i, k.p)
		p.SetModulus(AtOnce+i, k.q)
		p.SetExponent(i, k.dp)
		p.SetExponent(AtOnce+i, k.dq)
		p.SetBase(i, s.digits[i])
		p.SetBase(AtOnce+i, s.digits[i])
	}
	p.Raise()
	half := len(s.requests[0].Key.qDigits)
	memory := make([]uint64, 3*AtOnce*half)
	defer clear(memory)
	cut := func() []uint64 {
		part := memory[:half:half]
		memory = memory[half:]
		return part
	}
	var difference, inverse [montgomery.Lanes][]uint64
	var m2 [AtOnce][]uint64
	for i, r := range s.requests[:s.n] {
		m1 := cut()
		p.Result(i, m1)
		m2[i] = cut()
		p.Result(AtOnce+i, m2[i])
		// m2 is below q, and q below 2p, as both have one length.
		r.Key.p.Subtract(m1, m2[i])
		difference[i], inverse[i] = m1, r.Key.qInverse
	}
	p.Multiply(&difference, &inverse)
	for i, r := range s.requests[:s.n] {
		h := cut()
		p.Result(i, h)
		montgomery.MultiplyAdd(s.digits[i], h, r.Key.qDigits, m2[i])
	}
}

// verify raises the signatures to the public exponents and compares with the encoded digests (RFC 8017 5.2.2).
func (s *pass) verify(p *montgomery.Power) {
	defer p.Clear()
	for first := 0; first < s.n; { // mostly one round: e is 65537 in nearly all keys
		e := s.requests[first].Key.public.E
		last := first
		for ; last < s.n && s.requests[last].Key.public.E == e; last++ {
			p.SetModulus(last, s.requests[last].Key.n)
			p.SetBase(last, s.digits[last])
		}
		p.RaisePublic(uint(e))
		for i := first; i < last; i++ {
			s.compare(i, p)
		}
		first = last
	}
}

// compare returns the signature of request i if its public power is what was signed.
func (s *pass) compare(i int, p *montgomery.Power) {
	r := s.requests[i]
	signature := make([]byte, r.Key.size())
	montgomery.FillBytes(signature, s.digits[i])
	digits := s.digits[i][:r.Key.n.Blocks()*montgomery.BlockDigits]
	p.Result(i, digits)
	power := make([]byte, len(signature))
	montgomery.FillBytes(power, digits)
	if subtle.ConstantTimeCompare(power, s.encoded[i]) != 1 {
		clear(signature)
		r.Err = ErrFault
		return
	}
	r.Signature = signature
}
