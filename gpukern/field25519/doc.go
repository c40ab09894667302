// Package field25519 computes modulo 2^255 - 19 with several numbers at once, one to a lane of the CPU's vector units. Key exchanges
// (x25519) and signatures (ed25519) are made of it.
//
// A Form is a way to compute. All have the same operations, and an Element of any form takes the same memory:
//
//	IFMA   8 lanes   five digits of 52 bits       AVX-512 IFMA
//	AVX2   4 lanes   ten digits of 26 and 25 bits AVX2
//	plain  8 lanes   as IFMA                      Go: the meaning of IFMA, which tests compare with it
//
// A digit of all lanes is a row. Time and addresses depend on no number, but for Gather, whose indices are public.
package field25519
