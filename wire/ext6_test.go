package wire

import (
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// chain builds IPv6 packets with extension headers by hand.
type chain struct {
	protos []uint8
	bodies [][]byte // each begins with the octet that will name the next header
}

func (c *chain) add(proto uint8, body ...byte) *chain {
	c.protos, c.bodies = append(c.protos, proto), append(c.bodies, body)
	return c
}

func (c *chain) packet(upper uint8, payload ...byte) []byte {
	protos := append(append([]uint8{}, c.protos...), upper)
	var ext []byte
	for i, body := range c.bodies {
		ext = append(append(ext, protos[i+1]), body[1:]...)
	}
	ext = append(ext, payload...)
	return append(AppendIPv6(nil, &IPv6Header{NextHeader: protos[0], PayloadLen: len(ext)}), ext...)
}

func padded(n int) []byte {
	return append([]byte{0, byte(n/8 - 1), 1, byte(n - 4)}, make([]byte, n-4)...)
}

var (
	ah       = append([]byte{0, 4, 0, 0}, make([]byte, 20)...) // (4+2)*4 = 24 bytes
	fragHead = []byte{0, 0, 0x00, 0x01, 0xde, 0xad, 0xbe, 0xef}
	fragRest = []byte{0, 0, 0x05, 0xb9, 0xde, 0xad, 0xbe, 0xef} // offset 1464
	routing  = []byte{0, 2, 4, 1, 0, 0, 0, 0, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}
)

func TestUpper6FindsTheTransport(t *testing.T) {
	head := Fragment6{ID: 0xdeadbeef, More: true}
	at := func(f Fragment6, at uint16) Fragment6 { f.At = at; return f }
	for name, c := range map[string]struct {
		b     []byte
		proto uint8
		off   int
		frag  Fragment6
		ok    bool
	}{
		"no extension":              {new(chain).packet(ProtoTCP), ProtoTCP, 40, Fragment6{}, true},
		"no next header":            {new(chain).packet(ProtoNone), ProtoNone, 40, Fragment6{}, true},
		"esp ends the walk":         {new(chain).packet(ProtoESP), ProtoESP, 40, Fragment6{}, true},
		"hop-by-hop":                {new(chain).add(0, padded(16)...).packet(ProtoUDP, 1), ProtoUDP, 56, Fragment6{}, true},
		"ah counts by four":         {new(chain).add(ProtoAH, ah...).packet(ProtoTCP), ProtoTCP, 64, Fragment6{}, true},
		"routing":                   {new(chain).add(ProtoRouting, routing...).packet(ProtoTCP), ProtoTCP, 64, Fragment6{}, true},
		"mobility":                  {new(chain).add(ProtoMobility, padded(8)...).packet(ProtoNone), ProtoNone, 48, Fragment6{}, true},
		"first fragment":            {new(chain).add(ProtoFragment, fragHead...).packet(ProtoUDP), ProtoUDP, 48, at(head, 40), true},
		"later fragment":            {new(chain).add(ProtoFragment, fragRest...).packet(ProtoDestOpts, 1, 2, 3), ProtoDestOpts, 48, Fragment6{0xdeadbeef, 1464, true, 40}, true},
		"all of RFC 8200 4.1":       {new(chain).add(0, padded(8)...).add(ProtoDestOpts, padded(8)...).add(ProtoRouting, routing...).add(ProtoFragment, fragHead...).add(ProtoAH, ah...).add(ProtoDestOpts, padded(24)...).packet(ProtoICMPv6), ProtoICMPv6, 40 + 8 + 8 + 24 + 8 + 24 + 24, at(head, 80), true},
		"hop-by-hop second":         {new(chain).add(ProtoDestOpts, padded(8)...).add(0, padded(8)...).packet(ProtoUDP), 0, 0, Fragment6{}, false},
		"header beyond the payload": {new(chain).add(ProtoDestOpts, 0, 9, 0, 0, 0, 0, 0, 0).packet(ProtoUDP), 0, 0, Fragment6{}, false},
		"fewer than eight bytes":    {new(chain).add(ProtoDestOpts, 0, 0, 0).packet(ProtoUDP), 0, 0, Fragment6{}, false},
		"as many as may be":         {repeat(MaxExtHeaders), ProtoUDP, 40 + 8*MaxExtHeaders, Fragment6{}, true},
		"one too many":              {repeat(MaxExtHeaders + 1), 0, 0, Fragment6{}, false},
		"ipv4":                      {AppendIPv4(nil, &IPv4Header{PayloadLen: 40}), 0, 0, Fragment6{}, false},
		"nothing":                   {nil, 0, 0, Fragment6{}, false},
	} {
		proto, off, frag, ok := Upper6(c.b)
		if proto != c.proto || off != c.off || frag != c.frag || ok != c.ok {
			t.Errorf("%s: Upper6 = %d %d %+v %v, want %d %d %+v %v", name, proto, off, frag, ok, c.proto, c.off, c.frag, c.ok)
		}
	}
}

func repeat(n int) []byte {
	c := new(chain)
	for range n {
		c.add(ProtoDestOpts, padded(8)...)
	}
	return c.packet(ProtoUDP)
}

func TestUpper6IgnoresBytesAfterThePayload(t *testing.T) {
	b := new(chain).add(ProtoDestOpts, 0, 1, 0, 0, 0, 0, 0, 0).packet(ProtoUDP)
	_, _, _, ok := Upper6(append(b, make([]byte, 64)...))
	eq(t, "ok", ok, false)
}

func TestFragment6TellsWholeFirstAndRest(t *testing.T) {
	for _, c := range []struct {
		f                     Fragment6
		present, first, whole bool
	}{
		{Fragment6{}, false, true, true},
		{Fragment6{At: 40}, true, true, true}, // atomic, RFC 6946
		{Fragment6{At: 40, More: true}, true, true, false},
		{Fragment6{At: 40, Offset: 8}, true, false, false},
	} {
		eq(t, "Present", c.f.Present(), c.present)
		eq(t, "First", c.f.First(), c.first)
		eq(t, "Unfragmented", c.f.Unfragmented(), c.whole)
	}
}

func TestExtensionHeadersReadAsGopacketWroteThem(t *testing.T) {
	g := newGen(60)
	for range rounds {
		hop := &layers.IPv6HopByHop{}
		hop.NextHeader = layers.IPProtocolIPv6Routing
		hop.Options = []*layers.IPv6HopByHopOption{{OptionType: 0x3e, OptionLength: 4, OptionData: g.bytes(4)}}
		route := &layers.IPv6Routing{RoutingType: g.u8() | 4, SegmentsLeft: g.u8(), Reserved: g.bytes(4), Data: g.bytes(16)}
		route.NextHeader = layers.IPProtocolIPv6Fragment
		frag := &layers.IPv6Fragment{NextHeader: layers.IPProtocolIPv6Destination, MoreFragments: g.bool(), Identification: g.Uint32()}
		dest := &layers.IPv6Destination{}
		dest.NextHeader = layers.IPProtocolUDP
		dest.Options = []*layers.IPv6DestinationOption{{OptionType: 0x1e, OptionLength: 12, OptionData: g.bytes(12)}}
		ip := &layers.IPv6{Version: 6, NextHeader: layers.IPProtocolIPv6HopByHop, SrcIP: ip6(g.addr6()), DstIP: ip6(g.addr6())}
		b := serialize(t, ip, hop, route, frag, dest, gopacket.Payload(g.bytes(20)))

		proto, off, f, ok := Upper6(b)
		eq(t, "ok", ok, true)
		eq(t, "proto", proto, ProtoUDP)
		eq(t, "off", off, len(b)-20)
		eq(t, "fragment", f, Fragment6{ID: frag.Identification, More: frag.MoreFragments, At: 72})

		it := ExtHeaders(b)
		eq(t, "Next", it.Next(), true)
		eq(t, "Proto", it.Proto(), ProtoHopByHop)
		opts := it.OptionIter()
		eq(t, "option", opts.Next(), true)
		eq(t, "option type", opts.Type(), 0x3e)
		eqBytes(t, "option data", opts.Data(), hop.Options[0].OptionData)
		eq(t, "option", opts.Next(), false)
		eq(t, "Next", it.Next(), true)
		eq(t, "Proto", it.Proto(), ProtoRouting)
		r := Routing6(it.Header())
		eq(t, "Valid", r.Valid(), true)
		eq(t, "Type", r.Type(), route.RoutingType)
		eq(t, "SegmentsLeft", r.SegmentsLeft(), route.SegmentsLeft)
		eqBytes(t, "Data", r.Data(), slicesConcat(route.Reserved, route.Data))
		eq(t, "Next", it.Next(), true)
		eq(t, "Proto", it.Proto(), ProtoFragment)
		eq(t, "Fragment", it.Fragment(), f)
		eq(t, "Next", it.Next(), true)
		eq(t, "Proto", it.Proto(), ProtoDestOpts)
		opts = it.OptionIter()
		eq(t, "option", opts.Next(), true)
		eqBytes(t, "option data", opts.Data(), dest.Options[0].OptionData)
		eq(t, "Next", it.Next(), false)
		eq(t, "Upper", it.Upper(), ProtoUDP)
		eq(t, "Offset", it.Offset(), off)
		eq(t, "Malformed", it.Malformed(), false)
	}
}

func TestOptions6SkipPaddingAndStopAtContradictions(t *testing.T) {
	for name, c := range map[string]struct {
		b     []byte
		types string
		bad   bool
	}{
		"pad1":                {[]byte{0, 0, 0}, "", false},
		"padn":                {[]byte{1, 2, 0, 0, 1, 0}, "", false},
		"alert among padding": {[]byte{0, 5, 2, 0, 0, 1, 0}, "\x05", false},
		"length beyond":       {[]byte{5, 2, 0}, "", true},
		"type alone":          {[]byte{0, 5}, "", true},
		"padn beyond":         {[]byte{5, 0, 1, 4, 0}, "\x05", true},
	} {
		it, types := Option6Iter{rest: c.b}, ""
		for it.Next() {
			types += string(rune(it.Type()))
		}
		eq(t, name, types, c.types)
		eq(t, name+": Malformed", it.Malformed(), c.bad)
	}
}
