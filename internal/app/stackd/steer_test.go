package stackd

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/packet"
)

// TestTheKernelKeepsItsAddress: an interface that the kernel uses too goes on working for it, and its address and ours
// have one link address.
func TestTheKernelKeepsItsAddress(t *testing.T) {
	for _, driver := range []string{"afxdp", "afpacket"} {
		t.Run(driver, func(t *testing.T) {
			s := newSite(t, "kernel", siteConfig{kernel: true, driver: driver})
			if s.d.node.TakesAll(0) {
				t.Error("the host takes every packet")
			}
			for _, addr := range []string{host4, host6, kernel4} {
				s.ping(addr, 56)
			}
			var l net.Listener
			err := s.ours.Do(func() (err error) {
				l, err = net.Listen("tcp", net.JoinHostPort(kernel4, "7"))
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go func() {
				if c, err := l.Accept(); err == nil {
					_, _ = io.WriteString(c, "the kernel")
					c.Close()
				}
			}()
			c, err := s.dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(5 * time.Second))
			if b, err := io.ReadAll(c); err != nil || string(b) != "the kernel" {
				t.Errorf("the kernel's address answered %q, %v", b, err)
			}
			for _, host := range s.hosts() {
				s.bothWays(host, 1<<20)
			}
			if n := s.d.Stats().Packets.Dropped; n[packet.DropNotOurs.String()] > 0 {
				t.Errorf("the host was given what is not its own: %v", n)
			}
		})
	}
}

// TestMistakesOfOperatorsAreExplained: what cannot be is refused with its reason and a remedy, and leaves nothing.
func TestMistakesOfOperatorsAreExplained(t *testing.T) {
	s := newSite(t, "wrong", siteConfig{kernel: true})
	for name, tc := range map[string]struct {
		change func(*Config)
		want   []string
	}{
		"no interface":           {func(c *Config) { c.Devices[0].Name = "st9" }, []string{`no interface "st9"`, "st0"}},
		"the kernel's address":   {func(c *Config) { c.Devices[0].Addresses[0] = netip.MustParsePrefix(kernel4 + "/24") }, []string{"the kernel has the address " + kernel4, "ip addr del"}},
		"DHCP beside the kernel": {func(c *Config) { c.Devices[0].DHCP = true }, []string{"the kernel uses it too (198.18.9.3/24)", "take: all"}},
		"a socket in use":        {func(c *Config) { c.Control.Socket = s.d.cfg.Control.Socket }, []string{"a stack is running there", "--socket"}},
		"a socket that is none":  {func(c *Config) { c.Control.Socket = "/dev/null" }, []string{"control socket", "is no socket"}},
		"the queue is in use":    {func(*Config) {}, []string{"st0", "in use"}},
	} {
		cfg := New()
		v := NewDevice("st0")
		v.Driver = "afxdp"
		v.Addresses = []netip.Prefix{netip.MustParsePrefix("198.18.9.7/24")}
		cfg.Devices, cfg.Services, cfg.Control.Socket = []Device{v}, AllServices(), t.TempDir()+"/other.sock"
		tc.change(cfg)
		var d *Daemon
		err := s.ours.Do(func() (err error) {
			d, err = Open(cfg, Options{Log: quiet})
			return err
		})
		if err == nil {
			t.Errorf("%s: it was opened: %v", name, d.Close())
			continue
		}
		for _, want := range tc.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q is not in: %v", name, want, err)
			}
		}
	}
	for _, host := range s.hosts() { // the one that runs is none the worse
		s.bothWays(host, 1<<16)
	}
}

