// Package qpack compresses the fields of HTTP/3 messages: an encoder and a decoder, each with the dynamic
// table, for one connection.
//
// Neither does input or output. An Encoder turns fields into field sections, which travel on request
// streams, and into instructions for the peer's table, which AppendStream hands over for the encoder
// stream. A Decoder takes the peer's instructions by Instructions and field sections by Decode, and hands
// over acknowledgments by AppendStream for the decoder stream. Bytes of streams may come cut anywhere;
// field sections come whole.
//
// There is no goroutine, no lock and no clock. Decoding and encoding allocate nothing once
// buffers have grown, except for one string for each entry that a peer inserts.
//
// The package does not know what fields mean: the order of pseudo-headers, the characters of names and
// everything else that makes a message malformed is checked by package http3.
//
// RFCs: 9204 (QPACK), 7541 5.1 and 5.2 (integers, Huffman code).
package qpack
