package cuda

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/gpukern/acl"
	"github.com/millrace/millrace/gpukern/lpm"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/wire"
)

// TestPassLayout compares what Go and C think of the parameters of kernels.
func TestPassLayout(t *testing.T) {
	fields := []struct {
		c  string
		at uintptr
	}{
		{"sizeof(struct gk_pass)", unsafe.Sizeof(pass{})},
		{"offsetof(struct gk_pass, mem)", unsafe.Offsetof(pass{}.mem)},
		{"offsetof(struct gk_pass, size)", unsafe.Offsetof(pass{}.size)},
		{"offsetof(struct gk_pass, desc)", unsafe.Offsetof(pass{}.desc)},
		{"offsetof(struct gk_pass, tables)", unsafe.Offsetof(pass{}.tables)},
		{"offsetof(struct gk_pass, state)", unsafe.Offsetof(pass{}.state)},
		{"offsetof(struct gk_pass, n)", unsafe.Offsetof(pass{}.n)},
		{"offsetof(struct gk_pass, ops)", unsafe.Offsetof(pass{}.ops)},
		{"offsetof(struct gk_pass, shift)", unsafe.Offsetof(pass{}.shift)},
		{"offsetof(struct gk_pass, epoch)", unsafe.Offsetof(pass{}.epoch)},
		{"offsetof(struct gk_pass, generation)", unsafe.Offsetof(pass{}.generation)},
		{"offsetof(struct gk_pass, texts)", unsafe.Offsetof(pass{}.texts)},
		{"offsetof(struct gk_pass, lines)", unsafe.Offsetof(pass{}.lines)},
		{"offsetof(struct gk_pass, pieces)", unsafe.Offsetof(pass{}.pieces)},
		{"sizeof(struct mr_desc)", uintptr(descSize)},
		{"GK_OP_PARSE", uintptr(gpukern.OpParse)},
		{"GK_OP_CHECKSUM", uintptr(gpukern.OpChecksum)},
		{"GK_OP_HASH", uintptr(gpukern.OpHash)},
		{"GK_OP_ACL", uintptr(gpukern.OpACL)},
		{"GK_OP_LPM", uintptr(gpukern.OpLPM)},
		{"GK_OP_FLOW", uintptr(gpukern.OpFlow)},
		{"GK_OP_LITERALS", uintptr(gpukern.OpLiterals)},
	}
	var c strings.Builder
	c.WriteString("#include <stdio.h>\n#define GK_HOST\n#include \"gk.h\"\n#include \"pass.h\"\nint main() {\n")
	for _, f := range fields {
		c.WriteString("printf(\"%zu\\n\", (size_t)(" + f.c + "));\n")
	}
	c.WriteString("}\n")
	got := strings.Fields(runC(t, c.String()))
	for i, f := range fields {
		if got[i] != strconv.Itoa(int(f.at)) {
			t.Errorf("%s is %s in C, %d in Go", f.c, got[i], f.at)
		}
	}
}

// ipPackets fills an arena with n packets: TCP and UDP over IPv4, right for the most part.
func ipPackets(t testing.TB, n int, seed uint64) *load {
	t.Helper()
	a := must(ring.NewArena(ring.ArenaConfig{Frames: n}))(t)
	t.Cleanup(func() { a.Close() })
	r := rand.New(rand.NewPCG(seed, 4))
	l := &load{arena: a}
	for i := range n {
		off := i*2048 + 128 + 2*r.IntN(8)
		p := a.Mem[off:][:54+r.IntN(1400)]
		ipPacket(p, r)
		if r.IntN(4) == 0 {
			p[r.IntN(54)] ^= byte(1 + r.IntN(255))
		}
		if r.IntN(8) == 0 {
			p = p[:r.IntN(len(p))]
		}
		l.desc = append(l.desc, packet.Desc{Off: uint32(off), Len: uint16(len(p)), Stamp: r.Uint32(), Port: 2})
	}
	return l
}

