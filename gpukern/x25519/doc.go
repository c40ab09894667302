// Package x25519 computes key exchanges of RFC 7748, several at once, in the lanes of the CPU's vector units.
//
// A Pass computes a product in each lane: eight with AVX-512 IFMA, four with AVX2. With eight lanes up to two products take half of
// that time: their ladders have four lanes each. A Batch makes key exchanges of either. Package field25519 has the arithmetic.
//
// Time and addresses depend on no scalar and no point: each bit of a scalar is one step of the ladder, with a masked exchange, or an
// order of lanes in a register.
package x25519
