//go:build amd64 && !purego

package digest

import (
	"crypto/fips140"
	"unsafe"

	"golang.org/x/sys/cpu"
)

// What the machine has. In FIPS mode only the module of crypto/* is used.
var hasAVX512 = cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && !fips140.Enabled()

// has reports whether this machine runs a form for an algorithm.
func has(f Form, a Algorithm) bool {
	return f == FormAVX512 && hasAVX512 && (a == SHA256 || a == HMACSHA256)
}

// sha256x16 adds blocks of 64 bytes, one or more, of 16 messages to their states, whose word i is state[i].
//
//go:noescape
func sha256x16(state *[8][lanes]uint32, data *[lanes]unsafe.Pointer, blocks int)
