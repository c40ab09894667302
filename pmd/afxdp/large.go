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

// txMixed is Tx of a queue that takes large packets. A batch with a large packet leaves by the packet socket
// as a whole: a small packet costs more there than in the tx ring, but less than a system call of its own
// between two large ones.
func (q *Queue) txMixed(b *packet.Batch) (taken int, err error) {
	large, n := anyLarge(b.D)
	if large {
		return q.txLarge(b.Arena, b.D[:n])
	}
	return q.txRing(b.D)
}

// anyLarge returns whether a packet of ds is large, and the number of descriptors of the whole packets.
func anyLarge(ds []packet.Desc) (large bool, n int) {
	for n < len(ds) {
		size := packet.Chain(ds[n:])
		if size == 0 {
			break
		}
		large = large || ds[n].Flags.Has(packet.FlagOffload)
		n += size
	}
	return large, n
}

// txLarge sends packets by the packet socket, unless some wait in the tx ring that they would overtake. A packet that the kernel
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
	_, size := packet.Count(ds[:n])
	q.stat.txInvalid.Add(1)
	q.stat.txInvalidBytes.Add(size)
	q.sentLarge(ds[:n])
	return n
}
