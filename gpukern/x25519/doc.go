// Package x25519 computes key exchanges of RFC 7748, several at once, in the lanes of the CPU's vector units (AVX-512 IFMA).
//
// A Pass computes eight products, one to a lane, or up to two in half of that time, whose ladders have four lanes each. A Batch makes
// key exchanges of either.
//
// Numbers modulo 2^255 - 19 are five digits of 52 bits in rows: row i holds digit i of eight numbers. A product has ten columns;
// the upper five count 608 times, as 2^260 does.
//
// Time and addresses depend on no scalar and no point: each bit of a scalar is one step of the ladder, with a masked exchange, or an
// order of lanes in a register.
package x25519
