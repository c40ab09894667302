package socket

import "net/netip"

// LocalAddr returns the local address and port of a connect of Stack.Connect: they are known when that returns.
func (k *Connecting) LocalAddr() netip.AddrPort {
	if k.c == nil { // canceled at once
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(k.c.tuple.Local.Netip(), k.c.tuple.LocalPort)
}

// LoopOfUDP returns the loop of a UDPConn's shard, in a callback of it.
func (s *Stack) LoopOfUDP(in LoopUDPConn) LoopStack { return LoopStack{s, in.e.h} }

// OfUDP returns the shard of c on this loop, false where c is connected on another one.
func (in LoopStack) OfUDP(c *UDPConn) (LoopUDPConn, bool) {
	for i := range c.shards {
		if c.shards[i].h == in.h {
			return LoopUDPConn{&c.shards[i]}, true
		}
	}
	return LoopUDPConn{}, false
}
