package wire

import "testing"

func TestNothingAllocates(t *testing.T) {
	mem := make([]byte, 0, 2048)
	data := make([]byte, 1500)
	opts := AppendTimestamps(AppendNOP(AppendMSS(nil, 1460), 2), 1, 2)
	ext := new(chain).add(0, padded(16)...).add(ProtoRouting, routing...).packet(ProtoTCP)
	req := solicitation(asker, nil)
	var sink uint32
	for name, f := range map[string]func(){
		"sum":    func() { sink += Sum(data, Sum(data[:20], 0)) },
		"upper6": func() { _, off, _, _ := Upper6(ext); sink += uint32(off) },
		"headers": func() {
			b := AppendEthernet(mem, Broadcast, MAC{}, EtherTypeVLAN)
			b = AppendVLAN(b, 1, EtherTypeIPv4)
			b = AppendIPv4(b, &IPv4Header{PayloadLen: 100})
			b = AppendUDP(AppendTCP(b, &TCPHeader{Options: opts}), 1, 2, 3)
			b = AppendIPv6(b, &IPv6Header{})
			b = AppendGeneveOption(AppendGeneve(b, 1, 2, 4), 1, 2, nil)
			b = AppendVXLAN(AppendGUE(AppendGRE(b, GREKey, 1), 4), 1)
			sink += uint32(len(AppendARP(b, 1, ARPHost{}, ARPHost{})))
		},
		"neighbor": func() {
			if _, ok := NeighborRequest(req); ok {
				sink += uint32(len(AppendNeighborReply(mem, req, ourMAC, NAOverride)))
			}
		},
		"options": func() {
			var o TCPOptions
			s := TCP(AppendTCP(mem, &TCPHeader{Options: opts[6:]}))
			s.ParseOptions(&o)
			s = TCP(AppendTCP(mem, &TCPHeader{Options: opts}))
			s.ParseOptions(&o)
			for it := s.OptionIter(); it.Next(); {
				sink += uint32(it.Kind())
			}
			sink += uint32(o.MSS)
		},
		"update": func() {
			a, b := [16]byte{1}, [16]byte{2}
			sink += uint32(Update128(uint16(sink), a, b)) + uint32(UpdateBytes(uint16(sink), a[:], b[:]))
		},
		"names": func() { sink += uint32(len(ProtoName(ProtoTCP)) + len(EtherTypeName(EtherTypeARP))) },
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
