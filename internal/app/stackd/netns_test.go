package stackd

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/device"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/stack"

	"github.com/millrace/millrace/gpukern"
)

// The addresses of all sites.
const (
	linux4, linux6 = "198.18.9.1", "2001:db8:9::1"
	host4, host6   = "198.18.9.2", "2001:db8:9::2"
	kernel4        = "198.18.9.3" // with siteConfig.kernel
)

// site is a Linux host and one of ours on one link.
type site struct {
	t     *testing.T
	linux *testnet.Namespace
	ours  *testnet.Namespace
	d     *Daemon
}

// siteConfig says what a site is like. Its zero value is an AF_XDP device with an MTU of 1500.
type siteConfig struct {
	driver string
	mtu    int
	queues int
	impair string            // of a bridge between the two, in both directions; "" is no bridge
	sysctl map[string]string // of the Linux host
	kernel bool              // the kernel has an address on our interface, too
	large  bool              // Linux leaves segmentation and checksums to its interface, which passes large packets whole
	config func(*Config)
}

// newSite makes a site with every service up.
func newSite(t *testing.T, name string, sc siteConfig) *site {
	t.Helper()
	n := testnet.For(t, "mr-stack-"+name)
	s := &site{t: t, linux: n.Namespace("linux")}
	ours, wire := n.Namespace("ours"), (*testnet.Namespace)(nil)
	must := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	queues := max(sc.queues, 1)
	if sc.impair == "" {
		must(n.LinkQueues(s.linux, "eth0", ours, "st0", queues))
	} else {
		wire = n.Namespace("wire")
		must(n.Link(s.linux, "eth0", wire, "a"), n.Link(wire, "b", ours, "st0"), wire.Up("a"), wire.Up("b"))
		must(wire.NoOffload("a"), wire.NoOffload("b"))
		mtu(t, sc.mtu, wire, "a", "b")
	}
	if !sc.large {
		must(s.linux.NoOffload("eth0"), ours.NoOffload("st0")) // before a program of XDP is on the other end
	}
	if sc.impair != "" {
		bridge(t, wire, sc.impair)
	}
	mtu(t, sc.mtu, s.linux, "eth0")
	mtu(t, sc.mtu, ours, "st0")
	must(s.linux.Up("eth0", linux4+"/24"), ours.Up("st0"))
	if sc.mtu == 0 || sc.mtu >= 1280 {
		must(s.linux.Up("eth0", linux6+"/64"))
	}
	if sc.kernel {
		must(ours.Up("st0", kernel4+"/24"))
	}
	for name, value := range sc.sysctl {
		must(s.linux.Sysctl(name, value))
	}
	v := NewDevice("st0")
	v.Driver, v.Queues = "afxdp", queues
	if sc.driver != "" {
		v.Driver = sc.driver
	}
	v.Addresses = []netip.Prefix{netip.MustParsePrefix(host4 + "/24")}
	if sc.mtu == 0 || sc.mtu >= 1280 {
		v.Addresses = append(v.Addresses, netip.MustParsePrefix(host6+"/64"))
	}
	cfg := New()
	cfg.Devices, cfg.Services, cfg.Control.Socket = []Device{v}, AllServices(), t.TempDir()+"/stack.sock"
	if sc.config != nil {
		sc.config(cfg)
	}
	s.ours = ours
	s.d = runDaemon(t, ours, cfg)
	return s
}

// quiet is a log that nobody reads.
var quiet = slog.New(slog.DiscardHandler)

// mtu sets the MTU of interfaces; 0 leaves it.
func mtu(t *testing.T, n int, ns *testnet.Namespace, names ...string) {
	t.Helper()
	for _, name := range names {
		if n == 0 {
			return
		}
		if out, err := ns.Run("ip", "link", "set", name, "mtu", fmt.Sprint(n)); err != nil {
			t.Fatal(err, out)
		}
	}
}

// runDaemon runs a host in a namespace until the test ends. Frames that are lost are an error of Close.
func runDaemon(t *testing.T, ns *testnet.Namespace, cfg *Config) *Daemon {
	t.Helper()
	var d *Daemon
	var log strings.Builder
	err := ns.Do(func() (err error) {
		d, err = Open(cfg, Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-done, d.Close()); err != nil {
			t.Errorf("the host ends with %v", err)
		}
		p := d.Stats().Packets
		if sum := p.Forwarded + p.Delivered + total(p.Dropped); p.Received+p.Originated != sum {
			t.Errorf("the counters do not balance: %+v", p)
		}
		if t.Failed() {
			t.Logf("log of the host:\n%s\n%+v", &log, d.Stats())
		}
	})
	return d
}

// total adds up what was dropped.
func total(m map[string]uint64) (n uint64) {
	for _, v := range m {
		n += v
	}
	return n
}

