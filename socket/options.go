package socket

import (
	"cmp"
	"net"
	"time"

	"github.com/millrace/millrace/tcp"
	"github.com/millrace/millrace/udp"
)

// TCPOptions are the options of a connection, or of those that a Listener accepts.
type TCPOptions = tcp.Options

// UDPOptions are the options of a UDPConn.
type UDPOptions = udp.Options

// TCPInfo is the state of a connection, with its counters.
type TCPInfo = tcp.Info

// tcpOptions returns the defaults of the stack with the changes of a Dialer or ListenConfig. Without changes
// it returns the defaults themselves, so that most connections need no memory for options.
func (s *Stack) tcpOptions(idle time.Duration, k net.KeepAliveConfig, change func(*TCPOptions)) *tcp.Options {
	if idle == 0 && !k.Enable && change == nil {
		return &s.defaults
	}
	o := s.defaults
	switch {
	case k.Enable:
		setKeepAlive(&o.KeepAlive, k)
	case idle > 0:
		setKeepAlive(&o.KeepAlive, net.KeepAliveConfig{Idle: idle})
	case idle < 0:
		o.KeepAlive.Idle = 0
	}
	if change != nil {
		change(&o)
	}
	return &o
}

// listenOptions returns the options of a listener. "tcp6" does not accept IPv4, as in package net (RFC 3493
// 5.3).
func (s *Stack) listenOptions(cfg *ListenConfig, f family) *tcp.Options {
	o := s.tcpOptions(cfg.KeepAlive, cfg.KeepAliveConfig, cfg.TCPOptions)
	if f != '6' || o.V6Only {
		return o
	}
	only6 := *o
	only6.V6Only = true
	return &only6
}

// udpOptions returns the defaults, changed by change. As in package net, sockets may send to broadcast
// addresses.
func udpOptions(change func(*UDPOptions)) (o udp.Options) {
	o.Broadcast = true
	if change != nil {
		change(&o)
	}
	return o
}

// SetOptions changes the options of the connection. change runs with the loop held.
func (c *TCPConn) SetOptions(change func(o *TCPOptions)) error {
	c.h.Enter()
	defer c.h.Exit()
	return LoopConn{c}.SetOptions(change)
}

// SetOptions is TCPConn.SetOptions for callbacks.
func (in LoopConn) SetOptions(change func(o *TCPOptions)) error {
	c := in.c
	if c.c == nil {
		return c.wrapError("set", net.ErrClosed)
	}
	o := c.c.Options()
	change(&o)
	return c.wrapError("setsockopt", c.c.SetOptions(c.h.Now(), &o))
}

// SetNoDelay turns Nagle's algorithm off (the default) or on.
func (c *TCPConn) SetNoDelay(on bool) error {
	return c.SetOptions(func(o *TCPOptions) { o.NoDelay = on })
}

// SetCork delays segments that are not full, for at most 200 ms, until it is set to false (TCP_CORK).
func (c *TCPConn) SetCork(on bool) error {
	return c.SetOptions(func(o *TCPOptions) { o.Cork = on })
}

// Keepalive of package net by default.
const (
	defaultIdle     = 15 * time.Second
	defaultInterval = 15 * time.Second
	defaultCount    = 9
)

// setKeepAlive turns keepalive on. As in package net, 0 is the default and negative is no change.
func setKeepAlive(k *tcp.KeepAlive, c net.KeepAliveConfig) {
	k.Idle = pick(c.Idle, defaultIdle, cmp.Or(k.Idle, defaultIdle))
	k.Interval = pick(c.Interval, defaultInterval, k.Interval)
	k.Count = pick(c.Count, defaultCount, k.Count)
}

// pick returns v, or its replacement if it is 0 or negative.
func pick[T int | time.Duration](v, zero, negative T) T {
	switch {
	case v == 0:
		return zero
	case v < 0:
		return negative
	}
	return v
}

