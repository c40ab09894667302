// Package fec is forward error correction for datagrams: repair symbols beside them, from which the
// receiver recovers lost ones without a round trip. It is experimental and off unless both ends
// agree on it by the application protocol (Offer, Negotiated).
//
// An Encoder frames datagrams as source symbols and says when a repair symbol is due. A Decoder
// takes what arrived and returns datagrams, recovered ones included, each once, in any order. Both
// are pure: no goroutine, no clock, bounded memory. A Conn drives them over a QUIC connection.
//
// There are two codes. XOR sums each block of symbols and recovers one loss in it. RLC is a sliding
// window code with random coefficients in GF(2^8): any repair symbol helps with any losses in its
// window, so that it also recovers bursts.
//
// It does not retransmit, order or pace, and repair symbols take their share of the congestion
// window. QUIC authenticates symbols; the decoder takes hostile ones and stays within its bounds.
//
// RFCs: the model is that of 6363 (FEC framework) and 8681 (sliding window RLC) in a header of its
// own inside of 9221 datagrams, so it does not interoperate with RTP.
package fec
