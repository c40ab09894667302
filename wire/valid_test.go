package wire

import "testing"

// valid cases: a view is valid with all of these bytes and not with fewer, whatever they are.
func TestViewsAreValidFromTheirLastHeaderByteOn(t *testing.T) {
	ip4 := append(AppendIPv4(nil, &IPv4Header{PayloadLen: 3}), 1, 2, 3)
	ip4opt := append(AppendIPv4(nil, &IPv4Header{PayloadLen: 4}), 148, 4, 0, 0)
	IPv4(ip4opt).SetHeaderLen(24)
	ip6 := append(AppendIPv6(nil, &IPv6Header{PayloadLen: 3}), 1, 2, 3)
	udp := append(AppendUDP(nil, 1, 2, 3), 1, 2, 3)
	for name, c := range map[string]struct {
		b     []byte
		valid func(b []byte) bool
	}{
		"Ethernet":        {make([]byte, 14), func(b []byte) bool { return Ethernet(b).Valid() }},
		"VLAN":            {make([]byte, 4), func(b []byte) bool { return VLAN(b).Valid() }},
		"ARP":             {AppendARP(nil, 1, ARPHost{}, ARPHost{}), func(b []byte) bool { return ARP(b).Valid() }},
		"IPv4":            {ip4, func(b []byte) bool { return IPv4(b).Valid() }},
		"IPv4 header":     {ip4[:20], func(b []byte) bool { return IPv4(b).ValidHeader() }},
		"IPv4 options":    {ip4opt, func(b []byte) bool { return IPv4(b).ValidHeader() }},
		"IPv6":            {ip6, func(b []byte) bool { return IPv6(b).Valid() }},
		"IPv6 header":     {ip6[:40], func(b []byte) bool { return IPv6(b).ValidHeader() }},
		"UDP":             {udp, func(b []byte) bool { return UDP(b).Valid() }},
		"UDP header":      {udp[:8], func(b []byte) bool { return UDP(b).ValidHeader() }},
		"TCP":             {AppendTCP(nil, &TCPHeader{}), func(b []byte) bool { return TCP(b).Valid() }},
		"TCP options":     {AppendTCP(nil, &TCPHeader{Options: make([]byte, 40)}), func(b []byte) bool { return TCP(b).Valid() }},
		"ICMP":            {make([]byte, 8), func(b []byte) bool { return ICMP(b).Valid() }},
		"ICMPv6":          {make([]byte, 8), func(b []byte) bool { return ICMPv6(b).Valid() }},
		"NeighborSolicit": {append([]byte{135}, make([]byte, 23)...), func(b []byte) bool { return NeighborSolicit(b).Valid() }},
		"NeighborAdvert":  {append([]byte{136}, make([]byte, 23)...), func(b []byte) bool { return NeighborAdvert(b).Valid() }},
		"RouterSolicit":   {append([]byte{133}, make([]byte, 7)...), func(b []byte) bool { return RouterSolicit(b).Valid() }},
		"RouterAdvert":    {append([]byte{134}, make([]byte, 15)...), func(b []byte) bool { return RouterAdvert(b).Valid() }},
		"Routing6":        {routing, func(b []byte) bool { return Routing6(b).Valid() }},
		"GRE":             {AppendGRE(nil, 0, 0), func(b []byte) bool { return GRE(b).Valid() }},
		"GRE with all":    {AppendGRE(nil, GREChecksum|GREKey|GRESequence, 0), func(b []byte) bool { return GRE(b).Valid() }},
		"GUE":             {AppendGUE(nil, 4), func(b []byte) bool { return GUE(b).Valid() }},
		"GUE variant 1":   {[]byte{0x45, 0, 0, 0}, func(b []byte) bool { return GUE(b).Valid() }},
		"GUE extensions":  {append([]byte{2}, make([]byte, 11)...), func(b []byte) bool { return GUE(b).Valid() }},
		"VXLAN":           {AppendVXLAN(nil, 1), func(b []byte) bool { return VXLAN(b).Valid() }},
		"Geneve":          {AppendGeneve(nil, 1, 1, 0), func(b []byte) bool { return Geneve(b).Valid() }},
		"Geneve options":  {append(AppendGeneve(nil, 1, 1, 4), 0, 0, 0, 0), func(b []byte) bool { return Geneve(b).Valid() }},
	} {
		eq(t, name, c.valid(c.b), true)
		eq(t, name+" and more", c.valid(append(c.b[:len(c.b):len(c.b)], 0)), true)
		for n := range c.b {
			if c.valid(c.b[:n:n]) {
				t.Errorf("%s: %d of %d bytes are valid", name, n, len(c.b))
			}
		}
	}
}

func TestViewsWhoseFieldsContradictEachOtherAreNotValid(t *testing.T) {
	v4 := func(edit func(ip IPv4)) func(f func(IPv4) bool) bool {
		ip := IPv4(append(AppendIPv4(nil, &IPv4Header{PayloadLen: 40}), make([]byte, 40)...))
		edit(ip)
		return func(f func(IPv4) bool) bool { return f(ip) }
	}
	for name, c := range map[string]func(f func(IPv4) bool) bool{
		"version 5":                      v4(func(ip IPv4) { ip[0] = 0x55 }),
		"version 3":                      v4(func(ip IPv4) { ip[0] = 0x35 }),
		"header of 16 bytes":             v4(func(ip IPv4) { ip.SetHeaderLen(16) }),
		"total length below the header":  v4(func(ip IPv4) { ip.SetTotalLen(19) }),
		"total length below its options": v4(func(ip IPv4) { ip.SetHeaderLen(60); ip.SetTotalLen(59) }),
	} {
		eq(t, name+": Valid", c(IPv4.Valid), false)
		eq(t, name+": ValidHeader", c(IPv4.ValidHeader), false)
	}
	longest := v4(func(ip IPv4) { ip.SetHeaderLen(60) })
	eq(t, "header of 60 bytes", longest(IPv4.Valid) && longest(IPv4.ValidHeader), true)
	empty := v4(func(ip IPv4) { ip.SetTotalLen(20) })
	eq(t, "no payload", empty(IPv4.Valid) && empty(IPv4.ValidHeader), true)

	ip6 := AppendIPv6(nil, &IPv6Header{})
	ip6[0] = 0x70
	eq(t, "IPv6 of version 7", IPv6(ip6).ValidHeader() || IPv6(ip6).Valid(), false)
	eq(t, "UDP of length 7", UDP(AppendUDP(nil, 1, 2, -1)).Valid(), false)
	tcp := TCP(AppendTCP(nil, &TCPHeader{}))
	tcp.SetDataOffset(16)
	eq(t, "TCP header of 16 bytes", tcp.Valid(), false)
	arp := AppendARP(nil, 1, ARPHost{}, ARPHost{})
	for i := range 6 {
		arp[i]++
		eq(t, "ARP for other media", ARP(arp).Valid(), false)
		arp[i]--
	}
	for typ := uint8(133); typ <= 136; typ++ {
		b := append([]byte{typ, 0}, make([]byte, 30)...)
		valid := []bool{RouterSolicit(b).Valid(), RouterAdvert(b).Valid(), NeighborSolicit(b).Valid(), NeighborAdvert(b).Valid()}
		b[1] = 1
		coded := []bool{RouterSolicit(b).Valid(), RouterAdvert(b).Valid(), NeighborSolicit(b).Valid(), NeighborAdvert(b).Valid()}
		for i := range valid {
			eq(t, "ND of its type", valid[i], i == int(typ)-133)
			eq(t, "ND of code 1", coded[i], false)
		}
	}
}
