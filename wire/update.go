package wire

// A checksum is updated for a change of what it covers, without looking at the rest, by RFC 1624 eqn. 3:
//
//	HC' = ~(~HC + ~m + m')
//
// where HC is the checksum in the header and m the old, m' the new value of a 16-bit word. It differs
// from RFC 1141, whose HC + m + ~m' yields 0xffff where the sum over the header is 0 (RFC 1624 2).
//
// Ones' complement has two zeros. A checksum that was computed by Fold over anything but zeros is never
// 0xffff, and neither is one that was updated from there, so both agree in every bit unless the change
// leaves nothing but zeros, which no header with a pseudo header or a version can. Only UDP sends 0xffff
// in place of 0: a UDP checksum of 0 must not be updated, and an updated one goes through UDPChecksum
// (RFC 768, RFC 8200 8.1); UDP.Update does both.

// Update16 returns the checksum csum after a 16-bit word that it covers has changed.
func Update16(csum, old, new uint16) uint16 {
	return Fold(uint32(^csum) + uint32(^old) + uint32(new))
}

// Update32 returns the checksum csum after 32 bits that it covers have changed: an IPv4 address, a
// sequence number, both ports.
func Update32(csum uint16, old, new uint32) uint16 {
	return Fold(uint32(^csum) + ^old>>16 + ^old&0xffff + new>>16 + new&0xffff)
}

// Update128 returns the checksum csum after an IPv6 address that it covers has changed.
func Update128(csum uint16, old, new [16]byte) uint16 {
	return Apply(csum, Diff128(old, new))
}

// UpdateBytes returns the checksum csum after a range of bytes that it covers has changed from old to
// new. Both start at an even offset of what is covered and have an even length; the lengths may differ
// where the rest moves by an even number of bytes.
func UpdateBytes(csum uint16, old, new []byte) uint16 {
	return Fold(uint32(^csum) + (0xffff - Sum(old, 0)) + Sum(new, 0))
}

// A difference is the part of eqn. 3 that does not depend on the checksum, ~m + m' in 16 bits. Address
// translation computes it once for a flow and applies it to every packet; the sum of two differences
// is the difference of both changes.

// Diff32 returns the difference of a change of 32 bits.
func Diff32(old, new uint32) uint16 {
	return uint16(fold16(^old>>16 + ^old&0xffff + new>>16 + new&0xffff))
}

// Diff128 returns the difference of a change of an IPv6 address.
func Diff128(old, new [16]byte) uint16 {
	return uint16(fold16(8*0xffff - words16(old) + words16(new)))
}

// AddDiff returns the difference of two changes together.
func AddDiff(d, e uint16) uint16 { return uint16(fold16(uint32(d) + uint32(e))) }

// Apply returns the checksum csum after a change of difference diff.
func Apply(csum, diff uint16) uint16 { return Fold(uint32(^csum) + uint32(diff)) }

// Update applies a difference to the checksum, if the datagram has one.
func (b UDP) Update(diff uint16) {
	if c := b.Checksum(); c != 0 {
		b.SetChecksum(UDPChecksum(Apply(c, diff)))
	}
}
