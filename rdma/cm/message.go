package cm

import (
	"encoding/binary"

	"github.com/millrace/millrace/wire"
)

// Message is a message of any kind. Kind decides which fields are valid.
type Message struct {
	Kind     Kind
	TID      uint64 // transaction: REQ's, for all messages up to RTU; DREQ's and its DREP's
	LocalID  uint32 // the sender's communication ID; SIDR: the request's
	RemoteID uint32 // the receiver's; not in REQ, SIDR

	Service uint64 // REQ, SIDR
	CAGUID  uint64 // REQ, REP: the sender's channel adapter
	QPN     uint32 // REQ, REP: the sender's queue pair; DREQ: the receiver's; SIDR_REP
	QKey    uint32 // REQ, REP: of datagrams; SIDR_REP
	PSN     uint32 // REQ, REP: of the first packet that the receiver of the message sends, by the sender's choice (table 106)

	ResponderResources uint8 // REQ, REP: READs and atomics that the sender answers at a time
	InitiatorDepth     uint8 // REQ, REP: and that it has outstanding
	FlowControl        bool  // REQ, REP: end-to-end credits
	RNRRetries         uint8 // REQ, REP: 3 bits
	SRQ                bool  // REQ, REP

	RemoteTimeout uint8  // REQ: within which the receiver answers, as a code of Timeout
	LocalTimeout  uint8  // REQ: within which the sender answers
	MaxCMRetries  uint8  // REQ: 4 bits
	Transport     uint8  // REQ: 0 RC, 1 UC, 2 RD, 3 by ExtTransport
	ExtTransport  uint8  // REQ: 3 bits
	Retries       uint8  // REQ: 3 bits, of packets
	PKey          uint16 // REQ, SIDR_REQ
	MTU           uint8  // REQ: 1 is 256 bytes, 5 is 4096
	Path          Path   // REQ: the primary one

	AckDelay uint8 // REP: of the sender as a target, 5 bits
	Failover uint8 // REP: 2 bits

	Of      uint8        // MRA, REJ: the message that it is about: 0 REQ, 1 REP, 2 other
	Timeout uint8        // MRA: how long the sender takes, 5 bits
	Reason  RejectReason // REJ
	Info    []byte       // REJ: at most 72 bytes; borrows the datagram
	Status  uint8        // SIDR_REP: 0 is valid

	Private []byte // borrows the datagram; Parse returns all bytes that the kind has room for
}

// Path is the primary path of a REQ (12.7.10 on). In RoCE its GIDs are the addresses.
type Path struct {
	LocalLID, RemoteLID uint16 // 0xffff in RoCE, which has none
	Local, Remote       wire.Addr
	FlowLabel           uint32 // 20 bits
	Rate                uint8  // 6 bits
	TrafficClass        uint8
	HopLimit            uint8
	SL                  uint8 // 4 bits
	SubnetLocal         bool
	AckTimeout          uint8 // of packets, 5 bits
}

// Values of Message.Of.
const (
	ofREQ   = 0
	ofREP   = 1
	ofOther = 2
)

// mask24 is the largest queue pair number and packet number.
const mask24 = 1<<24 - 1

// maxInfo is the room for a rejection's additional information.
const maxInfo = 72

