//go:build !amd64 || purego

package roce

import "testing"

func eachForm(t *testing.T, f func(t *testing.T)) { f(t) }
