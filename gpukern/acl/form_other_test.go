//go:build !amd64 || purego

package acl

import "testing"

// PlainForm does nothing: there is no other.
func PlainForm(*testing.T) {}
