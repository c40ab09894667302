//go:build !amd64 || purego

package wire

// sumLong is Sum by the widest registers that Go has everywhere.
func sumLong(b []byte, acc uint32) uint32 { return sumGeneric(b, acc) }
