//go:build amd64 && !purego

package aead

import (
	"crypto/fips140"

	"golang.org/x/sys/cpu"
)

// What the machine has. In FIPS mode only the module of crypto/* is used.
var hasVAES = cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512VL && cpu.X86.HasAVX512VAES &&
	cpu.X86.HasAVX512VPCLMULQDQ && cpu.X86.HasBMI2 && !fips140.Enabled()

// has reports whether this machine runs a form for an algorithm.
func has(f Form, a Algorithm) bool {
	switch a {
	case AES128GCM, AES256GCM:
		return f == FormAVX512 && hasVAES
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

// encryptBlock encrypts a block with AES.
//
//go:noescape
func encryptBlock(k *Image, dst *[16]byte)

// multiplyPowers computes the higher powers of the lowest one in Powers.
//
//go:noescape
func multiplyPowers(k *Image)
