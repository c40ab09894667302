package node

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/device"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/stack"
)

// wires are devices in memory: what a test writes to the far end of a queue reaches the
// node.
type wires struct {
	mu    sync.Mutex
	far   [][]pmd.Driver // by device, by queue
	pools []*ring.Pool
}

// open is a Config.OpenDevice.
func (w *wires) open(_ Device, pools []*ring.Pool) (*device.Device, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var near, far []pmd.Driver
	for _, p := range pools {
		a, b, err := pmd.NewMemory(pmd.MemoryConfig{A: p, B: p})
		if err != nil {
			return nil, err
		}
		near, far = append(near, a), append(far, b)
	}
	w.far, w.pools = append(w.far, far), pools
	return device.New("memory", near, func() error {
		var errs []error
		for i := range near {
			errs = append(errs, near[i].Close(), far[i].Close())
		}
		return errors.Join(errs...)
	}), nil
}

// counter is a handler that drops all that it gets, for a reason of its own.
type counter struct {
	why packet.Verdict
	got int
}

func (c *counter) Handle(_ clock.Time, b *packet.Batch) {
	c.got += len(b.D)
	for i := range b.D {
		b.D[i].Verdict = c.why
	}
}

func (c *counter) Tick(clock.Time) clock.Time { return clock.Never }

func handlers(n int, why packet.Verdict) (list []stack.Handler) {
	for range n {
		list = append(list, &counter{why: why})
	}
	return list
}

func openMemory(t *testing.T, loops int, devices ...string) (*Node, *wires) {
	t.Helper()
	w := new(wires)
	c := Config{Loops: loops, OpenDevice: w.open}
	for _, name := range devices {
		c.Devices = append(c.Devices, Device{Name: name})
	}
	n, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n, w
}

func TestAServiceNeedsAHandlerForEachLoop(t *testing.T) {
	n, _ := openMemory(t, 2, "m0")
	if err := n.Add(Service{Name: "one", Handlers: handlers(1, packet.DropRule)}); err == nil || !strings.Contains(err.Error(), "1 handlers for 2 loops") {
		t.Errorf("got %v", err)
	}
	if err := n.Start(); err == nil {
		t.Error("a node without a service started")
	}
	if err := n.Add(Service{Name: "a", Handlers: handlers(2, packet.DropRule), Fallback: true}); err != nil {
		t.Fatal(err)
	}
	if err := n.Add(Service{Name: "b", Handlers: handlers(2, packet.DropRule), Fallback: true}); err == nil || !strings.Contains(err.Error(), "a and b") {
		t.Errorf("two services want what nobody claims: %v", err)
	}
}

