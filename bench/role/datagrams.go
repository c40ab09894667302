package role

import (
	"encoding/binary"
	"fmt"
	"net"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// datagramBurst is the number of datagrams that a system call of the role sends, as programs of QUIC do.
const datagramBurst = 40

// openDatagrams is a UDP socket that floods one flow, by UDP_SEGMENT. Each datagram begins with its number, where a probe has
// it. Unlike probes they have checksums.
func openDatagrams(o roleOptions) (roleWork, error) {
	c, err := net.Dial("udp", o.stream.To)
	if err != nil {
		return roleWork{}, err
	}
	f, err := c.(*net.UDPConn).File() // the role's thread blocks in it
	if err != nil {
		return roleWork{}, err
	}
	fd, payload := int(f.Fd()), o.size-seqAt
	if payload < 8 || datagramBurst*payload > 1<<16-28-1 {
		return roleWork{}, fmt.Errorf("packets of %d bytes cannot be sent by %d at once", o.size, datagramBurst)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_SEGMENT, payload); err != nil {
		return roleWork{}, fmt.Errorf("UDP_SEGMENT: %w", err)
	}
	data, seq := make([]byte, datagramBurst*payload), uint64(0)
	var sent atomic.Uint64
	return roleWork{
		version: "UDP_SEGMENT",
		step: func() error {
			for i := range uint64(datagramBurst) {
				binary.NativeEndian.PutUint64(data[int(i)*payload:], seq+i)
			}
			if _, err := unix.Write(fd, data); err != nil && err != unix.ENOBUFS {
				return err
			}
			seq += datagramBurst
			sent.Store(seq)
			return nil
		},
		counts: func() (map[string]uint64, error) { return map[string]uint64{"packets": sent.Load()}, nil },
		close:  f.Close,
	}, nil
}
