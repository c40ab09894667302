package afpacket

import (
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/vnet"
)

// Tx implements pmd.Driver. The kernel copies the packets, so their frames are free when Tx
// returns. It takes no more when the socket's buffer or the interface's queue is full. A packet that the
// kernel rejects is counted as TxInvalid, and the packets behind it are sent.
func (q *Queue) Tx(now clock.Time, b *packet.Batch) (int, error) {
	if q.ring == nil {
		return 0, q.fail("tx", pmd.ErrClosed)
	}
	taken := 0
	for {
		packets, used := q.out.Fill(b.Arena, b.D[taken:])
		if packets == 0 {
			n := packet.Chain(b.D[taken:])
			if n < vnet.MaxPieces-1 {
				return taken, nil
			}
			taken += q.reject(b.Arena, b.D[taken:][:n])
			continue
		}
		sent, calls, errno := q.out.Send(packets)
		q.count.Wakeups.Add(uint64(calls))
		n := used
		if sent < packets {
			n = packet.Chains(b.D[taken:], uint64(sent))
		}
		q.release(b.Arena, b.D[taken:][:n])
		taken += n
		switch {
		case errno == 0:
		case vnet.Rejected(errno):
			taken += q.reject(b.Arena, b.D[taken:][:packet.Chain(b.D[taken:])])
		case errno == unix.ENETDOWN, errno == unix.ENXIO, errno == unix.ENODEV:
			return taken, q.dev.explain("tx", q.id, errno)
		default:
			return taken, nil // EAGAIN, ENOBUFS: full
		}
	}
}

// release counts packets as sent and frees their frames: sendmmsg has copied the bytes. External payload stays where it is, and is
// reused after the next Rx of its driver.
func (q *Queue) release(arena *packet.Arena, d []packet.Desc) {
	if len(d) == 0 {
		return
	}
	q.count.Tx(d)
	for i := range d {
		if d[i].Flags.Has(packet.FlagOffload) {
			q.count.TxExternal(len(arena.External(&d[i])))
		}
		q.pool.Put(d[i].Off)
	}
}

// reject takes a packet that cannot be sent: it is counted, and its frames go to the pool like those of a sent one.
func (q *Queue) reject(arena *packet.Arena, d []packet.Desc) int {
	q.count.Refuse(d)
	q.release(arena, d)
	return len(d)
}
