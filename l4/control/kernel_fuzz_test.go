package control

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/l4/datapath"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

const twinConfig = `
devices: [{name: gw0}, {name: gw1}]
snat: [198.18.2.1, "2001:db8:2::1"]
table: {size: 1024, udp: 30s, tcp: {established: 5m}}
sources: {deny: [%]}
services:
  - {name: web, unknown: drop, address: [198.18.1.1:80, "[2001:db8:1::1]:80"], backends: [{name: b1, address: [198.18.2.11:8080, "[2001:db8:2::11]:8080"]}, {name: b2, address: 198.18.2.12:8080}]}
  - {name: dns, protocol: udp, address: [198.18.1.1:53, "[2001:db8:1::1]:53"], backends: [{address: [198.18.2.11:5353, "[2001:db8:2::11]:5353"]}]}
  - {name: own, source: client, address: 198.18.1.2:80, backends: [{address: 198.18.2.13:8080}, {address: 198.18.2.14:8080}]}
`

// twins are a gateway whose loop handles every packet and one whose kernel forwards what it may. Each packet goes to both,
// and both must do the same with it, to the byte, and have the same connections and counts afterwards.
type twins struct {
	t         *testing.T
	own, kern *world
	conns     [8]endToEnd
	configs   [2]*config.Config
	base      [2]*datapath.Snapshot // of both, before scripts changed them
	last      []byte                // the last frame that was forwarded, and the device
	lastDev   uint8
	history   []byte
}

// endToEnd is what both ends of a connection know.
type endToEnd struct {
	client, service string
	udp             bool
	out             []byte // a packet as the backend got it
	next            [2]uint32
	got             [2]uint32
	mac             byte
}

func newTwins(t testing.TB) *twins {
	x := &twins{}
	for i, deny := range []string{"198.18.66.0/24", "198.18.0.2, 198.18.66.0/24"} {
		x.configs[i] = parse(t, strings.Replace(twinConfig, "%", deny, 1))
		x.configs[i].Table.Size, x.configs[i].Table.HalfOpen = 64, 32
	}
	x.own, x.kern = newWorldWith(t, x.configs[0], hopsOf(x.configs[0])), newWorldWith(t, x.configs[0], hopsOf(x.configs[0]))
	x.base = [2]*datapath.Snapshot{x.own.g.snap.Load(), x.kern.g.snap.Load()}
	return x
}

// begin makes both gateways new.
func (x *twins) begin(t *testing.T) {
	x.t, x.history, x.last = t, nil, nil
	for i, w := range []*world{x.own, x.kern} {
		w.t, w.now, w.swept, w.kernel = t, clock.Time(time.Hour), math.MaxInt64, nil // both sweep at the same times
		w.g.snap.Store(x.base[i])
		if err := w.g.Reload(x.configs[0]); err != nil {
			t.Fatal(err)
		}
		o := handlerOptions(w.g.cfg, 0)
		o.Seed, o.EnterAfter = 7, 2
		w.h = datapath.New(o, &w.g.snap)
		w.g.handlers[0] = w.h
	}
	x.kern.withKernel(5)
	for i := range x.conns {
		x.conns[i] = endToEnd{
			client: []string{"198.18.0.1:1000", "198.18.0.2:1000", "198.18.0.1:1001", "[2001:db8::9]:1000", "198.18.0.2:1004", "198.18.0.3:1000", "198.18.0.1:1006", "[2001:db8::9]:1007"}[i],
			service: []string{
				"198.18.1.1:80", "198.18.1.1:80", "198.18.1.2:80", "[2001:db8:1::1]:80", "198.18.1.2:80", "198.18.1.1:80", "198.18.1.1:53", "[2001:db8:1::1]:53",
			}[i],
			udp: i >= 6,
		}
	}
}

// send passes a packet through both, which must agree.
func (x *twins) send(dev uint8, p []byte) sent {
	x.t.Helper()
	a, b := x.own.send(dev, p), x.kern.send(dev, p)
	if a.verdict != b.verdict || a.verdict == packet.Forward && (a.port != b.port || !bytes.Equal(a.p, b.p)) {
		x.t.Fatalf("script %v\nthe loop: %v by %d\n%x\nwith the kernel: %v by %d\n%x", x.history, a.verdict, a.port, a.p, b.verdict, b.port, b.p)
	}
	if a.verdict == packet.Forward {
		x.last, x.lastDev = a.p, a.port
	}
	return a
}

