package pubkey

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/big"
	"slices"

	"github.com/millrace/millrace/gpukern/cuda"
	"github.com/millrace/millrace/gpukern/sign"
)

// ErrUnsuited reports a key that no kernel is for.
var ErrUnsuited = errors.New("pubkey: the key does not suit the kernels")

// ECDSAKey is a private key on P-256 or P-384. It is safe for concurrent use until Close.
type ECDSAKey struct {
	key     *ecdsa.PrivateKey
	c       *curve
	private []byte // big-endian
	dev     *secret
}

// NewECDSAKey prepares a key: with a device it computes a table of the public key, in some milliseconds, which takes 32
// KB there, or 72 KB on P-384. The caller closes it before the engine.
func (e *Engine) NewECDSAKey(key *ecdsa.PrivateKey) (*ECDSAKey, error) {
	k := &ECDSAKey{key: key}
	switch key.Curve {
	case elliptic.P256():
		k.c = p256
	case elliptic.P384():
		k.c = p384
	default:
		return nil, fmt.Errorf("%w: its curve is %s", ErrUnsuited, key.Params().Name)
	}
	private, err := key.Bytes()
	if err != nil {
		return nil, err
	}
	// Close overwrites this copy. Bytes can return the memory that crypto/ecdsa signs from meanwhile, in other goroutines.
	k.private = slices.Clone(private)
	public, err := key.PublicKey.Bytes()
	if err != nil {
		return nil, err
	}
	d := e.device.Usable()
	if d == nil {
		return k, nil
	}
	size := k.c.size()
	image := make([]byte, size)
	putWords(image, montgomery{k.c.params.N, k.c.words}.form(new(big.Int).SetBytes(k.private)))
	q := affine{new(big.Int).SetBytes(public[1 : 1+size]), new(big.Int).SetBytes(public[1+size:])}
	image = append(image, k.c.table(q, keyBits, 8*size/keyBits)...)
	defer clear(image[:size])
	k.dev, err = newSecret(e, d, image)
	return k, err
}

// Close overwrites the private key, on the device too. No call may use it any more.
func (k *ECDSAKey) Close() error {
	clear(k.private)
	return k.dev.close()
}

// ECDSARequest asks for a signature: of the leftmost bits of a digest that its curve's order has.
type ECDSARequest struct {
	Key    *ECDSAKey
	Digest []byte

	Signature []byte // ASN.1 DER
	Err       error
}

// ecdsaParams is struct pk_ecdsa.
type ecdsaParams struct {
	nonces, digests, keys, generator, signatures, status, scratch cuda.Ptr
	n, _                                                          uint32
}

const (
	combThreads  = 128
	solveThreads = 32
	ecdsaGroup   = 8 // EC_GROUP
)

func ecdsaTask(c *curve) *task {
	size := c.size()
	return &task{
		name: c.name, in: []int{2 * size, size, 8}, out: []int{2 * size, 4}, scratch: []int{4 * size},
		launch: func(e *Engine, f *flight) error {
			generator, err := e.generator(c)
			if err != nil {
				return err
			}
			p := ecdsaParams{
				nonces: f.in[0].ptr, digests: f.in[1].ptr, keys: f.in[2].ptr, generator: generator,
				signatures: f.out[0].ptr, status: f.out[1].ptr, scratch: f.work[0].ptr, n: uint32(f.n),
			}
			if err := launch(f, "pk_"+c.name+"_comb", f.n, combThreads, &p); err != nil {
				return err
			}
			groups := (f.n + ecdsaGroup - 1) / ecdsaGroup
			if err := launch(f, "pk_"+c.name+"_solve", groups, solveThreads, &p); err != nil {
				return err
			}
			return launch(f, "pk_"+c.name+"_verify", groups, solveThreads, &p)
		},
	}
}

