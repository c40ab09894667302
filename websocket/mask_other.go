//go:build !amd64 || purego

package websocket

// xorKeyLong is xorKeyGeneric by the widest registers that Go has everywhere.
func xorKeyLong(dst, src []byte, key uint32) { xorKeyGeneric(dst, src, key) }
