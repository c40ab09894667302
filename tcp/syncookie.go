package tcp

import (
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/wire"
)

// SYN cookies (RFC 4987 3.6): when half-open records get scarce, a SYN-ACK's sequence number says all
// that a record would have, and the ACK brings it back. It is
//
//	 31          29 28       27 26                    0
//	+--------------+-----------+-----------------------+
//	| size of MSS  | period    | MAC                   |
//	+--------------+-----------+-----------------------+
//
// all of it plus a secret offset of the tuple, so that numbers of different tuples tell nothing of each
// other. The MAC covers the tuple, the peer's initial sequence number, MSS, period, and what the low
// bits of our timestamp say where the peer has timestamps:
//
//	 5     4      3        0
//	+------+------+---------+
//	| ECN  | SACK | scale   |   scale 15 is none
//	+------+------+---------+
//
// Without timestamps there is no scaling, no SACK and no ECN.
//
// A cookie is good for one to two periods, and only while SYN-ACKs with cookies were sent: who guesses hits one in
// 2^28, at such times alone.
const (
	cookiePeriod  = 32 * time.Second
	cookieMACBits = 27
	cookieMAC     = 1<<cookieMACBits - 1
	cookieTSBits  = 6
	cookieTS      = 1<<cookieTSBits - 1
)

// cookieMSS are the sizes that a cookie can say: the largest that is not above the peer's is taken. They
// are those of the smallest networks, of tunnels, of Ethernet with IPv6 and with IPv4, and of jumbo frames.
var cookieMSS = [8]uint16{216, 536, 1220, 1340, 1400, 1440, 1460, 8940}

// cookieJar makes and checks cookies.
type cookieJar struct {
	key   sipKey
	until clock.Time // cookies that were sent are good until then; 0 when none was
}

// cookieMSSIndex returns the index of the largest size not above mss, or the smallest.
func cookieMSSIndex(mss uint16) uint32 {
	i := len(cookieMSS) - 1
	for i > 0 && cookieMSS[i] > mss {
		i--
	}
	return uint32(i)
}

func cookieEpoch(now clock.Time) uint32 { return uint32(now / clock.Time(cookiePeriod)) }

// mac covers what the cookie stands for; low is MSS and period as they lie in it.
func (j *cookieJar) mac(t *wire.Tuple, irs, epoch, mss, stamp uint32) uint32 {
	h := j.key.tuple(t, uint64(irs)<<32|uint64(epoch&(1<<23-1))<<9|uint64(mss)<<6|uint64(stamp))
	return uint32(h) & cookieMAC
}

func (j *cookieJar) offset(t *wire.Tuple) uint32 { return uint32(j.key.tuple(t, 1<<63-1) >> 32) }

// bake returns the sequence number of a SYN-ACK that answers a SYN with irs; stamp are the low bits of
// the timestamp, 0 without.
func (j *cookieJar) bake(now clock.Time, t *wire.Tuple, irs uint32, peerMSS uint16, stamp uint32) uint32 {
	j.until = now.Add(2 * cookiePeriod)
	epoch, mss := cookieEpoch(now), cookieMSSIndex(peerMSS)
	return mss<<29 | epoch&3<<cookieMACBits | j.mac(t, irs, epoch, mss, stamp) + j.offset(t)
}

// taste checks what an ACK acknowledges, less one, and returns the MSS that it says.
func (j *cookieJar) taste(now clock.Time, t *wire.Tuple, iss, irs, stamp uint32) (mss uint16, ok bool) {
	if !now.Before(j.until) {
		return 0, false
	}
	iss -= j.offset(t)
	epoch, i := cookieEpoch(now), iss>>29
	if age := epoch - iss>>cookieMACBits; age&3 > 1 {
		return 0, false
	} else {
		epoch -= age & 3
	}
	return cookieMSS[i], iss&cookieMAC == j.mac(t, irs, epoch, i, stamp)
}

// cookieStamp returns what of terms the low bits of a timestamp say.
func cookieStamp(t synTerms) uint32 {
	s := uint32(t & 15)
	if t.sack() {
		s |= 1 << 4
	}
	if t.ecn() != ecnNone {
		s |= 1 << 5
	}
	return s
}

// cookieTerms is the reverse of cookieStamp. A cookie has no room for the form of ECN: it is classic.
func cookieTerms(s uint32) synTerms {
	t := synTerms(s&15) | termsTimestamps
	if s&(1<<4) != 0 {
		t |= termsSACK
	}
	if s&(1<<5) != 0 {
		t |= synTerms(ecnClassic) << termsECNShift
	}
	return t
}

// stampTimestamp returns the latest timestamp, not after ts, whose low bits are s: timestamps must not run backwards.
func stampTimestamp(ts, s uint32) uint32 {
	v := ts&^cookieTS | s
	if int32(v-ts) > 0 {
		v -= 1 << cookieTSBits
	}
	return v
}
