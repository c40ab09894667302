package afxdp

import (
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/rtnl"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd/vnet"
)

// Large packets (packet.FlagOffload) cannot pass the rings: an XDP descriptor has no place for a segment size. In copy mode
// the kernel makes an skb of each packet in any case, in the system call, so the large ones leave by a packet socket
// instead: one skb for 64 KiB, which the device segments, or the kernel for it.
//
// The order of packets is kept by sending all of one kind before the first of the other. So both must have left when their
// system call returns: not in zero-copy mode, where the device reads the ring later, and not behind a queueing
// discipline, which AF_XDP bypasses.

// openLarge opens the packet socket of a queue that may have one.
func (d *Device) openLarge(q *Queue) (err error) {
	if !d.cfg.Offload || q.zeroCopy || !queueless(d.iface.index) {
		return nil
	}
	// Not past the queueing discipline: with PACKET_QDISC_BYPASS the kernel drops what it would have to segment.
	q.large, err = vnet.Open(d.iface.index, false, true)
	return err
}

// queueless reports whether the interface has no queueing discipline, as veth has none unless one is configured.
func queueless(index int) bool {
	link, err := rtnl.Dump(func() (netlink.Link, error) { return netlink.LinkByIndex(index) })
	if err != nil {
		return false
	}
	list, err := rtnl.Dump(func() ([]netlink.Qdisc, error) { return netlink.QdiscList(link) })
	if err != nil {
		return false
	}
	for _, q := range list {
		if a := q.Attrs(); a.Parent == netlink.HANDLE_ROOT && q.Type() != "noqueue" {
			return false
		}
	}
	return true
}

// txMixed is Tx of a queue that takes large packets.
func (q *Queue) txMixed(b *packet.Batch) (taken int, err error) {
	for err == nil {
		large, n := sameKind(b.D[taken:])
		if n == 0 {
			if taken == 0 { // nothing to send: what waits in the ring gets its kick, as without large packets
				return 0, q.kick()
			}
			return taken, nil
		}
		did := 0
		if large {
			did, err = q.txLarge(b.Arena, b.D[taken:][:n])
		} else {
			did, err = q.txRing(b.D[taken:][:n])
		}
		if taken += did; did < n {
			break
		}
	}
	return taken, err
}

// sameKind returns whether the first packet of ds is large, and the number of descriptors of the whole packets up to the
// first of the other kind.
func sameKind(ds []packet.Desc) (large bool, n int) {
	for n < len(ds) {
		kind := ds[n].Flags.Has(packet.FlagOffload)
		size := packet.Chain(ds[n:])
		if n > 0 && kind != large || size == 0 {
			break
		}
		large = kind
		n += size
	}
	return large, n
}

// txLarge sends large packets, unless some wait in the tx ring that they would overtake. A packet that the kernel
// rejects is counted as TxInvalid, and the packets behind it are sent.
func (q *Queue) txLarge(arena *packet.Arena, ds []packet.Desc) (taken int, err error) {
	if q.tx.pending() > 0 {
		if err := q.kick(); err != nil || q.tx.pending() > 0 {
			return 0, err
		}
	}
	for taken < len(ds) {
		packets, used := q.large.Fill(arena, ds[taken:])
		if packets == 0 { // a chain that no message holds
			taken += q.rejectLarge(ds[taken:])
			continue
		}
		sent, calls, errno := q.large.Send(packets)
		q.stat.wakeups.Add(uint64(calls))
		if sent < packets {
			used = packet.Chains(ds[taken:], uint64(sent))
		}
		q.sentLarge(ds[taken:][:used])
		taken += used
		switch {
		case errno == 0:
		case vnet.Rejected(errno):
			taken += q.rejectLarge(ds[taken:])
		case errno == unix.EAGAIN, errno == unix.ENOBUFS:
			return taken, nil // full
		default:
			q.linkErr = q.explainLink("tx", errno)
			return taken, q.linkErr
		}
	}
	return taken, nil
}

// sentLarge counts packets and frees their frames: sendmmsg has copied the bytes.
func (q *Queue) sentLarge(ds []packet.Desc) {
	packets, size := packet.Count(ds)
	q.stat.txPackets.Add(packets)
	q.stat.txBytes.Add(size)
	for i := range ds {
		q.pool.Put(ds[i].Off)
	}
}

// rejectLarge takes the first packet of ds, which cannot be sent, and returns the number of its descriptors.
func (q *Queue) rejectLarge(ds []packet.Desc) int {
	n := packet.Chain(ds)
	q.stat.txInvalid.Add(1)
	q.sentLarge(ds[:n])
	return n
}
