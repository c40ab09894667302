package roce

// Opcode is the operation of a packet: a transport in the upper three bits, an operation of it in the lower five
// (InfiniBand specification 1, 9.2.1).
type Opcode uint8

// Transport is the service of a queue pair: the upper three bits of an opcode.
type Transport uint8

// The transports. Reliable datagram and XRC have numbers, too, but are not served.
const (
	RC     Transport = 0 // reliable connection
	UC     Transport = 1 // unreliable connection
	UD     Transport = 3 // unreliable datagram
	Manage Transport = 4 // congestion notifications, which belong to no transport
)

// The operations, as opcodes of RC. Those of another transport are made by Of.
const (
	SendFirst         Opcode = 0x00
	SendMiddle        Opcode = 0x01
	SendLast          Opcode = 0x02
	SendLastImm       Opcode = 0x03
	SendOnly          Opcode = 0x04
	SendOnlyImm       Opcode = 0x05
	WriteFirst        Opcode = 0x06
	WriteMiddle       Opcode = 0x07
	WriteLast         Opcode = 0x08
	WriteLastImm      Opcode = 0x09
	WriteOnly         Opcode = 0x0a
	WriteOnlyImm      Opcode = 0x0b
	ReadRequest       Opcode = 0x0c
	ReadFirst         Opcode = 0x0d // responses
	ReadMiddle        Opcode = 0x0e
	ReadLast          Opcode = 0x0f
	ReadOnly          Opcode = 0x10
	Acknowledge       Opcode = 0x11
	AtomicAcknowledge Opcode = 0x12
	CompareSwap       Opcode = 0x13
	FetchAdd          Opcode = 0x14
	SendLastInv       Opcode = 0x16
	SendOnlyInv       Opcode = 0x17
	CNP               Opcode = 0x81 // congestion notification packet (A17.9.3)
)

// Of returns the operation of o in transport t.
func (o Opcode) Of(t Transport) Opcode { return Opcode(t)<<5 | o&0x1f }

// Transport returns the upper three bits.
func (o Opcode) Transport() Transport { return Transport(o >> 5) }

// Operation returns the lower five bits: the opcode of RC for the same operation.
func (o Opcode) Operation() Opcode { return o & 0x1f }

// Kind is the operation that a packet is a part of.
type Kind uint8

// The kinds of packets; KindNone is that of unknown opcodes.
const (
	KindNone Kind = iota
	KindSend
	KindWrite
	KindRead // a request
	KindReadResponse
	KindAck
	KindAtomicAck
	KindAtomic // a request
	KindCNP
)

// Part is the place of a packet in its message, and the headers that follow its BTH.
type Part uint16

// The bits of Part.
const (
	Begins     Part = 1 << iota // the first or only packet of a message
	Ends                        // the last or only one
	HasRETH                     // remote address, key, length: 16 bytes
	HasAETH                     // syndrome and message number: 4 bytes
	HasAtomic                   // AtomicETH: 28 bytes
	HasAtomAck                  // AtomicAckETH: 8 bytes
	HasDETH                     // queue key and source queue pair: 8 bytes
	HasImm                      // immediate data: 4 bytes
	HasIETH                     // key to invalidate: 4 bytes
	Carries                     // a payload may follow
)

// shape is the meaning of an opcode.
type shape struct {
	name string
	kind Kind
	part Part
}

const only = Begins | Ends

