package rdma

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/capture"
	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/node"
	"github.com/millrace/millrace/node/nexthop"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/device"
	"github.com/millrace/millrace/rdma/roce"
	"github.com/millrace/millrace/rdma/transport"
	"github.com/millrace/millrace/ring"
)

// startHost runs a node with a context in a namespace, on the address that its kernel has.
func startHost(t *testing.T, ns *testnet.Namespace, driver device.Driver, addr string, loops int, profile string) *Context {
	t.Helper()
	var n *node.Node
	var hops *nexthop.Kernel
	link := &badLink{profile: profile}
	err := ns.Do(func() (err error) {
		n, err = node.Open(node.Config{Loops: loops, Devices: []node.Device{{Name: "eth0", Driver: driver}}, OpenDevice: link.open})
		if err == nil {
			hops, err = nexthop.NewKernel([]string{"eth0"})
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(n, Config{Addr: netip.MustParseAddr(addr), Hops: hops, Loop: loops - 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(n.Add(c.Service()), n.Start()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		s := n.Counters()
		if err := errors.Join(<-done, link.close(), n.Close(), hops.Close()); err != nil {
			t.Error(err)
		}
		t.Logf("%s: %s", addr, strings.TrimSpace(s.Balance()))
	})
	return c
}

// badLink opens devices whose drivers treat packets by a profile; "" is no impairment.
type badLink struct {
	profile string
	drivers []pmd.Driver // wrappers, which hold frames
}

// open is a node.Config.OpenDevice.
func (l *badLink) open(c node.Device, pools []*ring.Pool) (*device.Device, error) {
	p, err := pmd.ParseProfile(l.profile)
	if err != nil {
		return nil, err
	}
	d, err := device.Open(c.Config(pools))
	if err != nil || l.profile == "" {
		return d, err
	}
	for i, drv := range d.Queues {
		if d.Queues[i], err = pmd.NewImpair(drv, pmd.ImpairConfig{Profile: p, Pool: pools[i]}); err != nil {
			return nil, errors.Join(err, d.Close())
		}
	}
	l.drivers = d.Queues
	return d, nil
}

// close returns the frames that are held. It comes between the end of the loops and node.Close.
func (l *badLink) close() (err error) {
	for _, d := range l.drivers {
		err = errors.Join(err, d.Close())
	}
	return err
}

// TestTwoHostsOnABadLink has the exchange of TestTwoHosts survive loss, reordering, duplicates and damaged bits in both directions, with
// go-back-N and with selective repeat.
func TestTwoHostsOnABadLink(t *testing.T) {
	for _, selective := range []bool{false, true} {
		t.Run(fmt.Sprintf("selective %v", selective), func(t *testing.T) {
			nets := testnet.For(t, "mr-rdmabad")
			na, nb := nets.Namespace("a"), nets.Namespace("b")
			if err := errors.Join(nets.Link(na, "eth0", nb, "eth0"), na.Up("eth0", "198.18.0.1/24"), nb.Up("eth0", "198.18.0.2/24")); err != nil {
				t.Fatal(err)
			}
			ca := startHost(t, na, device.AFPacket, "198.18.0.1", 1, "loss=1% dup=1% corrupt=0.5% delay=200us reorder=2% seed=5")
			cb := startHost(t, nb, device.AFPacket, "198.18.0.2", 1, "")
			exchange(t, ca, cb, QPConfig{SelectiveRepeat: selective})
			if n := ca.count.refused[roce.BadICRC]; n == 0 {
				t.Error("no damaged packet was found")
			}
		})
	}
}

// TestTwoHosts has two nodes in namespaces write, read and send to each other over a veth pair, beside their kernels. Hashes are equal,
// and tshark and the ICRC find nothing wrong in the captures, which AF_PACKET has.
func TestTwoHosts(t *testing.T) {
	testnet.Program(t, "tcpdump", "tshark")
	for _, c := range []struct {
		name   string
		driver device.Driver
		a, b   string
		queues int
	}{
		{"AF_XDP", "afxdp", "198.18.0.1", "198.18.0.2", 1},
		{"AF_PACKET", "afpacket", "198.18.0.1", "198.18.0.2", 1},
		{"IPv6", "afpacket", "2001:db8::1", "2001:db8::2", 1},
		{"two queues", "afxdp", "198.18.0.1", "198.18.0.2", 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			nets := testnet.For(t, "mr-rdma")
			na, nb := nets.Namespace("a"), nets.Namespace("b")
			bits := "/24"
			if strings.Contains(c.a, ":") {
				bits = "/64"
			}
			err := errors.Join(nets.LinkQueues(na, "eth0", nb, "eth0", c.queues), na.Up("eth0", c.a+bits), nb.Up("eth0", c.b+bits))
			if err != nil {
				t.Fatal(err)
			}
			ca, cb := startHost(t, na, c.driver, c.a, c.queues, ""), startHost(t, nb, c.driver, c.b, c.queues, "")
			if c.driver == device.AFXDP { // its packets pass below tcpdump
				exchange(t, ca, cb, QPConfig{})
				return
			}
			file := filepath.Join(t.TempDir(), "rdma.pcap")
			stop := record(t, na, file)
			exchange(t, ca, cb, QPConfig{})
			stop()
			judge(t, file)
		})
	}
}

// TestConnBetweenHosts moves 8 MiB by a Conn from one namespace to another, at loss and on a capture that Wireshark finds no fault in.
func TestConnBetweenHosts(t *testing.T) {
	for _, profile := range []string{"", "loss=1% dup=1% delay=200us reorder=1% seed=5"} {
		nets := testnet.For(t, "mr-rdmaconn")
		na, nb := nets.Namespace("a"), nets.Namespace("b")
		if err := errors.Join(nets.Link(na, "eth0", nb, "eth0"), na.Up("eth0", "198.18.0.1/24"), nb.Up("eth0", "198.18.0.2/24")); err != nil {
			t.Fatal(err)
		}
		ca := startHost(t, na, device.AFPacket, "198.18.0.1", 1, profile)
		cb := startHost(t, nb, device.AFPacket, "198.18.0.2", 1, "")
		file := filepath.Join(t.TempDir(), "rdma.pcap")
		stop := record(t, na, file)
		a, b := connPair(t, ca, cb, ConnConfig{SelectiveRepeat: true}, ConnConfig{SelectiveRepeat: true})
		data := make([]byte, 8<<20)
		for i := range data {
			data[i] = byte(i * 11 >> 3)
		}
		go func() {
			_, err := a.Write(data)
			if err := errors.Join(err, a.Close()); err != nil {
				t.Error(err)
			}
		}()
		got, err := io.ReadAll(b)
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		stop()
		if profile == "" {
			judge(t, file)
		}
	}
}

// record captures what passes the interface of a namespace until stop is called.
func record(t *testing.T, ns *testnet.Namespace, file string) (stop func()) {
	t.Helper()
	// In immediate mode its buffer has slots of the longest packet: with the usual 256 KiB a burst has no room.
	cmd := exec.Command("tcpdump", "-i", "eth0", "-w", file, "-s", "2048", "-B", "16384", "-U", "--immediate-mode", "-Z", "root")
	if err := ns.Start(cmd); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) { // its header: it captures
		if i, err := os.Stat(file); err == nil && i.Size() > 0 {
			break
		} else if time.Now().After(end) {
			t.Fatal("tcpdump does not begin")
		}
	}
	return func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	}
}

// exchange moves bytes each way by each operation.
func exchange(t *testing.T, ca, cb *Context, cfg QPConfig) {
	const size = 1 << 20
	cfg.Service = RC
	a, b := newSideWith(t, ca, cfg, 3*size), newSideWith(t, cb, cfg, 3*size)
	join(t, a, b, ConnectConfig{})
	for i := range size {
		a.mr.Bytes()[i], b.mr.Bytes()[2*size+i] = byte(i*5>>2), byte(i*3>>1)
	}
	va, rkey := b.mr.Addr(), b.mr.RKey()
	for i := range 16 {
		if err := b.qp.PostRecv(&RecvWR{ID: uint64(i), List: []SGE{b.mr.SGE(size+i<<16, 1<<16)}}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 16 {
		at, n := i<<16, 1<<16
		a.post(SendWR{Op: OpWrite, List: []SGE{a.mr.SGE(at, n)}, RemoteAddr: va + uint64(at), RKey: rkey})
		a.post(SendWR{Op: OpSendImm, List: []SGE{a.mr.SGE(at, n)}, Imm: uint32(i)})
		a.post(SendWR{Op: OpRead, List: []SGE{a.mr.SGE(2*size+at, n)}, RemoteAddr: va + uint64(2*size+at), RKey: rkey})
	}
	for _, w := range a.completions(48) {
		if w.Status != transport.Success {
			t.Fatalf("%+v %+v", w, a.qp.Counters())
		}
	}
	for i, w := range b.completions(16) {
		if w.Status != transport.Success || w.Imm != uint32(i) || w.Bytes != 1<<16 {
			t.Fatalf("%+v", w)
		}
	}
	ma, mb := a.mr.Bytes(), b.mr.Bytes()
	want := sha256.Sum256(ma[:size])
	if sha256.Sum256(mb[:size]) != want || sha256.Sum256(mb[size:2*size]) != want {
		t.Error("WRITE or SEND brought other bytes")
	}
	if sha256.Sum256(ma[2*size:]) != sha256.Sum256(mb[2*size:]) {
		t.Error("READ brought other bytes")
	}
	t.Logf("%+v", a.qp.Counters())
}

// judge has tshark find no fault in a capture, but for the UDP checksum that RoCE leaves out over IPv6, too (A17.4.5.1), and the ICRC of every packet right.
func judge(t *testing.T, file string) {
	t.Helper()
	out, err := exec.Command("tshark", "-r", file, "--disable-protocol", "rpcordma", "-Y", "_ws.malformed || icmp || icmpv6.type==1 || _ws.expert.severity >= 0x00600000 && !udp.checksum.zero").Output()
	if err != nil {
		t.Fatal(err)
	}
	if len(out) > 0 {
		t.Errorf("tshark finds:\n%s", out)
	}
	r, err := capture.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	packets := 0
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		var f roce.Frame
		switch why := f.Parse(rec.Data); {
		case why == roce.NotRoCE:
		case why != roce.Accepted || f.Verify() != roce.Accepted:
			t.Fatalf("packet %d: %v", packets, why)
		default:
			packets++
		}
	}
	if packets < 3<<20/4096 {
		t.Errorf("only %d packets of RoCE in the capture", packets)
	}
}
