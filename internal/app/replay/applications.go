package replay

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/millrace/millrace/filter/appid"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// Application is the protocol of a flow by its content, with the fields sent before encryption begins.
type Application struct {
	Protocol string   `json:"protocol"`       // "unknown" where nothing was recognised
	Name     string   `json:"name,omitempty"` // server name of TLS and QUIC, host of HTTP, first name asked of DNS
	ALPN     string   `json:"alpn,omitempty"`
	JA4      string   `json:"ja4,omitempty"`
	Rules    []uint16 `json:"rules,omitempty"` // the rules that its packets matched, counted from 1
}

// ApplicationSum is the traffic of all flows of one application protocol.
type ApplicationSum struct {
	Protocol string `json:"protocol"`
	Flows    uint64 `json:"flows"`
	Packets  uint64 `json:"packets"`
	Bytes    uint64 `json:"bytes"`
}

// application recognises the protocol of a conversation.
type application struct {
	flow  appid.Flow
	rules []uint16
}

// maxFlowRules bounds the rules that are kept of a flow.
const maxFlowRules = 16

// packet looks at a packet p with headers as d says, in the direction way.
func (a *application) packet(p []byte, d *packet.Desc, way int) {
	if d.Rule != 0 && !slices.Contains(a.rules, d.Rule) && len(a.rules) < maxFlowRules {
		a.rules = append(a.rules, d.Rule)
	}
	if a.flow.Done() {
		return
	}
	payload := int(d.Payload)
	if payload == 0 {
		payload = int(d.L4)
	}
	end := min(len(p), datagramEnd(p, d))
	if payload > end {
		return
	}
	v := appid.Packet{Payload: p[payload:end], Transport: d.Proto, Reply: way == 1}
	if hasPorts(d) {
		v.Source, v.Destination = binary.BigEndian.Uint16(p[d.L4:]), binary.BigEndian.Uint16(p[d.L4+2:])
	}
	if d.Proto == wire.ProtoTCP {
		v.Sequence, v.SYN = binary.BigEndian.Uint32(p[d.L4+4:]), wire.TCPFlags(p[d.L4+13])&wire.FlagSYN != 0
	}
	a.flow.Packet(&v)
}

// datagramEnd is where the IP datagram ends: short frames have padding behind it.
func datagramEnd(p []byte, d *packet.Desc) int {
	if d.Flags.Has(packet.FlagIPv6) {
		return int(d.L3) + 40 + int(binary.BigEndian.Uint16(p[d.L3+4:]))
	}
	return int(d.L3) + int(binary.BigEndian.Uint16(p[d.L3+2:]))
}

func (a *application) export() *Application {
	details := a.flow.Details()
	return &Application{Protocol: a.flow.Protocol().String(), Name: details.Name, ALPN: details.ALPN, JA4: details.JA4, Rules: a.rules}
}

// sumApplications adds up flows by their application protocol, the one of the most bytes first.
func sumApplications(list []conversation) []ApplicationSum {
	sums := map[appid.Protocol]*ApplicationSum{}
	for i := range list {
		c := &list[i]
		s := sums[c.application.flow.Protocol()]
		if s == nil {
			s = &ApplicationSum{Protocol: c.application.flow.Protocol().String()}
			sums[c.application.flow.Protocol()] = s
		}
		s.Flows++
		s.Packets += c.packets[0] + c.packets[1]
		s.Bytes += c.bytes[0] + c.bytes[1]
	}
	all := make([]ApplicationSum, 0, len(sums))
	for _, s := range sums {
		all = append(all, *s)
	}
	slices.SortFunc(all, func(a, b ApplicationSum) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Protocol, b.Protocol))
	})
	return all
}
