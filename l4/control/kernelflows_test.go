package control

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/internal/testkit/flowmodel"
	"github.com/millrace/millrace/l4/datapath"
	"github.com/millrace/millrace/l4/fastpath"
	"github.com/millrace/millrace/node/nexthop"
	"github.com/millrace/millrace/packet"
)

// newKernelWorld is newWorld with a kernel for so many connections, which gets each after so many packets in the loop; 0 is the
// default.
func newKernelWorld(t *testing.T, src string, slots, after int) *world {
	t.Helper()
	c := parse(t, src)
	return kernelWorldWith(t, c, hopsOf(c), slots, after)
}

func kernelWorldWith(t *testing.T, c *config.Config, hops nexthop.Static, slots, after int) *world {
	t.Helper()
	w := newWorldWith(t, c, hops)
	o := handlerOptions(c, 0)
	o.EnterAfter = after
	w.h = datapath.New(o, &w.g.snap)
	w.g.handlers[0] = w.h
	w.withKernel(slots)
	t.Cleanup(func() {
		if err := errors.Join(w.kernel.Misuse(), w.h.Audit()); err != nil {
			t.Error(err)
		}
	})
	return w
}

// kern returns what is counted of the kernel.
func (w *world) kern() datapath.KernelStatus {
	w.t.Helper()
	k, ok := w.h.Kernel()
	if !ok {
		w.t.Fatal("no kernel")
	}
	return k
}

// back returns why connections came back, in the order of datapath.BackReasons, without trailing zeros.
func (w *world) back() (list []string) {
	for why, n := range w.kern().TakenBack {
		if n != 0 {
			list = append(list, fmt.Sprintf("%s %d", datapath.BackReasons[why], n))
		}
	}
	return list
}

// expectBack fails unless connections came back for these reasons, and so many are in the kernel.
func (w *world) expectBack(entered int, want ...string) {
	w.t.Helper()
	w.h.Tick(w.now)
	if got := w.back(); !slices.Equal(got, want) || w.kern().Connections != uint64(entered) {
		w.t.Fatalf("%d in the kernel, came back: %q; want %d, %q", w.kern().Connections, got, entered, want)
	}
	if n, _ := w.kernel.Entered(); n != entered {
		w.t.Fatalf("the kernel has %d, want %d", n, entered)
	}
}

// inKernel opens a connection from src and sends until the kernel has it; it returns a packet that the backend got.
func (w *world) inKernel(src string) []byte {
	w.t.Helper()
	before := w.kern().Entered
	out := w.connect(src)
	w.expect(1, answer(out, "A").bytes(), 0)
	for range 100 {
		if w.kern().Entered != before {
			return out
		}
		w.expect(0, client(src, web, "A").bytes(), 1)
	}
	w.t.Fatal("the connection does not enter the kernel")
	return nil
}

// The kernel gets a connection with its 16th packet that the loop forwards in the confirmed state, and not a short one.
func TestTheKernelGetsLongConnectionsOnly(t *testing.T) {
	w := newKernelWorld(t, fill(""), 8, 0)
	w.connect(host) // the third packet confirms, and is the first that counts
	for range 14 {
		w.expect(0, client(host, web, "A").bytes(), 1)
	}
	w.expectBack(0)
	w.expect(0, client(host, web, "A").bytes(), 1)
	w.expectBack(1)
	loop := w.h.Count(packet.Forward)
	for range 5 {
		w.checksumsRight(w.expect(0, client(host, web, "A").bytes(), 1))
	}
	if n := w.h.Count(packet.Forward); n != loop {
		t.Errorf("the loop has forwarded %d packets of a connection in the kernel", n-loop)
	}
	// A client that is not answered, and may be forged, gets no place.
	for range 50 {
		w.now = w.now.Add(time.Second)
		w.expect(0, client(host, dns, "").bytes(), 1)
	}
	w.expectBack(1)
	w.expect(1, answer(w.expect(0, client(host, dns, "").bytes(), 1), "").bytes(), 0)
	for range 16 {
		w.expect(0, client(host, dns, "").bytes(), 1)
	}
	w.expectBack(2)
}

