package millrace

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/node"
	"github.com/millrace/millrace/pmd/device"
	"github.com/millrace/millrace/socket"
	"github.com/millrace/millrace/wire"
)

// TestOpenBesideTheKernel opens a stack on an interface that the kernel uses too, reaches a host behind the
// kernel's default gateway, and is reached.
func TestOpenBesideTheKernel(t *testing.T) {
	n := testnet.For(t, "mr-open")
	linux, here := n.Namespace("linux"), n.Namespace("here")
	must := func(errs ...error) {
		t.Helper()
		for _, err := range errs {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	must(n.Link(linux, "eth0", here, "st0"), linux.NoOffload("eth0"), here.NoOffload("st0"))
	must(linux.Up("eth0", "198.18.9.1/24"), linux.Up("lo", "192.0.2.1/32"), here.Up("st0", "198.18.9.3/24"))
	testnet.Program(t, "ip")
	_, err := here.Run("ip", "route", "add", "default", "via", "198.18.9.1")
	must(err)

	var s *socket.Stack
	err = here.Do(func() (err error) {
		if _, err := Open("st0", netip.MustParsePrefix("198.18.9.3/24")); err == nil || !strings.Contains(err.Error(), "the kernel has the address 198.18.9.3 itself") {
			t.Errorf("the kernel's own address: %v", err)
		}
		if _, err := Open("st0"); err == nil {
			t.Error("a stack without an address was opened")
		}
		if _, err := Open("absent0", netip.MustParsePrefix("198.18.9.2/24")); err == nil || !strings.Contains(err.Error(), `no interface "absent0"`) {
			t.Errorf("an interface that is not there: %v", err)
		}
		s, err = Open("st0", netip.MustParsePrefix("198.18.9.2/24"))
		return err
	})
	must(err)

	var l net.Listener
	must(linux.Do(func() (err error) { l, err = net.Listen("tcp", "192.0.2.1:80"); return err }))
	defer l.Close()
	serveHello(l)
	hello(t, func() (net.Conn, error) { return s.Dial("tcp", "192.0.2.1:80") })

	ours, err := s.Listen("tcp", ":80")
	must(err)
	serveHello(ours)
	hello(t, func() (c net.Conn, err error) {
		err = linux.Do(func() (err error) { c, err = net.Dial("tcp", "198.18.9.2:80"); return err })
		return c, err
	})
	if out, err := linux.Run("ping", "-c", "1", "-W", "20", "198.18.9.3"); err != nil {
		t.Errorf("the kernel's address beside the stack: %v\n%s", err, out)
	}
	must(s.Close())
	if out, err := linux.Run("ping", "-c", "1", "-W", "20", "198.18.9.3"); err != nil {
		t.Errorf("the kernel's address after the stack: %v\n%s", err, out)
	}
}

// TestAnOpenStackFollowsTheMTUOfItsInterface lowers it while a connection sends.
func TestAnOpenStackFollowsTheMTUOfItsInterface(t *testing.T) {
	n := testnet.For(t, "mr-open-mtu")
	testnet.Program(t, "ip")
	linux, here := n.Namespace("linux"), n.Namespace("here")
	must := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	must(n.Link(linux, "eth0", here, "st0"), linux.NoOffload("eth0"), here.NoOffload("st0"), linux.Up("eth0", "198.18.9.1/24"), here.Up("st0"))
	var s *socket.Stack
	must(here.Do(func() (err error) { s, err = Open("st0", netip.MustParsePrefix("198.18.9.2/24")); return err }))
	defer s.Close()
	var l net.Listener
	must(linux.Do(func() (err error) { l, err = net.Listen("tcp", "198.18.9.1:80"); return err }))
	defer l.Close()
	c, err := s.Dial("tcp", "198.18.9.1:80")
	must(err)
	defer c.Close()
	in, err := l.Accept()
	must(err)
	defer in.Close()
	const size = 64 << 20
	must(c.SetDeadline(time.Now().Add(30*time.Second)), in.SetDeadline(time.Now().Add(30*time.Second)))
	go func() { _, _ = c.Write(make([]byte, size)) }()
	got, err := io.CopyN(io.Discard, in, size/2)
	must(err)
	for ns, name := range map[*testnet.Namespace]string{linux: "eth0", here: "st0"} {
		_, err := ns.Run("ip", "link", "set", name, "mtu", "1300")
		must(err)
	}
	rest, err := io.CopyN(io.Discard, in, size/2)
	if got+rest != size || err != nil {
		t.Errorf("%d of %d bytes with an MTU of 1300: %v", got+rest, size, err)
	}
	if i, err := c.(*socket.TCPConn).Info(); i.PathMTU != 1300 || err != nil {
		t.Errorf("path MTU %d, %v", i.PathMTU, err)
	}
}

// serveHello greets every connection.
func serveHello(l net.Listener) {
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "hello")
			c.Close()
		}
	}()
}

