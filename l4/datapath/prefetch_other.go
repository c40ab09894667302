//go:build !amd64

package datapath

// canPrefetch reports whether prefetch does something.
const canPrefetch = false

func prefetch(*uintptr, int) {}
