package wire

import "testing"

// Every target takes arbitrary bytes. Where a view says that it is Valid, every accessor is called and
// must not panic; every walk must end within a number of steps that the bytes allow.

// maxSteps bounds every walk: an option has at least one byte.
const maxSteps = 1 << 16

func steps(t *testing.T, next func() bool) {
	t.Helper()
	for n := 0; next(); n++ {
		if n > maxSteps {
			t.Fatal("the walk does not end")
		}
	}
}

// inside fails unless part lies in whole, as every borrowed slice must.
func inside(t *testing.T, whole, part []byte) {
	t.Helper()
	if len(part) > len(whole) || cap(part) > cap(whole) {
		t.Fatalf("%d bytes of %d", len(part), len(whole))
	}
}

func FuzzEthernet(f *testing.F) {
	f.Add(AppendVLAN(AppendVLAN(AppendEthernet(nil, Broadcast, MAC{}, EtherTypeQinQ), 1, EtherTypeVLAN), 2, EtherTypeIPv4))
	f.Add(AppendEthernet(nil, Broadcast, MAC{}, EtherTypeARP))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, off, ok := Network(b); ok && off > len(b) {
			t.Fatalf("network header at %d of %d", off, len(b))
		}
		if e := Ethernet(b); e.Valid() {
			_, _, _ = e.Dst(), e.Src(), e.EtherType()
			inside(t, b, e.Payload())
		}
		if v := VLAN(b); v.Valid() {
			_, _, _, _, _ = v.TCI(), v.ID(), v.Priority(), v.DropEligible(), v.EtherType()
			inside(t, b, v.Payload())
		}
	})
}

func FuzzARP(f *testing.F) {
	f.Add(AppendARP(nil, ARPRequest, ARPHost{}, ARPHost{}))
	f.Fuzz(func(t *testing.T, b []byte) {
		a := ARP(b)
		if !a.Valid() {
			return
		}
		_, _, _, _, _ = a.Op(), a.SenderMAC(), a.Sender(), a.TargetMAC(), a.Target()
		a.ReplyFrom(MAC{1})
		if !a.Valid() || a.Op() != ARPReply || a.SenderMAC() != (MAC{1}) {
			t.Fatalf("reply % x", b)
		}
	})
}

func FuzzIPv4(f *testing.F) {
	f.Add(AppendIPv4(nil, &IPv4Header{}))
	f.Add([]byte("\x46\x00\x00\x18\x00\x00\x00\x00\x40\x11\x00\x00aaaabbbb\x94\x04\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		ip := IPv4(b)
		if ip.Valid() && !ip.ValidHeader() {
			t.Fatal("valid without a valid header")
		}
		if !ip.ValidHeader() {
			return
		}
		_, _, _, _, _, _ = ip.Version(), ip.TOS(), ip.DSCP(), ip.ECN(), ip.TotalLen(), ip.ID()
		_, _, _, _ = ip.DontFragment(), ip.MoreFragments(), ip.FragmentOffset(), ip.Fragment()
		_, _, _, _, _, _ = ip.TTL(), ip.Proto(), ip.Checksum(), ip.SrcAddr(), ip.DstAddr(), ip.Pseudo()
		inside(t, b, ip.Options())
		it := ip.OptionIter()
		steps(t, func() bool { return it.Next() && len(it.Data()) < 256 && int(it.Kind()) > 1 })
		if ip.Valid() {
			inside(t, b, ip.Payload())
		}
		ip.FillChecksum()
		if !ip.ChecksumOK() {
			t.Fatalf("checksum of % x", b[:ip.HeaderLen()])
		}
	})
}

