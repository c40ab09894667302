// Package pubkey computes the public-key operations of many handshakes at once on a GPU: X25519, signatures of ECDSA on
// P-256 and P-384, of RSA and of Ed25519, verification of Ed25519, and ML-KEM-768.
//
// An operation is one thread's (of RSA: two threads'), so that throughput needs tens of thousands of them at once, and a
// single one takes a GPU longer than a core. gpukern/sign and gpukern/x25519 are for what one loop has waiting.
//
// Private operations take no branch and no address from a secret: tables are read whole, exponents have fixed lengths, and
// a test reads the GPU's machine code for it (make sass). Each signature is verified on the GPU before it leaves: those
// that are wrong are made again on the CPU, and counted. Memory that had secrets is overwritten before a call returns, on
// the device and on the host.
//
// A device that is lost, in the middle of a batch or before, costs time and nothing else: the operations that it has not
// returned are done on the CPU, and counted.
package pubkey
