package interop

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/device"
	"github.com/millrace/millrace/quic"
	"github.com/millrace/millrace/socket"
	"github.com/millrace/millrace/stack"
)

// The addresses of every testbed.
const (
	linuxAddr = "198.18.15.1"
	ourAddr   = "198.18.15.2"
)

// link says what lies between a peer and us, and what our end is.
type link struct {
	name   string
	kernel bool                 // our end is the kernel's sockets, otherwise a stack on AF_XDP
	mtu    int                  // of both interfaces; 0 is 1500
	impair string               // profile of package pmd, both ways
	udp    map[transport]string // the same, for some transports
}

// links are the columns of the table.
var links = []link{
	{name: "kernel", kernel: true},
	{name: "AF_XDP"},
	{name: "2 % loss", impair: "loss=2% delay=1ms"},
	// 1200 bytes of UDP payload in IPv4 (RFC 9000 14): larger packets vanish without a word.
	{name: "1200 bytes", mtu: 1280, udp: map[transport]string{overUDP: "mtu=1228", overLargeUDP: "mtu=1280"}},
}

// patience bounds what one peer does on one link.
const patience = 60 * time.Second

// testbed is a Linux host, on which the peers run, and our end of one link.
type testbed struct {
	link
	linux, ours *testnet.Namespace
	stack       *socket.Stack // nil: the kernel's sockets
}

// newTestbed joins the two hosts.
func newTestbed(t *testing.T, l link, over transport) *testbed {
	t.Helper()
	testnet.Program(t, "ip")
	n := testnet.For(t, "mr-peers")
	b := &testbed{link: l, linux: n.Namespace("linux"), ours: n.Namespace("ours")}
	must := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	must(n.Link(b.linux, "eth0", b.ours, "st0"), b.linux.NoOffload("eth0"), b.ours.NoOffload("st0"))
	for ns, dev := range map[*testnet.Namespace]string{b.linux: "eth0", b.ours: "st0"} {
		if l.mtu > 0 {
			_, err := ns.Run("ip", "link", "set", dev, "mtu", fmt.Sprint(l.mtu))
			must(err)
		}
	}
	must(b.linux.Up("eth0", linuxAddr+"/24"))
	if l.kernel {
		must(b.ours.Up("st0", ourAddr+"/24"))
		return b
	}
	must(b.ours.Up("st0"))
	b.open(t, cmp.Or(l.udp[over], l.impair))
	return b
}