// What the loop alone can do stays there, and what asks for it later comes back.
func TestWhatTheKernelCannotDoStaysInTheLoop(t *testing.T) {
	for name, c := range map[string]struct{ from, to string }{
		"direct":            {"source: client", "mode: l2"},
		"limits of all":     {"table:", "limits: {packets: 1000000}\ntable:"},
		"limits of one":     {"%s", "limits: {packets: 1000000}"},
		"checksums":         {"table:", "checksum: drop\ntable:"},
		"a limit of others": {"    protocol: udp\n", "    protocol: udp\n    limits: {packets: 1000000}\n"},
		"connections":       {"table:", "limits: {connections: 1000000}\ntable:"},
	} {
		src := strings.Replace(worldConfig, c.from, c.to, 1)
		if name == "direct" {
			src = "devices: [{name: gw0}, {name: gw1}]\nservices: [{name: web, mode: l2, address: 198.18.1.1:80, backends: [{address: 198.18.2.11}]}]"
		} else if strings.Contains(src, "%s") {
			src = fmt.Sprintf(src, "unknown: drop")
		} else {
			src = strings.ReplaceAll(src, "%[1]s", "")
		}
		w := newKernelWorld(t, src, 8, 1)
		if name == "direct" {
			w.expect(0, client(host, web, "S").bytes(), 1)
			w.expect(0, client(host, web, "A").bytes(), 1)
		} else {
			w.connect(host)
		}
		for range 5 {
			w.expect(0, client(host, web, "A").bytes(), 1)
		}
		if want := map[bool]uint64{true: 1}[name == "a limit of others" || name == "connections"]; w.kern().Entered != want {
			t.Errorf("%s: %d connections in the kernel", name, w.kern().Entered)
		}
	}
	for _, keys := range []string{"mode: l2, backends: [{address: 198.18.2.11}]", "quic: {server_id_length: 2, nonce_length: 4}, backends: [{address: 198.18.2.11:53, server_id: \"0a01\"}]"} {
		w := newKernelWorld(t, "devices: [{name: gw0}, {name: gw1}]\nsnat: [198.18.2.1]\nservices: [{name: dns, protocol: udp, address: 198.18.1.1:53, "+keys+"}]", 8, 1)
		for range 5 {
			w.now = w.now.Add(time.Second)
			out := w.expect(0, client(host, dns, "").bytes(), 1)
			w.send(1, answer(out, "").bytes())
		}
		if w.kern().Entered != 0 || len(w.conns()) != 1 || w.only().HalfOpen {
			t.Errorf("%s: %+v", keys, w.kern())
		}
	}
	cfg := parse(t, fill(""))
	w := kernelWorldWith(t, cfg, hopsOn(cfg, 100), 8, 1)
	w.connect(host)
	w.expect(0, client(host, web, "A").bytes(), 1)
	w.expectBack(0)
	w = newKernelWorld(t, fill(""), 8, 1)
	for _, flags := range []string{"S", "A", "A", "A"} {
		s := client(host, web, flags)
		out := w.expect(0, tag(s.bytes(), 0x8100, 7), 1)
		if flags == "S" {
			w.expect(1, answer(out, "SA").bytes(), 0)
		}
	}
	w.expectBack(0)
}

