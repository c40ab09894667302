// Package ecdsa computes eight ECDSA signatures at once on P-256 or P-384 (FIPS 186-5 6.4.1), one to a lane of the CPU's
// vector units (AVX-512 IFMA).
//
// Numbers are digits of 52 bits, five of them for P-256 and eight for P-384, in rows: row i holds digit i of eight numbers.
// Products are reduced by Montgomery's method. Their bounds are part of the formulas: see field.
//
// Time and addresses do not depend on nonces or private keys. A nonce has a fixed number of signed digits, none of them
// zero (M. Joye, M. Tunstall, Exponent recoding and regular exponentiation algorithms, 2009). A look-up reads the whole
// window of the table of the generator. Inverses are powers with a public exponent.
//
// A pass verifies its signatures together, with the public keys, before it returns any of them.
package ecdsa