// TestTheControlSocketTellsWhatThereIs asks as the verbs do.
func TestTheControlSocketTellsWhatThereIs(t *testing.T) {
	s := newSite(t, "control", siteConfig{config: func(c *Config) {
		c.Routes = []Route{{To: netip.MustParsePrefix("198.19.0.0/16"), Via: netip.MustParseAddr(linux4), Metric: 7}}
		c.Neighbors = []Neighbor{{Address: netip.MustParseAddr("198.18.9.99"), MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}}}
	}})
	if fi, err := os.Stat(s.d.cfg.Control.Socket); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("the socket is %v, %v", fi.Mode(), err)
	}
	ctx, cl := t.Context(), NewClient(s.d.cfg.Control.Socket)
	c, err := s.dial("tcp", net.JoinHostPort(host4, "7"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()

	addrs, err := cl.Addrs(ctx)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]AddrReport{}
	for _, a := range addrs {
		found[a.Address.String()] = a
	}
	info := s.d.node.Info(0)
	for _, want := range []string{host4 + "/24", host6 + "/64"} {
		if a := found[want]; a.Device != "st0" || a.State != "preferred" || a.Valid != nil || a.MTU != 1500 || a.MAC != macText(info.MAC) || a.Origin != "static" {
			t.Errorf("%s is %+v", want, a)
		}
	}

	routes, err := cl.Routes(ctx)
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for _, r := range routes {
		via := "link"
		if r.Via != nil {
			via = r.Via.String()
		}
		text += fmt.Sprintf("%s via %s dev %s metric %d\n", r.To, via, r.Device, r.Metric)
	}
	for _, want := range []string{"198.19.0.0/16 via 198.18.9.1 dev st0 metric 7\n", "198.18.9.0/24 via link dev st0"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}

	neighbors, err := cl.Neighbors(ctx)
	if err != nil {
		t.Fatal(err)
	}
	states := map[string]string{}
	for _, n := range neighbors {
		states[n.Address.String()] = n.State + " " + n.MAC + " " + n.Device
	}
	if states["198.18.9.99"] != "permanent 02:00:00:00:00:01 st0" || !strings.HasPrefix(states[linux4], "reachable ") {
		t.Errorf("%v", states)
	}

	for range 5000 { // dial returns before the host has the client's acknowledgement
		if got, err := cl.Sockets(ctx, Query{States: []string{"ESTAB"}}); err != nil || len(got.Sockets) == 1 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	for _, tc := range []struct {
		q    Query
		want int
	}{
		{Query{}, 6 + 5 + 1},
		{Query{Protocol: "udp"}, 5},
		{Query{States: []string{"ESTAB"}}, 1},
		{Query{States: []string{"LISTEN"}}, 6},
		{Query{Protocol: "tcp", Port: 7}, 2},
		{Query{Port: 80}, 1},
		{Query{Port: uint16(c.LocalAddr().(*net.TCPAddr).Port)}, 1},
		{Query{Family: 6, States: []string{"ESTAB"}}, 0},
		{Query{Family: 4, States: []string{"ESTAB"}}, 1},
	} {
		got, err := cl.Sockets(ctx, tc.q)
		if err != nil || len(got.Sockets) != tc.want || got.More != 0 {
			t.Errorf("%+v: %v, %+v; want %d", tc.q, err, got, tc.want)
		}
	}
	if got, err := cl.Sockets(ctx, Query{Limit: 2}); err != nil || len(got.Sockets) != 2 || got.More != 10 {
		t.Errorf("%v, %+v", err, got)
	}
	got, err := cl.Sockets(ctx, Query{States: []string{"ESTAB"}})
	if err != nil || len(got.Sockets) != 1 || got.Sockets[0].Remote.String() != c.LocalAddr().String() || got.Sockets[0].Local.String() != host4+":7" ||
		got.Sockets[0].Service != "echo" || got.Sockets[0].TCP.MSS != 1448 {
		t.Errorf("%v, %+v", err, got)
	}

	st, err := cl.Stats(ctx)
	for range 200 { // a loop publishes its counters when it has time
		if err != nil || st.Packets.Forwarded > 0 && st.Devices[0].RxPackets == st.Packets.Received {
			break
		}
		time.Sleep(50 * time.Millisecond)
		st, err = cl.Stats(ctx)
	}
	if err != nil || st.TCP["passive_opens"] != 1 || st.Packets.Received == 0 || st.Packets.Forwarded == 0 || len(st.Devices) != 1 || len(st.Services) != 6 ||
		st.Devices[0].RxPackets != st.Packets.Received || st.Services[0].Accepted != 1 || st.Engine.Name != "cpu" {
		t.Errorf("%v, %+v", err, st)
	}
	if err := NewClient("/nonexistent/x.sock").Stop(ctx); err == nil || !strings.Contains(err.Error(), "no stack is running there") {
		t.Error(err)
	}
	if err := cl.control.Call(ctx, "GET", "/v1/sockets?state=x", nil, &got); err == nil || !strings.Contains(err.Error(), `no state "x"`) {
		t.Error(err)
	}
	if err := cl.control.Call(ctx, "GET", "/v1/nothing", nil, &got); err == nil || !strings.Contains(err.Error(), "no GET /v1/nothing here") {
		t.Error(err)
	}
	if err := cl.Stop(ctx); err != nil {
		t.Error(err)
	}
}
