package pubkey

import (
	"crypto/mlkem"
	"encoding/binary"
	"errors"
	"io"

	"github.com/millrace/millrace/gpukern/cuda"
)

// ErrKey is the error of a public key that is none.
var ErrKey = errors.New("pubkey: the key is not one of ML-KEM-768")

// Encapsulation asks for a shared secret by ML-KEM-768 (FIPS 203): what the server of a key exchange does with the client's
// key.
type Encapsulation struct {
	Key []byte // encoded, of mlkem.EncapsulationKeySize768 bytes

	Shared     [mlkem.SharedKeySize]byte
	Ciphertext [mlkem.CiphertextSize768]byte
	Err        error
}

// mlkemParams is struct pk_mlkem.
type mlkemParams struct {
	keys, privates, seeds, received, ciphertexts, shared, status, matrix, hashes, wrong cuda.Ptr
	n, _                                                                                uint32
}

const (
	mlkemThreads = 128
	mlkemParts   = 13 // MLKEM_PARTS
	mlkemSeed    = 32
)

var mlkemTask = task{
	name: "mlkem768", in: []int{mlkem.EncapsulationKeySize768, mlkemSeed},
	out: []int{mlkem.CiphertextSize768, mlkem.SharedKeySize, 4}, scratch: []int{12 * 512, 32, 12},
	launch: func(_ *Engine, f *flight) error {
		p := mlkemParams{
			keys: f.in[0].ptr, seeds: f.in[1].ptr, ciphertexts: f.out[0].ptr, shared: f.out[1].ptr, status: f.out[2].ptr,
			matrix: f.work[0].ptr, hashes: f.work[1].ptr, wrong: f.work[2].ptr, n: uint32(f.n),
		}
		return launchMLKEM(f, "pk_mlkem_encapsulate", &p)
	},
}

// launchMLKEM runs the kernel for what is public, and then one for what is not.
func launchMLKEM(f *flight, name string, p *mlkemParams) error {
	blocks := mlkemParts * ((f.n + mlkemThreads - 1) / mlkemThreads)
	if err := launch(f, "pk_mlkem_matrix", blocks*mlkemThreads, mlkemThreads, p); err != nil {
		return err
	}
	return launch(f, name, f.n, mlkemThreads, p)
}

// EncapsulateMLKEM768 sets the results of the encapsulations, with randomness from random, which is read by several
// goroutines at once; nil is crypto/rand's.
func (e *Engine) EncapsulateMLKEM768(all []Encapsulation, random io.Reader) {
	e.run(&mlkemTask, mlkemCall(all, random))
}

func mlkemCall(all []Encapsulation, random io.Reader) *call {
	return &call{
		n: len(all),
		fill: func(f *flight, first, from, to int) {
			s := source{reader: random}
			defer s.wipe()
			for i := from; i < to; i++ {
				all[first+i].fill(f, i, &s)
			}
		},
		take: func(f *flight, first, from, to int) {
			for i := from; i < to; i++ {
				all[first+i].take(f, i)
			}
		},
		redo: func(from, to int) {
			for i := from; i < to; i++ {
				all[i].onCPU()
			}
		},
	}
}

// fill writes the inputs of an encapsulation.
func (c *Encapsulation) fill(f *flight, i int, random *source) {
	c.Err = nil
	if copy(f.in[0].at(i), c.Key) != mlkem.EncapsulationKeySize768 || len(c.Key) != mlkem.EncapsulationKeySize768 {
		c.Err = ErrKey
		clear(f.in[0].at(i))
	}
	if err := random.read(f.in[1].at(i)); err != nil {
		c.Err = err
	}
}

// take reads the results.
func (c *Encapsulation) take(f *flight, i int) {
	if c.Err == nil && binary.LittleEndian.Uint32(f.out[2].at(i)) != 1 {
		c.Err = ErrKey
	}
	if c.Err != nil {
		clear(c.Shared[:])
		clear(c.Ciphertext[:])
		return
	}
	copy(c.Ciphertext[:], f.out[0].at(i))
	copy(c.Shared[:], f.out[1].at(i))
}

// onCPU does the encapsulation by crypto/mlkem, with the randomness of crypto/rand.
func (c *Encapsulation) onCPU() {
	clear(c.Shared[:])
	clear(c.Ciphertext[:])
	k, err := mlkem.NewEncapsulationKey768(c.Key)
	if err != nil {
		c.Err = ErrKey
		return
	}
	shared, ciphertext := k.Encapsulate()
	c.Err = nil
	copy(c.Shared[:], shared)
	copy(c.Ciphertext[:], ciphertext)
	clear(shared)
}
