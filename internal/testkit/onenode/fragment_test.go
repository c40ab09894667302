package onenode

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/wire"
)

// fragments returns the frames of a datagram in fragments of at most size bytes, which must be a multiple of 8.
func (s *site) fragments(src, dst *net.UDPAddr, data []byte, size int, id uint16) (list [][]byte) {
	s.t.Helper()
	datagram := make([]byte, wire.UDPLen, wire.UDPLen+len(data)) // without a checksum (RFC 768)
	u := wire.UDP(datagram)
	u.SetSrcPort(uint16(src.Port))
	u.SetDstPort(uint16(dst.Port))
	u.SetLen(uint16(wire.UDPLen + len(data)))
	datagram = append(datagram, data...)
	to, from := s.mac(s.node, "gw0"), s.mac(s.client, "eth0")
	for at := 0; at < len(datagram); at += size {
		piece := datagram[at:min(at+size, len(datagram))]
		p := append(append(append([]byte(nil), to...), from...), 8, 0, 0x45)
		p = append(p, make([]byte, wire.IPv4Len-1)...)
		ip := wire.IPv4(p[wire.EthernetLen:])
		ip.SetTotalLen(uint16(wire.IPv4Len + len(piece)))
		p[18], p[19] = byte(id>>8), byte(id)
		p[20], p[21] = byte(at>>11), byte(at>>3)
		if at+size < len(datagram) {
			p[20] |= 0x20
		}
		p[22], p[23] = 64, wire.ProtoUDP
		copy(p[26:], src.IP.To4())
		copy(p[30:], dst.IP.To4())
		ip.FillChecksum()
		list = append(list, append(p, piece...))
	}
	return list
}

func (s *site) mac(ns interface{ Do(func() error) error }, name string) (mac net.HardwareAddr) {
	s.t.Helper()
	s.must(ns.Do(func() error {
		in, err := net.InterfaceByName(name)
		if err == nil {
			mac = in.HardwareAddr
		}
		return err
	}))
	return mac
}

// sender returns a function that sends frames from the client.
func (s *site) sender() func(list [][]byte) {
	s.t.Helper()
	fd, index := -1, 0
	s.must(s.client.Do(func() (err error) {
		in, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		index = in.Index
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		return err
	}))
	s.t.Cleanup(func() { unix.Close(fd) })
	return func(list [][]byte) {
		for _, p := range list {
			s.must(unix.Sendto(fd, p, 0, &unix.SockaddrLinklayer{Ifindex: index}))
		}
	}
}

// TestFragmentsInAnyOrderReachTheGatewayAndTheHost sends datagrams in fragments, in any order, to ports of one address: one
// is the gateway's and one the host's. The fragments after the first do not say which. All are echoed.
func TestFragmentsInAnyOrderReachTheGatewayAndTheHost(t *testing.T) {
	t.Parallel()
	for _, queues := range []int{1, 2} {
		t.Run(fmt.Sprintf("%d queues", queues), func(t *testing.T) {
			s := newSite(t, fmt.Sprintf("mr-onefrag%d", queues), queues)
			s.start()
			send := s.sender()
			r := rand.New(rand.NewPCG(1, 2))
			for _, port := range []int{53, 54} {
				dst := &net.UDPAddr{IP: net.ParseIP(movingAddr), Port: port}
				c, err := s.dial("udp", dst.String(), answerLimit)
				s.must(err)
				defer c.Close()
				s.echoes(c)
				for id := range uint16(20) {
					data := bytes.Repeat([]byte{byte(id), 1, byte(port)}, 1500)
					list := s.fragments(c.LocalAddr().(*net.UDPAddr), dst, data, 1400, 100*uint16(port)+id)
					first := list[0]
					r.Shuffle(len(list), func(i, k int) { list[i], list[k] = list[k], list[i] })
					if id == 0 { // the first is last
						for i := range list {
							if &list[i][0] == &first[0] {
								list[i], list[len(list)-1] = list[len(list)-1], list[i]
							}
						}
					}
					send(list)
					got := make([]byte, 1<<16)
					s.must(c.SetReadDeadline(time.Now().Add(answerLimit)))
					if n, err := c.Read(got); err != nil || !bytes.Equal(got[:n], data) {
						t.Fatalf("port %d, datagram %d: %d bytes, %v", port, id, n, err)
					}
				}
			}
			if sum := s.stop(); sum.Counters.Dropped["fragment"] != 0 {
				t.Errorf("dropped %v", sum.Counters.Dropped)
			}
		})
	}
}

// echoes waits until a small datagram comes back.
func (s *site) echoes(c net.Conn) {
	s.t.Helper()
	for range 40 {
		_, _ = c.Write([]byte("?"))
		s.must(c.SetReadDeadline(time.Now().Add(500 * time.Millisecond)))
		if n, err := c.Read(make([]byte, 10)); err == nil && n == 1 {
			time.Sleep(100 * time.Millisecond) // answers to earlier ones
			for s.must(c.SetReadDeadline(time.Now().Add(10 * time.Millisecond))); err == nil; {
				_, err = c.Read(make([]byte, 10))
			}
			return
		}
	}
	s.t.Fatal("no echo")
}
