package hpack

import "github.com/millrace/millrace/semantics"

// AppendField appends a field in a representation that uses the static table only. An encoder needs no state so, and a peer no
// memory; nginx and HAProxy send the same. Strings are in the Huffman code where that is shorter.
func AppendField(dst []byte, f *semantics.Field) []byte {
	index, whole := findStatic(f.Name, f.Value)
	first := byte(0)
	switch {
	case f.Never:
		first = 0x10
	case whole:
		return AppendInteger(dst, 0x80, 7, index)
	}
	if index != 0 {
		dst = AppendInteger(dst, first, 4, index)
	} else {
		dst = AppendString(append(dst, first), f.Name)
	}
	return AppendString(dst, f.Value)
}

// AppendString appends a string literal (RFC 7541 5.2).
func AppendString(dst []byte, s string) []byte {
	if n := HuffmanLength(s); n < len(s) {
		return AppendHuffman(AppendInteger(dst, 0x80, 7, uint64(n)), s)
	}
	return append(AppendInteger(dst, 0, 7, uint64(len(s))), s...)
}
