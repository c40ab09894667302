// Package ed25519 makes and verifies signatures of Ed25519 (RFC 8032), several at once, in the lanes of the CPU's vector units: eight
// with AVX-512 IFMA, four with AVX2. Package field25519 has the arithmetic.
//
// Signatures are those of crypto/ed25519, which depend on key and message alone, and verification takes and refuses what it does: S is
// below the order, the encoding of R is compared, and there is no factor of 8. Each signature is verified before it leaves, as two for
// one message, one of them made wrong by a fault of the machine, disclose the key.
//
// Time and addresses depend on no secret: a window of a nonce costs the same whatever it is, and a look-up reads all entries. What is
// verified is public.
package ed25519
