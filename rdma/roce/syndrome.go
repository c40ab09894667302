package roce

import (
	"sort"
	"time"
)

// Syndrome is the first byte of an AETH: an acknowledgement with credits, or a reason why there is none
// (InfiniBand specification 1, 9.7.5.2, table 45).
//
//	+-+-+-+-+-+-+-+-+
//	|0|kind |  value  |   kind 00 ACK: credits, 01 RNR NAK: timer, 11 NAK: code
//	+-+-+-+-+-+-+-+-+
type Syndrome uint8

// The syndromes with one meaning. The value of an RNR NAK is a code of RNRTimer.
const (
	RNRNak             Syndrome = 0x20
	NakSequence        Syndrome = 0x60 // a packet before this one is missing
	NakInvalidRequest  Syndrome = 0x61 // the operation is not allowed, or of a wrong length or order
	NakRemoteAccess    Syndrome = 0x62 // key, bounds or rights of the memory do not permit it
	NakRemoteOperation Syndrome = 0x63 // the responder failed on its own
	NakInvalidRD       Syndrome = 0x64

	// UnlimitedCredits is the acknowledgement of a responder that counts no credits, such as one with a shared receive queue.
	UnlimitedCredits Syndrome = 0x1f
)

// IsAck reports whether the packet acknowledges.
func (s Syndrome) IsAck() bool { return s>>5 == 0 }

// IsRNR reports whether the responder had no receive posted.
func (s Syndrome) IsRNR() bool { return s>>5 == 1 }

// IsNak reports whether the packet refuses a request for good, or asks for its repetition.
func (s Syndrome) IsNak() bool { return s>>5 == 3 }

// creditCounts lists the receives that a code of credits stands for (9.7.7.2.1, table 49).
var creditCounts = [...]uint32{
	0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096,
	6144, 8192, 12288, 16384, 24576, 32768,
}

// Ack returns the acknowledgement of a responder that has so many receives posted: the code that promises no more of them.
func Ack(receives int) Syndrome {
	over := sort.Search(len(creditCounts), func(i int) bool { return creditCounts[i] > uint32(max(0, receives)) })
	return Syndrome(over - 1)
}

// Credits returns how many messages an acknowledgement permits beyond its MSN; false is no limit.
func (s Syndrome) Credits() (n uint32, limited bool) {
	if code := s & 0x1f; int(code) < len(creditCounts) {
		return creditCounts[code], true
	}
	return 0, false
}

// rnrTimes lists the waits of RNR NAKs in units of 10 us, by code (9.7.5.2.8, table 46).
var rnrTimes = [32]uint32{
	65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096,
	6144, 8192, 12288, 16384, 24576, 32768, 49152,
}

// RNRTimer returns how long a requester waits after an RNR NAK with a code of 5 bits: 0.01 ms to 655.36 ms.
func RNRTimer(code uint8) time.Duration {
	return time.Duration(rnrTimes[code&31]) * 10 * time.Microsecond
}

// RNR returns the NAK of a responder without a receive, with a code of RNRTimer.
func RNR(code uint8) Syndrome { return RNRNak | Syndrome(code&31) }

// AckTimeout returns the shortest time after which a requester repeats what is not acknowledged: 4.096 us * 2^code; 0 is
// never (9.7.6.1.3).
func AckTimeout(code uint8) time.Duration {
	if code&31 == 0 {
		return 0
	}
	return 4096 << (code & 31)
}
