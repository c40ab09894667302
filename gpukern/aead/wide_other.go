//go:build !amd64 || purego

package aead

// has reports whether this machine runs a form for an algorithm.
func has(Form, Algorithm) bool { return false }

// These are never called, as has is false.

func sealGCM(k *Image, nonce *[16]byte, aad *byte, aadLen int, text *byte, n int, tag *byte) {}
func openGCM(k *Image, nonce *[16]byte, aad *byte, aadLen int, text *byte, n int, tag *byte) {}
func substituteWord(w uint32) uint32                                                         { return w }
func encryptBlock(k *Image, dst *[16]byte)                                                   {}
func multiplyPowers(k *Image)                                                                {}

func chachaXOR(key *[32]byte, nonce *[16]byte, counter uint32, text *byte, chunks int) {}
func chachaLanes(segments *segment, n int, stream *[lanes][blockSize]byte)             {}
func polyStart(p *polyState, key *byte, group *byte, blocks uint8)                     {}
func polyGroups(p *polyState, groups *byte, n int)                                     {}
func polyEnd(p *polyState, sum *[3]uint64)                                             {}
