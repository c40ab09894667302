package roce

import "encoding/binary"

// Sizes in bytes.
const (
	BTHLen  = 12
	ICRCLen = 4
	cnpLen  = 16 // reserved bytes of a congestion notification

	// MostHeaders is the most that BTH and extension headers take: those of an atomic request.
	MostHeaders = BTHLen + 28
)

// Numbers of 24 bits: packet sequence numbers, message sequence numbers and queue pair numbers.
const Mask24 = 1<<24 - 1

// Flags are the single bits of a BTH.
type Flags uint8

// The bits of Flags.
const (
	Solicited Flags = 1 << iota // the receiver of a message wants an event
	MigReq                      // the path is in state migrated; both values are valid in RoCE
	AckReq                      // an acknowledgement is to be sent
	FECN                        // congestion was met on the path of this packet (InfiniBand; RoCEv2 uses IP's field)
	BECN                        // congestion is met on the path to its receiver: set in a CNP
)

// Packet is a transport packet: the base transport header, extension headers and payload. Its opcode decides which
// fields of extension headers are valid.
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|    Opcode     |S|M|Pad| TVer  |            P_Key              |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|F|B| Reserved  |                   Dest QP                     |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|A| Reserved    |                     PSN                       |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//
// InfiniBand specification 1, 9.2 and 9.3.
type Packet struct {
	Opcode Opcode
	Flags  Flags
	PKey   uint16 // partition
	DestQP uint32 // 24 bits
	PSN    uint32 // 24 bits

	VA     uint64 // RETH, AtomicETH: virtual address in the responder's memory
	RKey   uint32 // RETH, AtomicETH: key of the memory region
	Length uint32 // RETH: bytes of the whole message

	Syndrome Syndrome // AETH
	MSN      uint32   // AETH: messages that the responder has completed, 24 bits

	Swap     uint64 // AtomicETH: what CompareSwap stores, or FetchAdd adds
	Compare  uint64 // AtomicETH
	Original uint64 // AtomicAckETH: the value before the operation

	QKey  uint32 // DETH
	SrcQP uint32 // DETH, 24 bits

	Imm    uint32 // ImmDt, as it is on the wire: big-endian
	InvKey uint32 // IETH

	Payload []byte // without pad; borrows the frame
}

// HeadersLen returns the bytes of BTH and extension headers.
func (p *Packet) HeadersLen() int { return BTHLen + int(headerLens[p.Opcode]) }

// Parse reads a transport packet from its BTH to the byte before its ICRC. What it does not set is left from before: valid
// are the fields that Opcode has.
func (p *Packet) Parse(b []byte) Reason {
	if len(b) < BTHLen {
		return Truncated
	}
	p.Opcode = Opcode(b[0])
	s := p.Opcode.shape()
	switch n := p.HeadersLen(); {
	case b[1]&0xf != 0: // TVer; there is only version 0
		return BadVersion
	case s.kind == KindNone:
		return BadOpcode
	case len(b) < n:
		return Truncated
	}
	p.PKey = binary.BigEndian.Uint16(b[2:])
	p.DestQP = binary.BigEndian.Uint32(b[4:]) & Mask24
	p.PSN = binary.BigEndian.Uint32(b[8:]) & Mask24
	p.Flags = Flags(b[1]>>7) | Flags(b[1]>>6&1)<<1 | Flags(b[8]>>7)<<2 | Flags(b[4]>>7)<<3 | Flags(b[4]>>6&1)<<4
	rest := b[BTHLen:]
	if s.kind == KindCNP {
		rest = rest[cnpLen:]
	} else {
		rest = p.parseHeaders(rest, s.part)
	}
	return p.setPayload(rest, int(b[1]>>4&3), s.part)
}

// setPayload takes the pad off. A pad without payload to fill, or bytes behind headers that carry none, contradict the
// opcode (9.2.4).
func (p *Packet) setPayload(rest []byte, pad int, part Part) Reason {
	switch {
	case pad > len(rest) || len(rest)%4 != 0:
		return BadLength
	case part&Carries == 0 && len(rest) > 0:
		return BadLength
	}
	n := len(rest) - pad
	p.Payload = rest[:n:n]
	return Accepted
}

// parseHeaders reads the extension headers, whose presence the caller has checked, and returns what follows.
func (p *Packet) parseHeaders(b []byte, part Part) []byte {
	be := binary.BigEndian
	if part&HasDETH != 0 {
		p.QKey, p.SrcQP = be.Uint32(b), be.Uint32(b[4:])&Mask24
		b = b[8:]
	}
	if part&HasRETH != 0 {
		p.VA, p.RKey, p.Length = be.Uint64(b), be.Uint32(b[8:]), be.Uint32(b[12:])
		b = b[16:]
	}
	if part&HasAtomic != 0 {
		p.VA, p.RKey, p.Swap, p.Compare = be.Uint64(b), be.Uint32(b[8:]), be.Uint64(b[12:]), be.Uint64(b[20:])
		b = b[28:]
	}
	if part&HasAETH != 0 {
		p.Syndrome, p.MSN = Syndrome(b[0]), be.Uint32(b)&Mask24
		b = b[4:]
	}
	if part&HasAtomAck != 0 {
		p.Original = be.Uint64(b)
		b = b[8:]
	}
	if part&HasImm != 0 {
		p.Imm = be.Uint32(b)
		b = b[4:]
	}
	if part&HasIETH != 0 {
		p.InvKey = be.Uint32(b)
		b = b[4:]
	}
	return b
}

// AppendHeaders appends BTH and extension headers of a packet with payloadLen bytes of payload, whose pad it declares.
func (p *Packet) AppendHeaders(b []byte, payloadLen int) []byte {
	be := binary.BigEndian
	f := p.Flags
	pad := uint8(-payloadLen & 3)
	b = append(b, byte(p.Opcode), byte(f&Solicited)<<7|byte(f&MigReq>>1)<<6|pad<<4)
	b = be.AppendUint16(b, p.PKey)
	b = be.AppendUint32(b, uint32(f&FECN>>3)<<31|uint32(f&BECN>>4)<<30|p.DestQP&Mask24)
	b = be.AppendUint32(b, uint32(f&AckReq>>2)<<31|p.PSN&Mask24)
	part := p.Opcode.Part()
	if p.Opcode == CNP {
		return append(b, make([]byte, cnpLen)...)
	}
	if part&HasDETH != 0 {
		b = be.AppendUint32(be.AppendUint32(b, p.QKey), p.SrcQP&Mask24)
	}
	if part&HasRETH != 0 {
		b = be.AppendUint32(be.AppendUint32(be.AppendUint64(b, p.VA), p.RKey), p.Length)
	}
	if part&HasAtomic != 0 {
		b = be.AppendUint32(be.AppendUint64(b, p.VA), p.RKey)
		b = be.AppendUint64(be.AppendUint64(b, p.Swap), p.Compare)
	}
	if part&HasAETH != 0 {
		b = be.AppendUint32(b, uint32(p.Syndrome)<<24|p.MSN&Mask24)
	}
	if part&HasAtomAck != 0 {
		b = be.AppendUint64(b, p.Original)
	}
	if part&HasImm != 0 {
		b = be.AppendUint32(b, p.Imm)
	}
	if part&HasIETH != 0 {
		b = be.AppendUint32(b, p.InvKey)
	}
	return b
}
