//go:build amd64 && !purego

package acl

import "testing"

// PlainForm switches the vector instructions off for the rest of a test.
func PlainForm(t *testing.T) {
	was := scanByAVX512
	scanByAVX512 = false
	t.Cleanup(func() { scanByAVX512 = was })
}
