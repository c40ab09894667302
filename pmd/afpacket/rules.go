package afpacket

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/wire"
)

// Rule names packets to receive. A VLAN tag makes no difference to it.
type Rule = pmd.Rule

// ErrRule reports that a rule is invalid or that there are too many.
var ErrRule = errors.New("packet filter rule")

// matcher is a set of rules as a classic BPF program whose results are resultTake and resultLeave. One program
// serves the packet socket and the ingress hook, whose results have other values: two compilers could
// differ, and a packet that the hook hides and no socket takes would be lost.
type matcher struct{ prog []unix.SockFilter }

// Placeholders for the results of the socket or of the hook. No rule uses these numbers.
const (
	resultTake  = 0xfffffff0
	resultLeave = 0xfffffff1
)

var (
	everything = &matcher{[]unix.SockFilter{ret(resultTake)}}
	nothing    = &matcher{[]unix.SockFilter{ret(resultLeave)}}
)

// socket returns the program for a packet socket, where the result is how many bytes to keep.
func (m *matcher) socket() []unix.SockFilter { return m.results(1<<20, 0) }

// ingress returns the program for the ingress hook (TC_ACT_SHOT, TC_ACT_UNSPEC). A packet too short
// for the program's loads has the result 0, which is TC_ACT_OK.
func (m *matcher) ingress() []unix.SockFilter { return m.results(2, 1<<32-1) }

// results returns a copy of the program with the placeholders replaced: m serves both hooks and is never changed.
func (m *matcher) results(take, leave uint32) []unix.SockFilter {
	out := append([]unix.SockFilter(nil), m.prog...)
	for i := range out {
		switch {
		case out[i] == ret(resultTake):
			out[i].K = take
		case out[i] == ret(resultLeave):
			out[i].K = leave
		}
	}
	return out
}

// Both hooks run the program from the Ethernet header on, the outer VLAN tag taken out.
const (
	etherType = 12
	ip        = 14      // offset of the network header
	arpTarget = ip + 24 // target protocol address (RFC 826)

	memProto = 0 // M[0]: transport protocol
	memRest  = 1 // M[1]: not 0 in a fragment other than the first
	memND    = 2 // M[2]: not 0 in a message of neighbour discovery
	// X: offset of the transport header from the network header
)

// compile turns rules into a program: the fields that all rules need are loaded once, then each rule is a
// block that takes the packet, or leaves it, or continues with the next. The first match decides.
func compile(rules []Rule) (*matcher, error) {
	for _, r := range rules {
		if err := r.Validate(); err != nil {
			return nil, fmt.Errorf("%w %v: %w", ErrRule, r, err)
		}
	}
	rules = slices.Clone(rules)
	slices.SortStableFunc(rules, func(a, b Rule) int { return evalOrder(a) - evalOrder(b) })
	v4, v6, arp := prologue4(), prologue6(), code{}
	for _, r := range rules {
		switch v := r.Addr.Unmap(); {
		case r.Kind == pmd.Neighbor && v.Is4():
			arp = append(arp, block(code{ldw(arpTarget), jeq(word(v.AsSlice()))})...)
		case r.Kind == pmd.Neighbor:
			v6 = append(v6, neighborRule(v.AsSlice())...)
		case v.Is4():
			v4 = append(v4, addressRule(r, 12, v.AsSlice())...)
		default:
			v6 = append(v6, addressRule(r, 8, v.AsSlice())...)
		}
	}
	prog := dispatch(v4, v6, arp)
	if len(prog) > unix.BPF_MAXINSNS {
		return nil, fmt.Errorf("%w: %d rules need %d instructions, %d are allowed: use ranges of ports, or All", ErrRule, len(rules), len(prog), unix.BPF_MAXINSNS)
	}
	return &matcher{prog}, nil
}

// evalOrder orders rules: those that take, then those that keep, then those that Keep overrides (pmd.Rule).
func evalOrder(r Rule) int {
	switch {
	case r.Kind == pmd.Keep:
		return 1
	case r.Kind == pmd.From || r.Bits != 0:
		return 2
	}
	return 0
}

