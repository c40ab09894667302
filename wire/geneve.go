package wire

// GeneveLen is the length of a Geneve header without options.
const GeneveLen = 8

// Geneve is a view of the payload of a UDP datagram to PortGeneve.
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|Ver|  Opt Len  |O|C|    Rsvd.  |          Protocol Type        |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|        Virtual Network Identifier (VNI)       |    Reserved   |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	~                    Variable-Length Options                    ~
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//
// RFC 8926 3.4.
type Geneve []byte

// Valid reports whether the header and its options are there, of version 0: others must be dropped
// (RFC 8926 3.4).
func (b Geneve) Valid() bool {
	return len(b) >= GeneveLen && b.Version() == 0 && b.HeaderLen() <= len(b)
}

// Version returns the version: 0.
func (b Geneve) Version() uint8 { return b[0] >> 6 }

// HeaderLen returns the length of the header with options in bytes.
func (b Geneve) HeaderLen() int { return GeneveLen + int(b[0]&0x3f)<<2 }

// Control returns the O flag: the packet is for the tunnel endpoint itself.
func (b Geneve) Control() bool { return b[1]&0x80 != 0 }

// Critical returns the C flag: an option that must be understood is among the options.
func (b Geneve) Critical() bool { return b[1]&0x40 != 0 }

// EtherType returns the type of the payload; EtherTypeTEB for an Ethernet frame.
func (b Geneve) EtherType() uint16 { return u16(b, 2) }

// VNI returns the 24 bits of the network identifier.
func (b Geneve) VNI() uint32 { return u24(b, 4) }

// Options borrows the options; empty where there are none.
func (b Geneve) Options() []byte { return b[GeneveLen:b.HeaderLen()] }

// OptionIter returns a walk over the options.
func (b Geneve) OptionIter() GeneveOptionIter { return GeneveOptionIter{rest: b.Options()} }

// Payload borrows the bytes after the header.
func (b Geneve) Payload() []byte { return b[b.HeaderLen():] }

// SetVNI writes the low 24 bits of v as network identifier.
func (b Geneve) SetVNI(v uint32) { put24(b, 4, v) }

// SetControl writes the O flag.
func (b Geneve) SetControl(on bool) { b[1] = b[1]&^0x80 | bit(on)<<7 }

// SetCritical writes the C flag.
func (b Geneve) SetCritical(on bool) { b[1] = b[1]&^0x40 | bit(on)<<6 }

// SetEtherType writes the type of the payload.
func (b Geneve) SetEtherType(t uint16) { put16(b, 2, t) }

// AppendGeneve appends a header to b, to which the options that follow, optLen bytes of them (a multiple
// of 4, at most 252), have to be appended next.
func AppendGeneve(b []byte, etherType uint16, vni uint32, optLen int) []byte {
	b = appendU16(append(b, byte(optLen>>2)&0x3f, 0), etherType)
	return append(b, byte(vni>>16), byte(vni>>8), byte(vni), 0)
}

// AppendGeneveOption appends an option to b; the length of data is a multiple of 4, at most 124.
func AppendGeneveOption(b []byte, class uint16, typ uint8, data []byte) []byte {
	b = append(appendU16(b, class), typ, byte(len(data)>>2)&0x1f)
	return append(b, data...)
}

// GeneveOptionIter walks the options of a Geneve header.
//
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|          Option Class         |C|    Type     |R|R|R| Length  |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	~                  Variable-Length Option Data                  ~
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//
// RFC 8926 3.5; Length counts 4 bytes of data. The walk ends at the end of the options, or at one that
// goes on beyond it; Malformed is then true, and the packet must be dropped (RFC 8926 3.5).
type GeneveOptionIter struct {
	rest []byte
	opt  []byte
	bad  bool
}

// Next goes to the next option and reports whether there is one.
func (it *GeneveOptionIter) Next() bool {
	if len(it.rest) == 0 {
		return false
	}
	if len(it.rest) < 4 || 4+int(it.rest[3]&0x1f)<<2 > len(it.rest) {
		it.rest, it.bad = nil, true
		return false
	}
	n := 4 + int(it.rest[3]&0x1f)<<2
	it.opt, it.rest = it.rest[:n], it.rest[n:]
	return true
}

// Class returns the class of the current option: who defines its types.
func (it *GeneveOptionIter) Class() uint16 { return u16(it.opt, 0) }

// Type returns the type of the current option with the critical bit.
func (it *GeneveOptionIter) Type() uint8 { return it.opt[2] }

// Critical reports whether the packet must be dropped by who does not know the current option.
func (it *GeneveOptionIter) Critical() bool { return it.opt[2]&0x80 != 0 }

// Data borrows the bytes of the current option behind its header.
func (it *GeneveOptionIter) Data() []byte { return it.opt[4:] }

// Malformed reports whether the walk ended at an option that contradicts the bytes.
func (it *GeneveOptionIter) Malformed() bool { return it.bad }
