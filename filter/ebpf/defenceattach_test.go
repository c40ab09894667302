package ebpf

import (
	"errors"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	cilium "github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/pmd/xdp"
)

// newGuarded is a world whose near host counts what passes a defence of this process.
func newGuarded(t *testing.T) *defended {
	t.Helper()
	w := &defended{world: newWorld(t)}
	t.Setenv("LIBXDP_BPFFS", w.root)
	d, err := LoadDefence()
	w.ok(err)
	t.Cleanup(func() { d.Close() })
	w.d = d
	w.load("count.o", "")
	w.do(func() error { _, err := w.store.AttachTC("count/count_in", "eth0", TCOptions{}); return err })
	w.out = packetSocket(t, w.far)
	return w
}

// guarded is guard for the time of the test: an Attachment that nobody has any more is taken off.
func (w *defended) guarded() {
	w.t.Helper()
	a, err := w.guard()
	w.ok(err)
	w.t.Cleanup(func() { a.Close() })
}

// guard attaches the defence to the near host.
func (w *defended) guard() (a *Attachment, err error) {
	e := w.near.Do(func() error {
		i, e := net.InterfaceByName("eth0")
		if e == nil {
			a, err = w.d.Attach(i.Index)
		}
		return e
	})
	w.ok(e)
	return a, err
}

// dropsOne checks that one of two sources is dropped.
func (w *defended) dropsOne() {
	w.t.Helper()
	w.ok(w.d.Put(Verdict{Prefix: netip.MustParsePrefix("198.18.7.1/32"), Rule: 1}, Verdict{Prefix: netip.MustParsePrefix("2001:db8:7::/64"), Rule: 2}))
	w.want("198.18.7.1", 0, 0, "with a verdict")
	w.want("2001:db8:7::9", 0, 0, "with a verdict on its /64")
	w.want("198.18.7.2", 0, 20, "without")
}

func TestDefenceOfAProcessAlone(t *testing.T) {
	w := newGuarded(t)
	a, err := w.guard()
	w.ok(err)
	if a.String() != "alone, in native mode" {
		t.Error(a)
	}
	w.dropsOne()
	if _, err := w.guard(); !errors.Is(err, xdp.ErrForeign) {
		t.Errorf("a second one: %v", err)
	}
	w.ok(a.Close())
	w.want("198.18.7.1", 0, 20, "without the program")
	if left := w.chain("xdp"); len(left) != 0 {
		t.Errorf("%v is left", left)
	}
}

func TestDefenceOfAProcessInADispatcher(t *testing.T) {
	w := newGuarded(t)
	extensions(t)
	w.attach("count/count_xdp", XDPOptions{})
	a, err := w.guard()
	w.ok(err)
	if want := []string{"defence", "count_xdp"}; a.String() != "in the interface's XDP dispatcher" || !slices.Equal(w.chain("xdp"), want) {
		t.Errorf("%v: %v, want %v", a, w.chain("xdp"), want)
	}
	w.dropsOne()
	w.ok(a.Close())
	if want := []string{"count_xdp"}; !slices.Equal(w.chain("xdp"), want) {
		t.Errorf("after it has left: %v", w.chain("xdp"))
	}
}

// A chain drops, or goes on to the program behind, in both forms of XDP programs.
func TestDefenceBeforeAnotherProgram(t *testing.T) {
	for _, frags := range []bool{false, true} {
		w := newGuarded(t)
		spec, err := cilium.LoadCollectionSpec(objects + "count.o")
		w.ok(err)
		if frags {
			spec.Programs["count_xdp"].Flags |= hasFrags
		} else {
			spec.Programs["count_xdp"].Flags &^= hasFrags
		}
		coll, err := cilium.NewCollection(spec)
		w.ok(err)
		defer coll.Close()
		a, err := w.d.Before(coll.Programs["count_xdp"].FD(), frags)
		w.ok(err)
		prog, err := cilium.NewProgramFromFD(dup(t, a.FD()))
		w.ok(err)
		defer prog.Close()
		var l link.Link
		w.do(func() error {
			i, err := net.InterfaceByName("eth0")
			if err == nil {
				l, err = link.AttachXDP(link.XDPOptions{Program: prog, Interface: i.Index, Flags: link.XDPDriverMode})
			}
			return err
		})
		w.dropsOne()
		var behind uint64
		w.ok(coll.Maps["hits"].Lookup(uint32(0), &behind))
		if behind != 20 {
			t.Errorf("frags %v: the program behind saw %d packets, want the 20 that passed", frags, behind)
		}
		if _, err := w.d.Before(coll.Programs["count_xdp"].FD(), !frags); err == nil {
			t.Errorf("frags %v: a program of the other form was put behind", frags)
		}
		w.ok(l.Close())
		w.ok(a.Close())
	}
}

