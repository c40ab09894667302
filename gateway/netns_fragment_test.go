package gateway_test

import (
	"bytes"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/gateway"
)

// Linux gets every datagram whose fragments come in another order, and the gateway's books are exact.
func TestReorderedFragmentsReachLinux(t *testing.T) {
	for _, driver := range []string{"afxdp", "afpacket"} {
		t.Run(driver, func(t *testing.T) {
			s := newWire(t, driver)
			me, err := net.ParseMAC(s.clientMAC())
			s.must(err)
			to, err := net.ParseMAC(s.frontMAC())
			s.must(err)
			for _, c := range []struct{ src, dst string }{{"198.18.0.2", "198.18.0.100:53"}, {"2001:db8::2", "[2001:db8::100]:53"}} {
				s.echoes(c.dst, 100)
				var conn net.PacketConn
				s.must(s.client.Do(func() (err error) {
					conn, err = net.ListenPacket("udp", net.JoinHostPort(c.src, "0"))
					return err
				}))
				defer conn.Close()
				src := netip.MustParseAddrPort(conn.LocalAddr().String())
				for id := range uint32(20) {
					data := bytes.Repeat([]byte{byte(id), 1, 2}, 2000)
					list := gateway.FragmentsOf([6]byte(me), [6]byte(to), src, netip.MustParseAddrPort(c.dst), string(data), 1400, 1000+id)
					rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
					if id == 0 { // the first last
						for i := range list {
							if len(list[i]) == len(list[0]) && i > 0 {
								list[i], list[0] = list[0], list[i]
							}
						}
					}
					s.sendFrames(list)
					got := make([]byte, 1<<16)
					conn.SetReadDeadline(time.Now().Add(5 * time.Second))
					n, _, err := conn.ReadFrom(got)
					if err != nil || !bytes.Equal(got[:n], data) {
						t.Fatalf("%s: datagram %d: %d bytes, %v", c.dst, id, n, err)
					}
				}
				s.sendFrames(gateway.FragmentsOf([6]byte(me), [6]byte(to), src, netip.MustParseAddrPort(c.dst), string(make([]byte, 3000)), 1400, 77)[1:])
			}
			sum := s.stop()
			if n := sum.Gateway.Dropped["fragment"]; n != 4 { // those without a first, when the loop ended or their time was over
				t.Errorf("%d fragments dropped, want 4: %v", n, sum.Gateway.Dropped)
			}
		})
	}
}

func (s *site) clientMAC() string {
	var mac string
	s.must(s.client.Do(func() error {
		in, err := net.InterfaceByName("eth0")
		if err == nil {
			mac = in.HardwareAddr.String()
		}
		return err
	}))
	return mac
}

// sendFrames sends frames as they are from the client's link.
func (s *site) sendFrames(list [][]byte) {
	s.t.Helper()
	s.must(s.client.Do(func() error {
		in, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		for _, p := range list {
			if err := unix.Sendto(fd, p, 0, &unix.SockaddrLinklayer{Ifindex: in.Index}); err != nil {
				return err
			}
		}
		return nil
	}))
}
