package pubkey

import (
	"crypto/ed25519"
	"crypto/sha512"
	"encoding/binary"

	"github.com/millrace/millrace/gpukern/cuda"
)

// Ed25519Check asks whether a signature is right.
type Ed25519Check struct {
	Key       ed25519.PublicKey
	Message   []byte
	Signature []byte

	Valid bool
}

// ed25519Params is struct pk_ed25519.
type ed25519Params struct {
	signatures, keys, hashes, status cuda.Ptr
	n, _                             uint32
}

const ed25519Threads = 128

var ed25519Task = task{
	name: "ed25519", in: []int{ed25519.SignatureSize, ed25519.PublicKeySize, sha512.Size}, out: []int{4},
	launch: func(_ *Engine, f *flight) error {
		return launch(f, "pk_ed25519", f.n, ed25519Threads, &ed25519Params{
			signatures: f.in[0].ptr, keys: f.in[1].ptr, hashes: f.in[2].ptr, status: f.out[0].ptr, n: uint32(f.n),
		})
	},
}

// VerifyEd25519 sets Valid of the checks. Each signature is verified by itself, by the rules of crypto/ed25519: one that is
// forged is found, and the others are not suspected.
func (e *Engine) VerifyEd25519(checks []Ed25519Check) {
	e.run(&ed25519Task, ed25519Call(checks))
}

func ed25519Call(checks []Ed25519Check) *call {
	return &call{
		n: len(checks),
		fill: func(f *flight, first, from, to int) {
			for i := from; i < to; i++ {
				checks[first+i].fill(f, i)
			}
		},
		take: func(f *flight, first, from, to int) {
			for i := from; i < to; i++ {
				c := &checks[first+i]
				c.Valid = c.wellFormed() && binary.LittleEndian.Uint32(f.out[0].at(i)) == 1
			}
		},
		redo: func(from, to int) {
			for i := from; i < to; i++ {
				c := &checks[i]
				c.Valid = c.wellFormed() && ed25519.Verify(c.Key, c.Message, c.Signature)
			}
		},
	}
}

// wellFormed reports whether key and signature have their lengths.
func (c *Ed25519Check) wellFormed() bool {
	return len(c.Key) == ed25519.PublicKeySize && len(c.Signature) == ed25519.SignatureSize
}

// fill writes the inputs of a check.
func (c *Ed25519Check) fill(f *flight, i int) {
	if !c.wellFormed() {
		for _, a := range f.in {
			clear(a.at(i))
		}
		return
	}
	copy(f.in[0].at(i), c.Signature)
	copy(f.in[1].at(i), c.Key)
	h := sha512.New()
	h.Write(c.Signature[:32])
	h.Write(c.Key)
	h.Write(c.Message)
	h.Sum(f.in[2].at(i)[:0])
}
