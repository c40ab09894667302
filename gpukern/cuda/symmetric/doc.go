// Package symmetric seals, opens and hashes batches of gpukern/aead and gpukern/digest on a GPU: ChaCha20-Poly1305 and
// AES-GCM, SHA-256 and HMAC with it. What a GPU has no kernel for is done by the CPU's forms, with equal results.
//
// A text is one warp's, a message to hash one thread's. The memory of a batch is one of three kinds:
//
//   - any memory (Seal, Open, Sum, Verify): texts are copied through pinned memory, and a device that is lost in the middle
//     costs time and nothing else, since their originals are there;
//   - memory that the device maps, such as an arena of packets (Area): the device reads and writes texts in place, and no core
//     touches them. Texts that a lost device was given are torn: they are overwritten with zeros, and counted;
//   - memory of the device (Resident), of which a device that is lost leaves nothing.
//
// No branch and no address depends on a key, a text or a tag; AES is computed in slices of bits, without tables. Forged texts
// are not decrypted. Keys are copied to the device at their first use, and overwritten there by Forget and Close;
// copies of texts are overwritten before a call returns.
package symmetric
