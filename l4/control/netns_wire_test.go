package control_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/wire"
)

// wireConfig has service addresses in the client's networks, and backends that
// nobody listens on.
const wireConfig = `
devices: [{name: front, driver: %[1]s}, {name: back1, driver: %[1]s}]
snat: [198.18.2.1, "2001:db8:2::1"]
admin: {socket: ""}
services:
  - {name: echo, protocol: udp, address: ["198.18.0.100:53", "[2001:db8::100]:53"],
     backends: [{address: ["198.18.3.2:5454", "[2001:db8:3::2]:5454"]}]}
  - {name: echoclient, protocol: udp, source: client, address: ["198.18.0.100:54", "[2001:db8::100]:54"],
     backends: [{address: ["198.18.3.2:5455", "[2001:db8:3::2]:5455"]}]}
  - {name: closed, protocol: udp, address: ["198.18.0.100:9", "[2001:db8::100]:9"],
     backends: [{address: ["198.18.3.2:9", "[2001:db8:3::2]:9"]}]}
  - {name: closedclient, protocol: udp, source: client, address: ["198.18.0.100:10", "[2001:db8::100]:10"],
     backends: [{address: ["198.18.3.2:10", "[2001:db8:3::2]:10"]}]}
%[2]s`

// newWire starts a gateway of wireConfig, whose addresses the client believes elsewhere.
func newWire(t *testing.T, driver string) *site {
	t.Helper()
	return newWireQueues(t, driver, 1, "")
}

// newWireQueues is newWire with so many queues on all interfaces, and more lines of configuration.
func newWireQueues(t *testing.T, driver string, queues int, more string) *site {
	t.Helper()
	s, _ := layOutQueues(t, "mr-gww", queues)
	s.run(s.client, "ip neigh replace 198.18.0.100 lladdr 02:00:00:00:00:99 nud stale dev eth0")
	s.run(s.client, "ip neigh replace 2001:db8::100 lladdr 02:00:00:00:00:99 nud stale dev eth0")
	s.must(s.backends[0].Do(func() error {
		for _, port := range []string{":5454", ":5455"} {
			p, err := net.ListenPacket("udp", port)
			if err != nil {
				return err
			}
			t.Cleanup(func() { p.Close() })
			go sendBack(p)
		}
		return nil
	}))
	s.must(os.WriteFile(s.file, fmt.Appendf(nil, wireConfig, driver, more), 0o644))
	s.start()
	return s
}

func (s *site) run(ns interface {
	Run(string, ...string) (string, error)
}, line string,
) string {
	s.t.Helper()
	words := strings.Fields(line)
	out, err := ns.Run(words[0], words[1:]...)
	s.must(err)
	return out
}

func sendBack(p net.PacketConn) {
	b := make([]byte, 1<<16)
	for {
		n, from, err := p.ReadFrom(b)
		if err != nil {
			return
		}
		p.WriteTo(b[:n], from)
	}
}

// echoes sends datagrams of so many bytes until one comes back as it was.
func (s *site) echoes(address string, size int) {
	s.t.Helper()
	c := s.dial("udp", address)
	defer c.Close()
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(rand.Uint32())
	}
	got := make([]byte, 1<<16)
	for range 40 { // the first ones may come before the gateway knows the way to the backend
		c.Write(data)
		c.SetReadDeadline(time.Now().Add(250 * time.Millisecond))
		n, err := c.Read(got)
		if err != nil {
			continue
		}
		if !bytes.Equal(got[:n], data) {
			s.t.Fatalf("%s: sent %d bytes, %d others came back", address, size, n)
		}
		return
	}
	s.t.Errorf("%s: a datagram of %d bytes does not come back\n%s", address, size, s.log.String())
}

