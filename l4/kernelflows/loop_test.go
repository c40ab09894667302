package kernelflows_test

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/l4/fastpath"
	"github.com/millrace/millrace/l4/kernelflows"
	"github.com/millrace/millrace/wire"
)

var _ fastpath.Forwarder = (*kernelflows.Loop)(nil)

// passes reports whether the kernel forwards the next packet of a side.
func (w *world) passes(c *conn, side int) bool {
	w.t.Helper()
	result, _ := w.table.Run(w.t, side, c.sides[side].bytes(), 0)
	return result == redirect
}

func (w *world) wantPasses(c *conn, want bool) {
	w.t.Helper()
	for side := range 2 {
		if got := w.passes(c, side); got != want {
			w.t.Fatalf("side %d: forwarded: %v, want %v", side, got, want)
		}
	}
}

// A connection that has left goes up at once, before its keys are removed, and comes back with new counters.
func TestLeaveEndsForwardingAtOnce(t *testing.T) {
	everyKind(t, func(t *testing.T, w *world, c *conn) {
		l := w.table.Loop(0)
		w.wantPasses(c, true)
		steered := w.table.Steered(t, 0)
		if !steered(c.sides[0].bytes()) {
			t.Error("the XDP program does not leave the packet to tc")
		}
		tr := l.Leave(c.slot)
		if tr.Packets != [2]uint64{1, 1} {
			t.Errorf("Leave returns %d packets, want 1 and 1", tr.Packets)
		}
		w.wantPasses(c, false)
		if steered(c.sides[0].bytes()) {
			t.Error("the XDP program leaves a packet to tc whose connection has left")
		}
		w.enter(c) // its keys replace those that Flush removes
		w.wantPasses(c, true)
		if tr := l.Read(c.slot); tr.Packets != [2]uint64{1, 1} {
			t.Errorf("%d packets after the connection has come back, want 1 and 1", tr.Packets)
		}
	})
}

// One that leaves before its keys were entered leaves none behind.
func TestLeaveBeforeFlushEntersNothing(t *testing.T) {
	w := newWorld(t)
	c := w.open("198.18.0.9:3000", "198.18.1.1:80", wire.ProtoTCP)
	l := w.table.Loop(0)
	l.Leave(c.slot)
	slot, ok := l.Enter(&c.flow)
	if !ok {
		t.Fatal("not entered")
	}
	l.Leave(slot)
	must(t, l.Flush(w.now))
	if four, six := w.table.Keys(t); four+six != 0 {
		t.Errorf("%d keys are left", four+six)
	}
}

func TestRenewSendsAllUp(t *testing.T) {
	everyKind(t, func(t *testing.T, w *world, c *conn) {
		l := w.table.Loop(0)
		l.Renew()
		w.wantPasses(c, false)
		l.Leave(c.slot)
		w.enter(c)
		w.wantPasses(c, true)
	})
}

// A key that is gone already keeps no other from being removed.
func TestAKeyThatIsGoneIsNoError(t *testing.T) {
	w := newWorld(t)
	l := w.table.Loop(0)
	var slots []uint32
	for _, client := range []string{"198.18.0.9:3000", "198.18.0.9:3001", "198.18.0.9:3002"} {
		slots = append(slots, w.open(client, "198.18.1.1:53", wire.ProtoUDP).slot)
	}
	w.table.RemoveKey(t, slots[1])
	for _, slot := range slots {
		l.Leave(slot)
	}
	must(t, l.Flush(w.now))
	if four, six := w.table.Keys(t); four+six != 0 {
		t.Errorf("%d keys are left", four+six)
	}
}

// A device without a program takes part in no flow, and its flows go up when its program goes.
func TestDetachSendsUpAndRefuses(t *testing.T) {
	w := newWorld(t)
	c := w.open("198.18.0.9:3000", "198.18.1.1:80", wire.ProtoTCP)
	must(t, w.table.Detach(1))
	if w.passes(c, 0) {
		t.Error("a packet is redirected to a device that has no program any more")
	}
	if _, ok := w.table.Loop(0).Enter(&c.flow); ok {
		t.Error("a flow is entered that leaves by a device without a program")
	}
}

