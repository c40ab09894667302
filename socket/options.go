package socket

import (
	"net"
	"time"

	"github.com/millrace/millrace/tcp"
)

// SetOptions changes the options of the connection by a function, which runs on its loop.
func (c *TCPConn) SetOptions(change func(o *tcp.Options)) error {
	now := c.h.Enter()
	defer c.h.Exit()
	if c.c == nil {
		return c.fault("set", net.ErrClosed)
	}
	o := c.c.Options()
	change(&o)
	if err := c.c.SetOptions(now, &o); err != nil {
		return c.fault("setsockopt", err)
	}
	return nil
}

// SetNoDelay says whether small segments are sent at once (the default), or by Nagle's algorithm.
func (c *TCPConn) SetNoDelay(on bool) error {
	return c.SetOptions(func(o *tcp.Options) { o.NoDelay = on })
}

// SetCork keeps back what does not fill a segment, 200 ms at most, until it is set to false.
func (c *TCPConn) SetCork(on bool) error {
	return c.SetOptions(func(o *tcp.Options) { o.Cork = on })
}

// Keepalive as package net has it by default.
const (
	defaultIdle     = 15 * time.Second
	defaultInterval = 15 * time.Second
	defaultCount    = 9
)

// SetKeepAlive turns probes of a silent peer on, with the defaults of package net, or off.
func (c *TCPConn) SetKeepAlive(on bool) error {
	return c.SetKeepAliveConfig(net.KeepAliveConfig{Enable: on})
}

// SetKeepAlivePeriod sets the silence before the first probe and the time between probes.
func (c *TCPConn) SetKeepAlivePeriod(d time.Duration) error {
	return c.SetOptions(func(o *tcp.Options) { o.KeepAlive.Idle, o.KeepAlive.Interval = d, d })
}

// SetKeepAliveConfig sets all of it. Fields that are 0 are the defaults of package net; those below 0
// stay as they are.
func (c *TCPConn) SetKeepAliveConfig(k net.KeepAliveConfig) error {
	return c.SetOptions(func(o *tcp.Options) {
		if !k.Enable {
			o.KeepAlive = tcp.KeepAlive{}
			return
		}
		o.KeepAlive.Idle = pick(k.Idle, defaultIdle, o.KeepAlive.Idle)
		o.KeepAlive.Interval = pick(k.Interval, defaultInterval, o.KeepAlive.Interval)
		o.KeepAlive.Count = pick(k.Count, defaultCount, o.KeepAlive.Count)
	})
}

// pick returns v, or what 0 and negative values stand for.
func pick[T int | time.Duration](v, zero, negative T) T {
	switch {
	case v == 0:
		return zero
	case v < 0:
		return negative
	}
	return v
}

// SetLinger says what Close does with data that is not acknowledged yet: below 0 (the default) it is
// sent as long as it takes, 0 drops it and resets the connection, above 0 it has so many seconds.
func (c *TCPConn) SetLinger(seconds int) error {
	c.h.Enter()
	defer c.h.Exit()
	if c.c == nil {
		return c.fault("set", net.ErrClosed)
	}
	c.flags &^= lingers
	if seconds >= 0 {
		c.flags |= lingers
		c.extras().linger = min(seconds, 1<<15-1)
	}
	return nil
}

// SetReadBuffer bounds the bytes that wait to be read; 0 lets the bound follow the need.
func (c *TCPConn) SetReadBuffer(bytes int) error {
	return c.SetOptions(func(o *tcp.Options) { o.ReceiveBuffer = bytes })
}

// SetWriteBuffer bounds the bytes that wait to be acknowledged; 0 lets the bound follow the need.
func (c *TCPConn) SetWriteBuffer(bytes int) error {
	return c.SetOptions(func(o *tcp.Options) { o.SendBuffer = bytes })
}

// SetCongestion chooses the congestion control by name: "cubic", "reno", "bbr", "dctcp".
func (c *TCPConn) SetCongestion(name string) error {
	return c.SetOptions(func(o *tcp.Options) { o.Congestion = name })
}

// SetUserTimeout says how long sent data may stay unacknowledged (RFC 5482); 0 is until
// retransmissions give up.
func (c *TCPConn) SetUserTimeout(d time.Duration) error {
	return c.SetOptions(func(o *tcp.Options) { o.UserTimeout = d })
}

// Info returns what the stack knows of the connection.
func (c *TCPConn) Info() (tcp.Info, error) {
	c.h.Enter()
	defer c.h.Exit()
	if c.c == nil {
		return tcp.Info{}, c.fault("get", net.ErrClosed)
	}
	return c.c.Info(), nil
}
