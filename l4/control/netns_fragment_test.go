package control_test

import (
	"bytes"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/l4/control"
)

// Linux gets every datagram whose fragments come in another order, and the gateway's books are exact.
func TestReorderedFragmentsReachLinux(t *testing.T) {
	t.Parallel()
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
					list := control.FragmentsOf([6]byte(me), [6]byte(to), src, netip.MustParseAddrPort(c.dst), string(data), 1400, 1000+id)
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
					conn.SetReadDeadline(time.Now().Add(time.Minute))
					n, _, err := conn.ReadFrom(got)
					if err != nil || !bytes.Equal(got[:n], data) {
						t.Fatalf("%s: datagram %d: %d bytes, %v", c.dst, id, n, err)
					}
				}
				s.sendFrames(control.FragmentsOf([6]byte(me), [6]byte(to), src, netip.MustParseAddrPort(c.dst), string(make([]byte, 3000)), 1400, 77)[1:])
			}
			sum := s.stop()
			if n := sum.Gateway.Dropped["fragment"]; n != 4 { // those without a first, when the loop ended or their time was over
				t.Errorf("%d fragments dropped, want 4: %v", n, sum.Gateway.Dropped)
			}
		})
	}
}

// Fragments of a datagram that come by several queues, in any order, meet at one loop, and Linux puts them together.
func TestFragmentsThatComeToSeveralLoopsReachLinux(t *testing.T) {
	t.Parallel()
	const queues = 2
	if runtime.NumCPU() < queues {
		t.Skip("one CPU: the kernel selects the queue of a packet socket by the CPU that sends")
	}
	s := newWireQueues(t, "afxdp, queues: auto", queues, "metrics: {listen: 127.0.0.1:9100}")
	me, err := net.ParseMAC(s.clientMAC())
	s.must(err)
	to, err := net.ParseMAC(s.frontMAC())
	s.must(err)
	r := rand.New(rand.NewPCG(4, 2))
	s.echoes("198.18.0.100:53", 100) // it is up
	before, sent := s.loops("received"), make([]int, queues)
	for k, c := range []struct{ src, dst string }{
		{"198.18.0.2", "198.18.0.100:53"}, {"2001:db8::2", "[2001:db8::100]:53"}, {"198.18.0.2", "198.18.0.100:54"}, {"2001:db8::2", "[2001:db8::100]:54"},
	} {
		s.echoes(c.dst, 100)
		for id := range uint32(10) {
			var conn net.PacketConn
			s.must(s.client.Do(func() (err error) {
				conn, err = net.ListenPacket("udp", net.JoinHostPort(c.src, "0")) // another port: another loop has the connection
				return err
			}))
			src := netip.MustParseAddrPort(conn.LocalAddr().String())
			data := bytes.Repeat([]byte{byte(id), 1, 2}, 2000)
			list := control.FragmentsOf([6]byte(me), [6]byte(to), src, netip.MustParseAddrPort(c.dst), string(data), 1400, uint32(1000*k)+id)
			r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
			half, queue := len(list)/2, int(id)%queues
			s.sendFramesFrom(queue, list[:half])
			s.sendFramesFrom(1-queue, list[half:])
			sent[queue] += half
			sent[1-queue] += len(list) - half
			got := make([]byte, 1<<16)
			conn.SetReadDeadline(time.Now().Add(time.Minute))
			n, _, err := conn.ReadFrom(got)
			if err != nil || !bytes.Equal(got[:n], data) {
				t.Fatalf("%s: datagram %d: %d bytes, %v", c.dst, id, n, err)
			}
			conn.Close()
		}
	}
	for i, n := range s.loops("received") {
		if n-before[i] < sent[i] {
			t.Errorf("loop %d received %d packets, of which %d fragments were sent to it", i, n-before[i], sent[i])
		}
	}
	for i, n := range s.loops("handed_over") {
		if n == 0 {
			t.Errorf("loop %d handed no packet over", i)
		}
	}
	if sum := s.stop(); sum.Gateway.Dropped["fragment"] != 0 || sum.Dropped["handover_full"] != 0 {
		t.Errorf("dropped %v", sum.Dropped)
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

// sendFramesFrom is sendFrames by the queue with the number of a CPU: past the queueing discipline a packet socket takes that of
// the CPU that sends (packet_pick_tx_queue).
func (s *site) sendFramesFrom(cpu int, list [][]byte) {
	s.t.Helper()
	s.must(s.client.Do(func() error {
		var was, one unix.CPUSet
		if err := unix.SchedGetaffinity(0, &was); err != nil {
			return err
		}
		one.Set(cpu)
		if err := unix.SchedSetaffinity(0, &one); err != nil {
			return err
		}
		defer unix.SchedSetaffinity(0, &was)
		return sendBypassing("eth0", list)
	}))
}

// sendBypassing sends frames past the queueing discipline.
func sendBypassing(dev string, list [][]byte) error {
	in, err := net.InterfaceByName(dev)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1); err != nil {
		return err
	}
	for _, p := range list {
		if err := unix.Sendto(fd, p, 0, &unix.SockaddrLinklayer{Ifindex: in.Index}); err != nil {
			return err
		}
	}
	return nil
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
