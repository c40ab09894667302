package datapath

// canPrefetch reports whether prefetch does something.
const canPrefetch = true

// prefetch asks for the cache lines of the n addresses that begin at list, and does not wait. An
// address may be any number: nothing is read that the program could notice.
//
//go:noescape
func prefetch(list *uintptr, n int)
