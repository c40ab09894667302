package gateway

import (
	"context"
	"math/rand/v2"
	"net"
	"net/netip"
	"time"
)

// Dialer makes the connections of health checks; net.Dialer is one.
type Dialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// probe watches one backend: it connects by TCP through the kernel's stack, again and again, and
// tells when the backend's health changes. Backends start healthy, so that a restart of the gateway
// serves at once; a dead one is found after fall intervals.
type probe struct {
	health  Health
	target  string
	dial    Dialer
	healthy bool                                                 // as last told
	changed func(ctx context.Context, healthy bool, cause error) // ctx has ended if the probe has been replaced
}

// loop runs until ctx ends. The first probe comes at a random time within the interval, so that the
// probes of many backends spread; later ones with +-10 % (RFC 8085 3.1.1 asks for as much).
func (p *probe) loop(ctx context.Context) {
	row := 0
	pause := time.Duration(rand.Int64N(int64(p.health.Interval)))
	for sleep(ctx, pause) {
		start := time.Now()
		err := p.once(ctx)
		if ctx.Err() != nil {
			return
		}
		if row++; (err == nil) == p.healthy {
			row = 0
		}
		if p.healthy && row == p.health.Fall || !p.healthy && row == p.health.Rise {
			p.healthy, row = !p.healthy, 0
			p.changed(ctx, p.healthy, err)
		}
		pause = jitter(p.health.Interval) - time.Since(start)
	}
}

// once connects and closes.
func (p *probe) once(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.health.Timeout)
	defer cancel()
	c, err := p.dial.DialContext(ctx, "tcp", p.target)
	if err != nil {
		return err
	}
	return c.Close()
}

// jitter returns d, up to a tenth more or less.
func jitter(d time.Duration) time.Duration {
	return d + time.Duration((rand.Float64()-0.5)/5*float64(d))
}

// sleep waits for d; false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// newDialer returns the dialer of probes, which leave by the device if one is named.
func newDialer(device string) *net.Dialer {
	d := &net.Dialer{KeepAlive: -1}
	if device != "" {
		d.ControlContext = bindTo(device)
	}
	return d
}

// checker runs the probes of a configuration.
type checker struct {
	running map[uint32]*run
}

// run is a probe that runs, and what it was started with.
type run struct {
	health Health
	target string
	stop   context.CancelFunc
}

// start runs a probe of backend id, unless the same one runs.
func (c *checker) start(id uint32, p *probe) {
	if r := c.running[id]; r != nil {
		if r.health == p.health && r.target == p.target {
			return
		}
		r.stop()
	}
	ctx, stop := context.WithCancel(context.Background())
	c.running[id] = &run{p.health, p.target, stop}
	go p.loop(ctx)
}

// keep stops all probes but those of the given backends.
func (c *checker) keep(ids map[uint32]bool) {
	for id, r := range c.running {
		if !ids[id] {
			r.stop()
			delete(c.running, id)
		}
	}
}

// target returns where a backend is probed.
func (h *Health) target(ap netip.AddrPort) netip.AddrPort {
	if h.Port != 0 {
		return netip.AddrPortFrom(ap.Addr(), h.Port)
	}
	return ap
}
