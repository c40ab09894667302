package node_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/gpukern"
	_ "github.com/millrace/millrace/gpukern/cuda/loader" // of DPDK's shim
	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/node"
	"github.com/millrace/millrace/pmd/device"
	"github.com/millrace/millrace/pmd/dpdk"
	"github.com/millrace/millrace/stack"
)

// dpdkSite is a machine with the interfaces a and b, and a client and a server at their other ends.
type dpdkSite struct {
	net                    *testnet.Net
	client, middle, server *testnet.Namespace
}

func newDPDKSite(t *testing.T) *dpdkSite {
	t.Helper()
	if os.Getenv("MILLRACE_DPDK_TEST") == "" {
		t.Skip("DPDK is not installed by `make deps`: `make dpdk-test` runs this")
	}
	if _, err := dpdk.Version(); err != nil {
		t.Fatal(err)
	}
	n := testnet.For(t, "mr-node-dpdk")
	s := &dpdkSite{n, n.Namespace("client"), n.Namespace("middle"), n.Namespace("server")}
	must(t, n.Link(s.server, "eth0", s.middle, "b"))
	must(t, s.server.Up("eth0", "198.18.0.2/24"))
	must(t, s.middle.Up("b"))
	s.connect(t)
	return s
}

// connect makes the wire between the client and the interface a.
func (s *dpdkSite) connect(t *testing.T) {
	t.Helper()
	must(t, s.net.Link(s.client, "eth0", s.middle, "a"))
	must(t, s.client.Up("eth0", "198.18.0.1/24"))
	must(t, s.middle.Up("a"))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// reach pings the server until it answers.
func (s *dpdkSite) reach(t *testing.T) {
	t.Helper()
	s.ping(t, "198.18.0.2", "the server")
}

// ping pings an address until it answers.
func (s *dpdkSite) ping(t *testing.T, addr, what string) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; {
		out, err := s.client.Run("ping", "-c", "3", "-i", "0.05", "-W", "2", addr)
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s does not answer: %v\n%s", what, err, out)
		}
	}
}

// stream sends 20 MB by iperf3 from the client to 198.18.0.2, which a namespace has, and returns what the client reports.
func (s *dpdkSite) stream(t *testing.T, to *testnet.Namespace) (out string) {
	t.Helper()
	testnet.Program(t, "iperf3")
	server := exec.Command("iperf3", "-s", "-1")
	must(t, to.Start(server))
	t.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		var err error
		if out, err = s.client.Run("iperf3", "-c", "198.18.0.2", "-n", "20M"); err == nil {
			return out
		}
		if time.Now().After(end) {
			t.Fatalf("iperf3: %v\n%s", err, out)
		}
	}
}

// awaitLink waits until the link of the first device is as is reports.
func awaitLink(t *testing.T, n *node.Node, what string, is func(node.LinkState) bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !is(n.Links()[0].State); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: the link is %v", what, n.Links()[0].State)
		}
	}
}

// open opens a node between namespaces, with a bridge as its service.
func (s *dpdkSite) open(t *testing.T, cfg node.Config) (n *node.Node) {
	t.Helper()
	cfg.Engine, cfg.Ops = "cpu", gpukern.OpParse
	must(t, s.middle.Do(func() (err error) {
		n, err = node.Open(cfg)
		return err
	}))
	must(t, n.Add(node.Service{Name: "bridge", Handlers: []stack.Handler{stack.Bridge{}}}))
	return n
}

// runUntilEnd runs a node until the test's end, when Close counts its frames.
func runUntilEnd(t *testing.T, n *node.Node) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	must(t, n.Start())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
}

// bridge starts a node that forwards between a and b by DPDK's drivers.
func (s *dpdkSite) bridge(t *testing.T, driver string) *node.Node {
	t.Helper()
	n := s.open(t, node.Config{
		Devices: []node.Device{{Name: "dpdk:" + driver + "0,iface=a", All: true}, {Name: "dpdk:" + driver + "1,iface=b", All: true}},
		Loops:   node.QueuesAuto,
	})
	runUntilEnd(t, n)
	return n
}

