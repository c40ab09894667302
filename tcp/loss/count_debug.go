//go:build debug

package loss

const counting = true
