package pubkey

import (
	"crypto/ed25519"
	"crypto/sha512"
	"encoding/binary"
	"fmt"
	"math/big"

	"github.com/millrace/millrace/gpukern/cuda"
)

// Ed25519Key is a private key of Ed25519. It is safe for concurrent use until Close.
type Ed25519Key struct {
	key    ed25519.PrivateKey
	prefix []byte // of the hash that nonces come from (RFC 8032 5.1.5)
	dev    *secret
}

// NewEd25519Key prepares a key. The caller closes it before the engine.
func (e *Engine) NewEd25519Key(key ed25519.PrivateKey) (*Ed25519Key, error) {
	if len(key) != ed25519.PrivateKeySize {
		return nil, fmt.Errorf("%w: it has %d bytes", ErrUnsuited, len(key))
	}
	h := sha512.Sum512(key.Seed())
	defer clear(h[:])
	k := &Ed25519Key{key: key, prefix: append([]byte(nil), h[32:]...)}
	d := e.device.Usable()
	if d == nil {
		return k, nil
	}
	h[0] &= 248
	h[31] = h[31]&63 | 64
	scalar := h[:32]
	for i, j := 0, 31; i < j; i, j = i+1, j-1 {
		scalar[i], scalar[j] = scalar[j], scalar[i]
	}
	image := make([]byte, 32)
	defer clear(image)
	putWords(image, edwardsOrder.form(new(big.Int).SetBytes(scalar)))
	var err error
	k.dev, err = newSecret(e, d, image)
	return k, err
}

// Close overwrites what the key has besides the one that was given. No call may use it any more.
func (k *Ed25519Key) Close() error {
	clear(k.prefix)
	return k.dev.close()
}

// Ed25519Request asks for a signature of a message.
type Ed25519Request struct {
	Key     *Ed25519Key
	Message []byte

	Signature []byte
}

// commitParams is struct pk_ed25519_commit, and respondParams struct pk_ed25519_respond.
type (
	commitParams struct {
		hashes, generator, points cuda.Ptr
		n, _                      uint32
	}
	respondParams struct {
		hashes, challenges, keys, points, signatures cuda.Ptr
		n, _                                         uint32
	}
)

var commitTask = task{
	name: "ed25519 commit", in: []int{sha512.Size}, out: []int{32},
	launch: func(e *Engine, f *flight) error {
		generator, err := e.table("ed25519", edwardsTable)
		if err != nil {
			return err
		}
		return launch(f, "pk_ed25519_commit", f.n, ed25519Threads, &commitParams{
			hashes: f.in[0].ptr, generator: generator, points: f.out[0].ptr, n: uint32(f.n),
		})
	},
}

var respondTask = task{
	name: "ed25519 respond", in: []int{sha512.Size, sha512.Size, 8, 32, ed25519.PublicKeySize}, out: []int{ed25519.SignatureSize, 4},
	launch: func(_ *Engine, f *flight) error {
		if err := launch(f, "pk_ed25519_respond", f.n, ed25519Threads, &respondParams{
			hashes: f.in[0].ptr, challenges: f.in[1].ptr, keys: f.in[2].ptr, points: f.in[3].ptr, signatures: f.out[0].ptr, n: uint32(f.n),
		}); err != nil {
			return err
		}
		return launch(f, "pk_ed25519", f.n, ed25519Threads, &ed25519Params{
			signatures: f.out[0].ptr, keys: f.in[4].ptr, hashes: f.in[1].ptr, status: f.out[1].ptr, n: uint32(f.n),
		})
	},
}

// SignEd25519 sets the signatures of the requests (RFC 8032 5.1.6), which depend on key and message alone. Each is verified on
// the device. Those that are wrong are made again by crypto/ed25519.
func (e *Engine) SignEd25519(requests []*Ed25519Request) {
	var placed, others []*Ed25519Request
	for _, r := range requests {
		if r.Signature = nil; r.Key.dev != nil {
			placed = append(placed, r)
		} else {
			others = append(others, r)
		}
	}
	if len(others) > 0 {
		e.onCPU(&call{redo: func(from, to int) { signEd25519CPU(others[from:to]) }}, 0, len(others))
	}
	if len(placed) == 0 {
		return
	}
	points := make([][32]byte, len(placed))
	e.run(&commitTask, commitCall(placed, points))
	left := placed[:0:0]
	at := make([]int, 0, len(placed))
	for i, r := range placed {
		if r.Signature == nil { // else the device was lost, and the CPU has signed
			left, at = append(left, r), append(at, i)
		}
	}
	e.run(&respondTask, e.respondCall(left, func(i int) *[32]byte { return &points[at[i]] }))
}

// commitCall is the call for the points R.
func commitCall(requests []*Ed25519Request, points [][32]byte) *call {
	return &call{
		n: len(requests),
		fill: func(f *flight, first, from, to int) {
			for i := from; i < to; i++ {
				requests[first+i].hash(f.in[0].at(i), requests[first+i].Key.prefix)
			}
		},
		take: func(f *flight, first, from, to int) {
			for i := from; i < to; i++ {
				copy(points[first+i][:], f.out[0].at(i))
			}
		},
		redo: func(from, to int) { signEd25519CPU(requests[from:to]) },
	}
}

// respondCall is the call for the signatures, with the point R of each.
func (e *Engine) respondCall(requests []*Ed25519Request, point func(i int) *[32]byte) *call {
	return &call{
		n: len(requests),
		fill: func(f *flight, first, from, to int) {
			for i := from; i < to; i++ {
				r := requests[first+i]
				public := r.Key.key[32:]
				r.hash(f.in[0].at(i), r.Key.prefix)
				r.hash(f.in[1].at(i), point(first + i)[:], public)
				binary.LittleEndian.PutUint64(f.in[2].at(i), uint64(r.Key.dev.buf.Ptr))
				copy(f.in[3].at(i), point(first + i)[:])
				copy(f.in[4].at(i), public)
			}
		},
		take: func(f *flight, first, from, to int) {
			for i := from; i < to; i++ {
				r := requests[first+i]
				if binary.LittleEndian.Uint32(f.out[1].at(i)) != 1 {
					e.counters.faults.Add(1)
					signEd25519CPU([]*Ed25519Request{r})
					continue
				}
				r.Signature = append([]byte(nil), f.out[0].at(i)...)
			}
		},
		redo: func(from, to int) { signEd25519CPU(requests[from:to]) },
	}
}

// hash writes SHA-512 of some bytes and the message.
func (r *Ed25519Request) hash(to []byte, before ...[]byte) {
	h := sha512.New()
	for _, b := range before {
		h.Write(b)
	}
	h.Write(r.Message)
	h.Sum(to[:0])
}

func signEd25519CPU(requests []*Ed25519Request) {
	for _, r := range requests {
		r.Signature = ed25519.Sign(r.Key.key, r.Message)
	}
}