func bit(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// Append appends the datagram of m. Private data beyond the kind's room is cut off.
func (m *Message) Append(b []byte) []byte {
	at := len(b)
	b = appendHeader(b, m.Kind, m.TID)
	b = append(b, make([]byte, MADLen-headerLen)...)
	d := b[at+headerLen:]
	be := binary.BigEndian
	be.PutUint32(d, m.LocalID)
	if m.Kind != REQ && m.Kind != SIDRREQ && m.Kind != SIDRREP {
		be.PutUint32(d[4:], m.RemoteID)
	}
	switch m.Kind {
	case REQ:
		m.putRequest(d)
	case REP:
		m.putReply(d)
	case MRA:
		d[8], d[9] = m.Of<<6, m.Timeout<<3
	case REJ:
		n := copy(d[12:12+maxInfo], m.Info)
		d[8], d[9] = m.Of<<6, byte(n)<<1
		be.PutUint16(d[10:], uint16(m.Reason))
	case DREQ:
		be.PutUint32(d[8:], m.QPN<<8)
	case SIDRREQ:
		be.PutUint16(d[4:], m.PKey)
		be.PutUint64(d[8:], m.Service)
	case SIDRREP:
		d[4] = m.Status
		be.PutUint32(d[8:], m.QPN<<8)
		be.PutUint64(d[12:], m.Service)
		be.PutUint32(d[20:], m.QKey)
	}
	copy(d[privateAt[m.Kind-REQ]:], m.Private)
	return b
}

// putRequest writes the fields of a REQ (table 106). The alternate path stays empty: RoCE has no migration.
func (m *Message) putRequest(d []byte) {
	be, p := binary.BigEndian, &m.Path
	be.PutUint64(d[8:], m.Service)
	be.PutUint64(d[16:], m.CAGUID)
	be.PutUint32(d[28:], m.QKey)
	be.PutUint32(d[32:], m.QPN<<8|uint32(m.ResponderResources))
	be.PutUint32(d[36:], uint32(m.InitiatorDepth))
	d[43] = m.RemoteTimeout<<3 | m.Transport&3<<1 | bit(m.FlowControl)
	be.PutUint32(d[44:], m.PSN<<8)
	d[47] = m.LocalTimeout<<3 | m.Retries&7
	be.PutUint16(d[48:], m.PKey)
	d[50] = m.MTU<<4 | m.RNRRetries&7
	d[51] = m.MaxCMRetries<<4 | bit(m.SRQ)<<3 | m.ExtTransport&7
	be.PutUint16(d[52:], p.LocalLID)
	be.PutUint16(d[54:], p.RemoteLID)
	copy(d[56:], p.Local[:])
	copy(d[72:], p.Remote[:])
	be.PutUint32(d[88:], p.FlowLabel<<12|uint32(p.Rate&63))
	d[92], d[93] = p.TrafficClass, p.HopLimit
	d[94], d[95] = p.SL<<4|bit(p.SubnetLocal)<<3, p.AckTimeout<<3
}

// putReply writes the fields of a REP (table 110).
func (m *Message) putReply(d []byte) {
	be := binary.BigEndian
	be.PutUint32(d[8:], m.QKey)
	be.PutUint32(d[12:], m.QPN<<8)
	be.PutUint32(d[20:], m.PSN<<8)
	d[24], d[25] = m.ResponderResources, m.InitiatorDepth
	d[26] = m.AckDelay<<3 | m.Failover&3<<1 | bit(m.FlowControl)
	d[27] = m.RNRRetries<<5 | bit(m.SRQ)<<4
	be.PutUint64(d[28:], m.CAGUID)
}

// Parse reads a datagram, which m borrows.
func (m *Message) Parse(b []byte) Reason {
	k, tid, why := parseHeader(b)
	if why != Taken {
		return why
	}
	be, d := binary.BigEndian, b[headerLen:MADLen]
	*m = Message{Kind: k, TID: tid, LocalID: be.Uint32(d), Private: d[privateAt[k-REQ]:]}
	if k != REQ && k != SIDRREQ && k != SIDRREP {
		m.RemoteID = be.Uint32(d[4:])
	}
	switch k {
	case REQ:
		return m.parseRequest(d)
	case REP:
		return m.parseReply(d)
	case MRA:
		m.Of, m.Timeout = d[8]>>6, d[9]>>3
	case REJ:
		n := int(d[9] >> 1)
		if n > maxInfo {
			return BadField
		}
		m.Of, m.Reason, m.Info = d[8]>>6, RejectReason(be.Uint16(d[10:])), d[12:12+n:12+n]
	case DREQ:
		m.QPN = be.Uint32(d[8:]) >> 8
	case SIDRREQ:
		m.PKey, m.Service = be.Uint16(d[4:]), be.Uint64(d[8:])
	case SIDRREP:
		m.Status, m.QPN, m.Service, m.QKey = d[4], be.Uint32(d[8:])>>8, be.Uint64(d[12:]), be.Uint32(d[20:])
	}
	return Taken
}

func (m *Message) parseRequest(d []byte) Reason {
	be, p := binary.BigEndian, &m.Path
	m.Service, m.CAGUID, m.QKey = be.Uint64(d[8:]), be.Uint64(d[16:]), be.Uint32(d[28:])
	m.QPN, m.ResponderResources, m.InitiatorDepth = be.Uint32(d[32:])>>8, d[35], d[39]
	m.RemoteTimeout, m.Transport, m.FlowControl = d[43]>>3, d[43]>>1&3, d[43]&1 != 0
	m.PSN, m.LocalTimeout, m.Retries = be.Uint32(d[44:])>>8, d[47]>>3, d[47]&7
	m.PKey, m.MTU, m.RNRRetries = be.Uint16(d[48:]), d[50]>>4, d[50]&7
	m.MaxCMRetries, m.SRQ, m.ExtTransport = d[51]>>4, d[51]>>3&1 != 0, d[51]&7
	p.LocalLID, p.RemoteLID = be.Uint16(d[52:]), be.Uint16(d[54:])
	p.Local, p.Remote = wire.Addr(d[56:72]), wire.Addr(d[72:88])
	v := be.Uint32(d[88:])
	p.FlowLabel, p.Rate = v>>12, uint8(v&63)
	p.TrafficClass, p.HopLimit = d[92], d[93]
	p.SL, p.SubnetLocal, p.AckTimeout = d[94]>>4, d[94]>>3&1 != 0, d[95]>>3
	if m.QPN <= QPN || m.MTU < 1 || m.MTU > 5 { // 0 and 1 are those of management
		return BadField
	}
	return Taken
}

func (m *Message) parseReply(d []byte) Reason {
	be := binary.BigEndian
	m.QKey, m.QPN, m.PSN = be.Uint32(d[8:]), be.Uint32(d[12:])>>8, be.Uint32(d[20:])>>8
	m.ResponderResources, m.InitiatorDepth = d[24], d[25]
	m.AckDelay, m.Failover, m.FlowControl = d[26]>>3, d[26]>>1&3, d[26]&1 != 0
	m.RNRRetries, m.SRQ, m.CAGUID = d[27]>>5, d[27]>>4&1 != 0, be.Uint64(d[28:])
	if m.QPN <= QPN {
		return BadField
	}
	return Taken
}

// MTUBytes returns the payload that a code of Message.MTU stands for, and MTUCode the code for bytes.
func MTUBytes(code uint8) uint32 { return 128 << code }

func MTUCode(bytes uint32) (code uint8) {
	for code = 1; code < 5 && MTUBytes(code+1) <= bytes; code++ {
	}
	return code
}
