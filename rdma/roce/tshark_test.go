package roce

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/capture"
	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/wire"
)

// TestTsharkReadsWhatIsBuilt has Wireshark's dissector read a frame of every opcode over IPv4, IPv6 and RoCEv1, and compares
// each field.
func TestTsharkReadsWhatIsBuilt(t *testing.T) {
	testnet.Program(t, "tshark")
	path := filepath.Join(t.TempDir(), "roce.pcap")
	w, err := capture.Create(path, capture.WriterConfig{Interfaces: []capture.Interface{{LinkType: capture.LinkTypeEthernet}}})
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for op := range 256 {
		for kind := range 3 {
			op := Opcode(op)
			if op.Kind() == KindNone {
				continue
			}
			b, line := exemplar(op, kind)
			want = append(want, line)
			if err := w.Write(&capture.Record{Time: int64(len(want)), Len: len(b), Data: b}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	got := dissect(t, path)
	if len(got) != len(want) {
		t.Fatalf("%d lines of %d packets", len(got), len(want))
	}
	for i, line := range got {
		if line != want[i] {
			t.Errorf("packet %d:\n%s, want\n%s", i+1, line, want[i])
		}
	}
}

// tsharkFields lists what is compared, in the order of exemplar's lines.
var tsharkFields = []string{
	"opcode", "se", "m", "padcnt", "p_key", "destqp", "a", "psn",
}

func dissect(t *testing.T, path string) []string {
	args := []string{"-r", path, "-T", "fields", "-E", "separator=;", "-E", "occurrence=f", "--disable-protocol", "rpcordma"}
	for _, f := range tsharkFields {
		args = append(args, "-e", "infiniband.bth."+f)
	}
	for _, f := range []string{"reth.va", "reth.r_key", "reth.dmalen", "aeth.msn", "atomiceth.swapdt", "atomiceth.cmpdt", "atomicacketh.origremdt", "deth.srcqp", "immdt", "ieth", "invariant.crc"} {
		args = append(args, "-e", "infiniband."+f)
	}
	out, err := exec.Command("tshark", append(args, "-e", "_ws.malformed")...).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
}

// exemplar returns a frame with distinct values, and tshark's line for it.
func exemplar(op Opcode, kind int) ([]byte, string) {
	e := Envelope{Src: wire.AddrFrom4([4]byte{198, 18, 0, 1}), Dst: wire.AddrFrom4([4]byte{198, 18, 0, 2}), SrcPort: 50000, TTL: 64}
	if kind > 0 {
		e.Src, e.Dst, e.V1 = wire.Addr{0x20, 1, 0xd, 0xb8, 15: 1}, wire.Addr{0x20, 1, 0xd, 0xb8, 15: 2}, kind == 2
	}
	p := Packet{
		Opcode: op, Flags: Flags(op)&1*Solicited | Flags(op)>>1&1*MigReq | Flags(op)>>2&1*AckReq, PKey: 0x8001, DestQP: 0x123456, PSN: 0xabcdef,
		VA: 0x1122334455667788, RKey: 0xa1b2c3d4, Length: 70000, Syndrome: UnlimitedCredits, MSN: 0x010203, Swap: 5, Compare: 6, Original: 7,
		QKey: 0x80010000, SrcQP: 99, Imm: 0xcafef00d, InvKey: 0x0badf00d,
	}
	part := op.Part()
	var payload []byte
	if part.Has(Carries) {
		payload = []byte{1, 2, 3, 4, 5}
	}
	b := make([]byte, 256)
	b = b[:Build(b, &e, &p, payload)]
	field := func(h Part, format string, v any) string {
		if part&h == 0 {
			return ""
		}
		return fmt.Sprintf(format, v)
	}
	crc := fmt.Sprintf("0x%x", b[len(b)-ICRCLen:])
	if op == CNP { // tshark shows none behind the reserved bytes
		crc = ""
	}
	return b, strings.Join([]string{
		fmt.Sprintf("%d;%d;%d;%d;32769;0x123456;%d;11259375", op, op&1, op>>1&1, -len(payload)&3, op>>2&1),
		field(HasRETH|HasAtomic, "0x%016x", p.VA), field(HasRETH|HasAtomic, "0x%08x", p.RKey), field(HasRETH, "%d", p.Length),
		field(HasAETH, "%d", p.MSN), field(HasAtomic, "%d", p.Swap), field(HasAtomic, "%d", p.Compare),
		field(HasAtomAck, "%d", p.Original), field(HasDETH, "0x%08x", p.SrcQP), field(HasImm, "%08x", p.Imm), field(HasIETH, "%08x", p.InvKey),
		crc, "",
	}, ";")
}