// neighbor waits until the client's kernel has an address at the link address of the gateway's front.
func (s *site) neighbor(address, mac string) {
	s.t.Helper()
	out := ""
	for range 100 {
		if out = s.run(s.client, "ip neigh show "+address); strings.Contains(out, mac) {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	s.t.Errorf("the client has %s at %q, the gateway is %s", address, out, mac)
}

func (s *site) frontMAC() string {
	_, after, _ := strings.Cut(s.run(s.gate, "ip -o link show front"), "link/ether ")
	mac, _, _ := strings.Cut(after, " ")
	return mac
}

// ping sends an echo request by a raw socket and waits for the reply.
func (s *site) ping(address string) {
	s.t.Helper()
	s.pingWith(address, 0, "")
}

// pingWith is ping with a socket option of IPv6, as an extension header to send.
func (s *site) pingWith(address string, option int, value string) {
	s.t.Helper()
	network, proto, request, reply := "ip4:icmp", 1, icmp.Type(ipv4.ICMPTypeEcho), icmp.Type(ipv4.ICMPTypeEchoReply)
	if strings.Contains(address, ":") {
		network, proto, request, reply = "ip6:ipv6-icmp", 58, ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply
	}
	s.must(s.client.Do(func() error {
		c, err := net.Dial(network, address)
		if err != nil {
			return err
		}
		defer c.Close()
		if option != 0 {
			raw, err := c.(*net.IPConn).SyscallConn()
			if err != nil {
				return err
			}
			raw.Control(func(fd uintptr) { err = unix.SetsockoptString(int(fd), unix.IPPROTO_IPV6, option, value) })
			if err != nil {
				return err
			}
		}
		m := icmp.Message{Type: request, Body: &icmp.Echo{ID: 7, Seq: 1, Data: bytes.Repeat([]byte("ping"), 100)}}
		b, err := m.Marshal(icmp.IPv6PseudoHeader(net.IPv6unspecified, net.IPv6unspecified)) // the kernel fills the checksum in
		if proto == 1 {
			b, err = m.Marshal(nil)
		}
		if err != nil {
			return err
		}
		in := make([]byte, 2000)
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
			c.Write(b)
			c.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
			n, _, err := c.(net.PacketConn).ReadFrom(in) // without the IP header
			if err != nil {
				continue
			}
			got, err := icmp.ParseMessage(proto, in[:n])
			if err == nil && got.Type == reply && bytes.HasSuffix(in[:n], b[8:]) {
				return nil
			}
		}
		return fmt.Errorf("%s does not answer pings", address)
	}))
}

// pingProgram has the program ping get replies to requests of so many bytes of data.
func (s *site) pingProgram(address string, size int) {
	s.t.Helper()
	var err error
	out := ""
	for range 20 { // the client's kernel may have to find the gateway first
		if out, err = s.client.Run("ping", "-n", "-c", "3", "-i", "0.2", "-W", "10", "-s", fmt.Sprint(size), address); err == nil {
			return
		}
	}
	s.t.Errorf("ping -s %d %s: %v\n%s", size, address, err, out)
}

// closed expects that ports of an address that no service has are closed: TCP is reset, and UDP is refused.
func (s *site) closed(host string) {
	s.t.Helper()
	s.refuses(net.JoinHostPort(host, "33434"))
	s.must(s.client.Do(func() error {
		c, err := net.DialTimeout("tcp", net.JoinHostPort(host, "81"), 30*time.Second)
		if err == nil {
			c.Close()
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return fmt.Errorf("TCP to a closed port: %v", err)
		}
		return nil
	}))
}

// refuses expects that a datagram is answered by "port unreachable", which the client's kernel believes.
func (s *site) refuses(address string) {
	s.t.Helper()
	c := s.dial("udp", address)
	defer c.Close()
	for range 40 {
		c.Write([]byte("is anybody there?"))
		c.SetReadDeadline(time.Now().Add(250 * time.Millisecond))
		if _, err := c.Read(make([]byte, 100)); errors.Is(err, syscall.ECONNREFUSED) {
			return
		}
	}
	s.t.Errorf("%s: the client was not told that nobody listens", address)
}

// Linux at both ends: fragments, tags, errors, echo, and who has which address.
func TestTheWireIsAsLinuxKnowsIt(t *testing.T) {
	t.Parallel()
	for _, driver := range []string{"afxdp", "afpacket"} {
		t.Run(driver, func(t *testing.T) {
			testnet.Program(t, "tcpdump", "ping")
			s := newWire(t, driver)
			s.neighbor("198.18.0.100", s.frontMAC()) // before it has sent anything
			s.neighbor("2001:db8::100", s.frontMAC())
			for _, host := range []string{"198.18.0.100", "2001:db8::100"} {
				s.echoes(net.JoinHostPort(host, "53"), 100)
				for _, size := range []int{1500, 4000, 8000} {
					s.echoes(net.JoinHostPort(host, "53"), size)
				}
				s.ping(host)
				for _, size := range []int{1473, 4000, 65000} {
					s.pingProgram(host, size)
				}
				s.closed(host)
			}
			for _, host := range []string{"198.18.0.100", "2001:db8::100"} {
				s.echoes(net.JoinHostPort(host, "54"), 8000)
				s.refuses(net.JoinHostPort(host, "9"))
				s.refuses(net.JoinHostPort(host, "10"))
			}
			s.taggedARP("198.18.0.100", 100)
			s.ping("198.18.2.1")
			s.ping("2001:db8:2::1")
			for _, option := range []int{unix.IPV6_HOPOPTS, unix.IPV6_DSTOPTS} {
				s.pingWith("2001:db8::100", option, "\x00\x00\x01\x04\x00\x00\x00\x00") // PadN
			}

			s.run(s.gate, "ip link set front address 02:00:00:00:00:77")
			s.neighbor("198.18.0.100", "02:00:00:00:00:77")
			s.neighbor("2001:db8::100", "02:00:00:00:00:77")
			s.echoes("198.18.0.100:53", 4000)
			s.run(s.gate, "ip link set back1 mtu 1400")
			s.journalSays("mtu=1400")
			s.must(os.WriteFile(s.file, fmt.Appendf(nil, wireConfig, driver,
				"  - {name: new, protocol: udp, address: 198.18.0.101:53, backends: [{address: 198.18.3.2:5454}]}"), 0o644))
			s.run(s.client, "ip neigh replace 198.18.0.101 lladdr 02:00:00:00:00:99 nud stale dev eth0")
			s.must(s.cmd.Process.Signal(syscall.SIGHUP))
			s.neighbor("198.18.0.101", "02:00:00:00:00:77")
			s.stop()
		})
	}
}

// journalSays waits for words in the gateway's log.
func (s *site) journalSays(words string) {
	s.t.Helper()
	for range 100 {
		if strings.Contains(s.log.String(), words) {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	s.t.Errorf("the log does not say %q", words)
}

// taggedARP asks for an address on a VLAN, and has tcpdump see that the answer is on it.
func (s *site) taggedARP(address string, vlan uint16) {
	s.t.Helper()
	mac := s.frontMAC()
	dump := exec.Command("tcpdump", "-l", "-c", "1", "-nn", "-e", "-i", "eth0", "ether", "src", mac, "and", "not", "ip", "and", "not", "ip6")
	out, err := dump.StdoutPipe()
	s.must(err)
	said, err := dump.StderrPipe()
	s.must(err)
	s.must(s.client.Start(dump))
	defer dump.Wait()
	defer dump.Process.Kill()
	if _, err := bufio.NewReader(said).ReadString('\n'); err != nil { // it listens
		s.t.Fatal(err)
	}
	frame := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 0x55, 0x81, 0, byte(vlan >> 8), byte(vlan), 8, 6}, wire.AppendARP(nil, wire.ARPRequest,
		wire.ARPHost{MAC: wire.MAC{2, 0, 0, 0, 0, 0x55}, Addr: [4]byte{198, 18, 0, 2}}, wire.ARPHost{Addr: netip.MustParseAddr(address).As4()})...)
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
		return unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: in.Index})
	}))
	timer := time.AfterFunc(10*time.Second, func() { dump.Process.Kill() })
	defer timer.Stop()
	line, _ := bufio.NewReader(out).ReadString('\n')
	if !strings.Contains(line, fmt.Sprintf("vlan %d,", vlan)) || !strings.Contains(line, "Reply "+address+" is-at "+mac) {
		s.t.Errorf("tcpdump sees %q", line)
	}
}
