// Package vhostuser is the wire protocol of vhost-user (QEMU's docs/interop/vhost-user.rst): messages with file
// descriptors over a Unix socket, between a front end that has a virtio device's memory and rings and a back end that serves
// them.
//
//	0         4       8      12
//	+---------+-------+------+------ - - -
//	| request | flags | size | payload          file descriptors beside it (SCM_RIGHTS)
//	+---------+-------+------+------ - - -
//
// The package reads, writes and parses messages; it keeps no state of a device. Integers are in the byte order of the machine, which
// is little-endian wherever this is built.
package vhostuser

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Request is the kind of a message.
type Request uint32

// Requests of the front end.
const (
	GetFeatures         Request = 1
	SetFeatures         Request = 2
	SetOwner            Request = 3
	ResetOwner          Request = 4
	SetMemTable         Request = 5
	SetLogBase          Request = 6
	SetLogFD            Request = 7
	SetVringNum         Request = 8
	SetVringAddr        Request = 9
	SetVringBase        Request = 10
	GetVringBase        Request = 11
	SetVringKick        Request = 12
	SetVringCall        Request = 13
	SetVringErr         Request = 14
	GetProtocolFeatures Request = 15
	SetProtocolFeatures Request = 16
	GetQueueNum         Request = 17
	SetVringEnable      Request = 18
	SendRARP            Request = 19
	NetSetMTU           Request = 20
	ResetDevice         Request = 34
	GetMaxMemSlots      Request = 36
	AddMemReg           Request = 37
	RemMemReg           Request = 38
	SetStatus           Request = 39
	GetStatus           Request = 40
)

// Protocol features, as bits.
const (
	FeatureMQ                = 1 << 0
	FeatureReplyAck          = 1 << 3
	FeatureNetMTU            = 1 << 4
	FeatureResetDevice       = 1 << 13
	FeatureConfigureMemSlots = 1 << 15
	FeatureStatus            = 1 << 16
)

// Flags of a message.
const (
	version       = 1
	versionMask   = 3
	flagReply     = 1 << 2
	flagNeedReply = 1 << 3
)

const (
	headerLen = 12

	// MaxPayload bounds a payload, bytes: the largest one that is defined here is a memory table.
	MaxPayload = 4096

	// MaxFDs bounds the file descriptors of a message: those of a memory table.
	MaxFDs = 8
)

// ErrProtocol is the error of a peer that breaks the protocol. It is returned wrapped.
var ErrProtocol = errors.New("vhost-user protocol")

// Message is one message. Its file descriptors are the receiver's, who closes them.
type Message struct {
	Request   Request
	Reply     bool // it answers one
	NeedReply bool // FeatureReplyAck: it wants an answer although the request has none
	Payload   []byte
	FDs       []int
}

// header appends the header of m.
func (m *Message) header(b []byte) []byte {
	flags := uint32(version)
	if m.Reply {
		flags |= flagReply
	}
	if m.NeedReply {
		flags |= flagNeedReply
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(m.Request))
	b = binary.LittleEndian.AppendUint32(b, flags)
	return binary.LittleEndian.AppendUint32(b, uint32(len(m.Payload)))
}

// parseHeader reads a header and returns the length of the payload.
func (m *Message) parseHeader(b []byte) (int, error) {
	flags, size := binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint32(b[8:])
	m.Request = Request(binary.LittleEndian.Uint32(b))
	m.Reply, m.NeedReply = flags&flagReply != 0, flags&flagNeedReply != 0
	if flags&versionMask != version {
		return 0, fmt.Errorf("%w: version %d of a message, want %d", ErrProtocol, flags&versionMask, version)
	}
	if size > MaxPayload {
		return 0, fmt.Errorf("%w: a payload of %d bytes", ErrProtocol, size)
	}
	return int(size), nil
}

// wrongLength is the error of a payload that is not as long as its request has it.
func (m *Message) wrongLength() error {
	return fmt.Errorf("%w: %v has a payload of %d bytes", ErrProtocol, m.Request, len(m.Payload))
}

// U64 parses the payload of requests that have one number.
func (m *Message) U64() (uint64, error) {
	if len(m.Payload) != 8 {
		return 0, m.wrongLength()
	}
	return binary.LittleEndian.Uint64(m.Payload), nil
}

// U64Payload is the payload of one number.
func U64Payload(v uint64) []byte { return binary.LittleEndian.AppendUint64(nil, v) }

// VringState is a number about a ring: its size, its base, or whether it is enabled.
type VringState struct{ Index, Num uint32 }

// VringState parses the payload.
func (m *Message) VringState() (s VringState, err error) {
	if len(m.Payload) != 8 {
		return s, m.wrongLength()
	}
	return VringState{binary.LittleEndian.Uint32(m.Payload), binary.LittleEndian.Uint32(m.Payload[4:])}, nil
}

// Append appends the payload.
func (s VringState) Append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, s.Index)
	return binary.LittleEndian.AppendUint32(b, s.Num)
}

// VringAddr is the location of a ring, in addresses of the front end's process.
type VringAddr struct {
	Index, Flags           uint32
	Desc, Used, Avail, Log uint64
}

// VringLog, in Flags, asks for dirty pages of the used ring to be logged.
const VringLog = 1