// TestServicesMayCallTheNodeWhenAsked has a service call the node while it is asked what it claims. One that only waits for a
// lock of its own, whose holder calls the node, is in the same place.
func TestServicesMayCallTheNodeWhenAsked(t *testing.T) {
	n, _ := openMemory(t, 1, "m0")
	claims := func() []pmd.Rule {
		return []pmd.Rule{{Addr: netip.AddrFrom4([4]byte{198, 18, 0, byte(len(n.Links()))})}}
	}
	if err := n.Add(Service{Name: "a", Handlers: handlers(1, packet.DropRule), Claims: claims}); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- n.Update() }()
	select {
	case err := <-done:
		if err != nil || len(n.Claims()) != 1 {
			t.Errorf("claims %v, %v", n.Claims(), err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the service waits for the node, and the node for the service")
	}
}

// udp4 is a datagram to 198.18.0.last, port 9.
func udp4(last byte) []byte {
	return []byte{
		2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0,
		0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 198, 18, 1, 1, 198, 18, 0, last,
		0, 7, 0, 9, 0, 8, 0, 0,
	}
}

func (w *wires) send(t *testing.T, frames ...[]byte) {
	t.Helper()
	b := packet.NewBatch(w.pools[0].Arena().View(), len(frames))
	for _, f := range frames {
		off, ok := w.pools[0].Get()
		if !ok {
			t.Fatal("no frame is free")
		}
		d := packet.Desc{Off: off, Len: uint16(len(f))}
		copy(b.Arena.Bytes(&d), f)
		b.Append(d)
	}
	if k, err := w.far[0][0].Tx(0, b); k != len(frames) || err != nil {
		t.Fatalf("sent %d of %d, %v", k, len(frames), err)
	}
}

func TestServicesGetWhatTheyClaimAndEveryPacketIsCounted(t *testing.T) {
	n, w := openMemory(t, 1, "m0")
	a, b := handlers(1, packet.DropDenied), handlers(1, packet.DropRateLimit)
	addr := func(s string) []pmd.Rule { return []pmd.Rule{{Addr: mustAddr(s)}} }
	var mu sync.Mutex
	claimed := "198.18.0.1"
	ended := false
	err := errors.Join(
		n.Add(Service{Name: "a", Handlers: a, Claims: func() []pmd.Rule { mu.Lock(); defer mu.Unlock(); return addr(claimed) }}),
		n.Add(Service{Name: "b", Handlers: b, Claims: func() []pmd.Rule { return addr("198.18.0.2") }, Shutdown: func() { ended = true }}),
		n.Start(),
	)
	if err != nil {
		t.Fatal(err)
	}
	w.send(t, udp4(1), udp4(2), udp4(3), udp4(2))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- n.Run(ctx) }()
	wait := func(want uint64) {
		for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
			if s := n.Stats(); s.TotalDropped() >= want {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("counters %+v, want %d packets", n.Counters(), want)
			}
		}
	}
	wait(4)
	mu.Lock()
	claimed = "198.18.0.3" // while packets flow
	mu.Unlock()
	if err := n.Update(); err != nil {
		t.Fatal(err)
	}
	n.OnLoop(0, func() { w.send(t, udp4(3), udp4(1)) }) // the memory driver belongs to the loop's thread
	wait(6)
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	c := n.Counters()
	if c.Received != 6 || c.Dropped["denied"] != 2 || c.Dropped["rate_limit"] != 2 || c.Dropped["not_ours"] != 2 {
		t.Errorf("counters %+v", c)
	}
	if !strings.Contains(c.Balance(), "received 6 = forwarded 0 + delivered 0 + dropped 6") {
		t.Errorf("balance %q", c.Balance())
	}
	if !ended {
		t.Error("the service was not shut down")
	}
	if n.OnLoop(0, func() { t.Error("it was run") }) {
		t.Error("a loop that has ended ran a function")
	}
	n.Stop()
	if err := errors.Join(n.Close(), n.Close()); err != nil { // and once more when the test ends
		t.Error(err)
	}
}

func TestClaimsThatContradictLeaveTheTableAsItWas(t *testing.T) {
	n, _ := openMemory(t, 1, "m0")
	both := false
	rule := pmd.Rule{Addr: mustAddr("198.18.0.1"), Proto: 6, PortLo: 80, PortHi: 80}
	_ = n.Add(Service{Name: "a", Handlers: handlers(1, packet.DropRule), Claims: func() []pmd.Rule { return []pmd.Rule{rule} }})
	_ = n.Add(Service{Name: "b", Handlers: handlers(1, packet.DropRule), Claims: func() []pmd.Rule {
		if both {
			return []pmd.Rule{rule}
		}
		return nil
	}})
	if err := n.Start(); err != nil {
		t.Fatal(err)
	}
	both = true
	if err := n.Update(); !errors.Is(err, stack.ErrClaim) {
		t.Errorf("got %v", err)
	}
	if got := n.Claims(); len(got) != 1 || got[0].Target != stack.ToHandler(0) {
		t.Errorf("the table is %v", got)
	}
}

func TestOneServiceAnswersForAnAddressAndTheKernelKeepsItsOwn(t *testing.T) {
	n, _ := openMemory(t, 1, "m0")
	near := pmd.Rule{Addr: mustAddr("198.18.0.1"), Kind: pmd.Neighbor}
	keep := pmd.Rule{Addr: mustAddr("198.18.0.9"), Kind: pmd.Keep}
	whole := pmd.Rule{Addr: mustAddr("198.18.0.8")}
	keepTaken := pmd.Rule{Addr: whole.Addr, Kind: pmd.Keep}
	_ = n.Add(Service{Name: "a", Handlers: handlers(1, packet.DropRule), Claims: func() []pmd.Rule { return []pmd.Rule{near, keep, keepTaken} }})
	_ = n.Add(Service{Name: "b", Handlers: handlers(1, packet.DropRule), Claims: func() []pmd.Rule { return []pmd.Rule{near, whole} }})
	if err := n.Start(); err != nil {
		t.Fatal(err)
	}
	want := []stack.Claim{{Rule: near, Target: stack.ToHandler(0)}, {Rule: whole, Target: stack.ToHandler(1)}, {Rule: pmd.Rule{Addr: keep.Addr}, Target: stack.ToKernel}}
	if got := n.Claims(); !slices.Equal(got, want) {
		t.Errorf("claims %v, want %v", got, want)
	}
}

