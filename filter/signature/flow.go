package signature

import (
	"errors"
	"fmt"
	"math/bits"
	"strings"
)

// Flow holds the conditions of a rule on the flow of a packet. The zero value has none.
type Flow struct {
	Dir            Direction // 0: either
	Established    bool
	NotEstablished bool
	Stateless      bool // whatever is known of the flow
	OnlyStream     bool // the stream's bytes, no single packets
	NoStream       bool // single packets only
	OnlyFrag       bool // fragments that were put together
	NoFrag         bool
}

// flow reads a list of words.
func (p *ruleParser) flow(v string) error {
	f := &p.rule.Flow
	for _, w := range arguments(strings.ToLower(v)) {
		switch w {
		case "to_server", "from_client":
			f.Dir |= ToServer
		case "to_client", "from_server":
			f.Dir |= ToClient
		case "established":
			f.Established = true
		case "not_established":
			f.NotEstablished = true
		case "stateless":
			f.Stateless = true
		case "only_stream":
			f.OnlyStream = true
		case "no_stream":
			f.NoStream = true
		case "only_frag":
			f.OnlyFrag = true
		case "no_frag":
			f.NoFrag = true
		default:
			return fmt.Errorf("flow does not know %q", w)
		}
	}
	switch {
	case f.Dir == BothWays:
		return errors.New("a packet goes to the server or to the client, not to both")
	case f.Established && f.NotEstablished || f.Stateless && (f.Established || f.NotEstablished):
		return errors.New("established, not_established and stateless exclude one another")
	case f.OnlyStream && f.NoStream:
		return errors.New("only_stream and no_stream exclude one another")
	}
	return nil
}

// Field is a number of a packet that PacketTest compares.
type Field uint8

// The fields.
const (
	FieldPayloadLen Field = iota // dsize
	FieldTTL                     // or hop limit
	FieldTOS
	FieldIPID
	FieldIPProto
	FieldFlags // TCP
	FieldWindow
	FieldSeq
	FieldAck
	FieldICMPType
	FieldICMPCode
	FieldICMPID
	FieldICMPSeq
	FieldFragOffset
	FieldFragBits
	FieldStreamClient // stream_size: bytes of the client
	FieldStreamServer
	FieldStreamBoth   // of each
	FieldStreamEither // of one or both
)

// PacketTest is a condition on a header or a size.
type PacketTest struct {
	Field Field
	Range Range
	Bits  BitTest // FieldFlags and FieldFragBits
}

// BitTest is a condition on bits.
type BitTest struct {
	Bits, Ignore uint8
	How          Bitwise
}

// Bitwise configures how bits are compared.
type Bitwise uint8

// The ways of Bitwise.
const (
	Exactly Bitwise = iota // these bits and no others
	All                    // "+": these bits and perhaps others
	Any                    // "*": one of these bits
	None                   // "!": none of these bits
)

// Has reports whether flags satisfy b.
func (b BitTest) Has(flags uint8) bool {
	flags &^= b.Ignore
	switch b.How {
	case All:
		return flags&b.Bits == b.Bits
	case Any:
		return flags&b.Bits != 0
	case None:
		return flags&b.Bits == 0
	}
	return flags == b.Bits
}

