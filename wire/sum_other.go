//go:build !amd64 || purego

package wire

func sumLong(b []byte, acc uint32) uint32 { return sumGeneric(b, acc) }