// agree compares the connections and counts of both.
func (x *twins) agree() {
	x.t.Helper()
	a, b := x.own.conns(), x.kern.conns()
	for k, was := range a {
		is, ok := b[k]
		if d := was.Left - is.Left; !ok || d > 60*time.Millisecond || d < -60*time.Millisecond {
			x.t.Fatalf("script %v\n%+v\nwith the kernel\n%+v", x.history, was, is)
		}
		was.Left, is.Left, is.Kernel = 0, 0, false
		if was != is {
			x.t.Fatalf("script %v\n%+v\nwith the kernel\n%+v", x.history, was, is)
		}
	}
	if len(a) != len(b) {
		x.t.Fatalf("script %v\n%d connections, with the kernel %d", x.history, len(a), len(b))
	}
	p, q := x.own.g.snap.Load(), x.kern.g.snap.Load()
	for i := range p.Backends {
		for what := range datapath.BackendCounts {
			if n, m := p.Backends[i].Count(what), q.Backends[i].Count(what); n != m {
				x.t.Fatalf("script %v\ncount %d of backend %d: %d, with the kernel %d", x.history, what, i, n, m)
			}
		}
	}
	if err := x.kern.h.Audit(); err != nil {
		x.t.Fatalf("script %v\n%v", x.history, err)
	}
	if err := x.kern.kernel.Misuse(); err != nil {
		x.t.Fatalf("script %v\n%v", x.history, err)
	}
}

// both changes the snapshots of both.
func (x *twins) both(change func(s *datapath.Snapshot)) {
	for _, w := range []*world{x.own, x.kern} {
		s := w.g.snap.Load().CloneAll()
		change(s)
		w.g.snap.Store(s)
	}
}

// pass lets time pass.
func (x *twins) pass(d time.Duration) {
	for _, w := range []*world{x.own, x.kern} {
		w.after(d)
		w.h.Tick(w.now)
	}
}

// segment sends a segment of a side of connection c, with n bytes, and takes note of it where it is forwarded and regular.
func (x *twins) segment(c *endToEnd, side int, flags string, n int, edit func(*seg)) {
	if c.out == nil && side == 1 {
		return
	}
	s := client(c.client, c.service, flags)
	if side == 1 {
		s = answer(c.out, flags)
	}
	s.payload, s.seq, s.ack = strings.Repeat("x", n), c.next[side], c.got[side]
	s.from[5] += c.mac * byte(1-side)
	if strings.Contains(flags, "S") {
		s.options = []byte{1, 3, 3, 7}
	}
	if edit != nil {
		edit(&s)
	}
	if got := x.send(uint8(side), s.bytes()); edit != nil || got.verdict != packet.Forward || got.port != uint8(1-side) {
		return
	} else if side == 0 {
		c.out = got.p
	}
	end := s.seq + uint32(n)
	if strings.ContainsAny(flags, "SF") {
		end++
	}
	c.next[side] = end
	c.got[1-side] = end
}

func (x *twins) open(c *endToEnd, seq uint32) {
	c.next, c.got = [2]uint32{seq, ^seq}, [2]uint32{}
	x.segment(c, 0, "S", 0, nil)
	x.segment(c, 1, "SA", 0, nil)
	x.segment(c, 0, "A", 0, nil)
}

// play runs a script.
func (x *twins) play(s *script) {
	all := slices.Clone(s.b)
	for step := 0; step < 60 && len(s.b) > 0; step++ {
		x.history = all[:len(all)-len(s.b)]
		op := s.next()
		k := op >> 4 & 7
		c := &x.conns[k]
		arg := s.next()
		if c.udp && op&15 < 11 {
			c.mac = byte(arg >> 6 & 1)
			x.segment(c, arg&1, "", 20+arg, nil)
			continue
		}
		side := arg & 1
		switch op & 15 {
		case 0:
			x.open(c, uint32(arg)<<24)
		case 1, 2, 3:
			for range 1 + arg>>6 {
				x.segment(c, side, "A", arg>>1&31*40, nil)
				x.segment(c, 1-side, "A", 0, nil)
			}
		case 4:
			x.segment(c, side, "FA", 0, nil)
		case 5: // exact, by the two rules, or not
			x.segment(c, side, "R", 0, func(s *seg) { s.seq += uint32(arg>>1&3) * 3 })
		case 6: // forged, or old, or beyond the window
			x.segment(c, side, []string{"A", "FA", "S", "SA", "PA", "RA", "A", "A"}[arg>>1&7], arg>>4, func(s *seg) {
				s.seq += uint32(int32(int8(s.seqByte(arg)))) * 1000
				s.ack += uint32(arg>>5) * 70000
			})
		case 7: // another link address from now on
			c.mac ^= 1
			x.segment(c, 0, "A", 0, nil)
		case 8: // the client begins anew, and the backend answers
			x.segment(c, 0, "S", 0, func(s *seg) { s.seq = uint32(arg) << 20 })
			if side == 1 {
				c.next, c.got = [2]uint32{uint32(arg) << 20, uint32(arg) << 21}, [2]uint32{}
				c.next[0]++
				c.got[1] = c.next[0]
				x.segment(c, 1, "SA", 0, nil)
				x.segment(c, 0, "A", 0, nil)
			}
		case 9: // the last hop, too long, with options, a tag, a wrong checksum
			if c.out == nil {
				continue
			}
			s := client(c.client, c.service, "A")
			if side == 1 {
				s = answer(c.out, "A")
			}
			s.seq, s.ack = c.next[side], c.got[side]
			switch arg >> 1 & 3 {
			case 0:
				s.ttl = 1
			case 1:
				s.payload = strings.Repeat("x", 1470)
			}
			p := s.bytes()
			if arg>>1&3 == 2 {
				p = tag(p, wire.EtherTypeVLAN, uint16(arg>>3&1))
			} else if arg>>1&3 == 3 {
				p[len(p)-1] ^= 1
			}
			x.send(uint8(side), p)
		case 10: // in fragments
			if c.out == nil {
				continue
			}
			s := client(c.client, c.service, "A")
			s.seq, s.ack = c.next[0], c.got[0]
			s.payload = strings.Repeat("f", 100)
			for _, p := range split(s.bytes(), 48, uint32(arg)) {
				x.send(0, p)
			}
		case 11:
			x.pass(time.Duration(arg*arg) * 10 * time.Millisecond)
		case 12:
			if x.last != nil {
				x.send(x.lastDev, errorAbout(x.last, arg, arg>>2, 100))
			}
		case 13:
			x.control(arg)
		case 14:
			for _, w := range []*world{x.own, x.kern} {
				w.h.ResetAll(arg&63, 1)
			}
		default:
			x.agree()
		}
	}
	x.agree()
}