// TestDPDKForwards forwards between interfaces by DPDK's drivers: pings, and a TCP stream of iperf3.
func TestDPDKForwards(t *testing.T) {
	for _, driver := range []string{"net_af_xdp", "net_af_packet"} {
		t.Run(driver, func(t *testing.T) {
			s := newDPDKSite(t)
			for _, end := range []*testnet.Namespace{s.client, s.server} {
				must(t, end.NoOffload("eth0")) // DPDK's AF_PACKET driver cuts what the kernel has not segmented
			}
			n := s.bridge(t, driver)
			if i := n.Info(0); i.Driver != string(device.DPDK) || !strings.Contains(i.Negotiated, driver) {
				t.Errorf("%+v", i)
			}
			if l := n.Links(); l[0].State != node.LinkUp || l[0].MTU != 1500 {
				t.Errorf("%+v", l)
			}
			s.reach(t)
			out := s.stream(t, s.server)
			if st := n.Info(0).Stats; st.RxBytes < 10<<20 {
				t.Errorf("%d bytes received:\n%s", st.RxBytes, out)
			}
		})
	}
}

// TestDPDKDeviceIsRemovedUnderTraffic deletes an interface while packets pass, and makes it anew: the node lives, and
// forwards again.
func TestDPDKDeviceIsRemovedUnderTraffic(t *testing.T) {
	s := newDPDKSite(t)
	n := s.bridge(t, "net_af_xdp")
	s.reach(t)
	flood := exec.Command("ping", "-q", "-i", "0.002", "-W", "1", "198.18.0.2")
	must(t, s.client.Start(flood))
	t.Cleanup(func() { _ = flood.Process.Kill(); _ = flood.Wait() })
	time.Sleep(200 * time.Millisecond)
	_, err := s.middle.Run("ip", "link", "del", "dev", "a")
	must(t, err)
	awaitLink(t, n, "removed", func(l node.LinkState) bool { return l == node.LinkGone || l == node.LinkFailed })
	if n.Links()[1].State != node.LinkUp {
		t.Error("the other device is not up")
	}
	s.connect(t)
	awaitLink(t, n, "made anew", func(l node.LinkState) bool { return l == node.LinkUp })
	s.reach(t)
}

// TestDPDKExceptionPathComesBack deletes the interface of a device with an exception path while the kernel answers pings by it, and makes
// it anew: the path is there again.
func TestDPDKExceptionPathComesBack(t *testing.T) {
	s := newDPDKSite(t)
	must(t, s.middle.Up("a", "198.18.0.3/24"))
	n := s.open(t, node.Config{Devices: []node.Device{{Name: "dpdk:net_af_xdp0,iface=a,exception=mra"}}, Loops: 1})
	runUntilEnd(t, n)
	s.ping(t, "198.18.0.3", "at first: the kernel")
	if st := n.Info(0).Stats; st.ToKernel == 0 || st.FromKernel == 0 || st.RxPackets != 0 {
		t.Errorf("%+v", st)
	}
	_, err := s.middle.Run("ip", "link", "del", "dev", "a")
	must(t, err)
	awaitLink(t, n, "removed", func(l node.LinkState) bool { return l != node.LinkUp })
	s.connect(t)
	awaitLink(t, n, "made anew", func(l node.LinkState) bool { return l == node.LinkUp })
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) { // the addresses went with the interface, if that was away for long
		if _, err = s.middle.Run("ip", "addr", "replace", "198.18.0.3/24", "dev", "mra"); err == nil || time.Now().After(end) {
			break
		}
	}
	must(t, err)
	s.ping(t, "198.18.0.3", "made anew: the kernel")
}

// TestDPDKCutsLargePackets forwards a TCP stream between a packet socket, which brings large packets of Linux, and DPDK's TAP
// driver: they pass the node whole, and Linux behind the TAP interface gets segments with checksums.
func TestDPDKCutsLargePackets(t *testing.T) {
	s := newDPDKSite(t)
	n := s.open(t, node.Config{
		Devices: []node.Device{{Name: "a", Driver: device.AFPacket, All: true}, {Name: "dpdk:net_tap0,iface=mrt0", All: true}},
		Loops:   node.QueuesAuto,
	})
	if on, err := n.SetOffload(true, stack.GRONone); !on || err != nil {
		t.Fatal(on, err)
	}
	runUntilEnd(t, n)
	must(t, s.middle.Up("mrt0", "198.18.0.2/24"))
	s.reach(t)
	out := s.stream(t, s.middle)
	in, to := n.Info(0).Stats, n.Info(1).Stats
	if in.RxBytes < 10<<20 || in.RxBytes/in.RxPackets < 2000 || to.TxInvalid != 0 || to.TxBytes < 10<<20 { // the sender ends before the last bytes arrive
		t.Errorf("received %+v, sent %+v: no large packets?\n%s", in, to, out)
	}
}
