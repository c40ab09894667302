package inspection

import (
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/filter/inspect"
	"github.com/millrace/millrace/filter/signature"
	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/l4/datapath"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// With `overload: drop` a packet that meets a bound is dropped, with `pass` it passes; both count.
func TestOverloadDecidesAtABound(t *testing.T) {
	for overload, want := range map[config.Overload]packet.Verdict{config.OverloadDrop: packet.DropInspectionFull, config.OverloadPass: packet.Forward} {
		i, _ := openedAs(t, slowRule, "drop from 192.0.2.9\n", Options{}, func(c *config.Config) { c.Inspection.Overload = overload })
		if v := inspect1(i.Loop(0), 1, 1000, slowText); v != want {
			t.Errorf("%s: %v, want %v", overload, v, want)
		}
		dropped := map[bool]uint64{true: 1}[want != packet.Forward]
		if p := i.Status(1).Policies[0]; p.Bounds != 1 || p.Overload != dropped {
			t.Errorf("%s: %+v", overload, p)
		}
		if err := i.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Loops share the flows of a policy evenly, and flows that are quiet for their time end.
func TestLoopsShareTheFlows(t *testing.T) {
	i, _ := openedAs(t, evilRule, "drop from 192.0.2.9\n", Options{}, func(c *config.Config) { c.Inspection.Flows = 64 })
	i.SetLoops(4)
	passed := func(now clock.Time, from, n int) (passed int) {
		for k := range n {
			if v := inspect1(i.Loop(0), now, uint16(from+k), "fine"); v == packet.Forward {
				passed++
			} else if v != packet.DropInspectionFull {
				t.Fatal(v)
			}
		}
		return passed
	}
	if n := passed(1, 1000, 40); n != 16 {
		t.Errorf("%d flows in one of four loops of 64", n)
	}
	if n := passed(clock.Time(time.Hour), 2000, 1); n != 1 {
		t.Errorf("%d flows after the others were quiet for an hour", n)
	}
	if n, _ := i.Loop(0).engines[1].Flows(); n != 1 {
		t.Errorf("%d flows are kept after an hour", n)
	}
	if err := i.Close(); err != nil {
		t.Error(err)
	}
}

// What a loop holds of a policy that is gone is given back with the next packet of any other.
func TestEnginesOfPoliciesThatAreGoneEnd(t *testing.T) {
	i, _ := openedAs(t, evilRule, "drop from 192.0.2.9\n", Options{}, nil)
	inspect1(i.Loop(0), 1, 1000, "fine")
	cfg := *i.cfg
	cfg.Inspection.Policies = slices.Clone(cfg.Inspection.Policies)
	cfg.Inspection.Policies[0].Name = "other"
	for n, want := range []bool{true, false} { // services may name it until the second reload
		if err := i.Reload(&cfg); err != nil {
			t.Fatal(err)
		}
		inspectIn(i.Loop(0), datagramOf(1001, "fine"), &datapath.Inspected{Now: clock.Time(2 + n), Policy: 2, FromClient: true, Opens: true})
		if e := i.Loop(0).engines; e[2] == nil || (e[1] != nil) != want {
			t.Errorf("after %d reloads the loop has the engine of the policy: %v", n+1, e[1] != nil)
		}
	}
	if err := i.Close(); err != nil {
		t.Error(err)
	}
}

// Streams of which less is kept, for memory, count.
func TestShortenedStreamsCount(t *testing.T) {
	i, _ := openedAs(t, strings.ReplaceAll(evilRule, "udp", "tcp"), "drop from 192.0.2.9\n", Options{}, func(c *config.Config) { c.Inspection.Memory = leastMemory })
	now := clock.Time(0)
	for port := range 12 {
		for n := range 40 {
			now += clock.Time(20 * time.Millisecond)
			frame := datagramOf(0, "")[:34]
			wire.IPv4(frame[14:]).SetTotalLen(40 + 1400)
			frame[23] = wire.ProtoTCP
			frame = wire.AppendTCP(frame, &wire.TCPHeader{SrcPort: uint16(1000 + port), DstPort: 80, Seq: uint32(1400 * n), Flags: wire.FlagACK})
			frame = append(frame, strings.Repeat("x", 1400)...)
			if v := inspectIn(i.Loop(0), frame, &datapath.Inspected{Now: now, FromClient: true, Opens: n == 0}); v != packet.Forward {
				t.Fatalf("stream %d, segment %d: %v", port, n, v)
			}
		}
	}
	if p := i.Status(1).Policies[0]; p.Shortened == 0 || p.Shortened != i.Loop(0).engines[1].Stats().Shortened {
		t.Errorf("%d streams counted as shortened, of %d", p.Shortened, i.Loop(0).engines[1].Stats().Shortened)
	}
	if err := i.Close(); err != nil {
		t.Error(err)
	}
}

// What a packet engine has not found counts only where it had all bytes of the packet before it.
func TestPacketsInSeveralPiecesAreSearchedAgain(t *testing.T) {
	i, _ := openedAs(t, evilRule, "drop from 192.0.2.9\n", Options{Literals: true}, nil)
	outside, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(outside)
	frame := datagramOf(1000, "xxxxxxxxxx evil")
	base := packet.Desc{Off: 64, Len: uint16(len(frame) - 5), L3: 14, L4: 34, Payload: 42, Flags: packet.FlagIPv4 | packet.FlagL4ChecksumOK, Proto: wire.ProtoUDP}
	send := func(flags packet.Flags, chain ...packet.Desc) packet.Verdict {
		mem := make([]byte, 4096)
		copy(mem[64:], frame[:len(frame)-5])
		copy(mem[2048:], frame[len(frame)-5:])
		a := &packet.Arena{Mem: mem, Shift: 11}
		d := base
		d.Flags |= flags
		if flags.Has(packet.FlagOffload) {
			a.SetOffload(&d, &packet.Offload{})
			a.SetExternal(&d, outside[:copy(outside, frame[len(frame)-5:])])
		}
		v, _ := i.Loop(0).Inspect(&datapath.Inspected{
			Arena: a, Chain: append([]packet.Desc{d}, chain...), Service: "dns", Policy: 1,
			FromClient: true, Opens: true, Searched: i.Literals().ID(),
		})
		return v
	}
	if v := send(packet.FlagMore, packet.Desc{Off: 2048, Len: 5}); v != packet.DropInspection {
		t.Errorf("in two frames: %v", v)
	}
	if v := send(packet.FlagOffload); v != packet.DropInspection {
		t.Errorf("partly outside of frames: %v", v)
	}
	if err := i.Close(); err != nil {
		t.Error(err)
	}
}

// A mark is that of one packet: the next one without a rule has none.
func TestAMarkIsOfOnePacket(t *testing.T) {
	i, dir := opened(t, evilRule, "mark 7 udp from 192.0.2.1 port 1000\n", "alerts.json")
	inspect1(i.Loop(0), 1, 1000, "evil")
	inspect1(i.Loop(0), 2, 1001, "evil")
	if a := alertsOf(t, i, dir); len(a) != 2 || a[0].Mark != 7 || a[1].Mark != 0 {
		t.Errorf("%+v", a)
	}
}

// A rule that denies alerts for packets that open a connection, a rate once a second, from the first second of the clock on.
func TestAccessRulesAlertOnceEach(t *testing.T) {
	i, dir := opened(t, "", "rate 1pps burst 1 udp from 192.0.2.1 port 1000\ndrop udp\n", "alerts.json")
	for n := range 3 {
		inspect1(i.Loop(0), clock.Time(5+n), 1000, "x")
		inspectIn(i.Loop(0), datagramOf(1001, "x"), &datapath.Inspected{Now: clock.Time(5 + n), FromClient: true, Opens: n == 0})
	}
	inspect1(i.Loop(0), clock.Time(time.Second)+5, 1000, "x") // a token is there again
	inspect1(i.Loop(0), clock.Time(time.Second)+8, 1000, "x")
	var got []string
	for _, a := range alertsOf(t, i, dir) {
		got = append(got, a.Rule.Action+" "+a.Action)
	}
	if want := "drop drop,rate drop,rate drop"; strings.Join(got, ",") != want {
		t.Errorf("%v, want %s", got, want)
	}
}

// The packets of what is found when a flow ends have passed: such an alert drops nothing, reports nothing and captures nothing.
func TestLateAlertsChangeNothing(t *testing.T) {
	verdicts := 0
	i, dir := openedAs(t, evilRule, "drop from 192.0.2.9\n", Options{OnVerdict: func(*Verdict) { verdicts++ }}, nil)
	l := i.Loop(0)
	inspect1(l, 1, 1000, "evil")
	var rule *signature.Rule
	for r := range l.engine.policy.rules.All() {
		rule = r
	}
	l.alert(&inspect.Alert{Rule: rule, Flow: 1, Proto: wire.ProtoUDP})
	s := i.Status(1)
	a := alertsOf(t, i, dir)
	if len(a) != 2 || !a[1].Late || a[1].Action != "alert" || a[1].Service != "" || a[0].Late || a[0].Action != "drop" {
		t.Errorf("%+v", a)
	}
	if verdicts != 1 || s.PacketsWritten != 1 || s.Rules[0].Alerts != 2 || s.Rules[0].Drops != 1 {
		t.Errorf("%d verdicts, %+v", verdicts, s)
	}
}

// A loop that had the capture before a reload writes to the section of the next one.
func TestPacketsGoToTheSectionOfTheReload(t *testing.T) {
	i, dir := opened(t, evilRule, "drop from 192.0.2.9\n", "alerts.json")
	before := i.packets.Load()
	if err := i.Reload(parsed(t, dir, "alerts.json")); err != nil {
		t.Fatal(err)
	}
	before.write(1, datagramOf(1000, "x"), []byte("late"))
	if n, lost := i.packets.Load().counts(); n != 1 || lost != 0 {
		t.Errorf("%d packets in the section, %d lost", n, lost)
	}
	if err := i.Close(); err != nil {
		t.Fatal(err)
	}
}