// SignECDSA sets Signature or Err of the requests, with nonces from random, which is read by several goroutines at once;
// nil is crypto/rand's. Signatures that fail their verification are made again by crypto/ecdsa.
//
// Requests of one key are best next to each other: eight share a verification.
func (e *Engine) SignECDSA(requests []*ECDSARequest, random io.Reader) {
	for _, c := range []*curve{p256, p384} {
		mine := make([]*ECDSARequest, 0, len(requests))
		for _, r := range requests {
			if r.Key.c == c {
				mine = append(mine, r)
			}
		}
		if len(mine) > 0 {
			e.signCurve(c, mine, random)
		}
	}
}

// signCurve is SignECDSA for requests of one curve. Requests of keys that are not on the device are done on the CPU.
func (e *Engine) signCurve(c *curve, requests []*ECDSARequest, random io.Reader) {
	placed := requests[:0:0]
	var others []*ECDSARequest
	for _, r := range requests {
		if r.Signature, r.Err = nil, nil; r.Key.dev != nil {
			placed = append(placed, r)
		} else {
			others = append(others, r)
		}
	}
	if len(others) > 0 {
		e.onCPU(&call{redo: func(from, to int) { signECDSACPU(others[from:to]) }}, 0, len(others))
	}
	if len(placed) == 0 {
		return
	}
	e.run(c.task, e.ecdsaCall(placed, random))
}

// ecdsaCall is a call for requests of one curve, whose keys are on the device.
func (e *Engine) ecdsaCall(placed []*ECDSARequest, random io.Reader) *call {
	return &call{
		n: len(placed),
		fill: func(f *flight, first, from, to int) {
			s := source{reader: random}
			defer s.wipe()
			for i := from; i < to; i++ {
				placed[first+i].fill(f, i, &s)
			}
		},
		take: func(f *flight, first, from, to int) {
			for i := from; i < to; i++ {
				e.takeECDSA(placed[first+i], f, i)
			}
		},
		redo: func(from, to int) { signECDSACPU(placed[from:to]) },
	}
}

// fill writes the inputs of a signature.
func (r *ECDSARequest) fill(f *flight, i int, random *source) {
	size := r.Key.c.size()
	if r.Err = r.Key.nonce(f.in[0].at(i), random, r.Digest); r.Err != nil {
		clear(f.in[0].at(i))
		f.in[0].at(i)[2*size-1] = 1 // a signature that does not leave, but spoils no other one
	}
	digest := r.Digest[:min(len(r.Digest), size)]
	to := f.in[1].at(i)
	clear(to[:size-len(digest)])
	copy(to[size-len(digest):], digest)
	binary.LittleEndian.PutUint64(f.in[2].at(i), uint64(r.Key.dev.buf.Ptr))
}

// takeECDSA reads the result of a signature.
func (e *Engine) takeECDSA(r *ECDSARequest, f *flight, i int) {
	if r.Err != nil {
		return
	}
	if binary.LittleEndian.Uint32(f.out[1].at(i)) != 1 {
		e.counters.faults.Add(1)
		signECDSACPU([]*ECDSARequest{r})
		return
	}
	size := r.Key.c.size()
	r.Signature = sign.EncodeECDSA(f.out[0].at(i)[:size], f.out[0].at(i)[size:])
}

// signECDSACPU signs on one core, and verifies.
func signECDSACPU(requests []*ECDSARequest) {
	for _, r := range requests {
		r.Signature, r.Err = ecdsa.SignASN1(rand.Reader, r.Key.key, r.Digest)
		if r.Err == nil && !ecdsa.VerifyASN1(&r.Key.key.PublicKey, r.Digest, r.Signature) {
			r.Signature, r.Err = nil, ErrFault
		}
	}
}

// ErrFault is the error of a signature that failed its verification on the CPU, too.
var ErrFault = errors.New("pubkey: a signature failed its verification and was discarded")

// nonce sets to, twice the size of a number, to the nonce of a signature.
func (k *ECDSAKey) nonce(to []byte, random *source, digest []byte) error {
	var fresh [32]byte
	defer clear(fresh[:])
	if err := random.read(fresh[:]); err != nil {
		return err
	}
	sign.Nonce(to, &fresh, k.private, digest)
	return nil
}
