package auth

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/subtle"
)

// cmac is AES-128-CMAC (RFC 4493) as a hash.Hash.
type cmac struct {
	block  cipher.Block
	k1, k2 [aes.BlockSize]byte // for a last block that is complete, and one that is padded
	x      [aes.BlockSize]byte // chained so far
	buf    [aes.BlockSize]byte // not chained yet: the last block is treated differently
	n      int
}

// newCMAC returns the MAC with a key.
func newCMAC(key [16]byte) *cmac {
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic(err) // 16 bytes are a right length
	}
	c := &cmac{block: block}
	var l [aes.BlockSize]byte
	block.Encrypt(l[:], l[:])
	c.k1 = double(l)
	c.k2 = double(c.k1)
	return c
}

// double multiplies by x in GF(2^128) (RFC 4493 2.3).
func double(b [16]byte) (d [16]byte) {
	var carry byte
	for i := len(b) - 1; i >= 0; i-- {
		d[i] = b[i]<<1 | carry
		carry = b[i] >> 7
	}
	d[15] ^= 0x87 & -carry
	return d
}

// Write adds p to what is signed.
func (c *cmac) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		if c.n == len(c.buf) {
			c.chain()
		}
		k := copy(c.buf[c.n:], p)
		c.n += k
		p = p[k:]
	}
	return n, nil
}

// chain encrypts a full block into the running MAC.
func (c *cmac) chain() {
	subtle.XORBytes(c.x[:], c.x[:], c.buf[:])
	c.block.Encrypt(c.x[:], c.x[:])
	c.n = 0
}

// Sum appends the MAC to b. It ends the message: Reset must come before the next Write.
func (c *cmac) Sum(b []byte) []byte {
	// A complete last block is masked by K1, a padded one by K2, so that padding cannot be
	// mistaken for message (RFC 4493 2.4).
	last := &c.k1
	if c.n < len(c.buf) {
		last = &c.k2
		c.buf[c.n] = 0x80
		clear(c.buf[c.n+1:])
	}
	subtle.XORBytes(c.buf[:], c.buf[:], last[:])
	c.chain()
	return append(b, c.x[:]...)
}

// Reset begins a new message.
func (c *cmac) Reset() { c.x, c.n = [aes.BlockSize]byte{}, 0 }

// Size returns the length of the MAC, bytes.
func (c *cmac) Size() int { return aes.BlockSize }

// BlockSize returns the length of a block, bytes.
func (c *cmac) BlockSize() int { return aes.BlockSize }