// hello reads a greeting.
func hello(t *testing.T, dial func() (net.Conn, error)) {
	t.Helper()
	c, err := dial()
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	if b, err := io.ReadAll(c); err != nil || string(b) != "hello" {
		t.Errorf("read %q, %v", b, err)
	}
}

// TestOpenOnAMacvlan has a neighbour on the same machine, whose large packets come whole: XDP is generic there, and would lose them.
func TestOpenOnAMacvlan(t *testing.T) {
	n := testnet.For(t, "mr-open-macvlan")
	testnet.Program(t, "ip")
	host, linux, here := n.Namespace("host"), n.Namespace("linux"), n.Namespace("here")
	must := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	ip := func(ns *testnet.Namespace, args string) {
		t.Helper()
		if out, err := ns.Run("ip", strings.Fields(args)...); err != nil {
			t.Fatalf("%s: %v %s", args, err, out)
		}
	}
	ip(host, "link add base type veth peer name far")
	ip(host, "link set base up")
	ip(host, "link set far up")
	for name, ns := range map[string]*testnet.Namespace{"mv0": linux, "mv1": here} {
		ip(host, "link add link base name "+name+" type macvlan mode bridge")
		ip(host, "link set "+name+" netns "+ns.Name)
	}
	must(linux.Up("mv0", "198.18.9.1/24"), here.Up("mv1"))
	var s *socket.Stack
	must(here.Do(func() (err error) { s, err = Open("mv1", netip.MustParsePrefix("198.18.9.2/24")); return err }))
	defer s.Close()
	l, err := s.Listen("tcp", ":80")
	must(err)
	go echoAll(l)
	var c net.Conn
	must(linux.Do(func() (err error) { c, err = net.DialTimeout("tcp", "198.18.9.2:80", time.Minute); return err }))
	defer c.Close()
	sent := bytes.Repeat([]byte("0123456789abcdefg"), 500_000)
	go func() { _, _ = c.Write(sent) }()
	must(c.SetDeadline(time.Now().Add(time.Minute)))
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%v", err)
	}
}

// TestOpenOnAVethAsItIsMade has the other end leave checksums and segmentation to its device, as Linux makes it: what the README shows
// works there, with either driver and both protocols, in both directions.
func TestOpenOnAVethAsItIsMade(t *testing.T) {
	for _, driver := range []device.Driver{device.Auto, device.AFPacket} {
		t.Run(string(driver), func(t *testing.T) {
			n := testnet.For(t, "mr-open-veth")
			linux, here := n.Namespace("linux"), n.Namespace("here")
			must := func(errs ...error) {
				t.Helper()
				if err := errors.Join(errs...); err != nil {
					t.Fatal(err)
				}
			}
			must(n.Link(linux, "eth0", here, "st0"), linux.Up("eth0", "198.18.9.1/24", "2001:db8:9::1/64"), here.Up("st0"))
			c := OpenConfig{
				Node:  node.Config{Devices: []node.Device{{Name: "st0", Driver: driver}}},
				Addrs: []netip.Prefix{netip.MustParsePrefix("198.18.9.2/24"), netip.MustParsePrefix("2001:db8:9::2/64")},
			}
			var s *socket.Stack
			must(here.Do(func() (err error) { s, err = c.Open(); return err }))
			defer s.Close()
			l, err := s.Listen("tcp", ":80")
			must(err)
			go echoAll(l)
			u, err := s.ListenPacket("udp", ":7")
			must(err)
			go echoPackets(u)
			for _, address := range []string{"198.18.9.2", "2001:db8:9::2"} {
				var conn, datagrams net.Conn
				must(linux.Do(func() (err error) {
					if conn, err = net.DialTimeout("tcp", net.JoinHostPort(address, "80"), time.Minute); err != nil {
						return err
					}
					datagrams, err = net.Dial("udp", net.JoinHostPort(address, "7"))
					return err
				}))
				sent := bytes.Repeat([]byte("0123456789abcdefg"), 100_000)
				go func() { _, _ = conn.Write(sent) }()
				got := make([]byte, len(sent))
				must(conn.SetDeadline(time.Now().Add(time.Minute)), datagrams.SetDeadline(time.Now().Add(time.Minute)))
				if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, sent) {
					t.Errorf("%s, TCP: %v", address, err)
				}
				_, err := datagrams.Write(sent[:1000])
				must(err)
				if n, err := datagrams.Read(got); err != nil || n != 1000 {
					t.Errorf("%s, UDP: %d bytes, %v", address, n, err)
				}
				must(conn.Close(), datagrams.Close())
			}
		})
	}
}

