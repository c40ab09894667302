//go:build !debug

package loss

// counting is whether Pool.touched counts, for tests that bound the work of one ACK.
const counting = false
