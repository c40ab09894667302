package control_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/testkit/testnet"
)

// The gateway joins wire-sized segments, and the devices that it sends by cut them again: tshark finds every length and checksum
// of what the client gets right, and no segment is longer than the backend's.
func TestJoinedSegmentsLeaveAsTheyCame(t *testing.T) {
	t.Parallel()
	testnet.Program(t, "tcpdump", "tshark")
	for _, driver := range []string{"afxdp", "afpacket"} {
		t.Run(driver, func(t *testing.T) {
			s := newSite(t, "mr-gwgro", driver)
			s.must(s.client.Sysctl("net.ipv4.tcp_ecn", "1"))
			for _, b := range s.backends {
				s.must(b.Sysctl("net.ipv4.tcp_ecn", "1"))
			}
			file := filepath.Join(t.TempDir(), "client.pcap")
			dump := exec.Command("tcpdump", "-Z", "root", "-U", "-n", "-i", "eth0", "-Q", "in", "-c", "4000", "-w", file, "tcp")
			var said testnet.Log
			dump.Stderr = &said
			s.must(s.client.Start(dump))
			t.Cleanup(func() { dump.Process.Kill() })
			for end := time.Now().Add(10 * time.Second); !strings.Contains(said.String(), "listening on"); time.Sleep(5 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal(said.String())
				}
			}
			const size = 64 << 20
			s.bulk(size)
			s.must(dump.Wait())
			if sum := s.stop(); sum.Merged < size/1448/2 {
				t.Errorf("%d of some %d segments were joined to another", sum.Merged, size/1448)
			}
			found := func(filter string) int {
				out, err := exec.Command("tshark", "-n", "-r", file, "-o", "ip.check_checksum:TRUE", "-o", "tcp.check_checksum:TRUE", "-Y", filter).Output()
				s.must(err)
				return strings.Count(string(out), "\n")
			}
			if n := found("tcp.checksum.status==1 && ip.checksum.status==1 && ip.dsfield.ecn==2 && tcp.len==1448"); n < 3000 {
				t.Errorf("%d of 4000 packets are whole segments of the backend with right checksums", n)
			}
			if n := found("tcp.checksum.status==0 || ip.checksum.status==0 || tcp.len>1448 || _ws.malformed"); n > 0 {
				t.Errorf("tshark finds %d bad packets", n)
			}
		})
	}
}

// The gateway joins the datagrams of a flow, and the devices that it sends by cut them again: each arrives as it was sent, in
// order, at sockets that know nothing of it, and tshark finds lengths and checksums right on the way to the backend.
func TestJoinedDatagramsLeaveAsTheyCame(t *testing.T) {
	t.Parallel()
	testnet.Program(t, "tcpdump", "tshark")
	const rounds, burst, size = 20, 40, 1000
	for _, driver := range []string{"afxdp", "afpacket"} {
		t.Run(driver, func(t *testing.T) {
			s := newSite(t, "mr-gwgrou", driver)
			files := []string{filepath.Join(t.TempDir(), "b1.pcap"), filepath.Join(t.TempDir(), "b2.pcap")}
			var ends []func()
			for i, b := range s.backends { // what leaves for a backend is cut, with checksums, before it is there
				s.must(s.gate.NoOffload(fmt.Sprintf("back%d", i+1)))
				ends = append(ends, s.capture(b, files[i]))
			}
			for _, host := range []string{"198.18.1.1", "[2001:db8:1::1]"} {
				if n := s.bursts(host+":53", rounds, burst, size); n > 0 {
					t.Errorf("%d answers are out of order", n)
				}
			}
			s.written(files, 2*rounds*burst*size)
			for _, end := range ends {
				end()
			}
			if sum := s.stop(); sum.Merged < rounds*burst {
				t.Errorf("%d of %d datagrams were joined to another", sum.Merged, 2*2*rounds*burst)
			}
			good := 0
			for _, file := range files {
				good += s.dissect(file, "udp.checksum.status==1 && udp.length==1008")
				if n := s.dissect(file, "udp.dstport==5353 && (udp.checksum.status!=1 || udp.length>1008) || ip.checksum.status==0"); n > 0 {
					t.Errorf("tshark finds %d bad packets", n)
				}
			}
			if good < rounds*burst { // tcpdump may miss some
				t.Errorf("%d of %d datagrams with right checksums on the way to the backends", good, 2*rounds*burst)
			}
		})
	}
}

// capture writes what a namespace receives of UDP services to a file until end is called.
func (s *site) capture(ns *testnet.Namespace, file string) (end func()) {
	s.t.Helper()
	dump := exec.Command("tcpdump", "-Z", "root", "--immediate-mode", "-U", "-n", "-i", "eth0", "-Q", "in", "-w", file, "udp and dst port 5353")
	var said testnet.Log
	dump.Stderr = &said
	s.must(ns.Start(dump))
	s.t.Cleanup(func() { dump.Process.Kill() })
	for end := time.Now().Add(10 * time.Second); !strings.Contains(said.String(), "listening on"); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatal(said.String())
		}
	}
	return func() {
		s.must(dump.Process.Signal(os.Interrupt))
		s.must(dump.Wait())
	}
}

// written waits until captures have a number of bytes, since a tcpdump that is interrupted leaves what it has not read yet.
// It gives up in the end: tcpdump may have missed some.
func (s *site) written(files []string, bytes int64) {
	s.t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		sum := int64(0)
		for _, file := range files {
			info, err := os.Stat(file)
			s.must(err)
			sum += info.Size()
		}
		if sum >= bytes {
			return
		}
	}
}

// dissect returns how many packets of a file tshark's filter finds, checksums verified.
func (s *site) dissect(file, filter string) int {
	s.t.Helper()
	out, err := exec.Command("tshark", "-n", "-r", file, "-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE", "-Y", filter).Output()
	s.must(err)
	return strings.Count(string(out), "\n")
}

// bursts sends datagrams to the echo service, a burst by one system call (UDP_SEGMENT), and expects each answer once.
// It returns how many answers came before one that was due earlier.
func (s *site) bursts(address string, rounds, burst, size int) (reordered int) {
	s.t.Helper()
	c := s.dial("udp", address).(*net.UDPConn)
	s.must(c.SetReadBuffer(1 << 20))
	raw, err := c.SyscallConn()
	s.must(err)
	data, got := make([]byte, burst*size), make([]byte, 2*size)
	s.must(c.SetDeadline(time.Now().Add(time.Minute)))
	for round := range rounds {
		rand.NewChaCha8([32]byte{byte(round)}).Read(data)
		s.must(raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_SEGMENT, size) }))
		s.must(err)
		_, err := c.Write(data)
		s.must(err)
		due := map[string]int{}
		for i := range burst {
			due[string(data[i*size:][:size])] = i
		}
		next := 0
		for i := range burst {
			n, err := c.Read(got)
			if err != nil {
				s.t.Fatalf("%s, round %d: answer %d: %v", address, round, i, err)
			}
			_, echo, _ := bytes.Cut(got[:n], []byte(" "))
			k, ok := due[string(echo)]
			if !ok {
				s.t.Fatalf("%s, round %d: answer %d of %d bytes is not what was sent, or came before", address, round, i, n)
			}
			delete(due, string(echo))
			if k < next {
				reordered++
			}
			next = max(next, k)
		}
	}
	return reordered
}
