package control_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/millrace/millrace/internal/testkit/testnet"
)

// newKernelSite is a site whose gateway has the kernel forward established connections. With offload the backends and the
// client send large packets, and leave checksums to the device.
func newKernelSite(t *testing.T, prefix, driver string, offload bool) *site {
	t.Helper()
	s, _ := layOut(t, prefix)
	for i, b := range s.backends {
		s.listen(i)
		if offload {
			_, err := b.Run("ethtool", "-K", "eth0", "tx", "on", "tso", "on", "gso", "on")
			s.must(err)
		}
	}
	if offload {
		_, err := s.client.Run("ethtool", "-K", "eth0", "tx", "on", "tso", "on", "gso", "on")
		s.must(err)
	}
	s.must(os.WriteFile(s.file, []byte("kernel_flows: on\n"+fmt.Sprintf(siteConfig, driver, "")), 0o644))
	s.start("http://198.18.1.1/", "http://[2001:db8:1::1]/", "http://198.18.1.1:81/")
	return s
}

// The bulk of downloads passes in the kernel, byte for byte, and all of it is counted. The connections end as they do
// without; nothing is left at the hooks.
func TestDownloadsPassInTheKernel(t *testing.T) {
	t.Parallel()
	testnet.Program(t, "ethtool", "curl")
	for _, c := range []struct {
		driver  string
		offload bool
	}{{"afpacket", true}, {"afpacket", false}, {"afxdp", false}} {
		t.Run(fmt.Sprintf("%s, offload %v", c.driver, c.offload), func(t *testing.T) {
			s := newKernelSite(t, "mr-gwkern", c.driver, c.offload)
			const size = 32 << 20
			s.bulk(size)
			s.must(s.cmd.Process.Signal(syscall.SIGHUP))
			s.logged("msg=reload error=<nil>")
			s.bulk(size)
			for _, host := range []string{"198.18.1.1", "[2001:db8:1::1]"} {
				s.curl(host)
				s.udp(host)
				s.direct(host)
			}
			s.noWrongSegments()
			if n := s.programs(); n != 3 {
				t.Errorf("%d programs at the ingress hooks, want 3", n)
			}
			sum := s.stop()
			k := sum.Gateway.Kernel
			if k == nil {
				t.Fatal("the gateway says nothing of the kernel")
			}
			if k.FromBytes < 2*size*8/10 || k.FromPackets == 0 || k.ToPackets == 0 || k.Connections != 0 || k.FlushErrors != 0 {
				t.Errorf("of %d bytes the kernel has forwarded: %+v", 2*size, k)
			}
			var from uint64
			for _, b := range sum.Gateway.Services[0].Backends {
				from += b.FromBytes
			}
			if from < 2*size || from > 2*size*115/100 {
				t.Errorf("%d bytes from the backends are counted, %d were sent", from, 2*size)
			}
			if n := s.programs(); n != 0 {
				t.Errorf("%d programs are left at the ingress hooks", n)
			}
		})
	}
}

// noWrongSegments checks that no kernel has met a wrong checksum.
func (s *site) noWrongSegments() {
	s.t.Helper()
	for _, ns := range []*testnet.Namespace{s.client, s.backends[0], s.backends[1]} {
		out, err := ns.Run("sh", "-c", "awk '/^Tcp:/{print $NF} /^Udp:/{print $(NF-2)}' /proc/net/snmp; awk '/Csum/{print $1, $2}' /proc/net/snmp6")
		s.must(err)
		for line := range strings.Lines(out) {
			if f := strings.Fields(line); f[len(f)-1] != "0" && !strings.Contains(f[len(f)-1], "Csum") {
				s.t.Errorf("%s counts wrong checksums: %q", ns.Name, out)
				break
			}
		}
	}
}

// programs counts the programs at the ingress hooks of the gateway's interfaces.
func (s *site) programs() (n int) {
	s.t.Helper()
	s.must(s.gate.Do(func() error {
		all, err := netlink.LinkList()
		if err != nil {
			return err
		}
		for _, l := range all {
			r, err := link.QueryPrograms(link.QueryOptions{Target: l.Attrs().Index, Attach: ebpf.AttachTCXIngress})
			if err != nil {
				return err
			}
			n += len(r.Programs)
		}
		return nil
	}))
	return n
}

// What the kernel sends to the client is right to the last bit, by tshark.
func TestTsharkFindsNothingWrongInWhatTheKernelForwards(t *testing.T) {
	t.Parallel()
	testnet.Program(t, "tcpdump", "tshark", "ethtool")
	const rounds, burst, size = 20, 40, 1000
	s := newKernelSite(t, "mr-gwkerns", "afpacket", false)
	files := []string{filepath.Join(t.TempDir(), "b1.pcap"), filepath.Join(t.TempDir(), "b2.pcap")}
	var ends []func()
	for i, b := range s.backends {
		ends = append(ends, s.capture(b, files[i]))
	}
	for _, host := range []string{"198.18.1.1", "[2001:db8:1::1]"} {
		// Packets that waited for the loop when the flow entered the kernel may be overtaken, once in each direction.
		if n := s.bursts(host+":53", rounds, burst, size); n > 2*burst {
			t.Errorf("%s: %d answers are out of order", host, n)
		}
	}
	s.written(files, 2*rounds*burst*size)
	for _, end := range ends {
		end()
	}
	good := 0
	for _, file := range files {
		good += s.dissect(file, "udp.checksum.status==1 && udp.length==1008")
		if n := s.dissect(file, "udp.dstport==5353 && (udp.checksum.status!=1 || udp.length>1008) || ip.checksum.status==0"); n > 0 {
			t.Errorf("tshark finds %d bad packets", n)
		}
	}
	sum := s.stop()
	if k := sum.Gateway.Kernel; good < rounds*burst || k.ToPackets < rounds*burst {
		t.Errorf("%d of %d datagrams with right checksums, %d by the kernel", good, 2*rounds*burst, k.ToPackets)
	}
}

// A gateway that is killed leaves no program, and nothing that forwards.
func TestAKilledGatewayForwardsNothing(t *testing.T) {
	t.Parallel()
	s := newKernelSite(t, "mr-gwkernk", "afpacket", false)
	c := s.dial("tcp", "198.18.1.1:80")
	for range 40 { // enough to be in the kernel
		if _, err := ask(c); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.programs(); n != 3 {
		t.Fatalf("%d programs are attached, want 3", n)
	}
	s.must(s.cmd.Process.Kill())
	_ = s.cmd.Wait()
	for end := time.Now().Add(20 * time.Second); s.programs() != 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("programs are attached still")
		}
	}
	fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	c.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
	if n, err := c.Read(make([]byte, 1)); err == nil {
		t.Errorf("%d bytes came through a gateway that was killed", n)
	}
}
