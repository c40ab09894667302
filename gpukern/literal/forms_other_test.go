//go:build !amd64 || purego

package literal

import "testing"

// forms runs test with the only form there is.
func forms(t *testing.T, test func(t *testing.T)) { t.Run("plain", test) }
