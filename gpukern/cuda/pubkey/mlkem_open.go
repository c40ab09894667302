package pubkey

import (
	"crypto/mlkem"
	"crypto/sha3"
	"encoding/binary"
)

// MLKEMKey is a private key of ML-KEM-768. It is safe for concurrent use until Close.
type MLKEMKey struct {
	key *mlkem.DecapsulationKey768
	dev *secret
}

// NewMLKEMKey prepares a key. The caller closes it before the engine.
func (e *Engine) NewMLKEMKey(key *mlkem.DecapsulationKey768) (*MLKEMKey, error) {
	k := &MLKEMKey{key: key}
	d := e.device.Usable()
	if d == nil {
		return k, nil
	}
	image := mlkemImage(key)
	defer clear(image)
	var err error
	k.dev, err = newSecret(e, d, image)
	return k, err
}

// Close overwrites the key on the device. No call may use it any more.
func (k *MLKEMKey) Close() error { return k.dev.close() }

const (
	mlkemQ = 3329
	mlkemK = 3
	mlkemN = 256
)

// mlkemImage returns struct mlkem_private: the polynomials of K-PKE.KeyGen (FIPS 203 5.1) after the transform, the seed z and
// the public key. Time and addresses depend on no secret.
func mlkemImage(key *mlkem.DecapsulationKey768) []byte {
	seed := key.Bytes() // d, z
	defer clear(seed)
	seeds := sha3.Sum512(append(append(make([]byte, 0, 33), seed[:32]...), mlkemK))
	defer clear(seeds[:])
	var image []byte
	for i := range mlkemK {
		prf := sha3.NewSHAKE256()
		prf.Write(seeds[32:])
		prf.Write([]byte{byte(i)})
		var bits [mlkemN / 2]byte
		prf.Read(bits[:])
		var f [mlkemN]uint32
		for j := range f { // two times two bits each (FIPS 203 4.2.2)
			v := uint32(bits[j/2] >> (j % 2 * 4))
			f[j] = mlkemLower(v&1 + v>>1&1 + mlkemQ - v>>2&1 - v>>3&1)
		}
		mlkemTransform(&f)
		for _, v := range f {
			image = binary.LittleEndian.AppendUint16(image, uint16(v))
		}
		clear(f[:])
		clear(bits[:])
	}
	image = append(image, seed[32:]...)
	return append(image, key.EncapsulationKey().Bytes()...)
}

// mlkemLower returns v, below 2q, modulo q.
func mlkemLower(v uint32) uint32 {
	less := v - mlkemQ
	return less + mlkemQ&-(less>>31)
}

// mlkemTransform is the number-theoretic transform (FIPS 203 4.3).
func mlkemTransform(f *[mlkemN]uint32) {
	zeta := func(k int) uint32 { // 17^BitRev7(k)
		power := uint32(1)
		for bit := range 7 {
			power = power * power % mlkemQ
			if k>>bit&1 != 0 {
				power = power * 17 % mlkemQ
			}
		}
		return power
	}
	k := 1
	for length := mlkemN / 2; length >= 2; length /= 2 {
		for start := 0; start < mlkemN; start += 2 * length {
			z := zeta(k)
			k++
			for j := start; j < start+length; j++ {
				product := z * f[j+length]
				product -= uint32(uint64(product)*1290167>>32) * mlkemQ // 2^32 / q: at most one too low
				product = mlkemLower(product)
				f[j+length] = mlkemLower(f[j] + mlkemQ - product)
				f[j] = mlkemLower(f[j] + product)
			}
		}
	}
}

// Decapsulation asks for the shared secret of a ciphertext.
type Decapsulation struct {
	Key        *MLKEMKey
	Ciphertext []byte

	Shared [mlkem.SharedKeySize]byte
	Err    error
}

var decapsulateTask = task{
	name: "mlkem768 open", in: []int{mlkem.CiphertextSize768, 8}, out: []int{mlkem.SharedKeySize},
	scratch: []int{12 * 512, 32, 12, mlkem.CiphertextSize768},
	launch: func(_ *Engine, f *flight) error {
		return launchMLKEM(f, "pk_mlkem_decapsulate", &mlkemParams{
			received: f.in[0].ptr, privates: f.in[1].ptr, shared: f.out[0].ptr,
			matrix: f.work[0].ptr, hashes: f.work[1].ptr, wrong: f.work[2].ptr, ciphertexts: f.work[3].ptr, n: uint32(f.n),
		})
	},
}

// DecapsulateMLKEM768 sets the results of the decapsulations. A wrong ciphertext gives a secret that nobody else has (FIPS 203
// 7.3), and one of a wrong length is an error.
func (e *Engine) DecapsulateMLKEM768(all []Decapsulation) {
	var placed, others []*Decapsulation
	for i := range all {
		if c := &all[i]; c.Key.dev != nil && len(c.Ciphertext) == mlkem.CiphertextSize768 {
			placed = append(placed, c)
		} else {
			others = append(others, c)
		}
	}
	if len(others) > 0 {
		e.onCPU(&call{redo: func(from, to int) { decapsulateCPU(others[from:to]) }}, 0, len(others))
	}
	if len(placed) > 0 {
		e.run(&decapsulateTask, decapsulateCall(placed))
	}
}

func decapsulateCall(placed []*Decapsulation) *call {
	return &call{
		n: len(placed),
		fill: func(f *flight, first, from, to int) {
			for i := from; i < to; i++ {
				copy(f.in[0].at(i), placed[first+i].Ciphertext)
				binary.LittleEndian.PutUint64(f.in[1].at(i), uint64(placed[first+i].Key.dev.buf.Ptr))
			}
		},
		take: func(f *flight, first, from, to int) {
			for i := from; i < to; i++ {
				placed[first+i].Err = nil
				copy(placed[first+i].Shared[:], f.out[0].at(i))
			}
		},
		redo: func(from, to int) { decapsulateCPU(placed[from:to]) },
	}
}

func decapsulateCPU(all []*Decapsulation) {
	for _, c := range all {
		var shared []byte
		shared, c.Err = c.Key.key.Decapsulate(c.Ciphertext)
		clear(c.Shared[:])
		copy(c.Shared[:], shared)
		clear(shared)
	}
}
