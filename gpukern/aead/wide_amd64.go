//go:build amd64 && !purego

package aead

import (
	"crypto/fips140"

	"golang.org/x/sys/cpu"
)

// What the machine has. In FIPS mode only the module of crypto/* is used.
var (
	has512  = cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512VL && cpu.X86.HasBMI2 && !fips140.Enabled()
	hasVAES = has512 && cpu.X86.HasAVX512VAES && cpu.X86.HasAVX512VPCLMULQDQ
	hasIFMA = has512 && cpu.X86.HasAVX512IFMA
)

// has reports whether this machine runs a form for an algorithm.
func has(f Form, a Algorithm) bool {
	switch a {
	case AES128GCM, AES256GCM:
		return f == FormAVX512 && hasVAES
	case ChaCha20Poly1305:
		return f == FormAVX512 && hasIFMA
	}
	return false
}

// sealGCM encrypts a text and writes its tag.
//
//go:noescape
func sealGCM(k *Image, nonce *[16]byte, aad *byte, aadLen int, text *byte, n int, tag *byte)

// openGCM decrypts a text and writes the tag that it should have.
//
//go:noescape
func openGCM(k *Image, nonce *[16]byte, aad *byte, aadLen int, text *byte, n int, tag *byte)

// substituteWord applies the S-box of AES to the bytes of a word.
func substituteWord(w uint32) uint32

// encryptBlock encrypts a block with AES.
//
//go:noescape
func encryptBlock(k *Image, dst *[16]byte)

// multiplyPowers computes the higher powers of the lowest one in Powers.
//
//go:noescape
func multiplyPowers(k *Image)

// chachaXOR adds the key stream of whole chunks, 16 blocks each from a counter on, to a text.
//
//go:noescape
func chachaXOR(key *[32]byte, nonce *[16]byte, counter uint32, text *byte, chunks int)

// chachaLanes computes the blocks of n segments.
//
//go:noescape
func chachaLanes(segments *segment, n int, stream *[lanes][blockSize]byte)

// polyStart computes the powers of a key, and takes the first group of eight blocks. blocks has the lanes that are not empty.
//
//go:noescape
func polyStart(p *polyState, key *byte, group *byte, blocks uint8)

// polyGroups takes n more groups, one or more.
//
//go:noescape
func polyGroups(p *polyState, groups *byte, n int)

// polyEnd multiplies the lanes by their powers and returns the sum, in digits that have carries.
//
//go:noescape
func polyEnd(p *polyState, sum *[3]uint64)
