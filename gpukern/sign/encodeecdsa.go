package sign

import "crypto/sha512"

// Nonce sets to, twice the size of a number of the curve, to the nonce of an ECDSA signature: SHA-512 of random bytes, the
// private key (big-endian, at most 48 bytes) and the digest (at most 64). It is as good as its random bytes, and if those
// repeat, still another one for another digest (hedged, as in FIPS 186-5 A.3.2's note and BoringSSL). So many bits leave no
// bias modulo the order.
func Nonce(to []byte, random *[32]byte, private, digest []byte) {
	var input [1 + 32 + 48 + sha512.Size]byte
	defer clear(input[:])
	n := 1 + copy(input[1:], random[:])
	n += copy(input[n:], private)
	n += copy(input[n:], digest)
	for len(to) > 0 {
		sum := sha512.Sum512(input[:n])
		to = to[copy(to, sum[:]):]
		clear(sum[:])
		input[0]++
	}
}

// EncodeECDSA returns the DER of a signature (RFC 3279 2.2.3): SEQUENCE { INTEGER, INTEGER }. r and s are big-endian, and not
// longer than 48 bytes, so that it is shorter than 128 bytes.
func EncodeECDSA(r, s []byte) []byte {
	der := make([]byte, 2, 2+2*(3+len(r)))
	for _, number := range [2][]byte{r, s} {
		for len(number) > 1 && number[0] == 0 {
			number = number[1:]
		}
		if number[0] < 0x80 {
			der = append(der, 2, byte(len(number)))
		} else {
			der = append(der, 2, byte(len(number)+1), 0)
		}
		der = append(der, number...)
	}
	der[0], der[1] = 0x30, byte(len(der)-2)
	return der
}