// addressRule returns the code of a rule for an IP packet whose addresses begin at src in the header. The
// cheapest and most selective comparison, that of the address, comes first.
func addressRule(r Rule, src uint32, addr []byte) code {
	at, port := ip+src, uint32(ip)
	if r.Kind != pmd.From {
		at, port = at+uint32(len(addr)), port+2
	}
	c := equal(at, addr)
	if r.Bits != 0 {
		c = within(at, netip.PrefixFrom(r.Addr.Unmap(), int(r.Bits)).Masked())
	}
	if r.Kind == pmd.Keep {
		return ending(c, resultLeave)
	}
	if r.Proto != 0 {
		c = append(c, ldm(memProto), jeq(uint32(r.Proto)))
	}
	if r.Proto == wire.ProtoICMPv6 {
		c = append(c, ldm(memND), jeq(0))
	}
	lo, hi := uint32(r.PortLo), uint32(max(r.PortLo, r.PortHi))
	switch {
	case r.LaterFragments:
		c = append(c, ldm(memRest), jge(1))
	case hi != 0 && pmd.HasTypes(r.Proto):
		c = append(c, ldm(memRest), jeq(0), ldxb(ip), jge(lo), jle(hi))
	case hi != 0:
		c = append(c, ldm(memRest), jeq(0), ldxh(port), jge(lo), jle(hi))
	}
	return block(c)
}

// within compares the bytes of an address with a prefix, 32 bits at a time: the last word is masked.
func within(at uint32, p netip.Prefix) (c code) {
	addr := p.Addr().AsSlice()
	for i := 0; i < p.Bits(); i += 32 {
		c = append(c, ldw(at+uint32(i/8)), alu(unix.BPF_AND, ^uint32(0)<<max(0, 32-(p.Bits()-i))), jeq(word(addr[i/8:])))
	}
	return c
}

// neighborRule matches neighbour solicitations for the address and advertisements sent to it (RFC 4861 4.3, 4.4): who has
// the address has to answer the first, and has asked for the second. The target is at byte 8 of the message.
func neighborRule(addr []byte) code {
	message := func(kind uint8) code {
		return code{ldm(memProto), jeq(uint32(wire.ProtoICMPv6)), ldm(memRest), jeq(0), ldxb(ip), jeq(uint32(kind))}
	}
	const solicitation, advertisement = 135, 136
	target := message(solicitation)
	for i := 0; i < len(addr); i += 4 {
		target = append(target, ldxw(uint32(ip+8+i)), jeq(word(addr[i:])))
	}
	answer := append(message(advertisement), equal(ip+24, addr)...)
	return append(block(target), block(answer)...)
}

// prologue4 stores the protocol and the fragment offset (13 bits, RFC 791 3.1) and loads the header length
// into X: BPF_MSH is the instruction for the IHL field.
func prologue4() code {
	return code{
		ldb(ip + 9), stm(memProto),
		ldh(ip + 6), alu(unix.BPF_AND, 0x1fff), stm(memRest),
		op(unix.BPF_LDX|unix.BPF_B|unix.BPF_MSH, ip),
	}
}

// extHeaders is the number of IPv6 extension headers that the program skips. Classic BPF has no backward jumps, so
// the loop is unrolled. Behind more, a packet has the protocol number of an extension header, which no
// rule names, and stays with the kernel.
const extHeaders = 4

// prologue6 walks the extension headers (RFC 8200 4): hop-by-hop 0, routing 43, destination options 60, fragment 44. X is
// the offset of the current header from the network header; M[0] is its protocol. It ends at any other protocol, or at a
// fragment after the first, whose first bytes are no header.
func prologue6() code {
	c := code{
		ldb(ip + 6), stm(memProto), ldi(0), stm(memRest),
		op(unix.BPF_LDX|unix.BPF_IMM, wire.IPv6Len),
	}
	tax := op(unix.BPF_MISC|unix.BPF_TAX, 0)
	walk := code{
		ldm(memProto),
		jumpIf(0, 4),
		jumpIf(43, 3),
		jumpIf(60, 2),
		jumpIf(44, 9),
		ja(18), // done
		// An option or routing header: its length is in units of 8 bytes after the first 8.
		ldxb(ip), stm(memProto), ldxb(ip + 1), alu(unix.BPF_ADD, 1), alu(unix.BPF_LSH, 3),
		op(unix.BPF_ALU|unix.BPF_ADD|unix.BPF_X, 0), tax, ja(10), // next
		// A fragment header: behind a further fragment there is no header to look at.
		ldxb(ip), stm(memProto), ldxh(ip + 2), alu(unix.BPF_AND, 0xfff8), stm(memRest),
		op(unix.BPF_MISC|unix.BPF_TXA, 0), alu(unix.BPF_ADD, 8), tax,
		ldm(memRest), jumpIf(0, 0),
	}
	const done, jump = 5, 23 // indices of the instructions that leave the walk
	for i := range extHeaders {
		step := append(code(nil), walk...)
		rest := (extHeaders - 1 - i) * len(walk)
		step[done].K = uint32(len(walk) - 1 - done + rest)
		step[jump].Jf = uint8(rest)
		c = append(c, step...)
	}
	return append(c, discovery()...)
}