func FuzzIPv6(f *testing.F) {
	f.Add(new(chain).add(0, padded(8)...).add(ProtoRouting, routing...).add(ProtoFragment, fragHead...).add(ProtoAH, ah...).packet(ProtoUDP, 1, 2))
	f.Add(new(chain).add(ProtoFragment, fragRest...).packet(ProtoDestOpts, 1, 2, 3))
	f.Fuzz(func(t *testing.T, b []byte) {
		ip := IPv6(b)
		if ip.ValidHeader() {
			_, _, _, _, _ = ip.Version(), ip.TrafficClass(), ip.DSCP(), ip.ECN(), ip.FlowLabel()
			_, _, _, _, _ = ip.PayloadLen(), ip.NextHeader(), ip.HopLimit(), ip.SrcAddr(), ip.DstAddr()
		}
		if ip.Valid() {
			inside(t, b, ip.Payload())
		}
		proto, off, frag, ok := Upper6(b)
		it := ExtHeaders(b)
		steps(t, func() bool { return it.Next() && walkHeader(t, b, &it) })
		if ok == it.Malformed() {
			t.Fatalf("Upper6 says %v, the walk %v", ok, !it.Malformed())
		}
		if ok && (off > len(b) || off != it.Offset() || proto != it.Upper() || frag != it.Fragment()) {
			t.Fatalf("Upper6 = %d %d %+v, the walk %d %d %+v", proto, off, frag, it.Upper(), it.Offset(), it.Fragment())
		}
	})
}

func walkHeader(t *testing.T, b []byte, it *ExtIter) bool {
	inside(t, b, it.Header())
	switch it.Proto() {
	case ProtoHopByHop, ProtoDestOpts:
		opts := it.OptionIter()
		steps(t, func() bool { return opts.Next() && len(opts.Data()) < 256 && opts.Type() > 1 })
	case ProtoRouting:
		if r := Routing6(it.Header()); !r.Valid() || len(r.Data()) < 4 || int(r.Type())+int(r.SegmentsLeft()) > 510 {
			t.Fatal("a routing header that was walked is not valid")
		}
	}
	return true
}

func FuzzUDP(f *testing.F) {
	f.Add(AppendUDP(nil, 1, 2, 0), uint32(7))
	f.Fuzz(func(t *testing.T, b []byte, pseudo uint32) {
		u := UDP(b)
		if !u.ValidHeader() {
			return
		}
		_, _, _ = u.SrcPort(), u.DstPort(), u.Checksum()
		if !u.Valid() {
			return
		}
		inside(t, b, u.Payload())
		u.FillChecksum(pseudo)
		if !u.ChecksumOK(pseudo) || u.Checksum() == 0 {
			t.Fatalf("checksum of % x", b)
		}
	})
}

func FuzzTCP(f *testing.F) {
	f.Add(AppendTCP(nil, &TCPHeader{Options: AppendMSS(nil, 1460)}), uint32(7))
	f.Add(AppendTCP(nil, &TCPHeader{Options: AppendTimestamps(AppendNOP(nil, 2), 1, 2)}), uint32(7))
	f.Add(AppendTCP(nil, &TCPHeader{Options: AppendSACK(AppendNOP(nil, 2), SACKBlock{1, 2})}), uint32(7))
	f.Fuzz(func(t *testing.T, b []byte, pseudo uint32) {
		s := TCP(b)
		if !s.Valid() {
			return
		}
		_, _, _, _, _ = s.SrcPort(), s.DstPort(), s.Seq(), s.Ack(), s.AE()
		_, _, _, _ = s.Flags().String(), s.Window(), s.Checksum(), s.Urgent()
		inside(t, b, s.Options())
		inside(t, b, s.Payload())
		it, o, slow := s.OptionIter(), TCPOptions{}, TCPOptions{}
		steps(t, func() bool {
			if !it.Next() {
				return false
			}
			inside(t, s.Options(), it.Data())
			slow.set(it.Kind(), it.Data())
			return true
		})
		if s.ParseOptions(&o) == it.Malformed() || o.HasTimestamps != slow.HasTimestamps || o.TSVal != slow.TSVal ||
			o.TSEcr != slow.TSEcr || o.MSS != slow.MSS || o.SACK != slow.SACK {
			t.Fatalf("ParseOptions = %+v, walked %+v", o, slow)
		}
		s.FillChecksum(pseudo)
		if !s.ChecksumOK(pseudo) {
			t.Fatalf("checksum of % x", b)
		}
	})
}

func FuzzICMP(f *testing.F) {
	f.Add(AppendICMP(nil, ICMPEcho, 0, 1))
	f.Fuzz(func(t *testing.T, b []byte) {
		if m := ICMP(b); m.Valid() {
			_, _, _, _, _, _, _ = m.Type(), m.Code(), m.Checksum(), m.ID(), m.Seq(), m.MTU(), m.Error()
			inside(t, b, m.Payload())
		}
		if m := ICMPv6(b); m.Valid() {
			_, _, _, _, _, _, _ = m.Type(), m.Code(), m.Checksum(), m.ID(), m.Seq(), m.MTU(), m.Error()
			inside(t, b, m.Payload())
		}
	})
}

