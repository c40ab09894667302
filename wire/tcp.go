package wire

// TCPLen is the length of a TCP header without options, TCPMaxLen with as many as fit.
const (
	TCPLen    = 20
	TCPMaxLen = 60
)

// TCP is a view of a TCP segment.
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|          Source Port          |       Destination Port        |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                        Sequence Number                        |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                    Acknowledgment Number                      |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|  Data |     |A|C|E|U|A|P|R|S|F|                               |
//	| Offset| Rsv |E|W|C|R|C|S|S|Y|I|            Window             |
//	|       |     | |R|E|G|K|H|T|N|N|                               |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|           Checksum            |         Urgent Pointer        |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                           [Options]                           |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//
// RFC 9293 3.1; AE RFC 9768.
type TCP []byte

// Valid reports whether the header and its options are there.
func (b TCP) Valid() bool {
	return len(b) >= TCPLen && b.DataOffset() >= TCPLen && b.DataOffset() <= len(b)
}

// SrcPort returns the source port.
func (b TCP) SrcPort() uint16 { return u16(b, 0) }

// DstPort returns the destination port.
func (b TCP) DstPort() uint16 { return u16(b, 2) }

// Seq returns the sequence number.
func (b TCP) Seq() uint32 { return u32(b, 4) }

// Ack returns the acknowledgment number; without meaning unless FlagACK is set.
func (b TCP) Ack() uint32 { return u32(b, 8) }

// DataOffset returns the length of the header with options in bytes.
func (b TCP) DataOffset() int { return int(b[12]>>4) << 2 }

// AE returns the accurate ECN bit, which lies outside of the octet of Flags (RFC 9768).
func (b TCP) AE() bool { return b[12]&1 != 0 }

// Flags returns the control bits.
func (b TCP) Flags() TCPFlags { return TCPFlags(b[13]) }

// Window returns the window as sent, before scaling (RFC 7323 2).
func (b TCP) Window() uint16 { return u16(b, 14) }

// Checksum returns the checksum.
func (b TCP) Checksum() uint16 { return u16(b, 16) }

// Urgent returns the urgent pointer; without meaning unless FlagURG is set.
func (b TCP) Urgent() uint16 { return u16(b, 18) }

// Options borrows the options with their padding; empty where there are none.
func (b TCP) Options() []byte { return b[TCPLen:b.DataOffset()] }

// Payload borrows the bytes after the header.
func (b TCP) Payload() []byte { return b[b.DataOffset():] }

// SetSrcPort writes the source port.
func (b TCP) SetSrcPort(p uint16) { put16(b, 0, p) }

// SetDstPort writes the destination port.
func (b TCP) SetDstPort(p uint16) { put16(b, 2, p) }

// SetSeq writes the sequence number.
func (b TCP) SetSeq(n uint32) { put32(b, 4, n) }

// SetAck writes the acknowledgment number.
func (b TCP) SetAck(n uint32) { put32(b, 8, n) }

// SetDataOffset writes the length of the header in bytes, a multiple of 4, and keeps AE.
func (b TCP) SetDataOffset(n int) { b[12] = b[12]&0xf | byte(n>>2)<<4 }

// SetAE writes the accurate ECN bit.
func (b TCP) SetAE(on bool) { b[12] = b[12]&^1 | bit(on) }

// SetFlags writes the control bits.
func (b TCP) SetFlags(f TCPFlags) { b[13] = byte(f) }

// SetWindow writes the window, scaled already.
func (b TCP) SetWindow(n uint16) { put16(b, 14, n) }

// SetChecksum writes the checksum.
func (b TCP) SetChecksum(v uint16) { put16(b, 16, v) }

// SetUrgent writes the urgent pointer.
func (b TCP) SetUrgent(n uint16) { put16(b, 18, n) }

// ChecksumOK reports whether segment and pseudo header add up to all ones. The view must end where the
// IP payload ends.
func (b TCP) ChecksumOK(pseudo uint32) bool { return Fold(Sum(b, pseudo)) == 0 }

// FillChecksum computes and writes the checksum; pseudo is the sum of the pseudo header. The view must
// end where the IP payload ends.
func (b TCP) FillChecksum(pseudo uint32) {
	b.SetChecksum(0)
	b.SetChecksum(Fold(Sum(b, pseudo)))
}

// TCPFlags are the control bits of a segment (RFC 9293 3.1).
type TCPFlags uint8

// Control bits.
const (
	FlagFIN TCPFlags = 1 << iota
	FlagSYN
	FlagRST
	FlagPSH
	FlagACK
	FlagURG
	FlagECE // RFC 3168 6.1
	FlagCWR // RFC 3168 6.1
)

// Has reports whether all the bits of g are set.
func (f TCPFlags) Has(g TCPFlags) bool { return f&g == g }

// Any reports whether one of the bits of g is set.
func (f TCPFlags) Any(g TCPFlags) bool { return f&g != 0 }

// String returns the names of the bits that are set, joined by "|", lowest first; "none" for none.
func (f TCPFlags) String() string {
	if f == 0 {
		return "none"
	}
	b := make([]byte, 0, 8*4)
	for i := range 8 {
		if f&(1<<i) == 0 {
			continue
		}
		if len(b) > 0 {
			b = append(b, '|')
		}
		b = append(b, "FINSYNRSTPSHACKURGECECWR"[3*i:3*i+3]...)
	}
	return string(b)
}

// TCPHeader holds the fields of a new header.
type TCPHeader struct {
	SrcPort, DstPort uint16
	Seq, Ack         uint32
	Flags            TCPFlags
	Window           uint16
	Urgent           uint16
	Options          []byte // borrowed; at most 40 bytes, padded with zeros to a multiple of 4
}

// AppendTCP appends a header with its options and without checksum to b.
func AppendTCP(b []byte, h *TCPHeader) []byte {
	n := len(b)
	b = append(b, zeros[:TCPLen]...)
	b = append(b, h.Options...)
	b = append(b, zeros[:-len(h.Options)&3]...)
	t := TCP(b[n:])
	t.SetSrcPort(h.SrcPort)
	t.SetDstPort(h.DstPort)
	t.SetSeq(h.Seq)
	t.SetAck(h.Ack)
	t.SetDataOffset(len(t))
	t.SetFlags(h.Flags)
	t.SetWindow(h.Window)
	t.SetUrgent(h.Urgent)
	return b
}
