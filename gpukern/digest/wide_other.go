//go:build !amd64 || purego

package digest

import "unsafe"

// has reports whether this machine runs a form for an algorithm.
func has(Form, Algorithm) bool { return false }

// These are never called, as has is false.

func sha256x16(state *[8][lanes]uint32, data *[lanes]unsafe.Pointer, blocks int) {}
