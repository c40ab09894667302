package expr

import (
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/millrace/millrace/packet"
)

// batchOf lays packets into frames of 2 KiB, the last at the very end of the memory. A longer one spans
// several frames.
func batchOf(pkts []pkt) *packet.Batch {
	const frame = 2048
	b := &packet.Batch{Arena: &packet.Arena{Mem: make([]byte, frame*len(pkts)*2), Shift: 11}}
	at := uint32(0)
	for i, p := range pkts {
		data := p.data
		for {
			n := min(len(data), frame)
			off := at
			if i == len(pkts)-1 {
				off = uint32(len(b.Arena.Mem) - n)
			}
			copy(b.Arena.Mem[off:], data[:n])
			d := packet.Desc{Off: off, Len: uint16(n)}
			data = data[n:]
			at += frame
			if len(data) > 0 {
				d.Flags |= packet.FlagMore
			}
			b.D = append(b.D, d)
			if len(data) == 0 {
				break
			}
		}
	}
	return b
}

// A matcher decides as Match does, with the table of the processor and without.
func TestMatcherDecidesAsMatch(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	pkts := zoo(LinkEthernet, 300)
	long := pkt{make([]byte, 5000), 5000}
	copy(long.data, pkts[3].data)
	pkts = append(pkts[:200], append([]pkt{long}, pkts[200:]...)...)
	for i := range pkts {
		pkts[i].len = uint32(len(pkts[i].data)) // a batch has whole packets
	}
	b := batchOf(pkts)
	rows, tables, matched, undecided := 0, 0, 0, 0
	for rows < 1500 {
		g := generator{rng, LinkEthernet}
		f, err := Compile(g.expression(rng.IntN(3)), LinkEthernet, Options{Names: testNames})
		if err != nil {
			continue
		}
		rows++
		m := f.NewMatcher()
		if m.header != nil {
			tables++
			for i := range pkts {
				if m.header.slow(pkts[i].data) == verdictUndecided {
					undecided++
				}
			}
		}
		for range 2 {
			got := m.Match(b)
			at := 0
			for i, p := range pkts {
				want := f.Match(p.data, int(p.len))
				if want {
					matched++
				}
				for range max(1, (len(p.data)+2047)/2048) {
					if got[at] == verdictAccept != want || got[at] == verdictUndecided {
						t.Fatalf("%q, packet %d: %d, Match says %v\n%s%x", f, i, got[at], want, f.Tree(), p.data)
					}
					at++
				}
			}
			m.header = nil
		}
	}
	if tables < rows/3 || matched == 0 || undecided == 0 {
		t.Errorf("%d of %d filters have tables; %d matches, %d undecided", tables, rows, matched, undecided)
	}
}

// slow decides as decideAVX512 does, lane by lane.
func (h *headerTable) slow(pkt []byte) uint16 {
	bits := uint32(0)
	for t, n := range h.code {
		if v, ok := loadAt(pkt, uint64(t.at), t.size); ok && t.holds(v) {
			bits |= 1 << n
		}
	}
	if e := h.table[bits]; int(e&0xff) <= len(pkt) {
		return e >> verdictShift
	}
	return verdictReject
}

// The lanes of the table give what the slow form gives, for packets of every length.
func TestHeaderTableAgreesWithItsSlowForm(t *testing.T) {
	for _, text := range []string{"tcp port 80", "host 10.0.0.1", "port 53", "tcp[13] & 2 != 0", "ip[8] > 64 or ip6[7] >= 64", "ether multicast"} {
		f, err := Compile(text, LinkEthernet, Options{})
		if err != nil {
			t.Fatal(err)
		}
		m := f.NewMatcher()
		if m.header == nil {
			t.Fatalf("%q has no table", text)
		}
		var pkts []pkt
		for i, p := range zoo(LinkEthernet, 150) {
			data := p.data[:min(len(p.data), i%100)]
			pkts = append(pkts, pkt{data, uint32(len(data))})
		}
		b := batchOf(pkts)
		verdicts := make([]uint8, len(b.D))
		if _, ok := m.header.decide(b.Arena, b.D, verdicts); !ok {
			t.Skip("this processor has no AVX-512 with VBMI")
		}
		for i, p := range pkts {
			if want := m.header.slow(p.data); uint16(verdicts[i]) != want {
				t.Errorf("%q, packet %d: %d, want %d: %x", text, i, verdicts[i], want, p.data)
			}
		}
	}
}

func TestMatcherDoesNotAllocate(t *testing.T) {
	b := batchOf(zoo(LinkEthernet, 256))
	for _, text := range []string{"tcp port 80", "vxlan and tcp", "len > 100"} {
		f, err := Compile(text, LinkEthernet, Options{})
		if err != nil {
			t.Fatal(err)
		}
		m := f.NewMatcher()
		m.Match(b)
		if n := testing.AllocsPerRun(10, func() { m.Match(b) }); n != 0 {
			t.Errorf("%q: %v allocations", text, n)
		}
	}
}

func BenchmarkMatcher(b *testing.B) {
	pkts := zoo(LinkEthernet, 256)
	if dir := os.Getenv("MILLRACE_PCAPS"); dir != "" {
		pkts = readCaptures(&testing.T{}, captureFiles(&testing.T{}, dir))[LinkEthernet][:256]
	}
	batch := batchOf(pkts)
	for _, text := range []string{"ip6", "tcp port 80", "host 192.168.1.1", "port 53", "tcp[13] & 3 != 0", "len > 100 and tcp"} {
		f, err := Compile(text, LinkEthernet, Options{})
		if err != nil {
			b.Fatal(err)
		}
		b.Run(strings.ReplaceAll(text, " ", "_"), func(b *testing.B) {
			m := f.NewMatcher()
			for b.Loop() {
				m.Match(batch)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(batch.D)), "ns/packet")
		})
	}
}
