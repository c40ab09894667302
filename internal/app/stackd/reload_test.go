package stackd

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/millrace/millrace/internal/app/service"
	"github.com/millrace/millrace/node"
	"github.com/millrace/millrace/stack"
)

func TestAReloadKeepsConnectionsAndMovesServicesAndAddresses(t *testing.T) {
	const second = "198.18.9.22"
	s := newSite(t, "reload", siteConfig{})
	c, err := s.dial("tcp", net.JoinHostPort(host4, "7"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	echo := func() {
		t.Helper()
		b := make([]byte, 5)
		if _, err := c.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Read(b); err != nil || string(b[:n]) != "hello" {
			t.Fatalf("the connection of before says %q, %v", b[:n], err)
		}
	}
	echo()

	next := *s.d.cfg
	next.Devices = slices.Clone(next.Devices)
	next.Devices[0].Addresses = append(slices.Clone(next.Devices[0].Addresses), netip.MustParsePrefix(second+"/24"))
	next.Services = slices.DeleteFunc(slices.Clone(next.Services), func(v Service) bool { return v.Kind == service.HTTP })
	next.Services = append(next.Services, Service{Kind: service.HTTP, Port: 8080})
	next.Neighbors = []Neighbor{{Address: netip.MustParseAddr("198.18.9.77"), MAC: net.HardwareAddr{2, 0, 0, 0, 0, 7}}}
	next.Routes = []Route{{To: netip.MustParsePrefix("198.19.0.0/16"), Via: netip.MustParseAddr(linux4)}}
	if err := s.d.Reload(&next); err != nil {
		t.Fatal(err)
	}
	echo()
	for addr, want := range map[string]bool{
		net.JoinHostPort(host4, "80"): false, net.JoinHostPort(host4, "8080"): true, net.JoinHostPort(second, "8080"): true, net.JoinHostPort(second, "7"): true,
	} {
		c, err := s.dial("tcp", addr)
		if (err == nil) != want {
			t.Errorf("%s: %v", addr, err)
		}
		if err == nil {
			c.Close()
		}
	}
	claimed := func(a string) bool {
		return slices.ContainsFunc(s.d.node.Claims(), func(c stack.Claim) bool { return c.Addr.String() == a })
	}
	if !claimed(second) || len(s.d.Routes()) == 0 || !slices.ContainsFunc(s.d.Neighbors(), func(n NeighReport) bool { return n.MAC == "02:00:00:00:00:07" }) {
		t.Errorf("claims %v, neighbours %v", s.d.node.Claims(), s.d.Neighbors())
	}

	back := next
	back.Devices = slices.Clone(next.Devices)
	back.Devices[0].Addresses = back.Devices[0].Addresses[:2]
	back.Routes, back.Neighbors = nil, nil
	if err := s.d.Reload(&back); err != nil {
		t.Fatal(err)
	}
	echo()
	if claimed(second) || slices.ContainsFunc(s.d.Neighbors(), func(n NeighReport) bool { return n.MAC == "02:00:00:00:00:07" }) {
		t.Errorf("claims %v, neighbours %v", s.d.node.Claims(), s.d.Neighbors())
	}
	if err := s.d.ReloadFile(); !errors.Is(err, ErrNoFile) {
		t.Errorf("a reload without a file: %v", err)
	}
	s.d.opt.Load = func() (*Config, error) { return &next, nil }
	if err := NewClient(s.d.cfg.Control.Socket).Reload(t.Context()); err != nil || !claimed(second) {
		t.Errorf("a reload over the control socket: %v", err)
	}
}

func TestChangesThatNeedARestartAreRefused(t *testing.T) {
	old := New()
	old.Devices = []Device{NewDevice("st0")}
	old.Devices[0].Addresses = []netip.Prefix{netip.MustParsePrefix(host4 + "/24")}
	for what, change := range map[string]func(*Config){
		"engine":              func(c *Config) { c.Engine = "auto" },
		"cpus":                func(c *Config) { c.CPUs = node.CPUs{Auto: true} },
		"extra_processor":     func(c *Config) { c.ExtraProcessor = true },
		"control":             func(c *Config) { c.Control.Socket = "/run/other.sock" },
		"tcp":                 func(c *Config) { c.TCP.Memory = 1 << 30 },
		"queues":              func(c *Config) { c.Devices[0].Queues = 2 },
		"ring":                func(c *Config) { c.Devices[0].Ring = 4096 },
		"another device":      func(c *Config) { c.Devices = append(c.Devices, NewDevice("st1")) },
		"another name":        func(c *Config) { c.Devices[0].Name = "st1" },
		"the first IPv6":      func(c *Config) { c.Devices[0].Addresses = []netip.Prefix{netip.MustParsePrefix(host6 + "/64")} },
		"an address, no more": nil,
	} {
		c := *old
		c.Devices = slices.Clone(old.Devices)
		if change == nil {
			c.Devices[0].Addresses = nil
			if err := mayReload(old, &c); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			continue
		}
		change(&c)
		if err := mayReload(old, &c); !errors.Is(err, ErrRestart) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