// open starts our stack on the interface.
func (b *testbed) open(t *testing.T, impair string) {
	t.Helper()
	profile, err := pmd.ParseProfile(impair)
	if err != nil {
		t.Fatal(err)
	}
	var dev *device.Device
	err = b.ours.Do(func() error {
		arena, pools, err := device.NewArena(1, device.Config{Name: "st0"})
		if err != nil {
			return err
		}
		t.Cleanup(func() { closed(t, arena.Close) })
		if dev, err = device.Open(device.Config{Name: "st0", Driver: device.AFXDP, Pools: pools, All: true}); err != nil {
			return err
		}
		t.Cleanup(func() { closed(t, dev.Close) })
		driver := dev.Queues[0]
		if impair != "" {
			bad, err := pmd.NewImpair(driver, pmd.ImpairConfig{Profile: profile, Pool: pools[0]})
			if err != nil {
				return err
			}
			driver = bad
			t.Cleanup(func() { closed(t, bad.Close); impaired(t, bad) })
		}
		b.stack, err = socket.New(socket.Config{
			Loops: []stack.Config{{Devices: []pmd.Driver{driver}, Pool: pools[0], Engine: gpukern.NewCPU(gpukern.Config{})}},
			Addrs: []socket.Address{{Prefix: netip.MustParsePrefix(ourAddr + "/24")}},
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, b.stack.Close) })
}

// impaired checks that the link has lost packets, if there were many.
func impaired(t *testing.T, m *pmd.Impair) {
	t.Helper()
	rx, tx := m.Counts()
	t.Logf("received: %+v, sent: %+v", rx, tx)
	if rx.Passed > 5000 && rx.Lost()+tx.Lost() == 0 {
		t.Error("the link has lost nothing")
	}
}

func closed(t *testing.T, f func() error) {
	t.Helper()
	if err := f(); err != nil {
		t.Error(err)
	}
}

// listen returns a listener of ours, and its address for the peer.
func (b *testbed) listen(t *testing.T) net.Listener {
	t.Helper()
	var l net.Listener
	var err error
	if b.stack != nil {
		l, err = b.stack.Listen("tcp", ourAddr+":0")
	} else {
		err = b.ours.Do(func() (err error) { l, err = net.Listen("tcp", ourAddr+":0"); return err })
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// dial connects from our end. Its form is that of DialContext.
func (b *testbed) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if b.stack != nil {
		return b.stack.DialContext(ctx, network, addr)
	}
	return dialIn(ctx, b.ours, network, addr)
}

// dialLinux connects from the host of the peers.
func (b *testbed) dialLinux(ctx context.Context, network, addr string) (net.Conn, error) {
	return dialIn(ctx, b.linux, network, addr)
}

func dialIn(ctx context.Context, ns *testnet.Namespace, network, addr string) (c net.Conn, err error) {
	err = ns.Do(func() (err error) {
		c, err = new(net.Dialer).DialContext(ctx, network, addr)
		return err
	})
	return c, err
}

// listenLinux returns a listener on the host of the peers.
func (b *testbed) listenLinux(t *testing.T) net.Listener {
	t.Helper()
	var l net.Listener
	if err := b.linux.Do(func() (err error) { l, err = net.Listen("tcp", linuxAddr+":0"); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// packetsLinux returns a socket of UDP on the host of the peers.
func (b *testbed) packetsLinux(t *testing.T) *net.UDPConn {
	t.Helper()
	var c net.PacketConn
	if err := b.linux.Do(func() (err error) { c, err = net.ListenPacket("udp4", linuxAddr+":0"); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c.(*net.UDPConn)
}

// quic returns a transport of ours.
func (b *testbed) quic(t *testing.T) *quic.Transport {
	t.Helper()
	if b.stack != nil {
		c, err := b.stack.ListenPacket("udp", ourAddr+":0")
		if err != nil {
			t.Fatal(err)
		}
		return openQUIC(t, c, c.(*socket.UDPConn), quic.TransportConfig{})
	}
	var c net.PacketConn
	if err := b.ours.Do(func() (err error) { c, err = net.ListenPacket("udp4", ourAddr+":0"); return err }); err != nil {
		t.Fatal(err)
	}
	return openQUIC(t, c, nil, quic.TransportConfig{})
}

// quicConfig is that of our connections: on the narrow link packets of 1200 bytes.
func (b *testbed) quicConfig() *quic.Config {
	if b.mtu > 0 {
		return &quic.Config{PacketSize: 1200}
	}
	return &quic.Config{}
}

// program runs a program on the host of the peers until it ends, and returns what it prints.
func (b *testbed) program(t *testing.T, stdin, name string, args ...string) (out string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var all bytes.Buffer
	cmd.Stdout, cmd.Stderr = &all, &all
	if err := b.linux.Start(cmd); err != nil {
		t.Fatal(err)
	}
	err = cmd.Wait()
	return all.String(), err
}

// served is a program that serves on the host of the peers until the test ends.
type served struct {
	stdin  io.Writer
	stdout *bufio.Reader
	stderr testnet.Log
}

// serve starts a program. Its standard error is in the log of a test that fails.
func (b *testbed) serve(t *testing.T, name string, args ...string) *served {
	t.Helper()
	s := new(served)
	cmd := exec.Command(name, args...)
	cmd.Stderr = &s.stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := b.linux.Start(cmd); err != nil {
		t.Fatal(err)
	}
	s.stdin, s.stdout = in, bufio.NewReader(out)
	var once sync.Once
	t.Cleanup(func() {
		once.Do(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		if t.Failed() {
			t.Logf("%s: %s", name, &s.stderr)
		}
	})
	return s
}

// line returns the next line that the server prints.
func (s *served) line(t *testing.T) string {
	t.Helper()
	var line string
	var err error
	within(t, patience, "a line of the server", func() { line, err = s.stdout.ReadString('\n') })
	if err != nil {
		t.Fatalf("%v\n%s", err, &s.stderr)
	}
	return strings.TrimSpace(line)
}

// freeAddr returns an address on the host of the peers with a free port.
func (b *testbed) freeAddr(t *testing.T) string {
	t.Helper()
	l := b.listenLinux(t)
	_ = l.Close()
	return l.Addr().String()
}

// ready starts a program that listens on an address, and waits until it does. In its arguments PORT is the port.
func (b *testbed) ready(t *testing.T, addr, name string, args ...string) {
	t.Helper()
	_, port, _ := net.SplitHostPort(addr)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "PORT", port)
	}
	s := b.serve(t, name, args...)
	go func() { _, _ = io.Copy(io.Discard, s.stdout) }()
	for end := deadline(); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if c, err := b.dialLinux(t.Context(), "tcp", addr); err == nil {
			_ = c.Close()
			return
		}
	}
	t.Fatalf("%s does not listen\n%s", name, &s.stderr)
}

// built returns a program that `make interop-peers` has built into the folder MILLRACE_PEERS.
func built(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(os.Getenv("MILLRACE_PEERS"), name)
	needs(t, path, "make interop-peers")
	return path
}

// needs skips a test whose program is not there. What `make deps` installs must be there in CI.
func needs(t *testing.T, path, how string) {
	t.Helper()
	if _, err := exec.LookPath(path); err == nil {
		return
	}
	if how == "make deps" && os.Getenv("MILLRACE_MUST_NETNS") != "" {
		t.Fatalf("%s is not installed: %s", path, how)
	}
	t.Skipf("%s is not installed: %s", path, how)
}
