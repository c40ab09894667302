package filter

import (
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// Checks are findings of the engine that drop a packet before any rule is asked, as bits.
type Checks uint8

// The bits of Checks.
const (
	CheckMalformed  Checks = 1 << iota // packet.DropMalformed: lengths or versions contradict the bytes
	CheckTruncated                     // packet.DropTruncated: bytes that the headers claim are missing
	CheckIPChecksum                    // packet.DropIPChecksum: of the IPv4 header
	CheckL4Checksum                    // packet.DropL4Checksum: of TCP, UDP, ICMP and ICMPv6
	CheckHeaders                       // packet.DropTruncated where headers are missing, not payload only: for captures with a snap length

	// ChecksAll are right where packets come off a wire. A capture that cuts packets short, or was
	// made on a sender whose device fills in checksums, wants fewer.
	ChecksAll = CheckMalformed | CheckTruncated | CheckIPChecksum | CheckL4Checksum
)

const unusual = packet.FlagMalformed | packet.FlagTruncated | packet.FlagFragment

// verdict returns what the checks say about d, Undecided where they say nothing.
func (c Checks) verdict(d *packet.Desc) packet.Verdict {
	const good = packet.FlagIPChecksumOK | packet.FlagL4ChecksumOK
	switch f := d.Flags; {
	case f&(good|packet.FlagMalformed|packet.FlagTruncated) == good: // the usual packet
	case c&CheckMalformed != 0 && f&packet.FlagMalformed != 0:
		return packet.DropMalformed
	case c&CheckTruncated != 0 && f&packet.FlagTruncated != 0:
		return packet.DropTruncated
	case c&CheckHeaders != 0 && f&(packet.FlagTruncated|packet.FlagFragmentRest) == packet.FlagTruncated && d.L4 == 0:
		return packet.DropTruncated
	case c&CheckIPChecksum != 0 && f&(packet.FlagIPv4|packet.FlagIPChecksumOK) == packet.FlagIPv4:
		return packet.DropIPChecksum
	case c&CheckL4Checksum != 0 && summed(d) && f&(packet.FlagL4ChecksumOK|packet.FlagL4NoChecksum) == 0:
		return packet.DropL4Checksum
	}
	return packet.Undecided
}

// summed reports whether the engine verifies the transport checksum of d: all of a packet is there,
// and it is of a protocol that has one.
func summed(d *packet.Desc) bool {
	if d.Payload == 0 || d.Flags&unusual != 0 {
		return false
	}
	switch d.Proto {
	case wire.ProtoTCP, wire.ProtoUDP, wire.ProtoICMP, wire.ProtoICMPv6:
		return true
	}
	return false
}