func dup(t *testing.T, fd int) int {
	t.Helper()
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A source that is accepted passes whatever wider verdicts say, until the longest prefix says otherwise.
func TestAcceptedSourcesPass(t *testing.T) {
	w := newGuarded(t)
	w.guarded()
	p := netip.MustParsePrefix
	w.ok(w.d.Put(
		Verdict{Prefix: p("198.18.0.0/16"), Rule: 1}, Verdict{Prefix: p("198.18.7.0/24"), Accept: true}, Verdict{Prefix: p("198.18.7.9/32"), Rule: 2},
	))
	w.ok(w.d.Put(Verdict{Prefix: p("198.18.7.8/32"), Rule: 2, For: 300 * time.Millisecond}))
	w.want("198.18.7.8", 0, 0, "an address within the accepted, for a time")
	w.want("198.18.7.1", 0, 20, "accepted")
	w.want("198.18.7.9", 0, 0, "an address within the accepted")
	w.want("198.18.6.1", 0, 0, "beside the accepted")
	time.Sleep(310 * time.Millisecond)
	_, err := w.d.Expire()
	w.ok(err)
	w.want("198.18.7.8", 0, 20, "the wider verdict that accepts, after the time")
	if err := w.d.Put(Verdict{Prefix: p("198.18.7.1/32"), Accept: true, Rate: 1}); !errors.Is(err, ErrValue) {
		t.Errorf("accepted with a rate: %v", err)
	}
	for _, v := range []Verdict{{Prefix: p("198.18.7.1/32"), Rate: 7, Burst: 3}, {Prefix: p("198.18.7.1/32"), Rate: 1e9}, {Prefix: p("198.18.7.1/32"), Accept: true}} {
		w.ok(w.d.Put(v))
		var got []Verdict
		w.ok(w.d.Verdicts(func(v Verdict) {
			if v.Prefix == p("198.18.7.1/32") {
				got = append(got, v)
			}
		}))
		if v.Rate == 1e9 {
			v.Burst = 1e8
		}
		if len(got) != 1 || got[0] != v {
			t.Errorf("%+v reads as %+v", v, got)
		}
	}
}

// A source of IPv6 is a /64, unless a verdict names less.
func TestLimitsAreOfAPrefix64(t *testing.T) {
	w := newGuarded(t)
	w.guarded()
	w.ok(w.d.Put(Verdict{Prefix: netip.MustParsePrefix("2001:db8:7::/48"), Rule: 1, Rate: 1, Burst: 10}, Verdict{Prefix: netip.MustParsePrefix("2001:db8:8::/96"), Rule: 1, Rate: 1, Burst: 10}))
	sum := func(sources ...string) (n int) {
		for _, s := range sources {
			n += w.passed(s, 0, 20)
		}
		return n
	}
	if n := sum("2001:db8:7::1", "2001:db8:7::2", "2001:db8:7:0:1::"); n < 10 || n > 12 {
		t.Errorf("%d of 60 packets of a /64 passed, want 10", n)
	}
	if n := sum("2001:db8:7:1::1"); n < 10 || n > 12 {
		t.Errorf("%d of 20 packets of another /64 passed, want 10", n)
	}
	if n := sum("2001:db8:8::1", "2001:db8:8::2"); n < 20 || n > 24 {
		t.Errorf("%d of 40 packets of two addresses of a /96 passed, want 20", n)
	}
}

// Tables without entries are not looked up, and a verdict counts whenever it comes.
func TestEmptiedTablesAreUsedAgain(t *testing.T) {
	w := newGuarded(t)
	w.guarded()
	for _, s := range []string{"198.18.7.1/32", "198.18.7.0/24", "2001:db8:7::1/128", "2001:db8:7::/64", "198.18.7.1/32"} {
		p := netip.MustParsePrefix(s)
		table, _ := placeOf(p)
		if table == tableExact4 {
			table = tableFront4
		}
		src := p.Addr().String()
		w.ok(w.d.Put(Verdict{Prefix: p, Rule: 1, For: 300 * time.Millisecond}))
		w.want(src, 0, 0, s)
		time.Sleep(310 * time.Millisecond)
		n, err := w.d.Expire()
		w.ok(err)
		var used uint32
		w.ok(w.d.used.Lookup(table, &used))
		if n != 1 || used != 0 {
			t.Errorf("%s: %d have expired, the table is marked %d", s, n, used)
		}
		w.want(src, 0, 20, s+" after it has expired")
	}
}

// Addresses that share a place are both found, and each is removed alone.
func TestAddressesThatShareAPlace(t *testing.T) {
	w := newGuarded(t)
	w.guarded()
	first, second := netip.MustParseAddr("198.18.7.1"), netip.MustParseAddr("198.19.0.1")
	for frontSlot(second.As4()) != frontSlot(first.As4()) {
		second = second.Next()
	}
	put := func(a netip.Addr) { w.ok(w.d.Put(Verdict{Prefix: netip.PrefixFrom(a, 32), Rule: 1})) }
	list := func() (n int) {
		w.ok(w.d.Verdicts(func(Verdict) { n++ }))
		return n
	}
	put(first)
	put(second)
	w.want(first.String(), 0, 0, "first")
	w.want(second.String(), 0, 0, "second, whose place is taken")
	w.ok(w.d.Remove(netip.PrefixFrom(first, 32)))
	w.want(first.String(), 0, 20, "first, removed")
	w.want(second.String(), 0, 0, "second still")
	put(second) // into the place, and out of the other table
	if n := list(); n != 1 {
		t.Errorf("%d verdicts, want 1", n)
	}
	w.want(second.String(), 0, 0, "second in its place")
	w.ok(w.d.Remove(netip.PrefixFrom(second, 32)))
	w.want(second.String(), 0, 20, "second, removed")
	if n := list(); n != 0 {
		t.Errorf("%d verdicts, want none", n)
	}
}

// A verdict on an address ends without anybody: soon, if not at once.
func TestVerdictOfAProcessEndsByItself(t *testing.T) {
	w := newGuarded(t)
	w.guarded()
	w.ok(w.d.Put(Verdict{Prefix: netip.MustParsePrefix("198.18.7.1/32"), Rule: 1, For: 300 * time.Millisecond}))
	w.want("198.18.7.1", 0, 0, "before it ends")
	time.Sleep(310 * time.Millisecond)
	cpus := runtime.NumCPU()
	if n := w.passed("198.18.7.1", 0, 20*cpus); n < 20*cpus-16*cpus {
		t.Errorf("%d of %d packets passed after the verdict has ended: the program never looks at the clock", n, 20*cpus)
	}
}
