package inspect

import (
	batch "github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// Layers are the places of a packet's headers in its frame, as a packet engine has found them. With them the frame is not
// parsed a second time. The zero value is that of a caller without a packet engine; fragments have none either, since they
// are put together first.
type Layers struct {
	L3, L4 int   // offsets in the frame; L4 0: not known
	Proto  uint8 // of the transport header, behind extension headers
	V6     bool
}

// LayersOf returns the layers of a packet as the header pass has found them: none of a fragment, and none of a tunnel, whose
// offsets are those of the inner packet.
func LayersOf(d *batch.Desc) Layers {
	if d.Flags&(batch.FlagTunnel|batch.FlagFragment|batch.FlagMalformed) != 0 {
		return Layers{}
	}
	return Layers{L3: int(d.L3), L4: int(d.L4), Proto: d.Proto, V6: d.Flags.Has(batch.FlagIPv6)}
}

// known reports whether the layers lie in a frame of so many bytes: a packet that was cut after the engine has seen it is
// parsed.
func (l *Layers) known(frame int) bool {
	head := wire.IPv4Len
	if l.V6 {
		head = wire.IPv6Len
	}
	return l.L4 >= l.L3+head && l.L4 <= frame
}

// layered inspects a frame whose layers are known. The tunnels in it are parsed as ever.
func (e *Engine) layered(frame []byte, l *Layers) {
	b, p := frame[l.L3:], &e.packets[0]
	var end int
	if l.V6 {
		ip := wire.IPv6(b)
		*p, end = packet6(ip, l.Proto, 0), end6(ip)
	} else {
		ip := wire.IPv4(b)
		*p, end = packet4(ip, 0), end4(ip)
	}
	p.whole = true
	if l.L3+end < l.L4 { // the length that IP claims contradicts the engine's findings
		e.stats.Malformed++
		return
	}
	e.transport(p, b[l.L4-l.L3:end])
}

// recentFlows is the number of connections of the caller whose flows are found without a hash. It is a power of two.
const recentFlows = 4096

// recentFlow returns the flow that the connection of the packet had last, nil where its place has another one or none. A number
// of a connection is a hint: the key decides.
func (e *Engine) recentFlow(p *packet, k *flowKey) *flow {
	if e.in.Conn == 0 || p.depth > 0 {
		return nil
	}
	if f := e.recent[e.in.Conn%recentFlows]; f != nil && f.key == *k {
		return f
	}
	return nil
}

// noteRecent remembers the flow of the packet's connection.
func (e *Engine) noteRecent(p *packet, f *flow) {
	if e.in.Conn != 0 && p.depth == 0 {
		f.conn = e.in.Conn
		e.recent[f.conn%recentFlows] = f
	}
}

// forgetRecent forgets a flow that ends, so that its memory is free.
func (e *Engine) forgetRecent(f *flow) {
	if f.conn != 0 && e.recent[f.conn%recentFlows] == f {
		e.recent[f.conn%recentFlows] = nil
	}
}
