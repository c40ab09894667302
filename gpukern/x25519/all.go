package x25519

import "crypto/ecdh"

// MultiplyAll sets products to scalars times points on the calling core: several at once where the CPU has the lanes, else by
// crypto/ecdh. All three have one length. A point of low order gives zeros, which a key exchange must refuse (RFC 7748 6.1).
func MultiplyAll(products, scalars, points [][Size]byte) {
	if Supported() {
		pass := NewPass()
		for i := 0; i < len(products); i += pass.Lanes() {
			end := min(len(products), i+pass.Lanes())
			pass.Multiply(products[i:end], scalars[i:end], points[i:end])
		}
		return
	}
	for i := range products {
		products[i] = [Size]byte{} // of a point of low order
		private, err := ecdh.X25519().NewPrivateKey(scalars[i][:])
		if err != nil { // never: of the right length
			continue
		}
		public, err := ecdh.X25519().NewPublicKey(points[i][:])
		if err != nil {
			continue
		}
		if secret, err := private.ECDH(public); err == nil {
			copy(products[i][:], secret)
			clear(secret)
		}
	}
}
