package daemon

import (
	"sync"
	"sync/atomic"
	"time"
)

// A gateway that ends resets the connections that only it can carry. Their ends learn of it at once, and a million of
// them flood neither the links nor the stop: each loop resets at most resetBurst connections, by two to four packets
// each, in resetPause, for at most resetLimit. That is below the node's limit for a shutdown.
const (
	resetBurst = 64
	resetPause = time.Millisecond
	resetLimit = 3 * time.Second
)

// shutdown ends what the gateway has begun, while the loops still run. From then on the kernel forwards nothing, so that
// the counters are final.
func (d *Daemon) shutdown() {
	d.upgrading.stop(errStopping)
	d.leaveRole()
	d.endBGP() // while packets still have a gateway
	var drained sync.WaitGroup
	if d.workers != nil {
		drained.Go(func() { d.workers.Shutdown(); d.resetHost() })
	}
	defer drained.Wait()
	d.resetConnections()
	if err := d.flows.detach(&d.before); err != nil {
		d.opt.Log.Debug("kernel flows", "error", err.Error())
	}
}

// resetConnections resets the ends of NAT connections, on all loops at once, and logs how many, and how many were left.
// It leaves them to the other gateway, if that has them.
func (d *Daemon) resetConnections() {
	if d.Replaced() {
		return // the other process has them
	}
	if st := d.gate.Status(); st.Sync != nil && st.Sync.Shared {
		d.opt.Log.Info("connections", "reset", 0, "left", st.Connections, "to", st.Sync.Peer.String())
		return
	}
	var reset, left atomic.Int64
	var all sync.WaitGroup
	until := time.Now().Add(resetLimit)
	for i, h := range d.gate.Handlers() {
		all.Go(func() {
			for at, more := 0, true; more && time.Now().Before(until); {
				n := 0
				if !d.node.OnLoop(i, func() { n, at, more = h.ResetAll(at, resetBurst) }) {
					return
				}
				if reset.Add(int64(n)); n > 0 {
					time.Sleep(resetPause)
				}
			}
			left.Add(int64(h.Connections()))
		})
	}
	all.Wait()
	if reset.Load() > 0 || left.Load() > 0 {
		d.opt.Log.Info("connections", "reset", reset.Load(), "left", left.Load())
	}
}

// shutdownLimit returns how long shutdown may take.
func (d *Daemon) shutdownLimit() time.Duration {
	limit := d.bgpLimit()
	if d.workers != nil {
		limit += d.workers.ShutdownLimit() + time.Second
	}
	return limit
}