// unchanged changes nothing but Enable.
var unchanged = net.KeepAliveConfig{Idle: -1, Interval: -1, Count: -1}

// SetKeepAlive turns keepalive probes of a silent peer on or off.
func (c *TCPConn) SetKeepAlive(on bool) error {
	return c.SetOptions(func(o *TCPOptions) { c.changeKeepAlive(o, on, unchanged) })
}

// SetKeepAlivePeriod sets the silence before the first probe.
func (c *TCPConn) SetKeepAlivePeriod(d time.Duration) error {
	return c.SetOptions(func(o *TCPOptions) {
		k := unchanged
		k.Idle = d
		c.changeKeepAlive(o, o.KeepAlive.Idle != 0, k)
	})
}

// SetKeepAliveConfig sets all parameters of keepalive. As in package net, 0 is the default and negative is
// no change.
func (c *TCPConn) SetKeepAliveConfig(k net.KeepAliveConfig) error {
	return c.SetOptions(func(o *TCPOptions) { c.changeKeepAlive(o, k.Enable, k) })
}

// changeKeepAlive applies k and turns keepalive on or off. While it is off tcp.Options has no idle time, so
// that the connection keeps it for the next SetKeepAlive(true).
func (c *TCPConn) changeKeepAlive(o *TCPOptions, on bool, k net.KeepAliveConfig) {
	x := c.extras()
	// setKeepAlive must see the idle time from before it was turned off: negative means no change.
	o.KeepAlive.Idle = cmp.Or(o.KeepAlive.Idle, x.idle)
	setKeepAlive(&o.KeepAlive, k)
	if !on {
		x.idle, o.KeepAlive.Idle = o.KeepAlive.Idle, 0
	}
}

// SetLinger sets what Close does with data that is not acknowledged. Negative (the default) sends it in the
// background, 0 discards it and resets the connection, a positive value is a limit in seconds.
func (c *TCPConn) SetLinger(seconds int) error {
	c.h.Enter()
	defer c.h.Exit()
	return c.setLinger(seconds)
}

func (c *TCPConn) setLinger(seconds int) error {
	if c.c == nil {
		return c.wrapError("set", net.ErrClosed)
	}
	c.flags &^= lingerSet
	if seconds >= 0 {
		c.flags |= lingerSet
		c.extras().linger = min(seconds, 1<<15-1)
	}
	return nil
}

// SetReadBuffer limits the bytes of the receive buffer. 0 tunes the limit automatically.
func (c *TCPConn) SetReadBuffer(bytes int) error {
	return c.SetOptions(func(o *TCPOptions) { o.ReceiveBuffer = bytes })
}

// SetWriteBuffer limits the bytes of the send buffer. 0 tunes the limit automatically.
func (c *TCPConn) SetWriteBuffer(bytes int) error {
	return c.SetOptions(func(o *TCPOptions) { o.SendBuffer = bytes })
}

// SetCongestion sets the congestion control algorithm: "cubic", "reno", "bbr" or "dctcp".
func (c *TCPConn) SetCongestion(name string) error {
	return c.SetOptions(func(o *TCPOptions) { o.Congestion = name })
}

// SetUserTimeout sets how long data may stay unacknowledged (RFC 5482). 0 waits until retransmission gives
// up.
func (c *TCPConn) SetUserTimeout(d time.Duration) error {
	return c.SetOptions(func(o *TCPOptions) { o.UserTimeout = d })
}

// Info returns the state and the counters of the connection, as TCP_INFO of tcp(7) does.
func (c *TCPConn) Info() (TCPInfo, error) {
	c.h.Enter()
	defer c.h.Exit()
	return LoopConn{c}.Info()
}

// Info is TCPConn.Info for callbacks.
func (in LoopConn) Info() (TCPInfo, error) {
	if in.c.c == nil {
		return TCPInfo{}, in.c.wrapError("get", net.ErrClosed)
	}
	return in.c.c.Info(), nil
}
