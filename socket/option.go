package socket

import (
	"net"
	"slices"
	"syscall"
	"time"

	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/tcp"
)

// Option names an option of a TCPConn or Listener by its number on Linux, for programs that carry setsockopt(2)
// over: values have the units and bounds of Linux, and errors are those of Linux. Go programs have typed
// options in TCPOptions, and methods. Options without a name here give ENOPROTOOPT.
type Option uint8

// Values of Option. A boolean is 0 or 1; what is set is true if it is not 0. "Default" is without a Dialer's or
// ListenConfig's TCPOptions, which begin with those of package net.
const (
	OptNoDelay         Option = iota // TCP_NODELAY, boolean: Nagle's algorithm off. Default 1
	OptCork                          // TCP_CORK, boolean: hold back segments that are not full, for at most 200 ms. Default 0
	OptMaxSegment                    // TCP_MAXSEG, bytes, 88 to 32767 or 0 for what the path takes; reads as the size in use
	OptKeepAlive                     // SO_KEEPALIVE, boolean. Default: Config.KeepAlive
	OptKeepIdle                      // TCP_KEEPIDLE, seconds of silence before the first probe, 1 to 32767. Default 15
	OptKeepInterval                  // TCP_KEEPINTVL, seconds between probes, 1 to 32767. Default 15; 75, as on Linux, where Config turns keepalive off
	OptKeepCount                     // TCP_KEEPCNT, unanswered probes that end the connection, 1 to 127. Default 9
	OptUserTimeout                   // TCP_USER_TIMEOUT, ms that sent data may stay unacknowledged; 0 is 15 minutes. Default 0
	OptQuickAck                      // TCP_QUICKACK, boolean: acknowledge each segment at once. It lasts, unlike on Linux. Default 0
	OptNotSentLowat                  // TCP_NOTSENT_LOWAT, bytes written and not sent that end Writable; 0 is no limit. Default 0
	OptOutOfBandInline               // SO_OOBINLINE, boolean: urgent bytes stay in the stream (RFC 6093 4). Default 1; 0 on Linux
	OptTOS                           // IP_TOS, IPV6_TCLASS: DSCP in the upper six bits; the lower two are TCP's own. Default 0
	OptTTL                           // IP_TTL, IPV6_UNICAST_HOPS, 1 to 255 or -1 for the host's. Default -1, which reads as 64, or as what a router says
	OptMTUDiscover                   // IP_MTU_DISCOVER: 0 lets routers fragment, 1 and 2 follow the path MTU, 3 ignores it. Default 1
	OptMTU                           // IP_MTU, bytes, read only: of the path as far as it is known
	OptSendBuffer                    // SO_SNDBUF, bytes; 0 grows with need, which it does by default. Not doubled, unlike on Linux
	OptReceiveBuffer                 // SO_RCVBUF, bytes, as OptSendBuffer
	OptMaxPacing                     // SO_MAX_PACING_RATE, bytes per second; -1 and 0 are no limit. Default -1
	OptLinger                        // SO_LINGER, seconds of l_linger; -1 is l_onoff 0. Default -1. Connections only
	OptFastOpen                      // TCP_FASTOPEN of a listener, TCP_FASTOPEN_CONNECT of a Dialer, boolean (RFC 7413). Default 0
	OptDeferAccept                   // TCP_DEFER_ACCEPT, seconds to wait for data before Accept. Listeners only. Default 0
	OptMinTTL                        // IP_MINTTL, IPV6_MINHOPCOUNT: segments with less are dropped (RFC 5082), 0 to 255. Default 0
	OptSYNCount                      // TCP_SYNCNT, how often connect sends its SYN again, 1 to 127. Default 6, of which the last waits three minutes in all
	OptOrphanTime                    // TCP_LINGER2, seconds of FIN-WAIT-2 after Close, 120 at most; 0 is 60, less ends with a RST. Default 60
	OptWindowClamp                   // TCP_WINDOW_CLAMP, bytes of the largest window to announce, 1152 at least; 0 is no limit. Default 0
	OptError                         // SO_ERROR, read only: the number of SocketError, which it clears
	numOptions
)

