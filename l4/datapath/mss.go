package datapath

import (
	"encoding/binary"
	"math/bits"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// MSSAuto is the Service.MSS that stands for what fits the path to the backend.
const MSSAuto = -1

// clamp lowers the MSS option of a SYN to most, as Service.MSS: a number, or what fits into packets of room bytes, the
// most that the way out takes (0 is any; RFC 9293 3.7.1, RFC 6691). Path
// MTU discovery alone would not do: many networks drop the ICMP errors that it needs. A SYN without the option
// stays so: its sender assumes 536 or 1220 bytes (RFC 9293 3.7.1), which fits everywhere.
//
// With NAT both SYNs pass here. With a direct mode only the client's does: its option bounds what the
// backend sends, which goes by no tunnel. The backend's SYN+ACK bounds what the client sends (on Linux by
// `advmss` of its route to clients); where that is too much, tooBig sends the client an ICMP error.
func (h translator) clamp(v *view, most, room int) {
	if most == 0 {
		return
	}
	if most == MSSAuto {
		most = h.segmentThatFits(v, room)
	}
	if most == 0 {
		return
	}
	tcp := wire.TCP(v.p[v.d.L4:])
	diff := lowerMSS(tcp, uint16(min(most, 0xffff)))
	if !v.d.Flags.Has(packet.FlagOffload) { // a checksum that is still to be made sums the option then
		tcp.SetChecksum(wire.Apply(tcp.Checksum(), diff))
	}
}

// segmentThatFits returns the largest segment without options that fits both the way out and the way that the
// packet came by; 0 when both take any.
func (h translator) segmentThatFits(v *view, out int) int {
	headers := wire.IPv6Len + wire.TCPLen
	if v.is4 {
		headers = wire.IPv4Len + wire.TCPLen
	}
	in := h.snap.Devices[v.d.Port].MTU
	if out == 0 || in != 0 && in < out {
		out = in
	}
	return max(out-headers, 0)
}

// lowerMSS writes most into the MSS option of a segment if that says more, and returns what the checksum
// changes by (RFC 1624). Options may lie at odd offsets; the sum of two bytes across a word boundary is
// that of the swapped word (RFC 1071 2 (B)).
func lowerMSS(tcp wire.TCP, most uint16) (diff uint16) {
	for at, end := wire.TCPLen, min(tcp.DataOffset(), len(tcp)); at < end; {
		kind := tcp[at]
		if kind == wire.OptionNOP {
			at++
			continue
		}
		if kind == wire.OptionEnd || at+1 >= end || tcp[at+1] < 2 || at+int(tcp[at+1]) > end {
			break
		}
		if kind == wire.TCPOptMSS && tcp[at+1] == 4 {
			was := binary.BigEndian.Uint16(tcp[at+2:])
			if was > most {
				binary.BigEndian.PutUint16(tcp[at+2:], most)
				old, now := was, most
				if at&1 == 1 {
					old, now = bits.ReverseBytes16(old), bits.ReverseBytes16(now)
				}
				diff = wire.AddDiff(diff, wire.Diff32(uint32(old), uint32(now)))
			}
		}
		at += int(tcp[at+1])
	}
	return diff
}