// ipPacket writes a packet of the length of p.
func ipPacket(p []byte, r *rand.Rand) {
	for i := range p {
		p[i] = byte(r.Uint32())
	}
	p[12], p[13] = 0x08, 0x00
	ip := p[14:]
	copy(ip, []byte{0x45, 0, byte(len(ip) >> 8), byte(len(ip)), 0, 1, 0x40, 0, 64, []byte{6, 17}[r.IntN(2)], 0, 0, 10, 0, 0, byte(r.IntN(8)), 10, 1, byte(r.IntN(4)), byte(r.IntN(256))})
	binary.BigEndian.PutUint16(ip[10:], wire.Fold(wire.Sum(ip[:20], 0)))
	l4 := ip[20:]
	field := 16
	if ip[9] == 6 {
		l4[12] = 0x50
	} else {
		field = 6
		binary.BigEndian.PutUint16(l4[4:], uint16(len(l4)))
	}
	binary.BigEndian.PutUint16(l4[field:], 0)
	pseudo := wire.PseudoHeader4([4]byte(ip[12:16]), [4]byte(ip[16:20]), ip[9], uint32(len(l4)))
	binary.BigEndian.PutUint16(l4[field:], wire.Fold(wire.Sum(l4, pseudo)))
}

// headerTables are rules and routes for the packets of ipPackets.
func headerTables(t testing.TB) gpukern.Tables {
	t.Helper()
	acl := must(acl.Compile([]acl.Rule{
		{Src: netip.MustParsePrefix("10.0.0.3/32"), Proto: 6},
		{Dst: netip.MustParsePrefix("10.1.2.0/24")},
	}))(t)
	routes := must(lpm.Compile([]lpm.Route{
		{Prefix: netip.MustParsePrefix("10.1.0.0/16"), NextHop: 7},
		{Prefix: netip.MustParsePrefix("10.1.3.0/24"), NextHop: 9},
	}))(t)
	return gpukern.Tables{ACL: acl, Routes: routes}
}

// onCPU returns what the engine on the CPU says of the packets.
func onCPU(t testing.TB, l *load, ops gpukern.Ops, tables gpukern.Tables) []packet.Desc {
	t.Helper()
	e := gpukern.NewCPU(gpukern.Config{Ops: ops, Tables: tables})
	b := &packet.Batch{Arena: l.arena.View(), D: append([]packet.Desc(nil), l.desc...)}
	if err := e.Submit(b); err != nil {
		t.Fatal(err)
	}
	e.Poll(make([]*packet.Batch, 1))
	return b.D
}

// TestHeaderPassIsThatOfTheCPU runs the header pass each way that there is, and compares with the CPU's.
func TestHeaderPassIsThatOfTheCPU(t *testing.T) {
	devices(t, func(t *testing.T, d *Device) {
		const n = 777
		l := ipPackets(t, n, 11)
		tables := headerTables(t)
		mem := register(t, d, l.arena.Mem)
		table := must(d.Upload(tables.Image(new([40]byte))))(t)
		state := must(d.Upload(gpukern.State(nil)))(t)
		direct := newRunner(t, d, mem, n)
		for _, ops := range []gpukern.Ops{gpukern.OpParse, coreOps, gpukern.OpsHeader} {
			h := HeaderPass{Ops: ops, Tables: table.Ptr, State: state.Ptr}
			want := onCPU(t, l, ops, tables)
			if good := count(want, packet.FlagL4ChecksumOK); ops != gpukern.OpParse && (good < n/4 || good > n*3/4) {
				t.Fatalf("%d of %d packets have a right checksum: the packets show nothing", good, n)
			}
			batch := &packet.Batch{Arena: l.arena.View(), D: append([]packet.Desc(nil), l.desc...)}
			if err := direct.run(batch, h.Put); err != nil {
				t.Fatal(err)
			}
			same(t, "in place, "+ops.String(), batch.D, want)
			r := must(d.NewResident(&packet.Batch{Arena: l.arena.View(), D: l.desc}))(t)
			got := make([]packet.Desc, n)
			if _, err := r.Run(2, h.Put); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(r.Results(got), r.Close()); err != nil {
				t.Fatal(err)
			}
			same(t, "resident, "+ops.String(), got, want)
		}
	})
}

// count returns how many packets have all of the flags.
func count(all []packet.Desc, f packet.Flags) (n int) {
	for i := range all {
		if all[i].Flags.Has(f) {
			n++
		}
	}
	return n
}

func same(t *testing.T, what string, got, want []packet.Desc) {
	t.Helper()
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("%s: packet %d: %+v, want %+v", what, i, got[i], want[i])
		}
	}
}