// optionTarget is a socket, as Options read and set it.
type optionTarget struct {
	*TCPOptions
	idle *time.Duration // of keepalive while that is off: TCPOptions has no place for it
}

// optionAccess reads and sets one Option. nil for set is read only.
type optionAccess struct {
	get func(o optionTarget) int
	set func(o optionTarget, v int) error
}

// boolOption is an option of one bool.
func boolOption(field func(o *TCPOptions) *bool) optionAccess {
	return optionAccess{
		get: func(o optionTarget) int { return boolInt(*field(o.TCPOptions)) },
		set: func(o optionTarget, v int) error {
			*field(o.TCPOptions) = v != 0
			return nil
		},
	}
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// intOption is an option of one int in bounds.
func intOption(least, most int, field func(o *TCPOptions) *int) optionAccess {
	return optionAccess{
		get: func(o optionTarget) int { return *field(o.TCPOptions) },
		set: func(o optionTarget, v int) error {
			if v < least || v > most {
				return syscall.EINVAL
			}
			*field(o.TCPOptions) = v
			return nil
		},
	}
}

// Bounds of Linux (include/net/tcp.h).
const (
	minSegment        = 88
	maxSegment        = 32767
	maxKeepAliveTimes = 32767 // seconds
	maxKeepAliveCount = 127
	maxInt32          = 1<<31 - 1
	maxSYNCount       = 127
	minWindowClamp    = 1152 // half of SOCK_MIN_RCVBUF
	maxOrphanTime     = 120  // seconds
)

var optionTable = [numOptions]optionAccess{
	OptNoDelay:         boolOption(func(o *TCPOptions) *bool { return &o.NoDelay }),
	OptCork:            boolOption(func(o *TCPOptions) *bool { return &o.Cork }),
	OptQuickAck:        boolOption(func(o *TCPOptions) *bool { return &o.NoDelayedAck }),
	OptFastOpen:        boolOption(func(o *TCPOptions) *bool { return &o.FastOpen }),
	OptNotSentLowat:    intOption(0, maxInt32, func(o *TCPOptions) *int { return &o.NotSentLowat }),
	OptSendBuffer:      intOption(0, maxInt32, func(o *TCPOptions) *int { return &o.SendBuffer }),
	OptReceiveBuffer:   intOption(0, maxInt32, func(o *TCPOptions) *int { return &o.ReceiveBuffer }),
	OptKeepCount:       {get: keepCount, set: intOption(1, maxKeepAliveCount, func(o *TCPOptions) *int { return &o.KeepAlive.Count }).set},
	OptKeepInterval:    {get: keepInterval, set: setKeepInterval},
	OptKeepIdle:        {get: keepIdle, set: setKeepIdle},
	OptKeepAlive:       {get: func(o optionTarget) int { return boolInt(o.KeepAlive.Idle != 0) }, set: setKeepAliveOn},
	OptMaxSegment:      {get: func(o optionTarget) int { return o.MSS }, set: setMaxSegment},
	OptUserTimeout:     {get: func(o optionTarget) int { return int(o.UserTimeout / time.Millisecond) }, set: setUserTimeout},
	OptOutOfBandInline: {get: func(o optionTarget) int { return boolInt(!o.UrgentOutOfBand) }, set: setInline},
	OptTOS:             {get: func(o optionTarget) int { return int(o.TOS) }, set: setTOS},
	OptTTL:             {get: hopLimit, set: setHopLimit},
	OptMinTTL:          {get: func(o optionTarget) int { return int(o.MinTTL) }, set: setMinTTL},
	OptMTUDiscover:     {get: mtuDiscover, set: setMTUDiscover},
	OptMaxPacing:       {get: maxPacing, set: setMaxPacing},
	OptSYNCount:        {get: synCount, set: intOption(1, maxSYNCount, func(o *TCPOptions) *int { return &o.SYNRetries }).set},
	OptOrphanTime:      {get: orphanSeconds, set: setOrphanTime},
	OptWindowClamp:     {get: func(o optionTarget) int { return o.WindowClamp }, set: setWindowClamp},
}

func setMinTTL(o optionTarget, v int) error {
	if v < 0 || v > 255 {
		return syscall.EINVAL
	}
	o.MinTTL = uint8(v)
	return nil
}

// Values of Linux where the program sets none.
const (
	linuxSYNCount   = 6
	linuxOrphanTime = 60 // seconds
)

func synCount(o optionTarget) int { return pick(o.SYNRetries, linuxSYNCount, o.SYNRetries) }

func orphanSeconds(o optionTarget) int {
	switch o.OrphanTime {
	case tcp.NoOrphans:
		return -1
	case 0:
		return linuxOrphanTime
	}
	return int(o.OrphanTime / time.Second)
}

func setOrphanTime(o optionTarget, v int) error {
	o.OrphanTime = tcp.NoOrphans
	if v >= 0 {
		o.OrphanTime = time.Duration(min(v, maxOrphanTime)) * time.Second
	}
	return nil
}

func setWindowClamp(o optionTarget, v int) error {
	o.WindowClamp = 0
	if v != 0 {
		o.WindowClamp = max(v, minWindowClamp)
	}
	return nil
}

func keepCount(o optionTarget) int {
	return pick(o.KeepAlive.Count, defaultCount, o.KeepAlive.Count)
}

// Keepalive of Linux where the program sets none, in seconds.
const (
	linuxInterval = 75
	linuxIdle     = 7200
)

func keepInterval(o optionTarget) int {
	return pick(int(o.KeepAlive.Interval/time.Second), linuxInterval, 0)
}

func setKeepInterval(o optionTarget, v int) error {
	if v < 1 || v > maxKeepAliveTimes {
		return syscall.EINVAL
	}
	o.KeepAlive.Interval = time.Duration(v) * time.Second
	return nil
}

func keepIdle(o optionTarget) int {
	idle := o.KeepAlive.Idle
	if idle == 0 {
		idle = *o.idle
	}
	return pick(int(idle/time.Second), linuxIdle, 0)
}

func setKeepIdle(o optionTarget, v int) error {
	if v < 1 || v > maxKeepAliveTimes {
		return syscall.EINVAL
	}
	*o.idle = time.Duration(v) * time.Second
	if o.KeepAlive.Idle != 0 {
		o.KeepAlive.Idle = *o.idle
	}
	return nil
}

func setKeepAliveOn(o optionTarget, v int) error {
	switch {
	case v == 0 && o.KeepAlive.Idle != 0:
		*o.idle, o.KeepAlive.Idle = o.KeepAlive.Idle, 0
	case v != 0 && o.KeepAlive.Idle == 0:
		o.KeepAlive.Idle = time.Duration(keepIdle(o)) * time.Second
	}
	return nil
}

func setMaxSegment(o optionTarget, v int) error {
	if v != 0 && (v < minSegment || v > maxSegment) {
		return syscall.EINVAL
	}
	o.MSS = v
	return nil
}

func setUserTimeout(o optionTarget, v int) error {
	if v < 0 || v > maxInt32 {
		return syscall.EINVAL
	}
	o.UserTimeout = time.Duration(v) * time.Millisecond
	return nil
}

func setInline(o optionTarget, v int) error {
	o.UrgentOutOfBand = v == 0
	return nil
}

// setTOS takes the DSCP. Linux ignores the other bits of a stream socket as well, and takes any int.
func setTOS(o optionTarget, v int) error {
	o.TOS = uint8(v) &^ 3
	return nil
}

func hopLimit(o optionTarget) int {
	if o.TTL == 0 {
		return ip.DefaultTTL
	}
	return int(o.TTL)
}

func setHopLimit(o optionTarget, v int) error {
	if v != -1 && (v < 1 || v > 255) {
		return syscall.EINVAL
	}
	o.TTL = uint8(max(v, 0))
	return nil
}

// pathMTUModes are the values of IP_MTU_DISCOVER, by their numbers.
var pathMTUModes = [...]tcp.PathMTUMode{tcp.FragmentPackets, tcp.FollowPathMTU, tcp.FollowPathMTUOnly, tcp.IgnorePathMTU}

func mtuDiscover(o optionTarget) int { return slices.Index(pathMTUModes[:], o.PathMTU) }

func setMTUDiscover(o optionTarget, v int) error {
	if v < 0 || v >= len(pathMTUModes) {
		return syscall.EINVAL
	}
	o.PathMTU = pathMTUModes[v]
	return nil
}

func maxPacing(o optionTarget) int {
	if o.MaxPacing == 0 {
		return -1
	}
	return int(o.MaxPacing)
}

// setMaxPacing takes -1, ~0 in the type of Linux, for no limit. Other negative values are large
// rates there, as an unsigned int.
func setMaxPacing(o optionTarget, v int) error {
	switch {
	case v == -1:
		o.MaxPacing = 0
	case v < 0:
		o.MaxPacing = uint64(uint32(v))
	default:
		o.MaxPacing = uint64(v)
	}
	return nil
}

// apply sets an option.
func (o optionTarget) apply(opt Option, v int) error {
	if opt >= numOptions || optionTable[opt].set == nil {
		return syscall.ENOPROTOOPT
	}
	return optionTable[opt].set(o, v)
}

// read returns an option.
func (o optionTarget) read(opt Option) (int, error) {
	if opt >= numOptions || optionTable[opt].get == nil {
		return 0, syscall.ENOPROTOOPT
	}
	return optionTable[opt].get(o), nil
}

// SetOption sets an option, as setsockopt(2) does.
func (c *TCPConn) SetOption(opt Option, v int) error {
	c.h.Enter()
	defer c.h.Exit()
	return LoopConn{c}.SetOption(opt, v)
}

// SetOption is TCPConn.SetOption for callbacks.
func (in LoopConn) SetOption(opt Option, v int) error {
	c := in.c
	if opt == OptLinger {
		return c.setLinger(v)
	}
	var failed error
	err := in.SetOptions(func(o *TCPOptions) { failed = optionTarget{o, &c.extras().idle}.apply(opt, v) })
	if err != nil {
		return err
	}
	return c.wrapError("setsockopt", failed)
}

// Option returns an option, as getsockopt(2) does.
func (c *TCPConn) Option(opt Option) (int, error) {
	c.h.Enter()
	defer c.h.Exit()
	return LoopConn{c}.Option(opt)
}

// Option is TCPConn.Option for callbacks.
func (in LoopConn) Option(opt Option) (int, error) {
	if in.c.c == nil {
		return 0, in.c.wrapError("getsockopt", net.ErrClosed)
	}
	v, err := in.c.option(opt)
	return v, in.c.wrapError("getsockopt", err)
}

func (c *TCPConn) option(opt Option) (int, error) {
	switch opt {
	case OptError:
		err := c.takeError()
		if n, ok := err.(syscall.Errno); ok {
			return int(n), nil
		}
		return int(errnos[err]), nil
	case OptLinger:
		if c.flags&lingerSet == 0 {
			return -1, nil
		}
		return c.extra.linger, nil
	case OptMTU:
		i := c.c.Info()
		return i.PathMTU, nil
	case OptMaxSegment:
		i := c.c.Info()
		return i.MSS, nil
	}
	o := c.c.Options()
	if opt == OptTTL && o.TTL == 0 {
		return int(c.h.HopLimit(&c.tuple)), nil
	}
	return optionTarget{&o, &c.extras().idle}.read(opt)
}
