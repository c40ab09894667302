// Package digest computes and verifies hashes, codes with keys and checks of batches: SHA-256 (Merkle trees), HMAC-SHA-256 (ESP),
// SHA-512, BLAKE2s, CRC-32C (RFC 3385) and the invariant CRC of RoCEv2 packets.
//
// A Batch is memory and operations for one algorithm. As in gpukern/aead, an Op has offsets into the memory and no pointer, so
// that it has one layout for the CPU and a GPU:
//
//	b := digest.Batch{Algorithm: digest.SHA256, Mem: arena.Mem, Ops: ops}
//	cpu.Sum(&b)    // writes the sum of each Op to its place
//	cpu.Verify(&b) // compares them with what is there: Op.Result of each
//
// A CPU has forms: FormStandard uses crypto/*, hash/crc32 and golang.org/x/crypto, others are assembly. All have the same
// results, and Form reports the chosen one.
package digest