func TestWhatCannotBeForwardedIsRefused(t *testing.T) {
	w := newWorld(t)
	c := w.open("198.18.0.9:3000", "198.18.1.1:80", wire.ProtoTCP)
	for name, change := range map[string]func(f *fastpath.Flow){
		"another protocol":        func(f *fastpath.Flow) { f.Proto = wire.ProtoICMP },
		"a VLAN that it comes by": func(f *fastpath.Flow) { f.Directions[1].VLAN = 7 },
		"a VLAN that it leaves by": func(f *fastpath.Flow) {
			f.Directions[0].OutVLAN = 7
		},
		"a device that is not there": func(f *fastpath.Flow) { f.Directions[0].Dev = 5 },
		"no device at all":           func(f *fastpath.Flow) { f.Directions[1].OutDev = 255 },
		"IPv4 to IPv6":               func(f *fastpath.Flow) { f.Directions[0].NewDst[0] = 0x20 },
	} {
		f := c.flow
		change(&f)
		if _, ok := w.table.Loop(0).Enter(&f); ok {
			t.Errorf("%s: entered", name)
		}
	}
	if s, err := w.table.Stats(); err != nil || s.Refused != 6 || s.Entered != 1 {
		t.Errorf("counted %+v, %v; want 6 refused and 1 entered", s, err)
	}
}

// The loop's numbers and the program's become the later ones of both.
func TestRaise(t *testing.T) {
	w := newWorld(t)
	c := w.open("198.18.0.9:3000", "198.18.1.1:80", wire.ProtoTCP)
	l := w.table.Loop(0)
	c.sides[0].seq, c.sides[1].ack = 6000, 6000 // all that the client may send has been sent
	if w.passes(c, 1) {
		t.Error("an acknowledgment of what was not sent is forwarded")
	}
	to := c.flow.Sequences
	to[0].End, to[1].Acked, to[0].Limit, to[1].Window = 6000, 900, 11000, 4000
	l.Raise(c.slot, &to)
	if !w.passes(c, 1) || !w.passes(c, 0) {
		t.Error("the numbers were not raised")
	}
	got := l.Read(c.slot).Sequences
	if want := [2]fastpath.Sequence{{End: 6000, Limit: 11000, Window: 5000, Acked: 1000}, {End: 1000, Limit: 6000, Window: 5000, Acked: 6000}}; got != want {
		t.Errorf("known are %+v, want %+v", got, want)
	}
}

// Slots rest after Leave, are used again, and never run out; what is in the maps is what is entered.
func TestSlotsComeAndGo(t *testing.T) {
	w := newWorld(t)
	l := w.table.Loop(0)
	rnd := rand.New(rand.NewPCG(3, 4))
	base := map[bool]*conn{}
	base[true] = w.open("198.18.0.9:3000", "198.18.1.1:53", wire.ProtoUDP)
	base[false] = w.open("[2001:db8::9]:3000", "[2001:db8:1::1]:53", wire.ProtoUDP)
	type flow struct {
		conn
		four bool
	}
	var live []flow
	counts := map[bool]int{true: 1, false: 1}
	port, full := uint16(10000), 0
	for range 3000 {
		w.now = w.now.Add(time.Duration(rnd.IntN(8)) * time.Millisecond)
		switch rnd.IntN(6) {
		case 0, 1, 5:
			four := rnd.IntN(2) == 0
			f := flow{*base[four], four}
			for port++; port == base[true].sides[1].dst.Port() || port == base[false].sides[1].dst.Port(); {
				port++ // the handler has taken it as source port
			}
			f.sides[0].src = withPort(f.sides[0].src, port)
			f.sides[1].dst = withPort(f.sides[1].dst, port)
			f.flow.Directions[0].SrcPort, f.flow.Directions[1].DstPort = port, port
			var ok bool
			if f.slot, ok = l.Enter(&f.flow); !ok {
				full++
				continue
			}
			counts[four]++
			live = append(live, f)
		case 2, 3:
			if len(live) == 0 {
				continue
			}
			i := rnd.IntN(len(live))
			if l.Leave(live[i].slot); w.passes(&live[i].conn, 0) {
				t.Fatal("forwarded after Leave")
			}
			counts[live[i].four]--
			live = append(live[:i], live[i+1:]...)
		case 4:
			must(t, l.Flush(w.now))
			if four, six := w.table.Keys(t); four != 2*counts[true] || six != 2*counts[false] {
				t.Fatalf("%d and %d keys for %v flows", four, six, counts)
			}
			for i := range live[:min(3, len(live))] {
				w.wantPasses(&live[i].conn, true)
			}
		}
	}
	if full == 0 {
		t.Error("the slots were never used up: the test shows too little")
	}
	s, err := w.table.Stats()
	if err != nil || int(s.Entered) != len(live)+2 || s.Late != 0 || s.Failed != 0 {
		t.Errorf("%+v, %v with %d flows", s, err, len(live)+2)
	}
}

