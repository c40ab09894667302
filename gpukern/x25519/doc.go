// Package x25519 computes eight key exchanges of RFC 7748 at once, one to a lane of the CPU's vector units (AVX-512 IFMA).
//
// Numbers modulo 2^255 - 19 are five digits of 52 bits in rows: row i holds digit i of eight numbers. A product has ten columns;
// the upper five count 608 times, as 2^260 does.
//
// Time and addresses depend on no scalar and no point: each bit of a scalar is one step of the ladder, with a masked exchange.
package x25519
