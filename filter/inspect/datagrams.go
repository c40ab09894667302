package inspect

import (
	"bytes"

	"github.com/millrace/millrace/filter/signature"
)

// recogniseDatagram looks for the protocol of a flow of UDP, before rules are evaluated on the datagram: each is whole. It goes on
// until one is recognised, since a server also answers what follows datagrams of no protocol.
func (e *Engine) recogniseDatagram(p *packet) {
	f := p.flow
	if f.appFinal || p.bit != signature.UDP || len(p.payload) == 0 {
		return
	}
	switch b := p.payload; {
	case (p.srcPort == 53 || p.dstPort == 53) && isDNS(b):
		f.app = signature.AppDNS
	case isQUIC(b):
		f.app = signature.AppQUIC
	case isSIP(b):
		f.app = signature.AppSIP
	case isNFSCall(b):
		f.app = signature.AppNFS
	default:
		return
	}
	f.appFinal = true
	if f.app != signature.AppDNS && f.app != signature.AppSIP {
		f.proto = &protocol{}
		f.proto.begin(f.app)
	}
}

// datagram inspects what a UDP datagram carries.
func (e *Engine) datagram(p *packet) {
	if p.bit != signature.UDP || len(p.payload) == 0 {
		return
	}
	f := p.flow
	switch {
	case f.app == signature.AppDNS:
		e.dns(p, p.payload)
	case f.app == signature.AppSIP:
		if head := bytes.TrimLeft(p.payload, "\r\n"); len(head) > 0 {
			e.sipMessage(p, head)
		}
	case f.proto == nil:
		return
	case f.app == signature.AppNFS:
		e.nfsMessage(p, p.payload)
	case f.app == signature.AppQUIC:
		e.quic(p, p.payload)
	}
	e.charge(f)
}
