package gpukern_test

import (
	"testing"

	. "github.com/millrace/millrace/gpukern"

	"github.com/millrace/millrace/internal/kernref"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// Payload that a driver has put elsewhere (packet.Arena.Placed) is not missing: its packet is not truncated, and its checksum counts as
// right. One byte less is. Bytes at the start of a frame that are the packet's own say nothing.
func TestPlacedPayloadIsNotMissing(t *testing.T) {
	const payload, head = 3000, 100
	literals := kernref.Lists{Literals: kernref.NewGenerator(1).Patterns(5)}
	arena := &packet.Arena{Mem: make([]byte, 2*2048), Shift: 11}
	for _, c := range []struct {
		headroom, placed int
		truncated        bool
	}{
		{256, wire.EthernetLen + 40 + payload - head, false},
		{256, wire.EthernetLen + 40 + payload - head - 1, true},
		{256, 0, true},
		{0, 0, true}, // 0x80 is in the address, as if OffloadPlaced were set
	} {
		clear(arena.Mem)
		p := wire.AppendEthernet(nil, wire.MAC{0x80, 0, 0, 0, 0, 9}, wire.MAC{2, 0, 0, 0, 0xff, 0xff}, wire.EtherTypeIPv4)
		p = wire.AppendIPv4(p, &wire.IPv4Header{Src: [4]byte{198, 18, 0, 1}, Dst: [4]byte{198, 18, 0, 2}, Proto: wire.ProtoTCP, TTL: 64, PayloadLen: 20 + payload})
		p = wire.AppendTCP(p, &wire.TCPHeader{SrcPort: 1, DstPort: 2, Flags: wire.FlagACK})
		d := packet.Desc{Off: uint32(c.headroom), Len: head, Flags: packet.FlagOffload}
		copy(arena.Bytes(&d), p)
		if c.headroom > 0 {
			arena.SetOffload(&d, &packet.Offload{})
		}
		if c.placed > 0 {
			arena.SetPlaced(&d, c.placed)
		}
		b := packet.NewBatch(arena, 1)
		b.Append(d)
		e := NewCPU(Config{Ops: OpParse | OpChecksum | OpLiterals, Tables: compile(t, literals)})
		if err := e.Submit(b); err != nil {
			t.Fatal(err)
		}
		e.Poll(make([]*packet.Batch, 1))
		got := b.D[0]
		if got.Flags.Has(packet.FlagTruncated) != c.truncated || got.Payload != 54 || got.Flags.Has(packet.FlagL4ChecksumOK) == c.truncated {
			t.Errorf("%+v: %#x, payload at %d", c, got.Flags, got.Payload)
		}
	}
}
