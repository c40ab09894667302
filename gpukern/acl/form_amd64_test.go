//go:build amd64 && !purego

package acl

import "testing"

// PlainForm switches the vector instructions off for the rest of a test.
func PlainForm(t *testing.T) {
	scan, tree := scanByAVX512, treeByAVX512
	scanByAVX512, treeByAVX512 = false, false
	t.Cleanup(func() { scanByAVX512, treeByAVX512 = scan, tree })
}