// VringAddr parses the payload.
func (m *Message) VringAddr() (a VringAddr, err error) {
	p := m.Payload
	if len(p) != 40 {
		return a, m.wrongLength()
	}
	u := binary.LittleEndian.Uint64
	return VringAddr{binary.LittleEndian.Uint32(p), binary.LittleEndian.Uint32(p[4:]), u(p[8:]), u(p[16:]), u(p[24:]), u(p[32:])}, nil
}

// Append appends the payload.
func (a VringAddr) Append(b []byte) []byte {
	b = VringState{a.Index, a.Flags}.Append(b)
	for _, v := range []uint64{a.Desc, a.Used, a.Avail, a.Log} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

// MemRegion is memory that the front end shares by a file descriptor.
type MemRegion struct{ Guest, Size, User, Offset uint64 }

const regionLen = 32

func parseRegion(p []byte) MemRegion {
	u := binary.LittleEndian.Uint64
	return MemRegion{u(p), u(p[8:]), u(p[16:]), u(p[24:])}
}

func (r MemRegion) append(b []byte) []byte {
	for _, v := range []uint64{r.Guest, r.Size, r.User, r.Offset} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

// MemTable parses the regions of SetMemTable, one for each file descriptor. QEMU sends a table of the size of its regions,
// other front ends one of eight.
func (m *Message) MemTable() ([]MemRegion, error) {
	if len(m.Payload) < 8 {
		return nil, m.wrongLength()
	}
	n := binary.LittleEndian.Uint32(m.Payload)
	if n > MaxFDs || len(m.Payload) < 8+regionLen*int(n) {
		return nil, m.wrongLength()
	}
	if int(n) != len(m.FDs) {
		return nil, fmt.Errorf("%w: %v has %d regions and %d file descriptors", ErrProtocol, m.Request, n, len(m.FDs))
	}
	list := make([]MemRegion, n)
	for i := range list {
		list[i] = parseRegion(m.Payload[8+regionLen*i:])
	}
	return list, nil
}

// MemTablePayload is the payload of SetMemTable.
func MemTablePayload(list []MemRegion) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(list)))
	for _, r := range list {
		b = r.append(b)
	}
	return b
}

// MemReg parses the region of AddMemReg and RemMemReg.
func (m *Message) MemReg() (MemRegion, error) {
	if len(m.Payload) != 8+regionLen {
		return MemRegion{}, m.wrongLength()
	}
	return parseRegion(m.Payload[8:]), nil
}

// MemRegPayload is the payload of AddMemReg and RemMemReg.
func MemRegPayload(r MemRegion) []byte { return r.append(make([]byte, 8)) }

// VringFD is a notification file for a ring. The file is the receiver's.
type VringFD struct {
	Index int
	FD    int // -1: there is none, the ring is polled
}

// VringFD parses SetVringKick, SetVringCall and SetVringErr.
func (m *Message) VringFD() (VringFD, error) {
	v, err := m.U64()
	if err != nil {
		return VringFD{}, err
	}
	f := VringFD{int(v & 0xff), -1}
	if v&^(vringIndex|vringNoFD) != 0 {
		return f, fmt.Errorf("%w: %v has the value %#x", ErrProtocol, m.Request, v)
	}
	want := 1
	if v&vringNoFD != 0 {
		want = 0
	}
	if len(m.FDs) != want {
		return f, fmt.Errorf("%w: %v has %d file descriptors, want %d", ErrProtocol, m.Request, len(m.FDs), want)
	}
	if want == 1 {
		f.FD = m.FDs[0]
	}
	return f, nil
}

// The value of VringFD's messages.
const (
	vringIndex = 0xff
	vringNoFD  = 1 << 8
)

var names = map[Request]string{
	GetFeatures: "GET_FEATURES", SetFeatures: "SET_FEATURES", SetOwner: "SET_OWNER", ResetOwner: "RESET_OWNER",
	SetMemTable: "SET_MEM_TABLE", SetLogBase: "SET_LOG_BASE", SetLogFD: "SET_LOG_FD", SetVringNum: "SET_VRING_NUM",
	SetVringAddr: "SET_VRING_ADDR", SetVringBase: "SET_VRING_BASE", GetVringBase: "GET_VRING_BASE",
	SetVringKick: "SET_VRING_KICK", SetVringCall: "SET_VRING_CALL", SetVringErr: "SET_VRING_ERR",
	GetProtocolFeatures: "GET_PROTOCOL_FEATURES", SetProtocolFeatures: "SET_PROTOCOL_FEATURES",
	GetQueueNum: "GET_QUEUE_NUM", SetVringEnable: "SET_VRING_ENABLE", SendRARP: "SEND_RARP", NetSetMTU: "NET_SET_MTU",
	ResetDevice: "RESET_DEVICE", GetMaxMemSlots: "GET_MAX_MEM_SLOTS", AddMemReg: "ADD_MEM_REG", RemMemReg: "REM_MEM_REG",
	SetStatus: "SET_STATUS", GetStatus: "GET_STATUS",
}

// String returns the name in the specification, without its prefix.
func (r Request) String() string {
	if s := names[r]; s != "" {
		return s
	}
	return fmt.Sprintf("request %d", uint32(r))
}
