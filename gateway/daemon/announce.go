package daemon

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/l4/control"
)

// How often, and how far apart, an address is announced: RFC 4861 10 (MAX_NEIGHBOR_ADVERTISEMENT,
// RETRANS_TIMER); RFC 5227 1.1 asks ARP for two. Linux ignores changes for a second after another one.
const (
	announceTimes = 3
	announceEvery = time.Second
)

// announceBurst is the number of announcements that are handed to the loop at once: many addresses must neither
// fill its transmit ring nor keep it from its packets.
const (
	announceBurst = 64
	announcePause = 5 * time.Millisecond
)

// Announce announces the gateway's addresses to the hosts of the devices' networks, now and twice more:
// for a take-over. It happens by itself at the start, when a reload adds addresses, when a link comes up, and
// when a link address changes. After the start it waits for the connections of the other gateway, which has the
// traffic until then. A standby announces nothing.
func (d *Daemon) Announce() {
	select {
	case d.announce <- struct{}{}:
	default: // it has been asked for already
	}
}

// announceLoop announces when asked, until ctx ends.
func (d *Daemon) announceLoop(ctx context.Context) {
	if d.role != nil {
		d.warnUnasked() // the role waits for the peer
	} else if !d.awaitPeer(ctx) {
		return
	}
	tick := time.NewTicker(announceEvery)
	defer tick.Stop()
	for left := announceTimes; ; {
		if left > 0 {
			d.sendAnnouncements(ctx)
			left--
		}
		select {
		case <-ctx.Done():
			return
		case <-d.announce:
			left = announceTimes
			tick.Reset(announceEvery)
		case <-tick.C:
		}
	}
}

// awaitPeer returns when the connections of the other gateway are here, or have been awaited for long enough, and says so
// in the log. It returns false when ctx has ended.
func (d *Daemon) awaitPeer(ctx context.Context) bool {
	select {
	case <-d.gate.PeerAwaited():
		return true
	default:
	}
	began := time.Now()
	d.opt.Log.Info("announce", "state", "waiting", "for", "connections of the other gateway")
	select {
	case <-ctx.Done():
		return false
	case <-d.gate.PeerAwaited():
	}
	log, st := d.opt.Log.Info, d.gate.Status().Sync
	if !st.Synced {
		log = d.opt.Log.Warn
	}
	log("announce", "state", "begins", "synced", st.Synced, "waited", time.Since(began).Round(time.Millisecond).String())
	return true
}

// sendAnnouncements sends all announcements from the first loop, which has a queue of every device.
func (d *Daemon) sendAnnouncements(ctx context.Context) {
	networks, err := d.networks()
	if err != nil {
		d.opt.Log.Warn("announce", "error", err.Error())
		return
	}
	loop, list := d.node.Loops()[0], d.gate.Announcements(networks)
	failed := make(chan error, 1) // the first: a loop must not wait for a log
	defer func() {
		select {
		case err := <-failed:
			d.opt.Log.Warn("announce", "error", err.Error())
		default:
		}
	}()
	for part := range slices.Chunk(list, announceBurst) {
		sent := loop.Do(func() {
			for _, a := range part {
				if !d.gate.AnswersNow() { // the process was suspended meanwhile
					return
				}
				if err := loop.Output().Send(a.Dev, a.Frame); err != nil {
					select {
					case failed <- fmt.Errorf("%v: %w", a.Addr, err):
					default:
					}
					return
				}
			}
		})
		if !sent {
			d.opt.Log.Warn("announce", "error", "the loop is too busy", "addresses", len(list))
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(announcePause):
		}
	}
}

// networks returns the networks that hear announcements.
func (d *Daemon) networks() (list []control.Network, err error) {
	networks, err := d.node.Networks()
	for _, n := range networks {
		list = append(list, control.Network{Prefix: n.Prefix, Dev: n.Dev, VLAN: n.VLAN})
	}
	return list, err
}
