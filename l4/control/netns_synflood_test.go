package control_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/wire"
)

// SYNs beyond syn_rate are answered in XDP, before the AF_XDP driver: the kernel of the gateway keeps nothing of them, and
// clients of a listener that has its sockets there are served meanwhile. A reload switches it off.
func TestSYNFloodIsAnsweredInXDP(t *testing.T) {
	t.Parallel()
	d := newDefended(t, "afxdp", "drop", "1m", `
listeners: [{name: l7, address: ["198.18.0.1:8090", "[2001:db8::1]:8090"], protocol: HTTP}]
routes: [{name: r, rules: [{backend_refs: [{name: p}]}]}]
pools: [{name: p, backends: [{address: "198.18.3.2:8080"}]}]
`, func(d *defended) {
		d.edit("  time: 1m", "  time: 1m\n  syn_rate: 1")
		d.must(d.gate.Sysctl("net.ipv4.tcp_syncookies", "2"))
		_, err := d.client.Run("ip", "link", "set", "eth0", "xdp", "obj", "../../filter/ebpf/testdata/objects/count.o", "sec", "xdp.frags") // a veth takes what XDP sends only so
		d.must(err)
	})
	const syns = 500
	for _, c := range []struct{ source, listener string }{{"198.18.0.4", "198.18.0.1"}, {"2001:db8::2", "2001:db8::1"}} {
		before := d.status().Answered
		d.sendSYNs(c.source, c.listener, syns)
		d.until("the SYNs are answered", func() bool { return d.status().Answered >= before+syns/2 })
		if out, err := d.gate.Run("ss", "-Hnt", "state", "syn-recv"); err != nil || strings.Count(out, "\n") > 2*8 { // those within the rate, of each CPU
			t.Errorf("half-open connections: %v\n%s", err, out)
		}
		for range 3 {
			d.served("http://"+net.JoinHostPort(c.listener, "8090")+"/", 20*time.Second)
		}
	}
	d.edit("syn_rate: 1", "syn_rate: 0")
	_, err := d.g.Reload(context.Background(), false)
	d.must(err)
	before := d.status().Answered
	d.sendSYNs("198.18.0.4", "198.18.0.1", 50)
	d.served("http://198.18.0.1:8090/", 20*time.Second)
	if n := d.status().Answered - before; n != 0 {
		t.Errorf("%d SYNs answered after syn_rate was taken away", n)
	}
}

// edit replaces a text of the configuration.
func (d *defended) edit(old, by string) {
	d.t.Helper()
	b, err := os.ReadFile(d.file)
	d.must(err)
	if !strings.Contains(string(b), old) {
		d.t.Fatalf("no %q in the configuration", old)
	}
	d.must(os.WriteFile(d.file, []byte(strings.Replace(string(b), old, by, 1)), 0o644))
}

// sendSYNs sends SYNs from ports that no socket of the client has.
func (d *defended) sendSYNs(source, listener string, n int) {
	d.t.Helper()
	from, to := netip.MustParseAddr(source), netip.MustParseAddr(listener)
	network := "ip4:tcp"
	if from.Is6() {
		network = "ip6:tcp"
	}
	var c net.Conn
	d.must(d.client.Do(func() (err error) {
		c, err = (&net.Dialer{LocalAddr: &net.IPAddr{IP: from.AsSlice()}}).Dial(network, listener)
		return err
	}))
	defer c.Close()
	for i := range n {
		syn := wire.TCP(make([]byte, wire.TCPLen))
		syn.SetSrcPort(uint16(10000 + i))
		syn.SetDstPort(8090)
		syn.SetSeq(uint32(i) << 16)
		syn.SetDataOffset(wire.TCPLen)
		syn.SetFlags(wire.FlagSYN)
		syn.SetWindow(65535)
		if from.Is4() {
			syn.FillChecksum(wire.PseudoHeader4(from.As4(), to.As4(), wire.ProtoTCP, uint32(len(syn))))
		} else {
			syn.FillChecksum(wire.PseudoHeader6(from.As16(), to.As16(), wire.ProtoTCP, uint32(len(syn))))
		}
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			_, err := c.Write(syn)
			if err == nil {
				break
			}
			if time.Now().After(end) {
				d.t.Fatal(fmt.Errorf("SYN %d: %w", i, err))
			}
		}
	}
}
