package stack

import (
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
// counted.
func (l *Loop) checksums(b *packet.Batch) {
	for i := range b.D {
		d := &b.D[i]
		if d.Flags&settled != 0 || d.Payload == 0 || d.Proto != wire.ProtoTCP && d.Proto != wire.ProtoUDP {
			continue
		}
		if int(d.Port) < len(l.devices) && l.devices[d.Port].info.Caps&pmd.CapPartialChecksums != 0 && gpukern.CompleteChecksum(b, i) {
			continue
		}
		l.count.WrongChecksums++
	}
}
