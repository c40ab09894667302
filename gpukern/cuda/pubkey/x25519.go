package pubkey

import (
	"github.com/millrace/millrace/gpukern/cuda"
	"github.com/millrace/millrace/gpukern/x25519"
)

// x25519Params is struct pk_x25519.
type x25519Params struct {
	scalars, points, products cuda.Ptr
	n, _                      uint32
}

const x25519Threads = 128

var x25519Task = task{
	name: "x25519", in: []int{32, 32}, out: []int{32},
	launch: func(_ *Engine, f *flight) error {
		return launch(f, "pk_x25519", f.n, x25519Threads, &x25519Params{
			scalars: f.in[0].ptr, points: f.in[1].ptr, products: f.out[0].ptr, n: uint32(f.n),
		})
	},
}

// launch runs a kernel with a thread for each of n.
func launch[P any](f *flight, name string, n, threads int, params *P) error {
	k, err := f.GPU.Kernel(name)
	if err != nil {
		return err
	}
	return cuda.Launch(f.Stream, k, cuda.Grid{Blocks: (n + threads - 1) / threads, Threads: threads}, params)
}

// X25519 sets products to scalars times points, all of one length (RFC 7748 5). A point of low order gives zeros, which a
// key exchange must refuse (RFC 7748 6.1); x25519.Base gives public keys.
func (e *Engine) X25519(products, scalars, points [][32]byte) {
	e.run(&x25519Task, x25519Call(products, scalars, points))
}

func x25519Call(products, scalars, points [][32]byte) *call {
	return &call{
		n: len(products),
		fill: func(f *flight, first, from, to int) {
			for i := from; i < to; i++ {
				copy(f.in[0].at(i), scalars[first+i][:])
				copy(f.in[1].at(i), points[first+i][:])
			}
		},
		take: func(f *flight, first, from, to int) {
			for i := from; i < to; i++ {
				copy(products[first+i][:], f.out[0].at(i))
			}
		},
		redo: func(from, to int) { x25519.MultiplyAll(products[from:to], scalars[from:to], points[from:to]) },
	}
}
