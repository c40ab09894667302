//go:build !amd64 || purego

package lpm

import "testing"

// PlainForm does nothing: there is no other.
func PlainForm(*testing.T) {}
