package stack

import (
	"slices"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/wire"
)

// settled are the findings of the header pass after which a transport checksum needs no further look: it is right, or there is none
// that could be verified.
const settled = packet.FlagL4ChecksumOK | packet.FlagL4NoChecksum | packet.FlagFragment | packet.FlagFragmentRest | packet.FlagMalformed | packet.FlagTruncated

// checksums looks at packets whose TCP or UDP checksum is wrong. Those that a sender on this machine has left to its device, which is
// no hardware, are completed: without that every connection from the other end of a veth would fail in silence. The others are
// counted. An engine that does not verify has found no wrong ones: then all are looked at, and only completed, which leaves a
// right one as it is.
func (l *Loop) checksums(b *packet.Batch) {
	for i := range b.D {
		d := &b.D[i]
		if d.Flags&settled != 0 || d.Payload == 0 || d.Proto != wire.ProtoTCP && d.Proto != wire.ProtoUDP {
			continue
		}
		if l.leavesChecksums(d.Port) && gpukern.CompleteChecksum(b, i) {
			continue
		}
		if l.verifies {
			l.count.WrongChecksums++
		}
	}
}

// leavesChecksums reports whether senders leave checksums to the device of a port.
func (l *Loop) leavesChecksums(port uint8) bool {
	return int(port) < len(l.devices) && l.devices[port].info.Caps&pmd.CapPartialChecksums != 0
}

// completesChecksums reports whether senders leave checksums to any device of the loop.
func (l *Loop) completesChecksums() bool {
	return slices.ContainsFunc(l.devices, func(d rxDevice) bool { return d.info.Caps&pmd.CapPartialChecksums != 0 })
}