func packetKeywords(value addValue, _ addBare) {
	value("flow", (*ruleParser).flow)
	for name, f := range map[string]struct {
		field Field
		most  uint64
	}{
		"dsize": {FieldPayloadLen, 65535}, "ttl": {FieldTTL, 255}, "id": {FieldIPID, 65535}, "window": {FieldWindow, 65535},
		"seq": {FieldSeq, 1<<32 - 1}, "ack": {FieldAck, 1<<32 - 1}, "itype": {FieldICMPType, 255}, "icode": {FieldICMPCode, 255},
		"icmp_id": {FieldICMPID, 65535}, "icmp_seq": {FieldICMPSeq, 65535}, "fragoffset": {FieldFragOffset, 8191},
		"tos": {FieldTOS, 255},
	} {
		value(name, func(p *ruleParser, v string) error {
			r, err := rangeOf(v, f.most)
			if err == nil && (r.Low > f.most || r.High > f.most) {
				err = fmt.Errorf("%s is at most %d", p.keyword, f.most)
			}
			p.rule.Packet = append(p.rule.Packet, PacketTest{Field: f.field, Range: r})
			return err
		})
	}
	value("ip_proto", (*ruleParser).ipProto)
	value("flags", func(p *ruleParser, v string) error { return p.bits(v, FieldFlags, "FSRPAUEC", "12") })
	value("fragbits", func(p *ruleParser, v string) error { return p.bits(v, FieldFragBits, "MDR", "") })
	value("stream_size", (*ruleParser).streamSize)
}

var ipProtocols = map[string]uint64{
	"icmp": 1, "igmp": 2, "ipip": 4, "tcp": 6, "udp": 17, "ipv6": 41, "gre": 47, "esp": 50, "ah": 51,
	"ipv6-icmp": 58, "icmp6": 58, "pim": 103, "sctp": 132,
}

func (p *ruleParser) ipProto(v string) error {
	body, not := strings.CutPrefix(v, "!")
	var r Range
	if n, ok := ipProtocols[strings.ToLower(strings.TrimSpace(body))]; ok {
		r = Range{n, n, not}
	} else {
		var err error
		if r, err = rangeOf(v, 255); err != nil || r.Low > 255 || r.High > 255 {
			return fmt.Errorf("%q is not a protocol of IP", v)
		}
	}
	p.rule.Packet = append(p.rule.Packet, PacketTest{Field: FieldIPProto, Range: r})
	return nil
}

// bits reads [!+*]LETTERS [, LETTERS to ignore]. names has the letters from the lowest bit on; more has other
// names of the highest two: those of TCP's ECN bits.
func (p *ruleParser) bits(v string, f Field, names, more string) error {
	v = strings.ReplaceAll(v, " ", "")
	test, ignore, _ := strings.Cut(v, ",")
	t := BitTest{}
	if how := strings.Trim(test, names+more+"0"); len(how) == 1 {
		switch how {
		case "+":
			t.How = All
		case "*":
			t.How = Any
		case "!":
			t.How = None
		}
		test = strings.Trim(test, how)
	}
	read := func(s string) (b uint8, err error) {
		for _, c := range s {
			switch i, j := strings.IndexRune(names, c), strings.IndexRune(more, c); {
			case i >= 0:
				b |= 1 << i
			case j >= 0: // 1 is CWR, 2 is ECE
				b |= 0x80 >> j
			case c != '0':
				return 0, fmt.Errorf("%s does not know %q", p.keyword, string(c))
			}
		}
		return b, nil
	}
	var err1, err2 error
	t.Bits, err1 = read(test)
	t.Ignore, err2 = read(ignore)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if t.How == Any && bits.OnesCount8(t.Bits) == 0 {
		return fmt.Errorf("%s:* has bits", p.keyword)
	}
	p.rule.Packet = append(p.rule.Packet, PacketTest{Field: f, Bits: t})
	return nil
}

// streamSize reads client|server|both|either, OPERATOR, NUMBER.
func (p *ruleParser) streamSize(v string) error {
	a := arguments(v)
	fields := map[string]Field{"client": FieldStreamClient, "server": FieldStreamServer, "both": FieldStreamBoth, "either": FieldStreamEither}
	if len(a) != 3 {
		return errors.New("stream_size has SIDE, OPERATOR, NUMBER")
	}
	f, ok := fields[a[0]]
	op := a[1]
	if op == "!=" {
		op = "!"
	}
	r, err := rangeOf(op+a[2], 1<<62)
	if !ok || err != nil {
		return fmt.Errorf("stream_size: %q is not client, server, both or either, an operator and a number", v)
	}
	p.rule.Packet = append(p.rule.Packet, PacketTest{Field: f, Range: r})
	return nil
}
