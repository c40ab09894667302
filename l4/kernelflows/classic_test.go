package kernelflows_test

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/l4/kernelflows"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/afpacket"
	"github.com/millrace/millrace/pmd/device"
	"github.com/millrace/millrace/wire"
)

// programOf returns the filter that the driver makes of rules.
func programOf(t *testing.T, rules []pmd.Rule) (prog []unix.SockFilter) {
	t.Helper()
	n := testnet.For(t, "mr-kflows")
	a, b := n.Namespace("a"), n.Namespace("b")
	must(t, n.Link(a, "eth0", b, "eth0"))
	must(t, a.Up("eth0"))
	arena, pools, err := device.NewArena(1, device.Config{Name: "none"})
	must(t, err)
	defer arena.Close()
	must(t, a.Do(func() error {
		d, err := afpacket.Open(afpacket.Config{Interface: "eth0", Pools: pools, Rules: rules})
		if err != nil {
			return err
		}
		defer d.Close()
		stop := errors.New("enough")
		err = d.SetPrefilter(&pmd.Prefilter{Socket: func(p []unix.SockFilter) (int, error) { prog = p; return -1, stop }})
		if !errors.Is(err, stop) {
			t.Errorf("SetPrefilter returns %v", err)
		}
		return nil
	}))
	return prog
}

// The driver's filter decides alike as classic BPF, by x/net's machine, and as eBPF, by the kernel.
func TestTranslatedRulesDecideAlike(t *testing.T) {
	four, six := netip.MustParseAddr("198.18.1.1"), netip.MustParseAddr("2001:db8:1::1")
	rules := []pmd.Rule{
		{Addr: four, Proto: wire.ProtoTCP, PortLo: 80},
		{Addr: four, Kind: pmd.Neighbor},
		{Addr: four, Proto: wire.ProtoICMP},
		{Addr: four, Proto: wire.ProtoTCP, LaterFragments: true},
		{Addr: four, Kind: pmd.From, Proto: wire.ProtoUDP, PortLo: 53, PortHi: 60},
		{Addr: six, Proto: wire.ProtoTCP, PortLo: 80, PortHi: 90},
		{Addr: six, Kind: pmd.Neighbor},
		{Addr: six, Proto: wire.ProtoICMPv6},
		{Addr: six, Proto: wire.ProtoUDP, LaterFragments: true},
		{Addr: netip.MustParseAddr("2001:db8:2::"), Bits: 48, Proto: wire.ProtoICMPv6},
		{Addr: netip.MustParseAddr("198.18.2.0"), Bits: 24, Proto: wire.ProtoICMP},
		{Addr: netip.MustParseAddr("198.18.2.9"), Kind: pmd.Keep},
	}
	prog := programOf(t, rules)
	kernel := kernelflows.Translated(t, prog)
	raw := make([]bpf.RawInstruction, len(prog))
	for i, in := range prog {
		raw[i] = bpf.RawInstruction{Op: in.Code, Jt: in.Jt, Jf: in.Jf, K: in.K}
	}
	insns, _ := bpf.Disassemble(raw)
	vm, err := bpf.NewVM(insns)
	must(t, err)
	rnd := rand.New(rand.NewPCG(5, 6))
	taken := 0
	for range 20000 {
		frame := ruleFrame(rnd)
		want, err := vm.Run(frame)
		must(t, err)
		if got := kernel(frame); int(got) != want {
			t.Fatalf("the kernel returns %d, x/net %d for\n%x", got, want, frame)
		}
		if want != 0 {
			taken++
		}
	}
	if taken < 2000 || taken > 18000 {
		t.Errorf("%d of 20000 frames were taken: the test shows too little", taken)
	}
}

// ruleFrame returns a frame whose fields are mostly those that rules name.
func ruleFrame(rnd *rand.Rand) []byte {
	pick := func(list ...uint8) uint8 { return list[rnd.IntN(len(list))] }
	b := make([]byte, 14+60+rnd.IntN(60))
	for i := range b {
		b[i] = byte(rnd.IntN(256))
	}
	ip := b[14:]
	address := func(at int, four bool) {
		s := []string{"2001:db8:1::1", "2001:db8:2::7", "2001:db8:3::1"}[rnd.IntN(3)]
		if four {
			s = []string{"198.18.1.1", "198.18.2.7", "198.18.2.9", "198.18.3.1"}[rnd.IntN(4)]
		}
		copy(ip[at:], netip.MustParseAddr(s).AsSlice())
	}
	port := func(at int) { ip[at], ip[at+1] = 0, pick(80, 53, 59, 60, 61, 90, 91, 8, 135, 136, 133) }
	switch rnd.IntN(5) {
	case 0, 1:
		b[12], b[13], ip[0], ip[9] = 8, 0, 0x40+pick(5, 5, 5, 6, 15), pick(6, 17, 1, 132)
		ip[6], ip[7] = 0x40, pick(0, 0, 0, 1)
		address(12, true)
		address(16, true)
		head := int(ip[0]&15) * 4
		if head+4 < len(ip) {
			port(head)
			port(head + 2)
		}
	case 2, 3:
		b[12], b[13], ip[0] = 0x86, 0xdd, 0x60
		address(8, false)
		address(24, false)
		next, at := 6, 40
		for range rnd.IntN(6) { // extension headers
			ip[next] = pick(0, 43, 60, 44)
			if at+16 > len(ip) {
				break
			}
			next, ip[at+1] = at, pick(0, 0, 0, 1)
			at += 8
		}
		ip[next] = pick(6, 17, 58, 58)
		if at+4 < len(ip) {
			port(at)
			port(at + 2)
			ip[at] = pick(0, 135, 136, 128, 133, 137, 138)
		}
	default:
		b[12], b[13] = 8, pick(6, 6, 0, 7)
		address(24, true)
	}
	if rnd.IntN(8) == 0 {
		b = b[:14+rnd.IntN(len(b)-14)]
	}
	return b
}

func TestWhatIsNotTranslatedIsAnError(t *testing.T) {
	for _, code := range []uint16{unix.BPF_ALU | unix.BPF_MUL, unix.BPF_JMP | unix.BPF_JSET, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_X, unix.BPF_STX, unix.BPF_LD | unix.BPF_LEN} {
		if err := kernelflows.TranslateError([]unix.SockFilter{{Code: code}}); err == nil {
			t.Errorf("code %#x: no error", code)
		}
	}
}

// Most of the rules that a packet socket takes are a program that the kernel takes.
func TestManyRulesLoad(t *testing.T) {
	var rules []pmd.Rule
	for i := range 120 {
		a := netip.AddrFrom4([4]byte{198, 18, 1, byte(i)})
		rules = append(rules, pmd.Rule{Addr: a, Proto: wire.ProtoTCP, PortLo: 80}, pmd.Rule{Addr: a, Kind: pmd.Neighbor})
	}
	for i := range 20 {
		a := netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 15: byte(i)})
		rules = append(rules, pmd.Rule{Addr: a, Proto: wire.ProtoUDP, PortLo: 53}, pmd.Rule{Addr: a, Kind: pmd.Neighbor})
	}
	prog := programOf(t, rules)
	if len(prog) < 2000 {
		t.Fatalf("the program has %d instructions: the test shows too little", len(prog))
	}
	kernelflows.Translated(t, prog)
}
