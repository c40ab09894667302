package daemon

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/millrace/millrace/gateway"
)

// How often, and how far apart, an address is announced: RFC 4861 10 (MAX_NEIGHBOR_ADVERTISEMENT,
// RETRANS_TIMER); RFC 5227 1.1 asks ARP for two. Linux ignores changes for a second after another one.
const (
	announceTimes = 3
	announceEvery = time.Second
)

// announceBurst is how many announcements are handed to the loop at once: many addresses must neither
// fill its transmit ring nor keep it from its packets.
const (
	announceBurst = 64
	announcePause = 5 * time.Millisecond
)

// Announce tells the hosts of the devices' networks where the gateway's addresses are, now and twice more:
// for a take-over. It happens by itself at the start, when a reload adds addresses, when a link comes up, and
// when a link address changes.
func (d *Daemon) Announce() {
	select {
	case d.announce <- struct{}{}:
	default: // it has been asked for already
	}
}

// announceLoop announces when asked, until ctx ends.
func (d *Daemon) announceLoop(ctx context.Context) {
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

// sendAnnouncements has the first loop, which has a queue of every device, send all announcements.
func (d *Daemon) sendAnnouncements(ctx context.Context) {
	list := d.gate.Announcements(d.networks())
	for part := range slices.Chunk(list, announceBurst) {
		sent := d.loops[0].Do(func() {
			for _, a := range part {
				if err := d.loops[0].Output().Send(a.Dev, a.Frame); err != nil {
					d.opt.Log.Warn("announce", "address", a.Addr.String(), "error", err.Error())
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

// networks returns the networks on the links of the devices, those of their VLANs too.
func (d *Daemon) networks() (list []gateway.Network) {
	links, err := netlink.LinkList()
	if err != nil {
		d.opt.Log.Warn("announce", "error", err.Error())
		return nil
	}
	d.mu.Lock()
	ports := map[int]uint8{}
	for i, l := range d.links {
		ports[l.index] = uint8(i)
	}
	d.mu.Unlock()
	for _, l := range links {
		n := gateway.Network{}
		index := l.Attrs().Index
		if v, ok := l.(*netlink.Vlan); ok {
			index, n.VLAN = v.ParentIndex, uint16(v.VlanId)
		}
		port, ours := ports[index]
		if !ours {
			continue
		}
		n.Dev = port
		addrs, err := netlink.AddrList(l, netlink.FAMILY_ALL)
		if err != nil {
			continue // it has gone meanwhile
		}
		for _, a := range addrs {
			n.Prefix = prefixOf(a)
			if n.Prefix.IsValid() && !slices.Contains(list, n) {
				list = append(list, n)
			}
		}
	}
	return list
}

// prefixOf returns the network of an interface's address.
func prefixOf(a netlink.Addr) netip.Prefix {
	ip, ok := netip.AddrFromSlice(a.IP)
	if !ok || a.IPNet == nil {
		return netip.Prefix{}
	}
	bits, _ := a.Mask.Size()
	return netip.PrefixFrom(ip.Unmap(), bits).Masked()
}