func FuzzNeighborDiscovery(f *testing.F) {
	f.Add(AppendNeighborSolicit(nil, asked, askMAC))
	f.Add(AppendNeighborAdvert(nil, asked, askMAC, NASolicited))
	f.Add(AppendRouterSolicit(nil, askMAC))
	f.Add(append(append([]byte{134}, make([]byte, 15)...), linkOptions(1, 2, 3, 5)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		if m := NeighborSolicit(b); m.Valid() {
			_, _ = m.SourceMAC()
			_ = m.TargetAddr()
		}
		if m := NeighborAdvert(b); m.Valid() {
			_, _ = m.TargetMAC()
			_, _ = m.TargetAddr(), m.Flags()
		}
		if m := RouterSolicit(b); m.Valid() {
			_, _ = m.SourceMAC()
		}
		if m := RouterAdvert(b); m.Valid() {
			_, _ = m.SourceMAC()
			_, _, _, _ = m.HopLimit(), m.Managed(), m.OtherConfig(), m.Preference()
			_, _, _ = m.Lifetime(), m.ReachableTime(), m.RetransTimer()
		}
		it := NDOptionsOf(b)
		steps(t, func() bool {
			if !it.Next() {
				return false
			}
			inside(t, b, it.Data())
			_, _ = ParseNDPrefix(it.Data())
			_, _ = ParseNDMTU(it.Data())
			return it.Type() < 255 || len(it.Data()) >= 6
		})
	})
}

func FuzzNeighborRequest(f *testing.F) {
	f.Add([]byte(solicitation(asker, nil)))
	f.Add([]byte(solicitation([16]byte{}, nil)))
	f.Fuzz(func(t *testing.T, b []byte) {
		if IPv6(b).Valid() && len(IPv6(b).Payload()) >= ICMPLen {
			ICMPv6(IPv6(b).Payload()).FillChecksum(IPv6(b).Pseudo()) // or none would get through
		}
		if _, ok := NeighborRequest(b); !ok {
			return
		}
		r := IPv6(AppendNeighborReply(nil, b, ourMAC, NAOverride))
		if !r.Valid() || len(r) != NDReplyLen || !ICMPv6(r.Payload()).ChecksumOK(r.Pseudo()) {
			t.Fatalf("reply % x", r)
		}
	})
}

func FuzzTunnels(f *testing.F) {
	f.Add(append(AppendGRE(nil, GREChecksum|GREKey|GRESequence, EtherTypeIPv4), 1, 2, 3))
	f.Add(AppendGUE(nil, ProtoIPIP))
	f.Add(AppendVXLAN(nil, 7))
	f.Add(AppendGeneveOption(AppendGeneve(nil, EtherTypeTEB, 7, 8), 1, 0x80, []byte{1, 2, 3, 4}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if v := GRE(b); v.Valid() {
			_, _, _, _, _ = v.Flags(), v.EtherType(), v.Checksum(), v.Key(), v.Sequence()
			inside(t, b, v.Payload())
		}
		if v := GUE(b); v.Valid() {
			_, _, _, _ = v.Variant(), v.Control(), v.Proto(), v.Flags()
			inside(t, b, v.Extensions())
			inside(t, b, v.Payload())
		}
		if v := VXLAN(b); v.Valid() {
			_, _ = v.Flags(), v.VNI()
			inside(t, b, v.Payload())
		}
		if v := Geneve(b); v.Valid() {
			_, _, _, _, _ = v.Version(), v.Control(), v.Critical(), v.EtherType(), v.VNI()
			inside(t, b, v.Payload())
			it := v.OptionIter()
			steps(t, func() bool { return it.Next() && len(it.Data()) < 128 && int(it.Class())+int(it.Type()) >= 0 })
		}
		if v := GRE(b); v.Valid() {
			v.FillChecksum()
			if !v.ChecksumOK() {
				t.Fatalf("checksum of % x", b)
			}
		}
		_, _ = InnerProto(b)
	})
}
