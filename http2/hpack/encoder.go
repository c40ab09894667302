package hpack

import "github.com/millrace/millrace/semantics"

// AppendField appends a field in a representation that uses the static table only. An encoder needs no state so, and a peer no
// memory; nginx and HAProxy send the same. Strings are in the Huffman code where that is shorter.
func AppendField(dst []byte, f *semantics.Field) []byte {
	first := byte(0)
	if f.Never {
		first = 0x10
	} else if i, ok := staticFields[semantics.Field{Name: f.Name, Value: f.Value}]; ok {
		return AppendInteger(dst, 0x80, 7, i)
	}
	if i, ok := staticNames[f.Name]; ok {
		dst = AppendInteger(dst, first, 4, i)
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
