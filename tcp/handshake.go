package tcp

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/tcp/auth"
	"github.com/millrace/millrace/wire"
)

// handshake is what the two ends of a connection agreed on as it was opened.
type handshake struct {
	tuple    wire.Tuple
	iss, irs uint32

	peerMSS uint16 // as announced, or the default
	window  uint16 // of the SYN, which is never scaled

	scaling                 bool
	sendScale, receiveScale uint8 // shifts: of windows that the peer announces, and of ours
	sack                    bool
	timestamps              bool
	tsOffset                uint32 // our timestamps are timestamp(now) + tsOffset
	tsRecent                uint32 // TS.Recent (RFC 7323 4.3)
	ecn                     ecnAgreed
	synECN                  wire.ECN // code point that the SYN came with (RFC 9768 3.1.1)

	resent bool       // the SYN-ACK left more than once (RFC 6298 5.7)
	sent   clock.Time // when the SYN-ACK left, for the first measurement of RTT; 0 where it left twice or with a cookie

	// A Fast Open SYN (RFC 7413) makes a connection in SYN-RECEIVED, whose SYN-ACK the connection sends,
	// and again when it is lost; else the state is ESTABLISHED.
	fastOpen bool
	cookie   []byte // to be told in that SYN-ACK; borrowed

	opts  *Options
	owner *Listener
	auth  *auth.State // signs and verifies; nil without keys
}

// ecnAgreed says which form of ECN a connection uses.
type ecnAgreed uint8

const (
	ecnNone     ecnAgreed = iota
	ecnClassic            // RFC 3168
	ecnAccurate           // RFC 9768
)

// Sizes of segments where the peer announces none (RFC 9293 3.7.1, MUST-15): the smallest MTU without
// the headers.
const (
	defaultMSS4 = 536
	defaultMSS6 = 1220
)

// defaultMSS is the peer's where its SYN does not say.
func defaultMSS(t *wire.Tuple) uint16 {
	if t.Remote.Is4() {
		return defaultMSS4
	}
	return defaultMSS6
}

// headersLen is the length of the IP and TCP headers without options, bytes.
func headersLen(t *wire.Tuple) int {
	if t.Remote.Is4() {
		return wire.IPv4Len + wire.TCPLen
	}
	return wire.IPv6Len + wire.TCPLen
}
