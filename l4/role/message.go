package role

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"net/netip"
	"time"

	"github.com/millrace/millrace/clock"
)

// Incarnation names a run of a process, at random.
type Incarnation [16]byte

// Message carries the role of a gateway to its peer.
//
//	 0         4         5        6          7           8             16
//	+---------+---------+--------+----------+-----------+-------------+
//	| magic   | version | state  | flags    | priority  | number      |
//	+---------+---------+--------+----------+-----------+-------------+
//	| incarnation (16)           | incarnation of the peer (16)       |
//	+----------------------------+------------------------------------+
//	| sent, ns (8)  | echo (8)   | term (8)  | lease, ms (4)          |
//	+---------------+------------+-----------+------------------------+
//	| addresses (4) | their digest (8) | in the sample (1) | 16 each  |
//	+---------------+------------------+-------------------+----------+
//	| HMAC-SHA256 of all before (32)                                  |
//	+-----------------------------------------------------------------+
//
// Lengths may grow: a reader ignores octets between those that it knows and the code. Version 1 ends with the lease.
type Message struct {
	State    State
	Index    uint8 // sync.index of the sender
	Priority uint8
	Able     bool // all devices of the sender have a link
	Synced   bool // the sender has all connections of its peer
	Wants    bool // it asks for the addresses
	Leaving  bool // it ends with this message
	CutOff   bool // the addresses that it watches do not answer it any more
	Reaches  bool // one of them answers it; without any both are false
	Number   uint64
	From, To Incarnation   // To is zero until the sender has heard its peer
	Sent     clock.Time    // on the clock of the sender, which alone reads it
	Echo     clock.Time    // Sent of the last message that the sender has received from To
	Term     uint64        // counts take-overs
	Lease    time.Duration // of the sender
	Addrs    Addresses     // of the sender
}

// Addresses describes the addresses that a gateway answers for while it is active.
type Addresses struct {
	Count  uint32       // 0: not known
	Digest uint64       // of all, in any order
	Sample []netip.Addr // some of each network, for a peer that looks for an address that both have; never changed in place
}

// differ reports whether two gateways answer for different addresses.
func (a *Addresses) differ(b *Addresses) bool {
	return a.Count != 0 && b.Count != 0 && (a.Count != b.Count || a.Digest != b.Digest)
}

// MaxSample bounds Addresses.Sample, so that a message fits MaxMessage.
const MaxSample = 16

const (
	messageVersion = 2
	firstVersion   = 1
	addrsLen       = 4 + 8 + 1 // without the sample
	addrLen        = 16        // IPv4 addresses are mapped (RFC 4291 2.5.5.2)
	bodyLen        = 4 + 1 + 1 + 1 + 1 + 8 + 16 + 16 + 8 + 8 + 8 + 4
	codeLen        = sha256.Size
	// MaxMessage bounds a message of any version.
	MaxMessage = 512
)

var messageMagic = [4]byte{'M', 'R', 'R', 'O'}

// Flags of a message.
const (
	flagIndex = 1 << iota
	flagAble
	flagSynced
	flagWants
	flagLeaving
	flagCutOff
	flagReaches
)

// Errors of messages.
var (
	ErrMessage = errors.New("role: malformed message")
	ErrCode    = errors.New("role: a message is not authentic: the peer has another key, or a stranger sends")
)

// Key derives the key of messages from that of the sync.
func Key(shared []byte) ([]byte, error) {
	return hkdf.Key(sha256.New, shared, nil, "millrace role 1", sha256.Size)
}

func (m *Message) flags() (f byte) {
	if m.Index == 1 {
		f |= flagIndex
	}
	for _, on := range []struct {
		is  bool
		bit byte
	}{{m.Able, flagAble}, {m.Synced, flagSynced}, {m.Wants, flagWants}, {m.Leaving, flagLeaving}, {m.CutOff, flagCutOff}, {m.Reaches, flagReaches}} {
		if on.is {
			f |= on.bit
		}
	}
	return f
}

// Append appends the message with its code.
func (m *Message) Append(b, key []byte) []byte {
	start := len(b)
	b = append(b, messageMagic[:]...)
	b = append(b, messageVersion, byte(m.State), m.flags(), m.Priority)
	b = binary.BigEndian.AppendUint64(b, m.Number)
	b = append(append(b, m.From[:]...), m.To[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(m.Sent))
	b = binary.BigEndian.AppendUint64(b, uint64(m.Echo))
	b = binary.BigEndian.AppendUint64(b, m.Term)
	b = binary.BigEndian.AppendUint32(b, uint32(m.Lease/time.Millisecond))
	b = binary.BigEndian.AppendUint32(b, m.Addrs.Count)
	b = binary.BigEndian.AppendUint64(b, m.Addrs.Digest)
	sample := m.Addrs.Sample[:min(len(m.Addrs.Sample), MaxSample)]
	b = append(b, byte(len(sample)))
	for _, a := range sample {
		octets := a.As16()
		b = append(b, octets[:]...)
	}
	return append(b, code(key, b[start:])...)
}

func code(key, b []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(b)
	return h.Sum(nil)
}

// Parse checks and reads a message.
func Parse(b, key []byte) (m Message, err error) {
	if len(b) < bodyLen+codeLen || len(b) > MaxMessage || [4]byte(b) != messageMagic {
		return m, ErrMessage
	}
	body, sum := b[:len(b)-codeLen], b[len(b)-codeLen:]
	if !hmac.Equal(sum, code(key, body)) {
		return m, ErrCode
	}
	m.State = State(b[5])
	if b[4] < firstVersion || m.State >= states {
		return m, ErrMessage
	}
	f := b[6]
	m.Index, m.Able, m.Synced, m.Wants, m.Leaving = f&flagIndex, f&flagAble != 0, f&flagSynced != 0, f&flagWants != 0, f&flagLeaving != 0
	m.CutOff, m.Reaches = f&flagCutOff != 0, f&flagReaches != 0
	m.Priority, m.Number = b[7], binary.BigEndian.Uint64(b[8:])
	m.From, m.To = Incarnation(b[16:32]), Incarnation(b[32:48])
	m.Sent, m.Echo = clock.Time(binary.BigEndian.Uint64(b[48:])), clock.Time(binary.BigEndian.Uint64(b[56:]))
	m.Term, m.Lease = binary.BigEndian.Uint64(b[64:]), time.Duration(binary.BigEndian.Uint32(b[72:]))*time.Millisecond
	if m.Lease < MinLease || m.Lease > MaxLease {
		return m, ErrMessage
	}
	if b[4] > firstVersion && !m.Addrs.parse(body[bodyLen:]) {
		return m, ErrMessage
	}
	return m, nil
}

// parse reads addresses, and reports whether all octets are there.
func (a *Addresses) parse(b []byte) bool {
	if len(b) < addrsLen || len(b) < addrsLen+int(b[addrsLen-1])*addrLen || b[addrsLen-1] > MaxSample {
		return false
	}
	a.Count, a.Digest = binary.BigEndian.Uint32(b), binary.BigEndian.Uint64(b[4:])
	for i := range int(b[addrsLen-1]) {
		a.Sample = append(a.Sample, netip.AddrFrom16([16]byte(b[addrsLen+i*addrLen:])).Unmap())
	}
	return true
}
