// Package sign makes signatures in batches: those of handshakes that wait at the same time, so that the vector units
// of a CPU work on several at once.
//
// A Batch belongs to one loop. What a loop collects in one iteration is signed at its end: at low load that is one
// signature, which waits for no other one, and under load it is as many as there are handshakes (the opportunistic
// batching of SSLShader, K. Jang et al., NSDI 2011).
//
// Each signature is verified before it is returned: one that a fault of the machine made wrong would disclose the key
// (D. Boneh, R. DeMillo, R. Lipton, On the importance of checking cryptographic protocols for faults, 1997).
package sign