// shapes lists the operations by their lower five bits.
var shapes = [32]shape{
	SendFirst:         {"SEND_FIRST", KindSend, Begins | Carries},
	SendMiddle:        {"SEND_MIDDLE", KindSend, Carries},
	SendLast:          {"SEND_LAST", KindSend, Ends | Carries},
	SendLastImm:       {"SEND_LAST_WITH_IMMEDIATE", KindSend, Ends | HasImm | Carries},
	SendOnly:          {"SEND_ONLY", KindSend, only | Carries},
	SendOnlyImm:       {"SEND_ONLY_WITH_IMMEDIATE", KindSend, only | HasImm | Carries},
	WriteFirst:        {"RDMA_WRITE_FIRST", KindWrite, Begins | HasRETH | Carries},
	WriteMiddle:       {"RDMA_WRITE_MIDDLE", KindWrite, Carries},
	WriteLast:         {"RDMA_WRITE_LAST", KindWrite, Ends | Carries},
	WriteLastImm:      {"RDMA_WRITE_LAST_WITH_IMMEDIATE", KindWrite, Ends | HasImm | Carries},
	WriteOnly:         {"RDMA_WRITE_ONLY", KindWrite, only | HasRETH | Carries},
	WriteOnlyImm:      {"RDMA_WRITE_ONLY_WITH_IMMEDIATE", KindWrite, only | HasRETH | HasImm | Carries},
	ReadRequest:       {"RDMA_READ_REQUEST", KindRead, only | HasRETH},
	ReadFirst:         {"RDMA_READ_RESPONSE_FIRST", KindReadResponse, Begins | HasAETH | Carries},
	ReadMiddle:        {"RDMA_READ_RESPONSE_MIDDLE", KindReadResponse, Carries},
	ReadLast:          {"RDMA_READ_RESPONSE_LAST", KindReadResponse, Ends | HasAETH | Carries},
	ReadOnly:          {"RDMA_READ_RESPONSE_ONLY", KindReadResponse, only | HasAETH | Carries},
	Acknowledge:       {"ACKNOWLEDGE", KindAck, only | HasAETH},
	AtomicAcknowledge: {"ATOMIC_ACKNOWLEDGE", KindAtomicAck, only | HasAETH | HasAtomAck},
	CompareSwap:       {"COMPARE_SWAP", KindAtomic, only | HasAtomic},
	FetchAdd:          {"FETCH_ADD", KindAtomic, only | HasAtomic},
	SendLastInv:       {"SEND_LAST_WITH_INVALIDATE", KindSend, Ends | HasIETH | Carries},
	SendOnlyInv:       {"SEND_ONLY_WITH_INVALIDATE", KindSend, only | HasIETH | Carries},
}

// shape returns the meaning of o; its kind is KindNone where o is not served.
func (o Opcode) shape() shape {
	s := shapes[o.Operation()]
	switch o.Transport() {
	case RC:
		return s
	case UC: // has sends and writes, and no way to invalidate
		if o.Operation() <= WriteOnlyImm {
			return s
		}
	case UD: // messages are one packet long
		if op := o.Operation(); op == SendOnly || op == SendOnlyImm {
			s.part |= HasDETH
			return s
		}
	case Manage:
		if o == CNP {
			return shape{"CNP", KindCNP, only}
		}
	}
	return shape{}
}

// Kind returns the operation that packets with this opcode belong to.
func (o Opcode) Kind() Kind { return o.shape().kind }

// Part returns the place of such a packet in its message, and its headers.
func (o Opcode) Part() Part { return o.shape().part }

// Has reports whether all bits of q are set.
func (p Part) Has(q Part) bool { return p&q == q }

// String returns the name that the specification has for o.
func (o Opcode) String() string {
	s := o.shape()
	if s.kind == KindNone {
		return "unknown"
	}
	return [...]string{RC: "RC_", UC: "UC_", UD: "UD_", Manage: ""}[o.Transport()] + s.name
}

// headersLen returns the length of the extension headers of a part. A CNP's 16 reserved bytes count as such.
func (o Opcode) headersLen() int {
	s := o.shape()
	if s.kind == KindCNP {
		return cnpLen
	}
	n := 0
	for _, h := range [...]struct {
		bit  Part
		size int
	}{
		{HasDETH, 8}, {HasRETH, 16}, {HasAtomic, 28}, {HasAETH, 4}, {HasAtomAck, 8}, {HasImm, 4}, {HasIETH, 4},
	} {
		if s.part&h.bit != 0 {
			n += h.size
		}
	}
	return n
}

// headerLens holds headersLen of every opcode.
var headerLens = func() (n [256]uint8) {
	for o := range n {
		n[o] = uint8(Opcode(o).headersLen())
	}
	return n
}()