// A host that sends from an address learns neighbours by the answers to it. The L4 service resolves nothing.
func TestWhoHasTheWholeAddressAnswersForIt(t *testing.T) {
	n, _ := openMemory(t, 1, "m0")
	near, port := pmd.Rule{Addr: mustAddr("198.18.0.1"), Kind: pmd.Neighbor}, pmd.Rule{Addr: mustAddr("198.18.0.1"), Proto: 6, PortLo: 80, PortHi: 80}
	whole, only := pmd.Rule{Addr: near.Addr}, pmd.Rule{Addr: mustAddr("198.18.0.2"), Kind: pmd.Neighbor}
	silent := pmd.Rule{Addr: only.Addr} // without its neighbour discovery
	_ = n.Add(Service{Name: "a", Handlers: handlers(1, packet.DropRule), Claims: func() []pmd.Rule { return []pmd.Rule{port, near, only} }})
	_ = n.Add(Service{Name: "b", Handlers: handlers(1, packet.DropRule), Claims: func() []pmd.Rule { return []pmd.Rule{whole, near, silent} }})
	if err := n.Start(); err != nil {
		t.Fatal(err)
	}
	a, b := stack.ToHandler(0), stack.ToHandler(1)
	want := []stack.Claim{{Rule: port, Target: a}, {Rule: only, Target: a}, {Rule: whole, Target: b}, {Rule: near, Target: b}, {Rule: silent, Target: b}}
	if got := n.Claims(); !slices.Equal(got, want) {
		t.Errorf("claims %v, want %v", got, want)
	}
}

func TestPacketsThatAServiceSendsToItselfAreItsOwnWhateverIsClaimed(t *testing.T) {
	n, w := openMemory(t, 1, "m0")
	a, b := handlers(1, packet.DropDenied), handlers(1, packet.DropRateLimit)
	_ = n.Add(Service{Name: "a", Handlers: a, Claims: func() []pmd.Rule { return []pmd.Rule{{Addr: mustAddr("198.18.0.1")}} }})
	_ = n.Add(Service{Name: "b", Handlers: b, Fallback: true})
	if err := n.Start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- n.Run(ctx) }()
	n.OnLoop(0, func() {
		out := n.Loops()[0].Output()
		for _, last := range []byte{1, 2} { // claimed by the other service, and by none
			f := udp4(last)
			d := packet.Desc{Off: out.ReserveLoopback(1)[0], Len: uint16(len(f))}
			copy(w.pools[0].Arena().View().Bytes(&d), f)
			out.Loopback([]packet.Desc{d})
		}
	})
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if s := n.Stats(); s.TotalDropped() == 2 {
			break
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if c := n.Counters(); c.Originated != 2 || c.Dropped["rate_limit"] != 2 {
		t.Errorf("counters %+v, want both with the service that sent them", c)
	}
}

func TestTheControlSocketReplacesOneThatAKilledProcessLeft(t *testing.T) {
	left := filepath.Join(t.TempDir(), "left.sock")
	l, err := net.Listen("unix", left)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // as by SIGKILL
	l.Close()
	n := &Node{cfg: Config{Control: left, ControlInUse: errors.New("in use")}}
	if err := n.listenControl(); err != nil {
		t.Fatal(err)
	}
	if err := (&Node{cfg: n.cfg}).listenControl(); err == nil || !errors.Is(err, n.cfg.ControlInUse) || !strings.Contains(err.Error(), left) {
		t.Errorf("a socket that is in use: %v", err)
	}
	n.control.Close()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	n.cfg.Control = file
	if err := n.listenControl(); err == nil || !strings.Contains(err.Error(), "name another path") {
		t.Errorf("a file that is no socket was replaced, or the error has no remedy: %v", err)
	}
	if b, _ := os.ReadFile(file); string(b) != "precious" {
		t.Errorf("the file is now %q", b)
	}
	n.cfg.Control = "/nonexistent/a/b.sock"
	if err := n.listenControl(); err == nil {
		t.Error("a folder of a folder was made")
	}
}

func mustAddr(s string) netip.Addr { return netip.MustParseAddr(s) }
