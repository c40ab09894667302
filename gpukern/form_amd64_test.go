//go:build amd64 && !purego

package gpukern

import "testing"

// plainForm switches the vector instructions off for the rest of a test.
func plainForm(t *testing.T) {
	was := useAVX512
	useAVX512 = false
	t.Cleanup(func() { useAVX512 = was })
}
