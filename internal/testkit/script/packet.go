package script

import (
	"encoding/hex"
	"math"
	"strings"

	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/wire"
)

var ecnWords = map[string]wire.ECN{"noecn": wire.NotECT, "ect0": wire.ECT0, "ect1": wire.ECT1, "ce": wire.CE}

// packet reads a segment, from its flags on.
func (p *parser) packet(in bool) *Packet {
	k := &Packet{In: in}
	if p.accept("[") {
		p.headerField(k)
		p.want("]")
	}
	p.flags(k)
	p.sequence(k)
	if p.accept("ack") {
		k.Ack = p.number32()
	} else if k.Flags.Has(wire.FlagACK) && !p.upstream {
		p.fail(p.tok.pos, "a segment with ACK names what it acknowledges")
	}
	if p.accept("win") {
		k.Window, k.HasWindow = uint16(p.number(math.MaxUint16)), true
	} else if in && !k.Flags.Has(wire.FlagRST) {
		p.fail(p.tok.pos, "a segment that arrives has a window")
	}
	if p.accept("urg") {
		k.Urgent, k.HasUrgent = uint16(p.number(math.MaxUint16)), true
	}
	if p.accept("<") {
		p.options(k)
	}
	return k
}

// headerField reads what square brackets say of the IP header: the ECN field, or all of its byte.
func (p *parser) headerField(k *Packet) {
	pos := p.tok.pos
	if p.accept("tos") {
		k.TOS, k.HasTOS = uint8(p.number(math.MaxUint8)), true
		k.ECN = wire.ECN(k.TOS & 3)
		return
	}
	ecn, ok := ecnWords[p.word()]
	if !ok {
		p.fail(pos, "want noecn, ect0, ect1, ce or tos")
	}
	k.ECN, k.HasECN = ecn, true
}

// flags reads control bits. They may be words and full stops in any mixture, but no spaces.
func (p *parser) flags(k *Packet) {
	pos, text := p.tok.pos, ""
	if p.accept("-") {
		return
	}
	for text == "" || p.tok.glued && (p.tok.kind == tokWord || p.is(".") || p.ackAndField()) {
		if p.tok.kind == tokNumber && !p.ackAndField() || p.tok.kind == tokEnd {
			break
		}
		text += p.tok.text
		p.advance()
	}
	for _, c := range []byte(text) {
		if c == 'A' {
			k.AE = true
			continue
		}
		if c >= '0' && c <= '7' { // ACE: AE is 4, CWR 2, ECE 1
			k.Flags |= wire.TCPFlags(c-'0') & 3 << 6
			k.AE = k.AE || c >= '4'
			continue
		}
		i := strings.IndexByte("FSRP.UEW", c)
		if i < 0 {
			p.fail(pos, "%q is no flag", c)
			return
		}
		k.Flags |= 1 << i
	}
	if text == "" {
		p.fail(pos, "want flags, have %s", p.tok)
	}
}

// ackAndField reports whether the token is an ACK with an ACE field, such as ".5", which is a number to the lexer.
func (p *parser) ackAndField() bool {
	return p.tok.kind == tokNumber && len(p.tok.text) == 2 && p.tok.text[0] == '.'
}

// sequence reads A:B(N).
func (p *parser) sequence(k *Packet) {
	pos := p.tok.pos
	k.Seq = p.number32()
	p.want(":")
	end := p.number32()
	p.want("(")
	k.Len = uint32(p.number(math.MaxUint16))
	p.want(")")
	if end-k.Seq != k.Len {
		p.fail(pos, "from %d to %d are not %d bytes", k.Seq, end, k.Len)
	}
}

// options reads what is between angle brackets.
func (p *parser) options(k *Packet) {
	if p.accept("...") {
		k.AnyOptions = true
		if k.In {
			p.fail(p.tok.pos, "options that arrive must be known")
		}
		p.want(">")
		return
	}
	for p.err == nil {
		k.Options = append(k.Options, p.tcpOption())
		if !p.accept(",") {
			break
		}
	}
	p.want(">")
	if k.In && p.err == nil && len(k.encode(0)) > wire.TCPMaxOptions {
		p.fail(p.tok.pos, "more than %d bytes of options", wire.TCPMaxOptions)
	}
}

