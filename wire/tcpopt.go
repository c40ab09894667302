package wire

// TCP option kinds (IANA TCP Parameters registry).
const (
	TCPOptMSS           uint8 = 2   // RFC 9293 3.7.1
	TCPOptWindowScale   uint8 = 3   // RFC 7323 2.2
	TCPOptSACKPermitted uint8 = 4   // RFC 2018 2
	TCPOptSACK          uint8 = 5   // RFC 2018 3
	TCPOptTimestamps    uint8 = 8   // RFC 7323 3.2
	TCPOptMD5           uint8 = 19  // RFC 2385
	TCPOptAO            uint8 = 29  // RFC 5925 2.2
	TCPOptMultipath     uint8 = 30  // RFC 8684 3
	TCPOptFastOpen      uint8 = 34  // RFC 7413 4.1.1
	TCPOptAccECN0       uint8 = 172 // RFC 9768 3.2.3: ECT(0) first
	TCPOptAccECN1       uint8 = 174 // ECT(1) first
)

// Limits of TCP options.
const (
	TCPMaxOptions  = 40 // bytes of options in a header
	MaxWindowScale = 14 // RFC 7323 2.3: larger shifts count as 14
	MaxSACKBlocks  = 4  // RFC 2018 3: 40 bytes hold four
)

// SACKBlock is a range of sequence numbers that have arrived: Left is the first of them, Right the one
// after the last (RFC 2018 3).
type SACKBlock struct{ Left, Right uint32 }

// TCPOptions holds the options of a segment. Has* distinguish an option with the value 0 from none.
type TCPOptions struct {
	MSS            uint16 // largest segment the sender takes, bytes; 0 where there is none
	WindowScale    uint8  // shift, at most MaxWindowScale
	HasWindowScale bool
	SACKPermitted  bool
	HasTimestamps  bool
	HasFastOpen    bool
	HasMD5         bool
	HasAO          bool
	SACKs          uint8 // blocks of SACK in use
	AccECN         AccECN
	TSVal, TSEcr   uint32
	SACK           [MaxSACKBlocks]SACKBlock
	FastOpen       []byte // cookie, borrowed; empty asks for one (RFC 7413 4.1.1)
}

// ParseOptions reads the options of the segment. Kinds that it does not know, and known ones of a wrong
// length, are skipped (RFC 9293 3.1, MUST-6). It reports false where the list is malformed; what came
// before is in o then. The segment must be Valid.
func (b TCP) ParseOptions(o *TCPOptions) bool {
	*o = TCPOptions{}
	if string(b[TCPLen:min(TCPLen+4, b.DataOffset())]) == alignedTimestamps && b.DataOffset() == 32 {
		o.HasTimestamps, o.TSVal, o.TSEcr = true, u32(b, 24), u32(b, 28)
		return true
	}
	it := b.OptionIter()
	for it.Next() {
		o.set(it.Kind(), it.Data())
	}
	return !it.Malformed()
}

// alignedTimestamps is the layout of timestamps in RFC 7323 Appendix A: most segments have nothing else.
const alignedTimestamps = "\x01\x01\x08\x0a"

func (o *TCPOptions) set(kind uint8, data []byte) {
	switch {
	case kind == TCPOptMSS && len(data) == 2:
		o.MSS = u16(data, 0)
	case kind == TCPOptWindowScale && len(data) == 1:
		o.HasWindowScale, o.WindowScale = true, min(data[0], MaxWindowScale)
	case kind == TCPOptSACKPermitted && len(data) == 0:
		o.SACKPermitted = true
	case kind == TCPOptTimestamps && len(data) == 8:
		o.HasTimestamps, o.TSVal, o.TSEcr = true, u32(data, 0), u32(data, 4)
	case kind == TCPOptSACK && len(data)%8 == 0:
		o.setSACK(data)
	case kind == TCPOptFastOpen:
		o.HasFastOpen, o.FastOpen = true, data
	case kind == TCPOptMD5 && len(data) == 16:
		o.HasMD5 = true
	case kind == TCPOptAO && len(data) >= 2:
		o.HasAO = true
	case kind == TCPOptAccECN0 || kind == TCPOptAccECN1:
		o.AccECN.set(kind == TCPOptAccECN1, data)
	}
}

