// Package syncookie puts what a SYN queue record would hold into the sequence number of a
// SYN-ACK (RFC 4987 3.6), so that a server under a flood of SYNs keeps nothing until the
// peer has shown that it receives at its address.
//
// A cookie is the initial sequence number
//
//	 31          29 28       27 26                    0
//	+--------------+-----------+-----------------------+
//	| MSS index    | period    | MAC                   |
//	+--------------+-----------+-----------------------+
//
// plus a secret offset of the tuple, so that the cookies of one tuple reveal nothing about
// those of another. The MAC covers the tuple, the peer's initial sequence number, MSS,
// period and Stamp. Where the peer has timestamps, the Stamp travels in the low bits of
// ours, which the peer echoes:
//
//	 5     4      3        0
//	+------+------+---------+
//	| ECN  | SACK | scale   |   scale 15 is none
//	+------+------+---------+
//
// Without timestamps there is no way to carry them, so the connection has neither window
// scaling nor SACK nor ECN.
//
// A cookie is valid for one to two periods, and only while cookies are being sent: a blind
// guess succeeds with probability 2^-28 (27 bits of MAC, two of four periods), and only at
// such times.
package syncookie

import (
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/internal/random"
)

// Period is the unit of a cookie's age. SYN-ACKs are answered within a round trip, so that
// one whole period is ample.
const Period = 32 * time.Second

const (
	macBits   = 27
	macMask   = 1<<macBits - 1
	mssShift  = 29
	ageMask   = 3 // of the period's low bits that a cookie has
	epochMask = 1<<23 - 1

	stampBits = 6
)

// StampMask selects the bits of a timestamp that a Stamp takes.
const StampMask = 1<<stampBits - 1

// FlowLen is the number of bytes of addresses and ports that the flow hash has taken in, all in whole
// words.
const FlowLen = 40

// mssTable holds the segment sizes that three bits can name: those of the smallest
// networks, of tunnels, of Ethernet with IPv6 and with IPv4, and of jumbo frames. The
// largest that is not above the peer's is used, because a larger segment might not arrive.
var mssTable = [8]uint16{216, 536, 1220, 1340, 1400, 1440, 1460, 8940}

// Codec encodes and verifies cookies. The zero value has sent none. It belongs to one loop.
//
// The flow that its methods take is a keyed hash that has taken in addresses and ports. The
// key is the caller's: loops between which flows can move must have the same one.
type Codec struct {
	until clock.Time // when the newest cookie expires; 0 where none was sent
}

// Expects reports whether a cookie that was sent can still come back. Otherwise an ACK that
// brings none is just stray.
func (c *Codec) Expects(now clock.Time) bool { return now.Before(c.until) }

// Encode returns the initial sequence number of the SYN-ACK that answers a SYN with number
// irs. s is the Stamp in the low bits of its timestamp, 0 without timestamps.
func (c *Codec) Encode(now clock.Time, flow random.Hash, irs uint32, peerMSS uint16, s Stamp) uint32 {
	c.until = now.Add(2 * Period)
	e, mss := epoch(now), mssIndex(peerMSS)
	return mss<<mssShift | e&ageMask<<macBits | mac(flow, irs, e, mss, s) + offset(flow)
}

// Verify checks an ACK that acknowledges iss+1 and has number irs+1, and returns the MSS
// that the cookie names.
func (c *Codec) Verify(now clock.Time, flow random.Hash, iss, irs uint32, s Stamp) (mss uint16, ok bool) {
	if !c.Expects(now) {
		return 0, false
	}
	iss -= offset(flow)
	e, i := epoch(now), iss>>mssShift
	age := (e - iss>>macBits) & ageMask
	if age > 1 {
		return 0, false
	}
	return mssTable[i], iss&macMask == mac(flow, irs, e-age, i, s)
}

// mac covers what the cookie stands for. The word has irs in the upper half, then 23 bits
// of the period, three of the MSS and six of the Stamp: no two inputs have the same word.
func mac(flow random.Hash, irs, epoch, mss uint32, s Stamp) uint32 {
	flow.Word(uint64(irs)<<32 | uint64(epoch&epochMask)<<9 | uint64(mss)<<stampBits | uint64(s))
	return uint32(flow.Sum(FlowLen+8, 0)) & macMask
}

// offset hides the bits. It hashes the flow alone, which has another length than
// mac's input.
func offset(flow random.Hash) uint32 { return uint32(flow.Sum(FlowLen, 0)) }

func epoch(now clock.Time) uint32 { return uint32(now / clock.Time(Period)) }

// mssIndex returns the index of the largest size not above mss, or of the smallest.
func mssIndex(mss uint16) uint32 {
	i := len(mssTable) - 1
	for i > 0 && mssTable[i] > mss {
		i--
	}
	return uint32(i)
}

// Stamp encodes in the low bits of the timestamp the options that the SYN offered and
// we accepted.
type Stamp uint32

const (
	stampScale Stamp = 15
	stampSACK  Stamp = 1 << 4
	stampECN   Stamp = 1 << 5
)

// NewStamp returns the Stamp of accepted options; scale 15 is no window scaling.
func NewStamp(scale uint8, sack, ecn bool) Stamp {
	s := Stamp(scale) & stampScale
	if sack {
		s |= stampSACK
	}
	if ecn {
		s |= stampECN
	}
	return s
}

// StampOf returns the Stamp in an echoed timestamp.
func StampOf(echo uint32) Stamp { return Stamp(echo & StampMask) }

// Options returns what NewStamp was given.
func (s Stamp) Options() (scale uint8, sack, ecn bool) {
	return uint8(s & stampScale), s&stampSACK != 0, s&stampECN != 0
}

// Timestamp returns the latest timestamp, not after ts, whose low bits are s: a timestamp
// from the future would make PAWS discard the segments that follow (RFC 7323 5.3).
func (s Stamp) Timestamp(ts uint32) uint32 {
	v := ts&^StampMask | uint32(s)
	if int32(v-ts) > 0 {
		v -= 1 << stampBits
	}
	return v
}
