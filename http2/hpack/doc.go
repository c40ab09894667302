// Package hpack compresses the fields of HTTP/2 messages: a Decoder with the dynamic table, and an encoder that uses none.
// Its integers, strings and Huffman code are those of QPACK too.
//
// There is no goroutine, no lock and no clock. Decoding and encoding allocate nothing once buffers have grown. What fields
// mean is checked by package semantics.
//
// RFC: 7541.
package hpack