// bridge joins the interfaces a and b of a namespace by our own forwarder, which does to packets in both directions what
// the profile says.
func bridge(t *testing.T, ns *testnet.Namespace, profile string) {
	t.Helper()
	p, err := pmd.ParseProfile("rx: " + profile)
	if err != nil {
		t.Fatal(err)
	}
	var ports []pmd.Driver
	var closers []func() error
	var arena *ring.Arena
	var pool *ring.Pool
	err = ns.Do(func() error {
		a, pools, err := device.NewArena(1, device.Config{Name: "a"}, device.Config{Name: "b"})
		if err != nil {
			return err
		}
		arena, pool = a, pools[0]
		for i, name := range []string{"a", "b"} {
			dev, err := device.Open(device.Config{Name: name, Driver: device.AFXDP, Pools: pools, All: true})
			if err != nil {
				return err
			}
			q := p
			q.Seed = uint64(i) + 1
			bad, err := pmd.NewImpair(dev.Queues[0], pmd.ImpairConfig{Profile: q, Pool: pool})
			if err != nil {
				return err
			}
			ports, closers = append(ports, bad), append(closers, dev.Close, bad.Close)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := stack.NewLoop(stack.Config{Devices: ports, Pool: pool, Engine: gpukern.NewCPU(gpukern.Config{Ops: gpukern.OpParse}), Handler: stack.Bridge{}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		errs := []error{<-done, l.Close()}
		for i := len(closers) - 1; i >= 0; i-- {
			errs = append(errs, closers[i]())
		}
		if err := errors.Join(append(errs, arena.Close())...); err != nil {
			t.Errorf("the bridge ends with %v", err)
		}
	})
}

// run runs a program on the Linux host.
func (s *site) run(name string, args ...string) string {
	s.t.Helper()
	testnet.Program(s.t, name)
	out, err := s.linux.Run(name, args...)
	if err != nil {
		s.t.Errorf("%v", err)
	}
	return out
}

// ping has the Linux host send three echo requests of so many bytes. Each waits for its answer: after the last of several, ping
// waits for twice the round-trip time only.
func (s *site) ping(addr string, size int) {
	s.t.Helper()
	for range 3 {
		s.run("ping", "-c", "1", "-W", "20", "-s", strconv.Itoa(size), addr)
	}
}

// dial connects from the Linux host by the kernel's TCP or UDP.
func (s *site) dial(network, addr string) (c net.Conn, err error) {
	err = s.linux.Do(func() (err error) {
		c, err = net.DialTimeout(network, addr, 10*time.Second)
		return err
	})
	return c, err
}

// listen listens on the Linux host.
func (s *site) listen(addr string) net.Listener {
	s.t.Helper()
	var l net.Listener
	err := s.linux.Do(func() (err error) {
		l, err = net.Listen("tcp", addr)
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { l.Close() })
	return l
}

// browser is an HTTP client on the Linux host.
func (s *site) browser() *http.Client {
	tr := &http.Transport{DialContext: func(_ context.Context, network, addr string) (net.Conn, error) { return s.dial(network, addr) }}
	s.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// hosts returns our addresses as URLs have them.
func (s *site) hosts() (list []string) {
	for _, p := range s.d.cfg.Devices[0].Addresses {
		h := p.Addr().String()
		if p.Addr().Is6() {
			h = "[" + h + "]"
		}
		list = append(list, h)
	}
	return list
}

// content is bytes that are the same each time and repeat nowhere near.
type content struct {
	left int64
	x    uint64
}

func newContent(n int64) *content { return &content{left: n, x: 0x9e3779b97f4a7c15} }

// Read implements io.Reader.
func (c *content) Read(b []byte) (int, error) {
	if c.left <= 0 {
		return 0, io.EOF
	}
	b = b[:min(int64(len(b)), c.left)]
	for i := range b {
		if i&7 == 0 {
			c.x ^= c.x << 13
			c.x ^= c.x >> 7
			c.x ^= c.x << 17
		}
		b[i] = byte(c.x >> (8 * (i & 7)))
	}
	c.left -= int64(len(b))
	return len(b), nil
}

// sum returns the SHA-256 of all that r brings, and how much it was.
func sum(r io.Reader) (string, int64, error) {
	h := sha256.New()
	n, err := io.CopyBuffer(h, struct{ io.Reader }{r}, make([]byte, 128<<10))
	return hex.EncodeToString(h.Sum(nil)), n, err
}

// bothWays sends n bytes to our host and gets n bytes back by HTTP, and compares their SHA-256.
func (s *site) bothWays(host string, n int64) {
	s.t.Helper()
	b := s.browser()
	b.Timeout = 10*time.Second + time.Duration(n/1e5)*time.Second
	h := sha256.New()
	req, err := http.NewRequest(http.MethodPut, "http://"+host+"/sum", io.TeeReader(newContent(n), h))
	if err != nil {
		s.t.Fatal(err)
	}
	req.ContentLength = n
	resp, err := b.Do(req)
	if err != nil {
		s.t.Errorf("%s: PUT: %v", host, err)
		return
	}
	defer resp.Body.Close()
	got, _ := io.ReadAll(resp.Body)
	if want := fmt.Sprintf("%x %d\n", h.Sum(nil), n); string(got) != want {
		s.t.Errorf("%s: sent %q, received %q", host, want, got)
	}
	resp, err = b.Get(fmt.Sprintf("http://%s/bytes/%d", host, n))
	if err != nil {
		s.t.Errorf("%s: GET: %v", host, err)
		return
	}
	defer resp.Body.Close()
	down, m, err := sum(resp.Body)
	if want := patternSum(n); err != nil || m != n || down != want {
		s.t.Errorf("%s: received %d bytes of %d with SHA-256 %s, want %s (%v)", host, m, n, down, want, err)
	}
}

// TestRingReachesTheKernel looks at what the process has mapped of its AF_XDP sockets: a header of less than a page, and
// 8 bytes for each entry of the fill ring.
func TestRingReachesTheKernel(t *testing.T) {
	newSite(t, "ring", siteConfig{config: func(c *Config) { c.Devices[0].Ring = 512 }})
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	fill := regexp.MustCompile(`(?m)^([0-9a-f]+)-([0-9a-f]+) rw-s 100000000 .* socket:`).FindAllStringSubmatch(string(maps), -1)
	if len(fill) != 1 {
		t.Fatalf("%d fill rings:\n%s", len(fill), maps)
	}
	from, _ := strconv.ParseUint(fill[0][1], 16, 64)
	to, _ := strconv.ParseUint(fill[0][2], 16, 64)
	if to-from != 8*512+4096 {
		t.Errorf("a fill ring of %d bytes", to-from)
	}
}
