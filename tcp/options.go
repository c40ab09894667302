package tcp

import (
	"math"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/tcp/auth"
	"github.com/millrace/millrace/tcp/cc"
	"github.com/millrace/millrace/tcp/stamp"
)

// Options are the settings of a connection or listener. Accepted
// connections begin with their listener's. The zero value suits most.
type Options struct {
	Congestion string // "cubic" (also ""), "reno", "bbr" or "dctcp"; package tcp/cc has the list

	NoDelay bool // send small segments at once (RFC 9293 3.7.4: Nagle's algorithm off)
	Cork    bool // hold back what does not fill a segment, for 200 ms at most

	KeepAlive   KeepAlive     // RFC 9293 3.8.4
	UserTimeout time.Duration // how long sent data may stay unacknowledged (RFC 5482); 0: until retransmissions end
	SYNRetries  int           // how often the SYN of Connect is sent again (TCP_SYNCNT); 0: for three minutes
	OrphanTime  time.Duration // how long FIN-WAIT-2 lasts after Close (TCP_LINGER2); 0 is a minute, and NoOrphans

	SendBuffer, ReceiveBuffer int    // bytes; 0 grows with need
	WindowClamp               int    // bytes beyond which no window is announced (TCP_WINDOW_CLAMP); 0 is no limit
	MSS                       int    // largest segment to announce and send; 0 follows the MTU
	MaxPacing                 uint64 // bytes per second; 0 is no limit; Unpaced
	NotSentLowat              int    // bytes written but not sent beyond which Write has no room (TCP_NOTSENT_LOWAT); 0 is no limit
	TTL                       uint8  // hop limit; 0 is the host's
	MinTTL                    uint8  // segments with a lower TTL or hop limit are dropped (RFC 5082); 0 takes all
	TOS                       uint8  // DSCP of the IP header in the upper six bits (RFC 2474); the lower two are ECN, which is TCP's own
	PathMTU                   PathMTUMode

	ECN                             ECNMode
	FastOpen                        bool      // RFC 7413
	PathProbe                       bool      // search for a larger path MTU by probes (RFC 4821); without it only the sizes that timeouts have given up are tried again
	NoTimestamps, NoSACK, NoScaling bool      // neither offer nor accept the option
	NoDelayedAck                    bool      // acknowledge every segment at once
	DelayFINAck                     bool      // acknowledge a FIN with our own where that follows soon, as Linux does; RFC 9293 3.10.7.4 permits both
	Stamps                          stamp.Set // times to keep for NextStamp and ReceivedAt
	UrgentOutOfBand                 bool      // take the urgent byte out of the stream, for ReadUrgent (SO_OOBINLINE off)

	// V6Only and Share are of listeners. With V6Only the unspecified address is that of IPv6
	// alone (RFC 3493 5.3). Share lets listeners that all have it use one address and port, as
	// SO_REUSEPORT of socket(7): connections are spread over them by a hash of their tuples. Share
	// of a connection lets it begin at the port of such a listener.
	V6Only, Share bool

	Keys *auth.Keys
}

// Unpaced as MaxPacing has what the window allows leave at once, as Linux does without the fq queueing discipline:
// for devices that pace by themselves. "bbr" then sends by its window alone.
const Unpaced = math.MaxUint64

// NoOrphans as OrphanTime ends a connection with a RST where FIN-WAIT-2 would begin or has begun at Close.
const NoOrphans time.Duration = -1

// KeepAlive is when to probe a silent peer (RFC 9293 3.8.4).
type KeepAlive struct {
	Idle     time.Duration // silence before the first probe; 0 is no keepalive
	Interval time.Duration // between probes; 0 is 75 s
	Count    int           // unanswered probes that end the connection; 0 is 9
}

// PathMTUMode selects how a connection treats the MTU of its path (IP_MTU_DISCOVER).
type PathMTUMode uint8

// Values of PathMTUMode.
const (
	FollowPathMTU     PathMTUMode = iota // DF on all packets; segments fit the path as ICMP reports it (RFC 1191, RFC 8201)
	FollowPathMTUOnly                    // the same for TCP, which never sends what must be fragmented
	FragmentPackets                      // no DF: routers may fragment IPv4; reports of a smaller MTU change nothing
	IgnorePathMTU                        // DF, and segments as the interface takes them: for programs that probe the path
)

// ECNMode selects how a connection uses explicit congestion notification.
type ECNMode uint8

// Values of ECNMode.
const (
	ECNPassive  ECNMode = iota // agree when the peer asks
	ECNOff                     // never
	ECNClassic                 // ask for RFC 3168
	ECNAccurate                // ask for accurate ECN (RFC 9768), fall back to RFC 3168
)

// check returns an error where an option is out of range or unknown.
func (o *Options) check() error {
	if o.SendBuffer < 0 || o.ReceiveBuffer < 0 || o.MSS < 0 || o.NotSentLowat < 0 || o.KeepAlive.Idle < 0 || o.KeepAlive.Interval < 0 || o.UserTimeout < 0 ||
		o.SYNRetries < 0 || o.OrphanTime < NoOrphans || o.WindowClamp < 0 {
		return ErrBadOption
	}
	if !cc.Known(o.Congestion) {
		return ErrCongestion
	}
	return nil
}

// intern returns a copy of o that is never written. Most connections share the defaults or the
// copy of the one before, so that a million of them do not hold a million Options.
func (m *Mux) intern(o *Options) *Options {
	if *o == m.cfg.Defaults {
		return &m.cfg.Defaults
	}
	if m.lastOptions == nil || *m.lastOptions != *o {
		x := *o
		m.lastOptions = &x
	}
	return m.lastOptions
}

// Options returns the options in force.
func (c *Conn) Options() Options { return *c.opt }

// SetOptions changes the options. Those that the handshake has settled have no effect any
// more.
func (c *Conn) SetOptions(now clock.Time, o *Options) error {
	if err := o.check(); err != nil {
		return err
	}
	c.ensureActive()
	if o.Congestion != c.opt.Congestion {
		control, err := cc.New(o.Congestion, uint32(c.mss()))
		if err != nil {
			return err
		}
		c.sender.setControl(control)
	}
	resize := o.MSS != c.opt.MSS || o.PathMTU != c.opt.PathMTU
	if o.ReceiveBuffer > 0 {
		c.rcvLimit = c.m.initialReceive(o)
	}
	if c.auth != nil && o.Keys != nil && o.Keys != c.opt.Keys {
		c.auth.SetKeys(o.Keys)
	}
	c.opt = c.m.intern(o)
	c.sender.maxPacing = o.MaxPacing
	if resize && !c.ended() {
		c.updateSegmentSize()
	}
	if o.NoDelay && c.unsent() > 0 {
		c.uncork(now)
	}
	c.m.markDirty(c)
	return nil
}
