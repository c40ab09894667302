package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/device"
	"github.com/millrace/millrace/ring"
)

func TestStopEndsRunAndServicesFinishFirst(t *testing.T) {
	n, _ := openMemory(t, 2, "m0")
	finished := false
	_ = n.Add(Service{Name: "a", Handlers: handlers(2, packet.DropRule), Shutdown: func() {
		finished = n.OnLoop(1, func() {}) // the loops still run
	}})
	done := make(chan error)
	go func() { done <- n.Run(t.Context()) }()
	n.OnLoop(0, func() {}) // it runs
	n.Stop()
	n.Stop() // is allowed
	select {
	case err := <-done:
		if err != nil || !finished {
			t.Errorf("Run returned %v, the service has finished: %v", err, finished)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("Stop did not end Run")
	}
	<-n.Ended()
}

func TestAServiceThatDoesNotFinishIsNotWaitedForLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		n := &Node{log: slog.New(slog.DiscardHandler), ended: make(chan struct{}), services: []Service{{Shutdown: func() { <-release }}, {}}}
		start := time.Now()
		n.shutdown()
		if took := time.Since(start); took != shutdownLimit {
			t.Errorf("waited for %s, want %s", took, shutdownLimit)
		}
		close(n.ended)
		start = time.Now()
		n.shutdown()
		if took := time.Since(start); took != 0 {
			t.Errorf("loops that have ended were waited for: %s", took)
		}
		close(release)
	})
}

func TestGoroutinesEnterTheLoopsOfANodeWithSuchAService(t *testing.T) {
	n, _ := openMemory(t, 1, "m0")
	_ = n.Add(Service{Name: "a", Handlers: handlers(1, packet.DropRule)})
	_ = n.Add(Service{Name: "b", Handlers: handlers(1, packet.DropRule), Entered: true})
	done := make(chan error)
	go func() { done <- n.Run(t.Context()) }()
	n.OnLoop(0, func() {})
	entered := make(chan struct{})
	go func() {
		n.Loops()[0].Lock().Enter()
		n.Loops()[0].Lock().Exit()
		close(entered)
	}()
	select {
	case <-entered:
	case <-time.After(5 * time.Second):
		t.Error("the loop does not let anybody in")
	}
	n.Stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestLoopsOfANodeHaveExtraProcessors runs loops on threads and as goroutines.
func TestLoopsOfANodeHaveExtraProcessors(t *testing.T) {
	for _, entered := range []bool{false, true} {
		before := runtime.GOMAXPROCS(0)
		n, err := Open(Config{Loops: 2, ExtraProcessor: true, OpenDevice: new(wires).open, Devices: []Device{{Name: "m0"}}})
		if err != nil {
			t.Fatal(err)
		}
		_ = n.Add(Service{Name: "a", Handlers: handlers(2, packet.DropRule), Entered: entered})
		done := make(chan error)
		go func() { done <- n.Run(t.Context()) }()
		for i := range 2 {
			n.OnLoop(i, func() {})
		}
		if got := runtime.GOMAXPROCS(0); got != before+2 {
			t.Errorf("entered %v: %d processors, %d before", entered, got, before)
		}
		n.Stop()
		if err := errors.Join(<-done, n.Close()); err != nil {
			t.Error(err)
		}
		if got := runtime.GOMAXPROCS(0); got != before {
			t.Errorf("entered %v: %d processors after, %d before", entered, got, before)
		}
	}
}

// TestMemoryOfANodeFollowsItsRings has a frame for each packet of the rings of all devices.
func TestMemoryOfANodeFollowsItsRings(t *testing.T) {
	frames := func(rings ...int) (n int) {
		w := new(wires)
		cfg := Config{Loops: 1, OpenDevice: func(c Device, pools []*ring.Pool) (*device.Device, error) {
			n = pools[0].Size()
			return w.open(c, pools)
		}}
		for i, length := range rings {
			cfg.Devices = append(cfg.Devices, Device{Name: fmt.Sprintf("m%d", i), Ring: length})
		}
		node, err := Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := node.Close(); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if one, two := frames(0, 0), frames(512, 8192); two-one != 512+8192-2*device.DefaultRing {
		t.Errorf("%d frames with rings of 512 and 8192, %d with two of the default", two, one)
	}
}

func TestUnclaimedPacketsOfAWholeDeviceGoToTheFallback(t *testing.T) {
	for _, whole := range []bool{true, false} {
		w := new(wires)
		n, err := Open(Config{Loops: 1, OpenDevice: w.open, Devices: []Device{{Name: "m0", All: whole}}})
		if err != nil {
			t.Fatal(err)
		}
		err = errors.Join(
			n.Add(Service{Name: "a", Handlers: handlers(1, packet.DropDenied), Claims: func() []pmd.Rule { return []pmd.Rule{{Addr: mustAddr("198.18.0.1")}} }}),
			n.Add(Service{Name: "b", Handlers: handlers(1, packet.DropRateLimit), Fallback: true}),
			n.Start(),
		)
		if err != nil {
			t.Fatal(err)
		}
		w.send(t, udp4(1), udp4(2))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- n.Run(ctx) }()
		for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if s := n.Stats(); s.TotalDropped() == 2 {
				break
			}
		}
		cancel()
		want := map[bool]string{true: "rate_limit", false: "not_ours"}[whole]
		if err := errors.Join(<-done, n.Close()); err != nil {
			t.Error(err)
		}
		if c := n.Counters(); c.Dropped["denied"] != 1 || c.Dropped[want] != 1 {
			t.Errorf("whole %v: %+v", whole, c)
		}
	}
}