// tcpOption reads one option.
func (p *parser) tcpOption() (o Option) {
	pos := p.tok.pos
	switch name := p.word(); name {
	case "nop":
		o.Kind = wire.OptionNOP
	case "eol":
		o.Kind = wire.OptionEnd
	case "mss":
		o.Kind, o.Value = wire.TCPOptMSS, uint32(p.number(math.MaxUint16))
	case "wscale":
		o.Kind, o.Value = wire.TCPOptWindowScale, uint32(p.number(math.MaxUint8))
	case "sackOK":
		o.Kind = wire.TCPOptSACKPermitted
	case "TS":
		o.Kind = wire.TCPOptTimestamps
		p.want("val")
		o.Value = p.number32()
		p.want("ecr")
		o.Echo = p.number32()
	case "sack":
		o.Kind = wire.TCPOptSACK
		for p.tok.kind == tokNumber && len(o.Blocks) < wire.MaxSACKBlocks {
			left := p.number32()
			p.want(":")
			o.Blocks = append(o.Blocks, wire.SACKBlock{Left: left, Right: p.number32()})
		}
		if len(o.Blocks) == 0 {
			p.fail(pos, "sack without blocks")
		}
	case "FO":
		o.Kind = wire.TCPOptFastOpen
		if o.Last = p.accept("last"); !o.Last {
			o.Data = p.hex()
		}
	case "ECN":
		p.accECN(&o)
	case "opt":
		o.Kind = uint8(p.number(math.MaxUint8))
		o.Data = p.hex()
	default:
		p.fail(pos, "unknown TCP option %q", name)
	}
	return o
}

// accECN reads the counters of an accurate ECN option: the first one implies the order (RFC 9768 3.2.3).
func (p *parser) accECN(o *Option) {
	o.Kind = wire.TCPOptAccECN0
	orders := map[uint8][]string{wire.TCPOptAccECN0: {"e0b", "ceb", "e1b"}, wire.TCPOptAccECN1: {"e1b", "ceb", "e0b"}}
	if p.tok.text == "e1b" {
		o.Kind = wire.TCPOptAccECN1
	}
	for _, name := range orders[o.Kind] {
		if !p.accept(name) {
			return
		}
		v := p.number(1<<24 - 1)
		o.Data = append(o.Data, byte(v>>16), byte(v>>8), byte(v))
	}
}

// hex reads bytes; none where a comma or the end follows. Tokens that touch are one.
func (p *parser) hex() []byte {
	pos, text := p.tok.pos, ""
	for (p.tok.kind == tokNumber || p.tok.kind == tokWord) && (text == "" || p.tok.glued) {
		text += p.tok.text
		p.advance()
	}
	b, err := hex.DecodeString(text)
	if err != nil {
		p.fail(pos, "%q are no bytes in hexadecimal", text)
	}
	if len(b) > wire.TCPMaxOptions-2 {
		p.fail(pos, "%d bytes do not fit into an option", len(b))
	}
	return b
}

var icmpKinds = map[string]ip.ErrorKind{
	"net_unreachable": ip.NetUnreachable, "host_unreachable": ip.HostUnreachable,
	"protocol_unreachable": ip.ProtoUnreachable, "port_unreachable": ip.PortUnreachable,
	"frag_needed": ip.TooBig, "packet_too_big": ip.TooBig, "admin_prohibited": ip.Prohibited,
}

// icmp reads an ICMP error.
func (p *parser) icmp() *ICMP {
	m := &ICMP{Seq: 1}
	if p.accept("time_exceeded") {
		m.Kind = ip.TimeExceeded
	} else if p.accept("packet_too_big") {
		m.Kind = ip.TooBig
	} else if p.want("unreachable"); p.is("[") && p.upstream {
		m.Kind = ip.NetUnreachable
	} else {
		pos := p.tok.pos
		kind, ok := icmpKinds[p.word()]
		if !ok {
			p.fail(pos, "unknown kind of unreachable")
		}
		m.Kind = kind
	}
	if p.accept("mtu") {
		m.MTU = int(p.number(math.MaxUint16))
	}
	if p.accept("[") {
		var k Packet
		p.sequence(&k)
		m.Seq = k.Seq
		p.want("]")
	}
	return m
}
