// Package aead seals and opens batches of packets: authenticated encryption (RFC 5116) of many texts under many keys, in
// place. IPsec ESP, records of TLS and the state sync are its kind of caller.
//
// A Batch is memory, keys and operations. An Op has offsets into the memory and no pointer, so that it has one layout for the
// CPU and a GPU: the memory of an arena of packets serves, and so does one buffer of a connection. The tag of 16 bytes stands
// directly behind the text, as in ESP, TLS and QUIC.
//
//	b.Mem = arena.Mem
//	b.Ops = append(b.Ops[:0], aead.Op{Text: at, Len: n, AAD: header, AADLen: 8, Nonce: nonce, Key: 0})
//	sealed := cpu.Seal(&b) // Op.Result of each
//
// Seal refuses an operation whose nonce an earlier one of the batch has under the same key: two texts under one nonce disclose
// both, and for AES-GCM the key of the tags (RFC 5116 5.1.1). Nonces of different batches are the caller's counter. Open
// overwrites a text with zeros if its tag does not verify, so that nothing of a forged packet can be used by mistake.
//
// A CPU has forms: FormStandard uses crypto/* and golang.org/x/crypto, others are assembly for what the machine has.
// All have the same results, and Form reports the chosen one. Time and addresses of all depend on no key or text; AES of
// crypto/aes has that property only where the CPU has instructions for it.
package aead
