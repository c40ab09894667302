package pubkey

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/big"

	"github.com/millrace/millrace/gpukern/cuda"
	"github.com/millrace/millrace/gpukern/sign"
)

// RSAKey is a private key of RSA with a modulus of 2048, 3072 or 4096 bits. It is safe for concurrent use until Close.
type RSAKey struct {
	key *rsa.PrivateKey
	dev *secret
}

// NewRSAKey prepares a key. It refuses keys that are not of two odd primes of the same length, and whose parts do not belong
// together: ErrUnsuited, or the error of crypto/rsa. The caller closes it before the engine.
func (e *Engine) NewRSAKey(key *rsa.PrivateKey) (*RSAKey, error) {
	bits := key.N.BitLen()
	switch {
	case rsaTasks[bits] == nil:
		return nil, fmt.Errorf("%w: it has %d bits", ErrUnsuited, bits)
	case len(key.Primes) != 2:
		return nil, fmt.Errorf("%w: it has %d primes", ErrUnsuited, len(key.Primes))
	case key.E < 3 || key.E%2 == 0 || key.E > math.MaxInt32:
		return nil, fmt.Errorf("%w: its public exponent is %d", ErrUnsuited, key.E)
	}
	p, q := key.Primes[0], key.Primes[1]
	if p.Bit(0) == 0 || q.Bit(0) == 0 { // Montgomery's product is for odd moduli
		return nil, fmt.Errorf("%w: a prime is even", ErrUnsuited)
	}
	if p.BitLen() != bits/2 || q.BitLen() != bits/2 {
		return nil, fmt.Errorf("%w: its primes have %d and %d bits", ErrUnsuited, p.BitLen(), q.BitLen())
	}
	if err := key.Validate(); err != nil {
		return nil, err
	}
	k := &RSAKey{key: key}
	d := e.device.Usable()
	if d == nil {
		return k, nil
	}
	image := rsaImage(key)
	defer clear(image)
	var err error
	k.dev, err = newSecret(e, d, image)
	return k, err
}

// rsaImage returns struct rsa_key of rsa.cuh.
func rsaImage(key *rsa.PrivateKey) []byte {
	p, q := key.Primes[0], key.Primes[1]
	words := key.N.BitLen() / 64
	image := make([]byte, (13*words+6)*4)
	rest := image
	put := func(v *big.Int, words int) {
		putWords(rest[:4*words], v)
		rest = rest[4*words:]
	}
	var factors []uint32
	for _, prime := range []*big.Int{p, q} {
		m := montgomery{prime, words}
		exponent := new(big.Int).Sub(prime, big.NewInt(1))
		exponent.Mod(key.D, exponent)
		for _, v := range []*big.Int{prime, m.power(2), m.power(3), exponent} {
			put(v, words)
		}
		factors = append(factors, m.factor())
	}
	n := montgomery{key.N, 2 * words}
	put(new(big.Int).ModInverse(q, p), words)
	put(key.N, 2*words)
	put(n.power(2), 2*words)
	put(big.NewInt(int64(key.E)), 2)
	for i, v := range append(factors, n.factor()) {
		binary.LittleEndian.PutUint32(rest[4*i:], v)
	}
	return image
}

// Close overwrites the key on the device. No call may use it any more.
func (k *RSAKey) Close() error { return k.dev.close() }

// RSARequest asks for a signature of a digest (RFC 8017 8), with the padding that Opts asks for.
type RSARequest struct {
	Key    *RSAKey
	Digest []byte
	Opts   crypto.SignerOpts

	Signature []byte
	Err       error
}

// rsaParams is struct pk_rsa.
type rsaParams struct {
	messages, keys, signatures, status, scratch cuda.Ptr
	n, _                                        uint32
}

const rsaThreads = 128

// rsaTasks are the tasks by the bits of the modulus.
var rsaTasks = map[int]*task{2048: rsaTask(2048), 3072: rsaTask(3072), 4096: rsaTask(4096)}

func rsaTask(bits int) *task {
	size, name := bits/8, fmt.Sprintf("pk_rsa%d_", bits)
	return &task{
		name: fmt.Sprintf("rsa%d", bits), in: []int{size, 8}, out: []int{size, 4}, scratch: []int{size},
		launch: func(_ *Engine, f *flight) error {
			p := rsaParams{
				messages: f.in[0].ptr, keys: f.in[1].ptr, signatures: f.out[0].ptr, status: f.out[1].ptr,
				scratch: f.work[0].ptr, n: uint32(f.n),
			}
			blocks := 2 * ((f.n + rsaThreads - 1) / rsaThreads) // one for each prime
			if err := launch(f, name+"power", blocks*rsaThreads, rsaThreads, &p); err != nil {
				return err
			}
			return launch(f, name+"join", f.n, rsaThreads, &p)
		},
	}
}

// SignRSA sets Signature or Err of the requests. Salts come from random, which is read by several goroutines at once; nil is
// crypto/rand's. Signatures that fail their verification are made again by crypto/rsa.
func (e *Engine) SignRSA(requests []*RSARequest, random io.Reader) {
	bySize := map[*task][]*RSARequest{}
	for _, r := range requests {
		t := rsaTasks[r.Key.key.N.BitLen()]
		if r.Key.dev == nil {
			t = nil
		}
		r.Signature, r.Err = nil, nil
		bySize[t] = append(bySize[t], r)
	}
	for t, mine := range bySize {
		c := e.rsaCall(mine, random)
		if t == nil {
			e.onCPU(c, 0, c.n)
			continue
		}
		e.run(t, c)
	}
}

// rsaCall is a call for requests of one size.
func (e *Engine) rsaCall(requests []*RSARequest, random io.Reader) *call {
	return &call{
		n: len(requests),
		fill: func(f *flight, first, from, to int) {
			s := source{reader: random}
			defer s.wipe()
			for i := from; i < to; i++ {
				requests[first+i].fill(f, i, &s)
			}
		},
		take: func(f *flight, first, from, to int) {
			for i := from; i < to; i++ {
				e.takeRSA(requests[first+i], f, i, random)
			}
		},
		redo: func(from, to int) { signRSACPU(requests[from:to], random) },
	}
}

// fill writes the inputs of a signature. One whose digest cannot be encoded signs zeros, which do not leave.
func (r *RSARequest) fill(f *flight, i int, random io.Reader) {
	em := f.in[0].at(i)
	if r.Err = sign.Encode(em, r.Key.key.N.BitLen(), random, r.Digest, r.Opts); r.Err != nil {
		clear(em)
	}
	binary.LittleEndian.PutUint64(f.in[1].at(i), uint64(r.Key.dev.buf.Ptr))
}

// takeRSA reads the result of a signature.
func (e *Engine) takeRSA(r *RSARequest, f *flight, i int, random io.Reader) {
	if r.Err != nil {
		return
	}
	if binary.LittleEndian.Uint32(f.out[1].at(i)) != 1 {
		e.counters.faults.Add(1)
		signRSACPU([]*RSARequest{r}, random)
		return
	}
	r.Signature = append([]byte(nil), f.out[0].at(i)...)
}

// signRSACPU signs on one core. crypto/rsa verifies what it signs.
func signRSACPU(requests []*RSARequest, random io.Reader) {
	if random == nil {
		random = rand.Reader
	}
	for _, r := range requests {
		r.Signature, r.Err = r.Key.key.Sign(random, r.Digest, r.Opts)
	}
}
