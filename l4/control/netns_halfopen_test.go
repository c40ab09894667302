package control_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/wire"
)

// Linux gives up a half-open connection at the reset of the gateway: forged SYNs, whose SYN+ACKs nothing answers, hold all
// 20 source ports again and again, and each connection after them opens at once.
func TestLinuxGivesHalfOpenConnectionsUp(t *testing.T) {
	t.Parallel()
	const conns, ports = 40, 20
	s, _ := layOut(t, "mr-gwhalf")
	s.listen(0)
	s.must(os.WriteFile(s.file, []byte(fmt.Sprintf(`
devices: [{name: front, driver: afxdp}, {name: back1, driver: afxdp}, {name: back2, driver: afxdp}]
snat: [198.18.2.1]
snat_ports: 40000-%d
admin: {socket: ""}
services:
  - {name: web, address: 198.18.1.1:80, backends: [{name: b1, address: 198.18.3.2:8080}]}
`, 40000+ports-1)), 0o644))
	s.start("http://198.18.1.1/")
	late := 0
	s.must(s.client.Do(func() error {
		raw, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		if err != nil {
			return err
		}
		defer unix.Close(raw)
		for i := range conns {
			for k := range ports {
				p := wire.AppendIPv4(nil, &wire.IPv4Header{
					Src: [4]byte{198, 19, 7, byte(1 + k)}, Dst: [4]byte{198, 18, 1, 1}, Proto: wire.ProtoTCP, TTL: 64, PayloadLen: wire.TCPLen,
				})
				p = wire.AppendTCP(p, &wire.TCPHeader{SrcPort: uint16(5000 + i), DstPort: 80, Seq: uint32(i*ports+k) << 16, Flags: wire.FlagSYN, Window: 64240})
				wire.TCP(p[wire.IPv4Len:]).FillChecksum(wire.IPv4(p).Pseudo())
				if err := unix.Sendto(raw, p, 0, &unix.SockaddrInet4{Addr: [4]byte{198, 18, 1, 1}}); err != nil {
					return err
				}
			}
			time.Sleep(20 * time.Millisecond) // the backend answers
			wasLate, err := lateGet()
			if err != nil {
				return fmt.Errorf("connection %d: %w", i, err)
			}
			if wasLate {
				late++
			}
		}
		return nil
	}))
	sum := s.stop()
	if r := sum.Gateway.SNAT[0].Reclaimed; late > conns/4 || r.HalfOpen < conns*ports/2 {
		t.Errorf("%d of %d connections were late; reclaimed %+v, answers %v", late, conns, r, sum.Gateway.Answers)
	}
}