// seqByte spreads the bits of an argument.
func (s *seg) seqByte(arg int) uint8 { return uint8(arg * 37) }

// control is a change from the control side.
func (x *twins) control(arg int) {
	n := arg >> 3
	switch arg & 7 {
	case 0, 1:
		x.both(func(s *datapath.Snapshot) {
			e := replace(s.Endpoints, uint32(n%len(s.Endpoints)))
			e.Hop.MAC[4] ^= byte(1 + n&3)
		})
	case 2:
		x.both(func(s *datapath.Snapshot) {
			e := replace(s.Endpoints, uint32(n%len(s.Endpoints)))
			e.Hop.State = datapath.HopReady - e.Hop.State
		})
	case 3:
		x.both(func(s *datapath.Snapshot) {
			b := replace(s.Backends, uint32(n%len(s.Backends)))
			b.Usable = !b.Usable
		})
	case 4:
		x.both(func(s *datapath.Snapshot) {
			b := replace(s.Backends, uint32(n%len(s.Backends)))
			b.Inactive = !b.Inactive
		})
	case 5:
		x.both(func(s *datapath.Snapshot) {
			s.Devices = slices.Clone(s.Devices)
			s.Devices[n&1].MTU = 1500 - s.Devices[n&1].MTU%3*400
		})
	case 6:
		for _, w := range []*world{x.own, x.kern} {
			if err := w.g.Reload(x.configs[n&1]); err != nil {
				x.t.Fatal(err)
			}
		}
	case 7:
		x.both(func(s *datapath.Snapshot) { s.DropL4 = !s.DropL4; s.Round++ })
	}
}

// twinScript is a script in which connections open and send, with something else now and then.
func twinScript(seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 9))
	var b []byte
	for k := range byte(6) {
		b = append(b, k<<4, byte(r.Uint32()))
	}
	for range 50 {
		op := byte(1)
		if r.IntN(4) == 0 {
			op = byte(r.IntN(16))
		}
		b = append(b, byte(r.IntN(8))<<4|op, byte(r.Uint32()))
	}
	return b
}

// The scripts reach what they are for: connections enter the kernel, it forwards, and they come back for each reason.
func TestTheScriptsOfTheTwinsReachTheKernel(t *testing.T) {
	x := newTwins(t)
	var sum datapath.KernelStatus
	for seed := range uint64(200) {
		x.begin(t)
		x.play(&script{twinScript(seed)})
		k, _ := x.kern.h.Kernel()
		sum.Entered += k.Entered
		sum.Rejected += k.Rejected
		sum.ToPackets += k.ToPackets
		sum.FromPackets += k.FromPackets
		for why, n := range k.TakenBack {
			sum.TakenBack[why] += n
		}
	}
	t.Logf("%+v %v", sum, datapath.BackReasons)
	for why, n := range sum.TakenBack {
		if n < 10 && datapath.BackReasons[why] != "missed" { // the model misses none
			t.Errorf("%d connections came back: %s", n, datapath.BackReasons[why])
		}
	}
	if sum.Entered < 1000 || sum.Rejected < 10 || sum.ToPackets < 2000 || sum.FromPackets < 2000 {
		t.Errorf("%+v", sum)
	}
}

// FuzzKernelFlows plays scripts on a gateway whose kernel forwards established connections beside one without. See twins.
func FuzzKernelFlows(f *testing.F) {
	for seed := range uint64(60) {
		f.Add(twinScript(seed))
	}
	x := newTwins(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 400 {
			return
		}
		x.begin(t)
		x.play(&script{b})
	})
}
