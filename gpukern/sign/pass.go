package sign

import (
	"crypto/subtle"

	"github.com/millrace/millrace/gpukern/montgomery"
)

// rsaAtOnce is the number of signatures of RSA of a pass. Each takes a lane for either prime.
const rsaAtOnce = montgomery.Lanes / 2

// pass is the work on up to rsaAtOnce signatures. Lane i has signature i modulo p, lane rsaAtOnce+i modulo q.
type pass struct {
	n        int
	requests [rsaAtOnce]*Request
	keys     [rsaAtOnce]*RSAKey
	encoded  [rsaAtOnce][]byte
	digits   [rsaAtOnce][]uint64 // the encoded digest, then the signature
}

func (s *pass) add(r *Request, k *RSAKey, encoded []byte) {
	s.requests[s.n], s.keys[s.n], s.encoded[s.n] = r, k, encoded
	s.digits[s.n] = make([]uint64, 2*len(k.qDigits))
	montgomery.SetBytes(s.digits[s.n], encoded)
	s.n++
}

// power raises the encoded digests to the private exponents (RFC 8017 5.2.1, step 2b): m1 and m2 are the powers modulo p and q,
// and the signature is m2 + q*h with h = (m1 - m2) / q modulo p.
func (s *pass) power(p *montgomery.Power) {
	defer p.Clear()
	for i, k := range s.keys[:s.n] {
		p.SetModulus(i, k.p)
		p.SetModulus(rsaAtOnce+i, k.q)
		p.SetExponent(i, k.dp)
		p.SetExponent(rsaAtOnce+i, k.dq)
		p.SetBase(i, s.digits[i])
		p.SetBase(rsaAtOnce+i, s.digits[i])
	}
	p.Raise()
	half := len(s.keys[0].qDigits)
	memory := make([]uint64, 3*rsaAtOnce*half)
	defer clear(memory)
	cut := func() []uint64 {
		part := memory[:half:half]
		memory = memory[half:]
		return part
	}
	var difference, inverse [montgomery.Lanes][]uint64
	var m2 [rsaAtOnce][]uint64
	for i, k := range s.keys[:s.n] {
		m1 := cut()
		p.Result(i, m1)
		m2[i] = cut()
		p.Result(rsaAtOnce+i, m2[i])
		// m2 is below q, and q below 2p, as both have one length.
		k.p.Subtract(m1, m2[i])
		difference[i], inverse[i] = m1, k.qInverse
	}
	p.Multiply(&difference, &inverse)
	for i, k := range s.keys[:s.n] {
		h := cut()
		p.Result(i, h)
		montgomery.MultiplyAdd(s.digits[i], h, k.qDigits, m2[i])
	}
}

// verify raises the signatures to the public exponents and compares with the encoded digests (RFC 8017 5.2.2).
func (s *pass) verify(p *montgomery.Power) {
	defer p.Clear()
	for first := 0; first < s.n; { // mostly one round: e is 65537 in nearly all keys
		e := s.keys[first].public.E
		last := first
		for ; last < s.n && s.keys[last].public.E == e; last++ {
			p.SetModulus(last, s.keys[last].n)
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
	r, k := s.requests[i], s.keys[i]
	signature := make([]byte, k.size())
	montgomery.FillBytes(signature, s.digits[i])
	digits := s.digits[i][:k.n.Blocks()*montgomery.BlockDigits]
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
