package tcp

import (
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/internal/bounded"
	"github.com/millrace/millrace/wire"
)

// fastOpenCache records servers that support TCP Fast Open (RFC 7413
// 4.1.3): their cookies, and whether the path to them lets such SYNs through.
type fastOpenCache struct {
	servers bounded.Map[wire.Addr, fastOpenServer]
}

// fastOpenServer is one server. A cookie length of 0 is none yet.
type fastOpenServer struct {
	cookie      [16]byte   // RFC 7413 4.1.1: 4 to 16 bytes
	len         uint8      // of cookie, 0 for none yet
	losses      uint8      // SYNs with the option in a row that were not answered
	mss         uint16     // that the server announced: the data of a SYN must fit into it
	pausedUntil clock.Time // no Fast Open before
}

const (
	maxFastOpenServers = 4096
	fastOpenPause      = 30 * time.Minute
)

// cookie returns what a SYN to the server carries: its cookie and the MSS that it
// announced, or an empty cookie, which asks for one. ok is false while Fast Open must not
// be tried.
func (f *fastOpenCache) cookie(now clock.Time, server *wire.Addr) (cookie []byte, mss uint16, ok bool) {
	s := f.servers.Get(*server)
	if s == nil {
		return nil, 0, true
	}
	if now.Before(s.pausedUntil) {
		return nil, 0, false
	}
	return s.cookie[:s.len], s.mss, true
}

// store keeps the cookie of a SYN-ACK (RFC 7413 4.1.3). Lengths that RFC 7413 4.1.1 does
// not allow are ignored.
func (f *fastOpenCache) store(server *wire.Addr, cookie []byte, mss uint16) {
	if len(cookie) < 4 || len(cookie) > 16 || len(cookie)%2 != 0 {
		return
	}
	s := f.server(server)
	s.len = uint8(copy(s.cookie[:], cookie))
	s.mss = mss
}

// markWorking notes that a SYN with the option was answered, and what MSS the server
// announces now: its cookie may outlive its MTU.
func (f *fastOpenCache) markWorking(server *wire.Addr, mss uint16) {
	if s := f.servers.Get(*server); s != nil {
		s.losses, s.mss = 0, mss
	}
}

// markLost notes that a SYN with the option was not answered. A middlebox may drop such
// SYNs, so that none is tried for a while, twice as long each time (RFC 7413 4.1.3.1).
func (f *fastOpenCache) markLost(now clock.Time, server *wire.Addr) {
	s := f.server(server)
	s.pausedUntil = now.Add(fastOpenPause << s.losses)
	s.losses = min(s.losses+1, 8)
}

// server returns the entry of the server, a new one where there is none.
func (f *fastOpenCache) server(server *wire.Addr) *fastOpenServer {
	return f.servers.Enter(*server, maxFastOpenServers)
}

// addFastOpenOption adds Fast Open to a SYN: to our first the cookie of the server with
// data, or a request for one (RFC 7413 4.1.3 and 4.2.1); to a SYN-ACK a new cookie. It
// returns the bytes of data. A retransmitted SYN has neither.
func (c *Conn) addFastOpenOption(now clock.Time, o *Outgoing, first bool) uint32 {
	if c.state == StateSynReceived {
		if c.rare != nil && c.rare.cookie != nil {
			c.appendFastOpenCookie(o, c.rare.cookie)
		}
		return 0
	}
	if !c.opt.FastOpen || !first || c.auth != nil {
		return 0
	}
	cookie, mss, ok := c.m.passive.fastOpenCache.cookie(now, &c.tuple.Remote)
	if !ok || !c.appendFastOpenCookie(o, cookie) {
		return 0
	}
	c.flags |= flagTriedFastOpen
	if len(cookie) == 0 || c.snd == nil {
		return 0
	}
	// The MSS of this connection is not known yet, that of the one that brought the cookie is.
	// It is the segment size until the SYN-ACK, so that a report of a smaller path MTU counts.
	c.segment = uint16(c.segmentSizeFor(mss))
	c.sender.setOptions(c.lossOptions())
	room := int(c.segment) - len(o.Header.Options)
	var n int
	o.Payload, n = c.snd.Slice(c.una+1, max(room, 0))
	o.SegmentSize = n
	return uint32(n)
}

// HoldSYN keeps the SYN of a connection that was just begun back until the first Write,
// whose data then leaves with it (RFC 7413 4.2.1; TCP_FASTOPEN_CONNECT of tcp(7)). False is
// that the SYN leaves with the next Poll, since it could not carry data: Fast Open is off,
// or the server's cookie is not known.
func (c *Conn) HoldSYN(now clock.Time) bool {
	if !c.opt.FastOpen || c.auth != nil || c.state != StateSynSent || c.outstanding() {
		return false
	}
	cookie, _, ok := c.m.passive.fastOpenCache.cookie(now, &c.tuple.Remote)
	if !ok || len(cookie) == 0 {
		return false
	}
	c.flags |= flagDataInSYN
	return true
}

// ReleaseSYN sends a SYN that HoldSYN keeps back, for an application that reads first.
func (c *Conn) ReleaseSYN() {
	if c.holdsSYN() {
		c.flags &^= flagDataInSYN
		c.m.markDirty(c)
	}
}

// holdsSYN reports whether the SYN waits for the first Write.
func (c *Conn) holdsSYN() bool {
	return c.has(flagDataInSYN) && c.state == StateSynSent && !c.outstanding() && c.snd == nil && !c.has(flagFIN)
}

// appendFastOpenCookie appends the option where it fits.
func (c *Conn) appendFastOpenCookie(o *Outgoing, cookie []byte) bool {
	b := o.Header.Options
	if len(b)+2+len(cookie)+3 > wire.TCPMaxOptions {
		return false
	}
	b = wire.AppendFastOpen(b, cookie)
	o.Header.Options = wire.AppendNOP(b, -len(b)&3)
	return true
}

// inputFastOpenReply handles the SYN-ACK of a SYN with the option. It acknowledges the data
// where the server took it.
func (c *Conn) inputFastOpenReply(s *Segment) {
	f := &c.m.passive.fastOpenCache
	if s.Options.HasFastOpen {
		f.store(&c.tuple.Remote, s.Options.FastOpen, c.peerMSS)
	}
	f.markWorking(&c.tuple.Remote, c.peerMSS)
	if s.Ack == c.nxt && c.nxt != c.una+1 {
		c.flags |= flagFastOpen
	}
}