// A packet that is counted after the loop has read the counters is counted as late when the slot is free again, which it
// is not before it has rested.
func TestLatePacketsAreCounted(t *testing.T) {
	w := newWorld(t)
	c := w.open("198.18.0.9:3000", "198.18.1.1:80", wire.ProtoTCP)
	l := w.table.Loop(0)
	l.Leave(c.slot)
	w.table.CountLate(c.slot, 3)
	for _, at := range []struct {
		after time.Duration
		late  uint64
	}{{0, 0}, {40 * time.Millisecond, 0}, {60 * time.Millisecond, 3}} {
		must(t, l.Flush(w.now.Add(at.after)))
		if s, err := w.table.Stats(); err != nil || s.Late != at.late {
			t.Errorf("after %v: %d late, %v, want %d", at.after, s.Late, err, at.late)
		}
	}
}

// While programs run on other CPUs, connections leave and come: what was forwarded is in what Leave returns, packet for
// packet, but for what was taken back.
func TestWhatIsForwardedIsInWhatLeaveReturns(t *testing.T) {
	w := newWorld(t)
	c := w.open("198.18.0.9:3000", "198.18.1.1:53", wire.ProtoUDP)
	l := w.table.Loop(0)
	frame := c.sides[0].bytes()
	before, err := w.table.Stats()
	must(t, err)
	var stop atomic.Bool
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for !stop.Load() {
				w.table.Repeat(t, 0, frame, 20000)
			}
		})
	}
	var returned uint64
	rounds, at := 0, w.now
	for end := time.Now().Add(time.Second); rounds < 10 || time.Now().Before(end); rounds++ {
		for soon := time.Now().Add(50 * time.Millisecond); l.Read(c.slot).Packets[0] == 0 && time.Now().Before(soon); {
		}
		returned += l.Leave(c.slot).Packets[0]
		at = at.Add(100 * time.Millisecond) // the slot has rested by the next time
		must(t, l.Flush(at))
		for slot, ok := l.Enter(&c.flow); ; slot, ok = l.Enter(&c.flow) {
			if c.slot = slot; ok {
				break
			}
			at = at.Add(100 * time.Millisecond)
			must(t, l.Flush(at))
		}
		must(t, l.Flush(at))
	}
	returned += l.Leave(c.slot).Packets[0]
	stop.Store(true)
	all.Wait()
	after, err := w.table.Stats()
	must(t, err)
	forwarded := after.Packets[0] - before.Packets[0]
	t.Logf("%d rounds, %d packets forwarded, %d more were taken back", rounds, forwarded, returned-forwarded)
	if forwarded > returned || forwarded == 0 {
		t.Errorf("%d packets were forwarded, Leave has returned %d", forwarded, returned)
	}
}

func TestOpenRejectsWhatItCannotHave(t *testing.T) {
	for _, o := range []kernelflows.Options{
		{}, {Loops: 1}, {Loops: 65, Now: now}, {Loops: 1, Slots: kernelflows.MaxSlots + 1, Now: now}, {Loops: 4, Slots: 3, Now: now},
	} {
		if table, err := kernelflows.Open(o); err == nil {
			t.Errorf("%+v: no error", o)
			table.Close()
		}
	}
}

func TestAttachSaysWhatIsWrong(t *testing.T) {
	w := newWorld(t)
	if _, err := w.table.Attach(64, 1, kernelflows.HookXDP); err == nil {
		t.Error("device 64: no error")
	}
	if _, err := w.table.Attach(3, 1<<30, kernelflows.HookXDP); err == nil || errors.Is(err, kernelflows.ErrNotSupported) {
		t.Errorf("an interface that is not there: %v", err)
	}
}

func withPort(a netip.AddrPort, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr(), port)
}

func now() clock.Time { return 0 }
