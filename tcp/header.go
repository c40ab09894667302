package tcp

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/wire"
)

const timestampsLen = 12 // with the two bytes that align them

// optionsLen is what options take in every segment.
func (c *Conn) optionsLen() (n int) {
	if c.has(flagTimestamps) {
		n = timestampsLen
	}
	if c.auth != nil {
		n += (c.auth.OptionLen() + 3) &^ 3
	}
	return n
}

// appendOptions appends the options of a segment without SYN: signature, timestamps, and SACK as far
// as there is room.
func (c *Conn) appendOptions(b []byte, now clock.Time) []byte {
	if c.auth != nil {
		b = c.auth.AppendOption(b)
		b = wire.AppendNOP(b, -len(b)&3)
	}
	if c.has(flagTimestamps) {
		b = wire.AppendNOP(b, 2)
		b = wire.AppendTimestamps(b, timestamp(now)+c.tsOffset, c.tsRecent)
	}
	if c.has(flagSACK) && (c.dsack.left != c.dsack.right || c.rcv != nil && len(c.rcv.ooo) > 0) {
		b = c.appendSACK(b)
	}
	return b
}

// appendSACK appends what arrived out of order, and before it what came twice (RFC 2018, RFC 2883).
func (c *Conn) appendSACK(b []byte) []byte {
	most := min((wire.TCPMaxOptions-len(b)-4)/8, wire.MaxSACKBlocks)
	if most <= 0 {
		return b
	}
	var blocks [wire.MaxSACKBlocks]wire.SACKBlock
	n := 0
	if c.dsack.left != c.dsack.right {
		blocks[0] = wire.SACKBlock{Left: c.dsack.left, Right: c.dsack.right}
		n = 1
	}
	if c.rcv != nil {
		var ranges [wire.MaxSACKBlocks]oooRange
		for _, g := range ranges[:c.rcv.newestRanges(ranges[:most-n])] {
			blocks[n] = wire.SACKBlock{Left: g.left, Right: g.right}
			n++
		}
	}
	if n == 0 {
		return b
	}
	return wire.AppendSACK(wire.AppendNOP(b, 2), blocks[:n]...)
}

// appendSynOptions appends the options of a SYN, or of a SYN-ACK, which has those that were agreed on.
func (c *Conn) appendSynOptions(b []byte, now clock.Time) []byte {
	answer := c.state == StateSynReceived
	b = wire.AppendMSS(b, c.announcedMSS())
	scaling := !c.opt.NoScaling
	stamps, sack := !c.opt.NoTimestamps, !c.opt.NoSACK
	if answer {
		scaling, stamps, sack = c.has(flagScaling), c.has(flagTimestamps), c.has(flagSACK)
	}
	switch {
	case sack && stamps:
		b = wire.AppendSACKPermitted(b)
		b = wire.AppendTimestamps(b, timestamp(now)+c.tsOffset, c.tsRecent)
	case sack:
		b = wire.AppendSACKPermitted(wire.AppendNOP(b, 2))
	case stamps:
		b = wire.AppendTimestamps(wire.AppendNOP(b, 2), timestamp(now)+c.tsOffset, c.tsRecent)
	}
	if scaling {
		b = wire.AppendWindowScale(wire.AppendNOP(b, 1), c.rcvScale)
	}
	if c.auth != nil {
		b = c.auth.AppendOption(b)
	}
	return b
}
