package datapath

import "github.com/millrace/millrace/l4/fastpath"

// What it takes to enter a connection: see kernel.go.

const (
	// enterAfter is the default of Options.EnterAfter: how many packets of a connection pass the loop before the kernel gets
	// it. To enter and remove one costs some 2 us, and the kernel saves some 0.6 us with each packet. So four packets
	// pay for it, but most connections are short, and one that had 16 is likely to have more.
	enterAfter = 16

	// mostBackoff bounds by how many doublings a connection waits that came back because its link address or device
	// changed; longStay is how many packets in the kernel make it wait no longer than others.
	mostBackoff, longStay = 10, 1024
)

// advance counts a packet of connection n, which came by dev, and enters the connection in the kernel when there were enough.
func (h kernelSide) advance(n, side int, dev uint8) {
	c := &h.table.conns[n]
	backoff, packets := c.place>>placeBackoff&31, min(c.place&placeLow+1, placeLow)
	c.place = placeConfirmed | backoff<<placeBackoff | packets
	if packets < h.kernel.after<<backoff {
		return
	}
	c.place = placeConfirmed | backoff<<placeBackoff // if it is not entered, it may be the next time
	if !h.mayEnter(n) {
		return
	}
	if e, f, ok := h.flowOf(n, side, dev); ok {
		h.enterKernel(e, &f, backoff)
	}
}

// mayEnter reports whether the kernel can do all that the loop does for connection n, which both sides have confirmed and whose
// packet has just been forwarded.
func (h kernelSide) mayEnter(n int) bool {
	c, s := &h.table.conns[n], h.snap
	b := s.Backends[c.backend]
	q := &h.table.sequences[n]
	switch {
	case c.direct() || c.provisional() || c.vlan != 0:
		return false
	case c.state != stateUDP && (q[sideClient].window == 0 || q[sideBackend].window == 0):
		return false
	case h.policyOf(c) != 0: // the kernel inspects nothing
		return false
	case !b.Usable || b.QUIC != nil || c.lists != s.Sources.Mark || s.DropL4:
		return false
	}
	return !s.Limits.on || s.Limits.all.packets.cost|s.Limits.services[b.Service].packets.cost == 0
}

// flowOf returns connection n as the kernel forwards it. A packet of a side came by dev just now. The backend's packets are
// expected by the device that leads to it, until one comes by another.
func (h kernelSide) flowOf(n, side int, dev uint8) (e kernelEntry, f fastpath.Flow, ok bool) {
	c, s := &h.table.conns[n], h.snap
	to, port := s.endpoint(c.endpoint)
	front, frontPort := s.vip(c.vip)
	hop := to.Hop
	if hop.State != HopReady || hop.VLAN != 0 {
		return e, f, false
	}
	if side != sideBackend {
		dev = hop.Dev
	}
	src := s.sourceOf(c)
	in, out := &s.Devices[c.dev], &s.Devices[hop.Dev]
	f = fastpath.Flow{Proto: front.Proto, Scales: c.scales, Loose: c.flags&connLoose != 0}
	f.Directions[sideClient] = fastpath.Direction{
		Dev: c.dev, Src: c.client.as16(), SrcPort: c.clientPort, Dst: front.addr.as16(), DstPort: frontPort, From: c.mac, To: in.MAC,
		OutDev: hop.Dev, NewSrc: src.as16(), NewSrcPort: c.sourcePort, NewDst: to.addr.as16(), NewDstPort: port,
		NextHop: hop.MAC, OutMAC: out.MAC, MaxLen: out.MTU, L3Delta: c.l3Delta, L4Delta: c.l4Delta,
	}
	f.Directions[sideBackend] = fastpath.Direction{
		Dev: dev, Src: to.addr.as16(), SrcPort: port, Dst: src.as16(), DstPort: c.sourcePort, To: s.Devices[dev].MAC,
		OutDev: c.dev, NewSrc: front.addr.as16(), NewSrcPort: frontPort, NewDst: c.client.as16(), NewDstPort: c.clientPort,
		NextHop: c.mac, OutMAC: in.MAC, MaxLen: in.MTU, L3Delta: ^c.l3Delta, L4Delta: ^c.l4Delta,
	}
	if c.state != stateUDP {
		f.Sequences = h.table.sequences[n].forKernel()
	}
	e = kernelEntry{
		conn: uint32(n), generation: h.kernel.generation, backend: c.backend, endpoint: s.endpointPlace(c.endpoint),
		mac: c.mac, devs: [2]uint8{c.dev, dev}, loose: f.Loose,
	}
	return e, f, true
}

// endpointPlace returns the place in Endpoints of the endpoint with a number.
func (s *Snapshot) endpointPlace(n uint32) uint32 {
	if n < rangeNumber {
		return n
	}
	return s.EndpointRanges[rangePlace(n)]
}

// enterKernel gives a connection to the kernel, if that takes it.
func (h kernelSide) enterKernel(e kernelEntry, f *fastpath.Flow, backoff uint32) {
	k := &h.kernel
	if len(k.entries) > placeLow {
		return
	}
	slot, ok := k.forwarder.Enter(f)
	if !ok {
		k.short = true
		k.counts.Add(kernelRejected, 1)
		return
	}
	e.slot, e.flush = slot, k.flushes
	k.entries = append(k.entries, e)
	h.table.conns[e.conn].place = placeConfirmed | placeEntered | backoff<<placeBackoff | uint32(len(k.entries)-1)
	k.counts.Add(kernelEntered, 1)
	h.noteKernel()
}