// Each packet counts once for its backend, whoever forwards it and whenever the kernel is read.
func TestPacketsInTheKernelCountOnce(t *testing.T) {
	w := newKernelWorld(t, fill(""), 8, 1)
	counts := func() [4]uint64 {
		var sum [4]uint64
		for _, b := range w.g.Status().Services[0].Backends {
			for i, n := range []uint64{b.ToPackets, b.ToBytes, b.FromPackets, b.FromBytes} {
				sum[i] += n
			}
		}
		return sum
	}
	out := w.inKernel(host)
	w.after(5 * time.Second)
	was, in := counts(), w.kern()
	ask, reply := client(host, web, "A").bytes(), answer(out, "A").bytes()
	exchange := func(n int) {
		for range n {
			w.expect(0, ask, 1)
			w.expect(1, reply, 0)
			w.expect(1, reply, 0)
		}
	}
	check := func(where string, n int) {
		t.Helper()
		want := [4]uint64{uint64(n), uint64(n * len(ask)), uint64(2 * n), uint64(2 * n * len(reply))}
		for i := range want {
			want[i] += was[i]
		}
		if got := counts(); got != want {
			t.Errorf("%s: %v, want %v", where, got, want)
		}
	}
	exchange(10)
	check("before the sweep", 0)
	w.after(5 * time.Second)
	check("after the sweep", 10)
	w.conns()
	w.after(10 * time.Second)
	check("after others", 10)
	exchange(1)
	w.expect(0, client(host, web, "FA").bytes(), 1) // in the loop
	was[0]++
	was[1] += uint64(len(client(host, web, "FA").bytes()))
	check("after the end", 11)
	w.expectBack(0, "closing 1")
	k := w.kern()
	if got := [4]uint64{k.ToPackets - in.ToPackets, k.ToBytes - in.ToBytes, k.FromPackets - in.FromPackets, k.FromBytes - in.FromBytes}; got != [4]uint64{11, uint64(11 * len(ask)), 22, uint64(22 * len(reply))} {
		t.Errorf("of the kernel: %v", got)
	}
	w.inKernel("198.18.0.9:2000")
	w.after(5 * time.Second)
	was = counts()
	w.expect(0, client("198.18.0.9:2000", web, "A").bytes(), 1)
	w.h.ResetAll(0, 100)
	was[0]++
	was[1] += uint64(len(ask))
	check("of one that is reset", 0)
}

// manyBytes is a Forwarder whose connections have more bytes than 32 bits hold.
type manyBytes struct{ fastpath.Forwarder }

func (l manyBytes) Read(slot uint32) fastpath.Traffic {
	t := l.Forwarder.Read(slot)
	t.Bytes[0] *= 1 << 32
	return t
}

func (l manyBytes) Leave(slot uint32) fastpath.Traffic {
	t := l.Forwarder.Leave(slot)
	t.Bytes[0] *= 1 << 32
	return t
}

func TestBytesInTheKernelMayBeMany(t *testing.T) {
	w := newKernelWorld(t, fill(""), 8, 1)
	w.h.SetForwarder(manyBytes{w.toFlush})
	w.inKernel(host)
	w.expect(0, client(host, web, "A").bytes(), 1)
	w.after(5 * time.Second)
	if n := w.kern().ToBytes; n != uint64(len(client(host, web, "A").bytes()))<<32 {
		t.Errorf("%d bytes", n)
	}
}

// Segments that change nothing in the loop take no connection back: a forger cannot make the loop spend system calls.
func TestForgedSegmentsTakeNothingBack(t *testing.T) {
	w := newKernelWorld(t, fill(""), 8, 1)
	out := w.inKernel(host)
	for i := range 50 {
		for _, flags := range []string{"S", "SA", "A", "FA", "R", "RA", "P", ""} {
			s := client(host, web, flags)
			s.seq, s.ack, s.from[5] = firstSeq+uint32(i+1)<<20, firstSeq+uint32(i+1)<<22, 0x66
			w.send(0, s.bytes())
			b := answer(out, flags)
			b.seq, b.ack = s.seq, s.ack
			w.send(1, b.bytes())
		}
	}
	short := client(host, web, "A")
	short.ttl = 1
	w.send(0, short.bytes())
	big := client(host, web, "A")
	big.payload = strings.Repeat("x", 2000)
	w.send(0, big.bytes())
	w.expectBack(1)
	if k := w.kern(); k.Entered != 1 {
		t.Errorf("entered %d times", k.Entered)
	}
	rst := client(host, web, "R")
	rst.payload, rst.seq = "", firstSeq // what the backend has acknowledged
	w.expect(0, rst.bytes(), 1)
	w.expectBack(0, "closing 1")
}

// A client whose packets come from two link addresses in turn enters the kernel ever more seldom.
func TestAConnectionThatFlapsBacksOff(t *testing.T) {
	w := newKernelWorld(t, fill(""), 8, 0)
	w.connect(host)
	s := client(host, web, "A")
	p := s.bytes()
	flap := func(packets int) (entered uint64) {
		before := w.kern().Entered
		for i := range packets {
			p[11] = byte(i & 1)
			w.expect(0, p, 1)
		}
		return w.kern().Entered - before
	}
	if n := flap(20_000); n < 5 || n > 11 {
		t.Errorf("entered %d times within 20 000 packets", n)
	}
	if n := flap(20_000); n > 3 {
		t.Errorf("entered %d times within 20 000 more", n)
	}
	for range 20_000 { // until it is in again, and stays
		w.expect(0, p, 1)
	}
	if n := flap(20_000); n < 5 {
		t.Errorf("entered %d times after a long stay", n)
	}
}