func TestCloseReportsALostFrame(t *testing.T) {
	w := new(wires)
	n, err := Open(Config{Loops: 1, OpenDevice: w.open, Devices: []Device{{Name: "m0"}}})
	if err != nil {
		t.Fatal(err)
	}
	w.pools[0].Get()
	if err := n.Close(); err == nil {
		t.Error("a frame is missing, and nothing is said")
	}
}

func TestTheBalanceShowsEveryReasonAndWhetherTheSumIsRight(t *testing.T) {
	last := packet.Verdict(packet.Verdicts - 1).String()
	c := Counters{Received: 5, Originated: 2, Forwarded: 3, Delivered: 1, Dropped: map[string]uint64{"malformed": 1, last: 2}}
	want := "received 5 + originated 2 = forwarded 3 + delivered 1 + dropped 3 (malformed 1, " + last + " 2)\n"
	if got := c.Balance(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	c.Received, c.Merged = 9, 4
	if got := c.Balance(); !strings.HasPrefix(got, "received 9 + originated 2 = forwarded 3 + delivered 1 + merged 4 + dropped 3") {
		t.Errorf("%q", got)
	}
	c.Originated, c.Received, c.Merged = 0, 5, 0
	if got := c.Balance(); !strings.HasPrefix(got, "received 5 is not forwarded 3") {
		t.Errorf("%q", got)
	}
}

// TestTheKernelsNetworksAndRoutes reads those of an interface with a VLAN in a namespace.
func TestTheKernelsNetworksAndRoutes(t *testing.T) {
	testnet.Program(t, "ip")
	net := testnet.For(t, "mr-node")
	a, b := net.Namespace("a"), net.Namespace("b")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(net.Link(a, "eth1", b, "peer"))
	must(b.Up("peer"))
	must(a.Up("eth1", "198.18.0.1/24", "2001:db8::1/64"))
	ip := func(line string) error {
		_, err := a.Run("ip", strings.Fields(line)...)
		return err
	}
	must(ip("route add 203.0.113.0/24 via 198.18.0.9 metric 77"))
	must(ip("route add default via 198.18.0.8"))
	must(ip("-6 route add default via 2001:db8::9 metric 5"))
	want := []Network{{netip.MustParsePrefix("198.18.0.0/24"), 1, 0}, {netip.MustParsePrefix("2001:db8::/64"), 1, 0}}
	if err := ip("link add link eth1 name eth1.7 type vlan id 7"); err != nil {
		t.Log("without a VLAN, which this kernel does not have:", err)
	} else {
		must(a.Up("eth1.7", "198.18.7.1/24"))
		must(ip("route add 192.0.2.0/24 via 198.18.7.9"))
		want = append(want, Network{netip.MustParsePrefix("198.18.7.0/24"), 1, 7})
	}
	n := new(Node)
	must(a.Do(func() (err error) {
		if n.netlink, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
			return err
		}
		link, err := n.netlink.LinkByName("eth1")
		n.links = []Link{{Name: "absent", index: 1 << 20}, {Name: "eth1", index: link.Attrs().Index}}
		return err
	}))
	defer n.netlink.Close()
	networks, err := n.Networks()
	must(err)
	for _, w := range want {
		if !slices.Contains(networks, w) {
			t.Errorf("no %v in %v", w, networks)
		}
	}
	routes, err := n.KernelRoutes(1)
	must(err)
	wantRoutes := []Route{
		{netip.MustParsePrefix("203.0.113.0/24"), mustAddr("198.18.0.9"), 77},
		{netip.MustParsePrefix("0.0.0.0/0"), mustAddr("198.18.0.8"), 0},
		{netip.MustParsePrefix("::/0"), mustAddr("2001:db8::9"), 5},
	}
	for _, r := range wantRoutes {
		if !slices.Contains(routes, r) {
			t.Errorf("no %v in %v", r, routes)
		}
	}
	if len(routes) != len(wantRoutes) { // that by the VLAN is another interface's
		t.Errorf("routes %v, want %v", routes, wantRoutes)
	}
}

func TestANodeWithoutDevicesRunsItsServices(t *testing.T) {
	n, err := Open(Config{WithoutDevices: true})
	if err != nil {
		t.Fatal(err)
	}
	began, ended := make(chan struct{}), false
	_ = n.Add(Service{
		Name: "a", Shutdown: func() { ended = true },
		Background: func(ctx context.Context) { close(began); <-ctx.Done() },
	})
	done := make(chan error)
	go func() { done <- n.Run(t.Context()) }()
	<-began
	networks, err := n.Networks()
	if c := n.Counters(); c.Received != 0 || n.Update() != nil || len(networks) != 0 || err != nil {
		t.Errorf("%+v, %v, %v", c, networks, err)
	}
	n.Stop()
	select {
	case err := <-done:
		if err != nil || !ended {
			t.Errorf("Run returned %v, the service has finished: %v", err, ended)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("Stop did not end Run")
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
}

func TestAServiceMaySayHowLongItsShutdownTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		defer close(release)
		longer := func() time.Duration { return 4 * shutdownLimit }
		n := &Node{log: slog.New(slog.DiscardHandler), ended: make(chan struct{}), services: []Service{{}, {Shutdown: func() { <-release }, ShutdownLimit: longer}}}
		start := time.Now()
		n.shutdown()
		if took := time.Since(start); took != 4*shutdownLimit {
			t.Errorf("waited for %s", took)
		}
	})
}
