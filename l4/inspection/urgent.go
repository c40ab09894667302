package inspection

import (
	"encoding/binary"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// stripUrgent clears the flag and the pointer of urgent data in a packet that passes, so that the receiver reads the byte in
// its place, where the rules have seen it (RFC 6093 3.4). A fragment without the header of TCP follows one that has had it.
func stripUrgent(d *packet.Desc, frame []byte) {
	if d.Proto != wire.ProtoTCP || d.L4 == 0 || int(d.L4)+wire.TCPLen > len(frame) {
		return
	}
	t := wire.TCP(frame[d.L4:])
	if !t.Flags().Has(wire.FlagURG) {
		return
	}
	words := func() uint32 { return uint32(binary.BigEndian.Uint16(t[12:]))<<16 | uint32(t.Urgent()) }
	was := words()
	t.SetFlags(t.Flags() &^ wire.FlagURG)
	t.SetUrgent(0)
	if !d.Flags.Has(packet.FlagOffload) { // a checksum that is still to be made sums the fields then
		t.SetChecksum(wire.Apply(t.Checksum(), wire.Diff32(was, words())))
	}
}