// discovery stores in M[2] whether the packet is a message of neighbour discovery (RFC 4861 4: types 133 to 137). Rules for
// ICMPv6 do not match those: without router and neighbour advertisements the kernel's own IPv6 on the interface would fail.
func discovery() code {
	skip := func(n uint8, i unix.SockFilter) unix.SockFilter { i.Jf = n; return i }
	return code{
		ldi(0), stm(memND),
		ldm(memProto), skip(8, jeq(uint32(wire.ProtoICMPv6))),
		ldm(memRest), skip(6, jeq(0)),
		ldxb(ip), skip(4, jge(133)),
		{Code: unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K, Jt: 3, K: 137},
		ldi(1), stm(memND), ja(0),
	}
}

// dispatch puts the sections behind a switch on the EtherType. Conditional jumps of classic BPF reach 255
// instructions only, so the switch jumps with BPF_JA, which has 32 bits.
func dispatch(v4, v6, arp code) []unix.SockFilter {
	sections := []struct {
		etherType uint16
		code
	}{{wire.EtherTypeIPv4, v4}, {wire.EtherTypeIPv6, v6}, {wire.EtherTypeARP, arp}}
	c := code{ldh(etherType)}
	at := 0 // of the section, from the end of the switch
	for i, s := range sections {
		rest := 2*(len(sections)-1-i) + 1 // instructions of the switch behind this jump
		c = append(c, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: uint32(s.etherType)}, ja(uint32(rest+at)))
		at += len(s.code) + 1
	}
	c = append(c, ret(resultLeave))
	for _, s := range sections {
		c = append(append(c, s.code...), ret(resultLeave))
	}
	return c
}

// code is a piece of a program. In a block, jeq, jge and jle go on where they hold and leave the
// block where they do not.
type code []unix.SockFilter

// leave marks a jump to the end of the block, whose length is not known yet. No block has 255 instructions.
const leave = 0xff

// block ends c by taking the packet.
func block(c code) code { return ending(c, resultTake) }

// ending ends c with a result, and resolves the jumps out of it: they lead behind the block, where the next rule begins.
func ending(c code, result uint32) code {
	c = append(c, ret(result))
	for i := range c {
		if c[i].Jf == leave {
			c[i].Jf = uint8(len(c) - 1 - i)
		}
		if c[i].Jt == leave {
			c[i].Jt = uint8(len(c) - 1 - i)
		}
	}
	return c
}

// equal compares bytes of the packet, a multiple of four: an IPv4 or IPv6 address. The first word that differs ends the
// comparison.
func equal(at uint32, b []byte) (c code) {
	for i := 0; i < len(b); i += 4 {
		c = append(c, ldw(at+uint32(i)), jeq(word(b[i:])))
	}
	return c
}

// word returns four bytes as BPF loads them: big-endian.
func word(b []byte) uint32 { return binary.BigEndian.Uint32(b) }

// ldb and the functions below make instructions: loads from the packet (x: relative to X) and M, and comparisons.
func ldb(k uint32) unix.SockFilter  { return op(unix.BPF_LD|unix.BPF_B|unix.BPF_ABS, k) }
func ldh(k uint32) unix.SockFilter  { return op(unix.BPF_LD|unix.BPF_H|unix.BPF_ABS, k) }
func ldw(k uint32) unix.SockFilter  { return op(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, k) }
func ldxb(k uint32) unix.SockFilter { return op(unix.BPF_LD|unix.BPF_B|unix.BPF_IND, k) }
func ldxh(k uint32) unix.SockFilter { return op(unix.BPF_LD|unix.BPF_H|unix.BPF_IND, k) }
func ldxw(k uint32) unix.SockFilter { return op(unix.BPF_LD|unix.BPF_W|unix.BPF_IND, k) }
func ldm(k uint32) unix.SockFilter  { return op(unix.BPF_LD|unix.BPF_MEM, k) }
func ldi(k uint32) unix.SockFilter  { return op(unix.BPF_LD|unix.BPF_IMM, k) }
func stm(k uint32) unix.SockFilter  { return op(unix.BPF_ST, k) }
func ja(k uint32) unix.SockFilter   { return op(unix.BPF_JMP|unix.BPF_JA, k) }
func ret(k uint32) unix.SockFilter  { return op(unix.BPF_RET|unix.BPF_K, k) }

func alu(what uint16, k uint32) unix.SockFilter { return op(unix.BPF_ALU|unix.BPF_K|what, k) }

func op(code uint16, k uint32) unix.SockFilter { return unix.SockFilter{Code: code, K: k} }

func jeq(k uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: leave, K: k}
}

func jge(k uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, Jf: leave, K: k}
}

// jumpIf passes over n instructions where the result is k.
func jumpIf(k uint32, n uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: n, K: k}
}

// jle leaves where the result is greater.
func jle(k uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K, Jt: leave, K: k}
}
