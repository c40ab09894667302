package tcp

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/tcp/cc"
)

// check reports whether the options make sense.
func (o *Options) check() error {
	if o.SendBuffer < 0 || o.ReceiveBuffer < 0 || o.MSS < 0 || o.KeepAlive.Idle < 0 || o.KeepAlive.Interval < 0 || o.UserTimeout < 0 {
		return ErrBadOption
	}
	return nil
}

// intern returns a copy of o that nobody writes: most connections share the Mux's.
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

// SetOptions changes the options: those of the handshake have no effect any more.
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
	resize := o.MSS != c.opt.MSS
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
	c.m.markDirty(c)
	return nil
}