// lossy is a Forwarder that enters no key, and says so.
type lossy struct{ fastpath.Forwarder }

func (lossy) Flush(clock.Time) error { return errors.New("no memory") }

func TestAConnectionThatTheKernelMissesComesBack(t *testing.T) {
	w := newKernelWorld(t, fill(""), 8, 1)
	w.kernel, w.toFlush = nil, nil
	k := flowmodel.New()
	w.h.SetForwarder(lossy{k.Loop(8, nil)})
	w.connect(host)
	p := client(host, web, "A").bytes()
	for range 20_000 {
		w.now = w.now.Add(time.Millisecond)
		w.expect(0, p, 1)
	}
	st := w.kern()
	if n := st.TakenBack[slices.Index(datapath.BackReasons[:], "missed")]; n < 3 || n > 5 || st.Entered > 6 || st.FlushErrors == 0 {
		t.Errorf("%+v", st)
	}
	if err := k.Misuse(); err != nil {
		t.Error(err)
	}
	w.kernel, w.toFlush = k, k.Loop(1, nil)
}

// A change takes back what it concerns, also while no packet comes to the loop.
func TestASnapshotTakesBackWhatItConcerns(t *testing.T) {
	open := func() (w *world, of map[string]int) {
		w, of = newKernelWorld(t, withBackends("keep", 11, 12), 32, 1), map[string]int{}
		for i := range 16 {
			of[flowOf(w.inKernel(fmt.Sprintf("198.18.0.9:%d", 1000+i))).dst.Addr().String()]++
		}
		w.expectBack(16)
		return w, of
	}
	w, of := open()
	w.setHealth("b11", false)
	n := of["198.18.2.11"]
	w.expectBack(16-n, fmt.Sprintf("changed %d", n))
	w.setHealth("b11", true)
	if err := w.g.SetWeight("web", "b12", 7, true); err != nil { // concerns new connections only
		t.Fatal(err)
	}
	if err := w.g.Drain("web", "b12", DrainOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	w.expectBack(16-n, fmt.Sprintf("changed %d", n))

	w, of = open()
	hop := nexthop.Hop{MAC: [6]byte{2, 9}, Dev: 1, State: nexthop.Ready}
	w.g.hopChanged(netip.MustParseAddr("198.18.2.12"), hop)
	n = of["198.18.2.12"]
	w.expectBack(16-n, fmt.Sprintf("changed %d", n))

	w, _ = open()
	w.g.SetDevice(0, datapath.Device{Name: "gw0", MAC: macGw0, MTU: 1400})
	w.after(5 * time.Second)
	w.expectBack(0, "changed 16")

	w, _ = open()
	if err := w.g.Reload(parse(t, withBackends("keep", 11, 12, 13))); err != nil {
		t.Fatal(err)
	}
	w.h.TakeSnapshot(w.now)
	for i := range 16 { // none is forwarded by the old configuration; all are entered again at once
		before := w.h.Count(packet.Forward)
		w.expect(0, client(fmt.Sprintf("198.18.0.9:%d", 1000+i), web, "A").bytes(), 1)
		if w.h.Count(packet.Forward) != before+1 {
			t.Fatal("the kernel has forwarded a packet after a reload")
		}
	}
	w.expectBack(16, "changed 16")
}

// A kernel that is full has room for those that send.
func TestIdleConnectionsMakeRoomInTheKernel(t *testing.T) {
	w := newKernelWorld(t, strings.Replace(fill(""), "size: 1024", "size: 2048", 1), 4, 1)
	for i := range 4 {
		w.inKernel(fmt.Sprintf("198.18.0.9:%d", 1000+i))
	}
	w.after(20 * time.Second)
	w.expectBack(4)
	w.connect(host)
	send := func() {
		for range 4 {
			w.expect(0, client(host, web, "A").bytes(), 1)
			w.expect(0, client("198.18.0.9:1000", web, "A").bytes(), 1)
			w.after(time.Second)
		}
	}
	for range 3 {
		send()
	}
	if n := w.kern().Rejected; n == 0 {
		t.Error("the kernel was never full")
	}
	w.expectBack(2, "idle 3")
	if !w.conns()[netip.MustParseAddrPort(host)].Kernel || !w.conns()[netip.MustParseAddrPort("198.18.0.9:1000")].Kernel {
		t.Error("those that send are not in the kernel")
	}
}

// When the loop ends the kernel has nothing left, and all is counted.
func TestALoopThatEndsTakesAllBack(t *testing.T) {
	w := newKernelWorld(t, fill(""), 8, 1)
	o := w.withOutput()
	w.inKernel(host)
	was := w.kern().ToPackets
	w.expect(0, client(host, web, "A").bytes(), 1)
	for _, f := range o.end {
		f()
	}
	if n, keys := w.kernel.Entered(); n != 0 || keys != 0 {
		t.Errorf("the kernel has %d connections and %d keys", n, keys)
	}
	if n := w.kern().ToPackets - was; n != 1 {
		t.Errorf("%d packets counted", n)
	}
}

// Who lists connections sees which are in the kernel, and when they expire.
func TestConnectionsInTheKernelAreShown(t *testing.T) {
	w := newKernelWorld(t, fill(""), 8, 1)
	w.inKernel(host)
	w.after(time.Minute)
	w.expect(0, client(host, web, "A").bytes(), 1)
	list := w.connections()
	if len(list) != 1 || !list[0].Kernel || list[0].Expires < (2*time.Hour+4*time.Minute-time.Second).Seconds() {
		t.Errorf("%+v", list)
	}
	w.after(4 * time.Second)
	st := w.g.Status().Kernel
	if st == nil || st.Connections != 1 || st.Entered != 1 || st.ToPackets == 0 || st.ToBytes == 0 {
		t.Errorf("%+v", st)
	}
	if got := w.scrape(); !strings.Contains(got, "millrace_l4_kernel_connections 1\n") || !strings.Contains(got, `millrace_l4_kernel_taken_back_connections_total{reason="ended"} 0`) {
		t.Error(got)
	}
	if st := newWorld(t, fill("")).g.Status().Kernel; st != nil {
		t.Errorf("without a kernel: %+v", st)
	}
}

// A connection that is only used in the kernel lives, one that is not expires, and its reset has the numbers that the
// kernel has seen.
func TestConnectionsInTheKernelExpire(t *testing.T) {
	w := newKernelWorld(t, strings.Replace(fill(""), "size: 1024", "size: 1024, tcp: {established: 1m}", 1), 8, 1)
	o := &outbox{}
	w.h.SetOutput(o)
	out := w.inKernel(host)
	s, at := client(host, web, "A"), uint32(firstSeq)
	for range 10 {
		w.after(50 * time.Second)
		s.seq = at
		w.expect(0, s.bytes(), 1)
		at += uint32(len(s.payload))
		ack := answer(out, "A")
		ack.payload, ack.seq, ack.ack = "", firstSeq+16, at
		w.expect(1, ack.bytes(), 0)
	}
	w.expectBack(1)
	w.after(70 * time.Second)
	w.expectBack(0, "ended 1")
	if w.h.Connections() != 0 {
		t.Error("it is remembered")
	}
	if want := fmt.Sprintf(" %d", at); !slices.ContainsFunc(o.resets(w), func(r string) bool {
		return strings.HasPrefix(r, net.HardwareAddr(macBackend[:]).String()) && strings.HasSuffix(r, want)
	}) {
		t.Errorf("no reset has the number %d, which the backend expects: %q", at, o.resets(w))
	}
}

// What only the kernel has seen of the sequence numbers decides in the loop: over a RST that is exact by an acknowledgement,
// and over a FIN that is old by less than the largest window.
func TestNumbersThatTheKernelHasSeenDecide(t *testing.T) {
	for name, c := range map[string]struct {
		flags string
		seq   uint32
		state string
	}{
		"acknowledged":          {"R", firstSeq + 24, "reset"},
		"not acknowledged":      {"R", firstSeq + 25, "established"},
		"sent":                  {"R", firstSeq + 20_000, "reset"},
		"within the window":     {"FA", ^uint32(10_000 - firstSeq), "half_closed"}, // 30 000 older than what was sent, with the FIN
		"older than the window": {"FA", ^uint32(10_000-firstSeq) - 1, "established"},
	} {
		w := newKernelWorld(t, fill(""), 8, 1)
		out := w.inKernel(host)
		before := w.h.Count(packet.Forward)
		for at := uint32(firstSeq); at < firstSeq+20_000; at += 1000 { // the backend offers 30 000
			s := client(host, web, "A")
			s.seq, s.payload = at, strings.Repeat("x", 1000)
			back := answer(out, "A")
			back.payload, back.ack, back.window = "", firstSeq+24, 30_000
			w.expect(1, back.bytes(), 0)
			w.expect(0, s.bytes(), 1)
		}
		back := answer(out, "A")
		back.payload, back.ack, back.window = "", firstSeq+24, 15_500 // the largest counts
		w.expect(1, back.bytes(), 0)
		if n := w.h.Count(packet.Forward); n != before {
			t.Fatalf("%s: the loop has forwarded %d packets", name, n-before)
		}
		s := client(host, web, c.flags)
		s.seq, s.payload = c.seq, ""
		w.expect(0, s.bytes(), 1)
		if got := w.only().State; got != c.state {
			t.Errorf("%s: %s, want %s", name, got, c.state)
		}
	}
}

// Packets that come by another device take a connection back, and the kernel then expects them there.
func TestConnectionsFollowTheirDevices(t *testing.T) {
	w := newKernelWorld(t, fill(""), 8, 1)
	out := w.inKernel(host)
	moved := client(host, web, "A")
	moved.to = macGw1
	w.expect(1, moved.bytes(), 1) // the client has come to the backends' side
	w.expectBack(0, "link 1")
	for range 3 {
		w.expect(1, moved.bytes(), 1)
	}
	w.expectBack(1, "link 1")
	reply := answer(out, "A")
	reply.to = macGw0
	w.expect(0, reply.bytes(), 1) // and the backend answers by the other one
	w.expectBack(0, "link 2")
	for range 8 {
		w.expect(0, reply.bytes(), 1)
	}
	w.expectBack(1, "link 2")
	before := w.h.Count(packet.Forward)
	w.expect(0, reply.bytes(), 1)
	w.expect(1, moved.bytes(), 1)
	if n := w.h.Count(packet.Forward); n != before {
		t.Errorf("the loop has forwarded %d packets", n-before)
	}
}

// A connection whose packets only the kernel has seen lately is not taken for expired.
func TestErrorsFindConnectionsThatOnlyTheKernelSees(t *testing.T) {
	w := newKernelWorld(t, strings.Replace(fill(""), "size: 1024", "size: 1024, tcp: {established: 1m}", 1), 8, 1)
	w.swept = math.MaxInt64 // the sweep has not come by yet
	out := w.inKernel(host)
	w.now = w.now.Add(50 * time.Second)
	w.expect(0, client(host, web, "A").bytes(), 1)
	w.now = w.now.Add(50 * time.Second)
	about := flowOf(out)
	toClient := message{src: "198.18.7.7", dst: about.src.Addr().String(), kind: 3, code: 1, about: out, from: macBackend, to: macGw1}
	w.expect(1, toClient.bytes(), 0)
	w.now = w.now.Add(50 * time.Second)
	w.refused(1, toClient.bytes(), packet.DropNoFlow)

	out = w.inKernel("198.18.0.9:41000")
	w.now = w.now.Add(50 * time.Second)
	back := w.expect(1, answer(out, "A").bytes(), 0)
	w.now = w.now.Add(50 * time.Second)
	toBackend := message{src: "198.18.7.7", dst: "198.18.1.1", kind: 3, code: 1, about: back, from: macClient, to: macGw0}
	w.expect(0, toBackend.bytes(), 1)
}

// Keys are entered soon, also where no packet follows.
func TestKeysAreEnteredSoon(t *testing.T) {
	w := newKernelWorld(t, fill(""), 8, 1)
	w.kernel = nil // so that the world does not flush
	w.connect(host)
	if _, keys := w.toFlush.Kernel().Entered(); keys != 0 {
		t.Fatalf("%d keys at once: a system call for each connection", keys)
	}
	next := w.h.Tick(w.now)
	if next > w.now.Add(time.Millisecond) {
		t.Errorf("the next tick is %v later", next.Sub(w.now))
	}
	w.now = next
	next = w.h.Tick(w.now)
	if _, keys := w.toFlush.Kernel().Entered(); keys != 2 || next < w.now.Add(10*time.Millisecond) {
		t.Errorf("%d keys, the next tick is %v later", keys, next.Sub(w.now))
	}
	w.kernel = w.toFlush.Kernel()

	w = newKernelWorld(t, fill(""), 128, 1) // many are entered at once
	w.kernel = nil
	for i := range 100 {
		w.connect(fmt.Sprintf("198.18.0.9:%d", 1000+i))
	}
	if _, keys := w.toFlush.Kernel().Entered(); keys != 128 {
		t.Errorf("%d keys of 100 connections", keys)
	}
	w.kernel = w.toFlush.Kernel()
}

// A connection whose packets only the kernel has seen lately keeps its port from others.
func TestAPortInUseInTheKernelIsNotGivenAgain(t *testing.T) {
	w := newKernelWorld(t, "devices: [{name: gw0}, {name: gw1}]\ntable: {size: 1024, tcp: {established: 1m}}\nservices:\n"+
		"  - {name: a, source: client, address: 198.18.1.1:80, backends: [{address: 198.18.2.11:80}]}\n"+
		"  - {name: b, source: client, address: 198.18.1.2:80, backends: [{address: 198.18.2.11:80}]}\n", 8, 1)
	w.swept = math.MaxInt64
	w.inKernel(host)
	w.now = w.now.Add(50 * time.Second)
	w.expect(0, client(host, web, "A").bytes(), 1)
	w.now = w.now.Add(50 * time.Second)
	if got := flowOf(w.expect(0, client(host, "198.18.1.2:80", "S").bytes(), 1)); got.src.String() == host {
		t.Error("two connections have one port")
	}
	if n := w.h.Connections(); n != 2 {
		t.Errorf("%d connections", n)
	}
}

// A connection that is judged less strictly is judged so in the kernel too, and stays there.
func TestALooseConnectionEntersTheKernelOnce(t *testing.T) {
	w := newKernelWorld(t, fill(""), 8, 1)
	out := w.inKernel(host)
	over := client(host, web, "A")
	over.seq = firstSeq + 5016 + 100 // beyond what the backend has offered
	w.expect(0, over.bytes(), 1)
	w.expectBack(0, "loose 1")
	send := client(host, web, "A").bytes()
	for range 3 {
		w.expect(0, send, 1)
	}
	before := w.h.Count(packet.Forward)
	ack := answer(out, "A")
	ack.payload, ack.ack = "", over.seq+uint32(len(over.payload)) // of what was never followed
	w.expect(1, ack.bytes(), 0)
	if n := w.h.Count(packet.Forward); n != before {
		t.Errorf("the loop has forwarded %d packets", n-before)
	}
	w.expectBack(1, "loose 1")
}

// bypass has the loop handle a packet that the kernel would forward: one that was on its way.
func (w *world) bypass(p []byte) {
	b := w.batch(0, p)
	w.describe(b)
	w.h.Handle(w.now, b)
}

// Packets that are on their way to the loop take nothing back, however many they are.
func TestPacketsUnderWayTakeNothingBack(t *testing.T) {
	w := newKernelWorld(t, fill(""), 8, 1)
	w.connect(host) // entered in the kernel, without a flush of the loop's own
	p := client(host, web, "A").bytes()
	for range 10_000 {
		w.bypass(p)
	}
	w.expectBack(1)
	w.now = w.now.Add(time.Second)
	w.h.Tick(w.now) // flushes
	for i := range 10_000 {
		w.bypass(p)
		if i%1000 == 0 {
			w.expect(0, p, 1) // by the kernel
		}
	}
	w.expectBack(1)
}

// A connection that a change has taken back has proved that it is long.
func TestConnectionsEnterAgainAtOnceAfterAChange(t *testing.T) {
	w := newKernelWorld(t, withBackends("keep", 11), 8, 0)
	w.inKernel(host)
	if err := w.g.Reload(parse(t, withBackends("keep", 11, 12))); err != nil {
		t.Fatal(err)
	}
	w.expect(0, client(host, web, "A").bytes(), 1)
	w.expectBack(1, "changed 1")
}