func (o *TCPOptions) setSACK(data []byte) {
	o.SACKs = uint8(min(len(data)/8, MaxSACKBlocks))
	for i := range int(o.SACKs) {
		o.SACK[i] = SACKBlock{u32(data, 8*i), u32(data, 8*i+4)}
	}
}

// AccECN holds the options of accurate ECN (RFC 9768 3.2.3): the low 24 bits of how many bytes of
// payload arrived by ECN field.
type AccECN struct {
	Fields         uint8 // bit 1<<ECN: the counter is there; bit 0: there is an option at all
	ECT0, CE, ECT1 uint32
}

// Present reports whether there is an option: it may be empty.
func (a *AccECN) Present() bool { return a.Fields&1 != 0 }

// Has reports whether the option has the counter of an ECN field.
func (a *AccECN) Has(e ECN) bool { return a.Fields&^1&(1<<(e&3)) != 0 }

// set reads an option of any length: as many whole counters as there are, the rest is padding (RFC 9768
// 3.2.3). Order 0 is ECT(0), CE, ECT(1), and order 1 the reverse.
func (a *AccECN) set(reverse bool, data []byte) {
	*a = AccECN{Fields: 1}
	order := [3]ECN{ECT0, CE, ECT1}
	if reverse {
		order[0], order[2] = ECT1, ECT0
	}
	for i := range min(len(data)/3, 3) {
		v := uint32(data[3*i])<<16 | uint32(data[3*i+1])<<8 | uint32(data[3*i+2])
		a.Fields |= 1 << order[i]
		switch order[i] {
		case ECT0:
			a.ECT0 = v
		case CE:
			a.CE = v
		case ECT1:
			a.ECT1 = v
		}
	}
}

// AppendAccECN appends an accurate ECN option: 2 bytes and 3 for each counter, in the order of the kind.
func AppendAccECN(b []byte, kind uint8, counters []uint32) []byte {
	b = append(b, kind, byte(2+3*len(counters)))
	for _, v := range counters {
		b = append(b, byte(v>>16), byte(v>>8), byte(v))
	}
	return b
}

// AppendMSS appends a maximum segment size option: 4 bytes.
func AppendMSS(b []byte, mss uint16) []byte {
	return append(b, TCPOptMSS, 4, byte(mss>>8), byte(mss))
}

// AppendWindowScale appends a window scale option: 3 bytes.
func AppendWindowScale(b []byte, shift uint8) []byte {
	return append(b, TCPOptWindowScale, 3, shift)
}

// AppendSACKPermitted appends a SACK permitted option: 2 bytes.
func AppendSACKPermitted(b []byte) []byte { return append(b, TCPOptSACKPermitted, 2) }

// AppendTimestamps appends a timestamps option: 10 bytes.
func AppendTimestamps(b []byte, val, ecr uint32) []byte {
	b = append(b, TCPOptTimestamps, 10)
	return appendU32(appendU32(b, val), ecr)
}

// AppendSACK appends a SACK option with the blocks: 2 bytes and 8 for each.
func AppendSACK(b []byte, blocks ...SACKBlock) []byte {
	b = append(b, TCPOptSACK, byte(2+8*len(blocks)))
	for _, s := range blocks {
		b = appendU32(appendU32(b, s.Left), s.Right)
	}
	return b
}

// AppendFastOpen appends a fast open option: 2 bytes and the cookie, none to ask for one.
func AppendFastOpen(b, cookie []byte) []byte {
	return append(append(b, TCPOptFastOpen, byte(2+len(cookie))), cookie...)
}

// AppendMD5 appends an MD5 signature option: 18 bytes.
func AppendMD5(b []byte, digest [16]byte) []byte {
	return append(append(b, TCPOptMD5, 18), digest[:]...)
}

// AppendAO appends an authentication option: 4 bytes and the MAC.
func AppendAO(b []byte, keyID, nextKeyID uint8, mac []byte) []byte {
	return append(append(b, TCPOptAO, byte(4+len(mac)), keyID, nextKeyID), mac...)
}

// AppendNOP appends n no-operations, which align the option after them.
func AppendNOP(b []byte, n int) []byte {
	for range n {
		b = append(b, OptionNOP)
	}
	return b
}
