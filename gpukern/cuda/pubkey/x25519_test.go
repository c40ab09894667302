package pubkey

import (
	"crypto/ecdh"
	"encoding/hex"
	"math/rand/v2"
	"testing"

	"github.com/millrace/millrace/gpukern/x25519"

	"github.com/millrace/millrace/gpukern/cuda/offload"
)

// random32 returns n numbers of 32 bytes.
func random32(seed byte, n int) [][32]byte {
	all := make([][32]byte, n)
	r := rand.NewChaCha8([32]byte{seed})
	for i := range all {
		r.Read(all[i][:])
	}
	return all
}

func hex32(t *testing.T, s string) (v [32]byte) {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil || copy(v[:], b) != len(v) {
		t.Fatalf("%q: %v", s, err)
	}
	return v
}

// TestX25519Vectors has the vectors of RFC 7748 5.2 and 6.1.
func TestX25519Vectors(t *testing.T) {
	devices(t, 3, 3, func(t *testing.T, b *bed, _ int) {
		scalars := [][32]byte{
			hex32(t, "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4"),
			hex32(t, "4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d"),
			hex32(t, "77076d0a7318a57d3c16c17251b26645df4c6f920eb3ade1c9a12a24d6f9bbfd"),
		}
		points := [][32]byte{
			hex32(t, "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c"),
			hex32(t, "e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a493"),
			x25519.Base,
		}
		want := [][32]byte{
			hex32(t, "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552"),
			hex32(t, "95cbde9476e8907d7aade45cb4b873f88b595a68799fa152e6f8f7647aac7957"),
			{},
		}
		products := make([][32]byte, 3)
		// The third is a key whose first byte is that of no vector: its public key is that of crypto/ecdh.
		k, err := ecdh.X25519().NewPrivateKey(scalars[2][:])
		if err != nil {
			t.Fatal(err)
		}
		copy(want[2][:], k.PublicKey().Bytes())
		b.X25519(products, scalars, points)
		for i := range want {
			if products[i] != want[i] {
				t.Errorf("vector %d: %x, want %x", i, products[i], want[i])
			}
		}
		b.onDevice(t, 3)
	})
}

// TestX25519Iterated has the iterations of RFC 7748 5.2: the product is the next scalar, and the scalar the next point.
func TestX25519Iterated(t *testing.T) {
	devices(t, 1, 1000, func(t *testing.T, b *bed, n int) {
		scalar, point, product := [][32]byte{x25519.Base}, [][32]byte{x25519.Base}, make([][32]byte, 1)
		want := map[int]string{
			1:    "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079",
			1000: "684cf59ba83309552800ef566f2f4d3c1c3887c49360e3875f2eb94d99532c51",
		}
		for i := 1; i <= n; i++ {
			b.X25519(product, scalar, point)
			point[0], scalar[0] = scalar[0], product[0]
			if w, ok := want[i]; ok && product[0] != hex32(t, w) {
				t.Fatalf("iteration %d: %x, want %s", i, product[0], w)
			}
		}
	})
}

// hostilePoints are those of low order and numbers that are not below the prime, as any client may send them.
func hostilePoints(t *testing.T) [][32]byte {
	var all [][32]byte
	for _, s := range []string{
		"0000000000000000000000000000000000000000000000000000000000000000",
		"0100000000000000000000000000000000000000000000000000000000000000",
		"e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
		"5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
		"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
		"daffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
	} {
		all = append(all, hex32(t, s))
	}
	return all
}

// TestX25519IsThatOfTheStandard compares products with crypto/ecdh, in several launches.
func TestX25519IsThatOfTheStandard(t *testing.T) {
	devices(t, 70, 100000, func(t *testing.T, b *bed, n int) {
		scalars, points := random32(1, n), random32(2, n)
		copy(points, hostilePoints(t))
		products := random32(3, n) // that nothing keeps what was there
		b.X25519(products, scalars, points)
		want := make([][32]byte, n)
		offload.Parallel(n, leastDone, func(from, to int) { x25519Standard(t, want[from:to], scalars[from:to], points[from:to]) })
		wrong := 0
		for i := range want {
			if products[i] != want[i] {
				if wrong++; wrong < 4 {
					t.Errorf("%d: %x times %x is %x, want %x", i, scalars[i], points[i], products[i], want[i])
				}
			}
		}
		if wrong > 0 {
			t.Errorf("%d of %d are wrong", wrong, n)
		}
		b.onDevice(t, n)
	})
}

// x25519Standard is X25519 by crypto/ecdh.
func x25519Standard(t *testing.T, products, scalars, points [][32]byte) {
	for i := range products {
		k, err := ecdh.X25519().NewPrivateKey(scalars[i][:])
		p, err2 := ecdh.X25519().NewPublicKey(points[i][:])
		if err != nil || err2 != nil {
			t.Error(err, err2)
			return
		}
		if s, err := k.ECDH(p); err == nil { // else of low order
			copy(products[i][:], s)
		}
	}
}