// echoAll sends back what each connection brings.
func echoAll(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			_, _ = io.Copy(c, c)
			c.Close()
		}()
	}
}

// echoPackets sends datagrams back.
func echoPackets(c net.PacketConn) {
	b := make([]byte, 2000)
	for {
		n, from, err := c.ReadFrom(b)
		if err != nil {
			return
		}
		_, _ = c.WriteTo(b[:n], from)
	}
}

// TestWarningsOfAStackWithoutALogGoToThatOfTheProgram sends wrong checksums to one that Open has opened, as the README does.
func TestWarningsOfAStackWithoutALogGoToThatOfTheProgram(t *testing.T) {
	n := testnet.For(t, "mr-open-log")
	linux, here := n.Namespace("linux"), n.Namespace("here")
	lines := make(chan string, 64)
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(logWriter{lines}, nil)))
	defer slog.SetDefault(before)
	if err := errors.Join(n.Link(linux, "eth0", here, "st0"), linux.Up("eth0", "198.18.9.1/24"), here.Up("st0")); err != nil {
		t.Fatal(err)
	}
	var s *socket.Stack
	if err := here.Do(func() (err error) { s, err = Open("st0", netip.MustParsePrefix("198.18.9.2/24")); return err }); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	to := wrongDatagrams(t, linux, "eth0")
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		to()
		select {
		case line := <-lines:
			if strings.Contains(line, "level=INFO") {
				t.Errorf("it says more than warnings: %s", line)
			}
			if strings.Contains(line, "msg=checksum device=st0") && strings.Contains(line, "ethtool -K PEER tx off") {
				return
			}
		default:
		}
	}
	t.Error("no warning")
}

// wrongDatagrams returns what sends a datagram with a wrong checksum to the stack, by a packet socket.
func wrongDatagrams(t *testing.T, ns *testnet.Namespace, dev string) func() {
	t.Helper()
	frame := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 8, 0}, 0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0, 198, 18, 9, 1, 198, 18, 9, 2)
	wire.IPv4(frame[14:]).FillChecksum()
	frame = append(frame, 0, 9, 0, 9, 0, 12, 1, 1, 'w', 'o', 'r', 'd')
	fd, index := -1, 0
	err := ns.Do(func() (err error) {
		link, err := net.InterfaceByName(dev)
		if err != nil {
			return err
		}
		index = link.Index
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return func() {
		if err := unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: index}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOpenHasPayloadPlaced downloads from Linux over AF_PACKET: the payload of large packets goes straight to the reader.
func TestOpenHasPayloadPlaced(t *testing.T) {
	n := testnet.For(t, "mr-open-placed")
	linux, here := n.Namespace("linux"), n.Namespace("here")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(n.Link(linux, "eth0", here, "st0"))
	must(linux.Up("eth0", "198.18.9.1/24"))
	must(here.Up("st0", "198.18.9.3/24"))
	c := OpenConfig{
		Node: node.Config{
			Devices: []node.Device{{Name: "st0", Driver: device.AFPacket}},
			Ops:     gpukern.OpParse | gpukern.OpChecksum | gpukern.OpHash,
		},
		Addrs: []netip.Prefix{netip.MustParsePrefix("198.18.9.2/24")},
	}
	var nd *node.Node
	var s *socket.Stack
	must(here.Do(func() (err error) {
		if nd, err = node.Open(c.Node); err == nil {
			s, err = c.serve(nd)
		}
		return err
	}))
	defer s.Close()
	l, err := s.Listen("tcp", ":80")
	must(err)
	data := bytes.Repeat([]byte("0123456789abcdefg"), 500_000)
	go func() {
		_ = linux.Do(func() error {
			to, err := net.DialTimeout("tcp", "198.18.9.2:80", 10*time.Second)
			if err == nil {
				_, _ = to.Write(data)
				_ = to.Close()
			}
			return err
		})
	}()
	from, err := l.Accept()
	must(err)
	defer from.Close()
	must(from.SetDeadline(time.Now().Add(time.Minute)))
	got := make([]byte, len(data))
	if _, err := io.ReadFull(from, got); err != nil || !bytes.Equal(got, data) {
		t.Errorf("other bytes than those that were sent, or %v", err)
	}
	if placed := nd.Loops()[0].Stats().Placed; placed < 20 {
		t.Errorf("the payload of %d packets was placed", placed)
	}
}

// logWriter passes the lines of a log on.
type logWriter struct{ lines chan<- string }

func (w logWriter) Write(b []byte) (int, error) {
	select {
	case w.lines <- string(b):
	default:
	}
	return len(b), nil
}
