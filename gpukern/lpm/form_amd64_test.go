//go:build amd64 && !purego

package lpm

import "testing"

// PlainForm switches the vector instructions off for the rest of a test.
func PlainForm(t *testing.T) {
	was := useAVX512
	useAVX512 = false
	t.Cleanup(func() { useAVX512 = was })
}
