package afxdp

import (
	"encoding/binary"
	"net"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/packet"
)

// sendUDP sends payload from the peer's kernel to the driver's address. segment > 0 sends it as one
// datagram to be cut into pieces of that size (UDP_SEGMENT).
func (w *network) sendUDP(t testing.TB, to string, payload []byte, segment int) {
	t.Helper()
	must(t, w.peer.Do(func() error {
		c, err := net.Dial("udp", to)
		if err != nil {
			return err
		}
		defer c.Close()
		raw, err := c.(*net.UDPConn).SyscallConn()
		if err != nil {
			return err
		}
		if segment > 0 {
			if err := control(raw, func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_SEGMENT, segment) }); err != nil {
				return err
			}
		}
		_, err = c.Write(payload)
		return err
	}))
}

func control(raw syscall.RawConn, f func(fd int) error) error {
	var err error
	if e := raw.Control(func(fd uintptr) { err = f(int(fd)) }); e != nil {
		return e
	}
	return err
}

// neighbours gives the peer's kernel the driver's link address.
func (w *network) neighbours(t testing.TB) {
	mac := net.HardwareAddr(func() []byte { m := w.mac(t, w.host, dev); return m[:] }()).String()
	w.run(t, w.peer, "ip", "neigh", "replace", ourAddr.String(), "lladdr", mac, "dev", peerDev)
	w.run(t, w.peer, "ip", "neigh", "replace", our6.String(), "lladdr", mac, "dev", peerDev)
}

// udpSum verifies the UDP checksum of an IPv4 frame, slowly.
func udpSum(f []byte) (full, pseudo bool) {
	sum := func(b []byte, acc uint32) uint32 {
		for i := 0; i+1 < len(b); i += 2 {
			acc += uint32(binary.BigEndian.Uint16(b[i:]))
		}
		if len(b)&1 != 0 {
			acc += uint32(b[len(b)-1]) << 8
		}
		for acc > 0xffff {
			acc = acc&0xffff + acc>>16
		}
		return acc
	}
	udp := f[34:]
	ph := sum(f[26:34], 17+uint32(len(udp)))
	return sum(udp, ph) == 0xffff, uint32(binary.BigEndian.Uint16(udp[6:])) == ph
}

// TestVethFromKernel holds the facts of docs/design/002-afxdp.md about packets of a kernel on the
// other end of a veth: with checksum offload they carry the sum of the pseudo-header only, in both
// modes; super-packets are cut up for native mode and lost in generic mode; TxChecksumOff mends
// both.
func TestVethFromKernel(t *testing.T) {
	for _, c := range []struct {
		name     string
		mode     Mode
		offload  bool
		segments int // pieces of one super-packet that come
		partial  bool
	}{
		{"native with offload", ModeNative, true, 5, true},
		{"native without offload", ModeNative, false, 5, false},
		{"generic with offload", ModeGeneric, true, 0, true},
		{"generic without offload", ModeGeneric, false, 5, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newNetwork(t, 1, 1500)
			w.neighbours(t)
			r := w.open(t, Config{Mode: c.mode, Rules: []Rule{{Addr: ourAddr, Proto: 17}}})
			if !c.offload {
				must(t, w.peer.Do(func() error { return TxChecksumOff(peerDev) }))
			}
			w.sendUDP(t, "198.18.0.9:53", make([]byte, 5000), 1000)
			w.sendUDP(t, "198.18.0.9:53", make([]byte, 100), 0) // one that fits comes last
			b := packet.NewBatch(r.arena.View(), 64)
			r.until(t, 0, b, func() bool { return b.Len() > 0 && b.D[b.Len()-1].Len == 142 })
			if b.Len() != c.segments+1 {
				t.Errorf("%d packets, want %d segments and a small one", b.Len(), c.segments)
			}
			for i := range b.Len() {
				full, pseudo := udpSum(b.Bytes(i))
				if full == c.partial || pseudo != c.partial {
					t.Errorf("packet %d: checksum is complete %v, of the pseudo-header %v", i, full, pseudo)
				}
			}
			r.pools[0].PutBatch(b)
			if lost := r.Queues[0].Info().Stats.RxMissed; lost != uint64(1-min(c.segments, 1)) {
				t.Errorf("RxDropped is %d", lost)
			}
		})
	}
}
