package datapath

import (
	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// checkHeaders judges a packet that is no plain one: with Forward it is treated as any other.
func (h *Handler) checkHeaders(d *packet.Desc, p []byte) packet.Verdict {
	if d.Flags.Has(packet.FlagTunnel) {
		h.outer.parse(h.arena, h.chain)
	}
	switch {
	case d.Flags.Has(packet.FlagMalformed):
		if d.Flags.Has(packet.FlagFragment) { // no whole transport header in the first: RFC 1858 3
			return h.defragmenter().rejectDatagram(d, p)
		}
		return packet.DropMalformed
	case d.Flags.Has(packet.FlagTruncated):
		return packet.DropTruncated
	case d.Flags.Has(packet.FlagVLAN) && !oneTag(d, p):
		return packet.DropUnsupported
	case !d.Flags.Has(packet.FlagOptions):
		return packet.Forward
	case d.Flags.Has(packet.FlagIPv4):
		return options4(p[d.L3:])
	}
	return options6(p[d.L3:])
}

// oneTag reports whether a tagged frame has one 802.1Q tag. A service tag (802.1ad) belongs to a
// provider's network, and the addresses behind two tags are not ours to answer for.
func oneTag(d *packet.Desc, p []byte) bool {
	return d.L3 == taggedLen && wire.Ethernet(p).EtherType() == wire.EtherTypeVLAN
}

// options4 refuses source routes: the destination is not where such a packet wants to go, and hosts
// and routers drop them (RFC 7126 4.3 and 4.4). All other options pass.
func options4(ip wire.IPv4) packet.Verdict {
	const looseRoute, strictRoute = 131, 137 // RFC 791 3.1
	it := ip.OptionIter()
	for it.Next() {
		if k := it.Kind(); k == looseRoute || k == strictRoute {
			return packet.DropUnsupported
		}
	}
	if it.Malformed() {
		return packet.DropMalformed
	}
	return packet.Forward
}

// options6 refuses extension headers under which addresses must not change: a routing header with
// segments left names other destinations, for which the transport checksum is made (RFC 8200 8.1), and
// the home address option another source (RFC 6275 6.3); AH signs the addresses (RFC 4302 3.3.3.1.2).
// All others pass.
func options6(ip wire.IPv6) packet.Verdict {
	it := wire.ExtHeaders(ip)
	for it.Next() {
		switch it.Proto() {
		case wire.ProtoAH:
			return packet.DropUnsupported
		case wire.ProtoRouting:
			if wire.Routing6(it.Header()).SegmentsLeft() != 0 {
				return packet.DropUnsupported
			}
		case wire.ProtoDestOpts:
			if homeAddress(it.OptionIter()) {
				return packet.DropUnsupported
			}
		}
	}
	return packet.Forward
}

func homeAddress(it wire.Option6Iter) bool {
	const option = 201 // RFC 6275 6.3
	for it.Next() {
		if it.Type() == option {
			return true
		}
	}
	return false
}

// outerParser is the header pass over the packets of which the engine has described the inside. An engine may
// look into tunnels (packet.FlagTunnel). For the gateway only the outer headers count: it cannot know who may
// use a tunnel, and a UDP service may have the port of one. This is the only packet that is parsed twice.
type outerParser struct {
	engine *gpukern.CPU // looks into no tunnel; nil until it is needed
	batch  packet.Batch
	done   [1]*packet.Batch
}

// parse describes the first packet of chain by its outer headers.
func (o *outerParser) parse(a *packet.Arena, chain []packet.Desc) {
	if o.engine == nil {
		o.engine = gpukern.NewCPU(gpukern.Config{Ops: gpukern.OpParse | gpukern.OpChecksum, Depth: 1})
	}
	n := max(1, packet.Chain(chain))
	handed := chain[0].Flags & (packet.FlagHanded | packet.FlagHandedAgain)
	o.batch.Arena, o.batch.D = a, chain[:n]
	if o.engine.Submit(&o.batch) == nil { // it holds one, and that is taken back at once
		o.engine.Poll(o.done[:])
	}
	chain[0].Flags |= handed
}
