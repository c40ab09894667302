package role

import (
	"bytes"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

var millionFlows = Stream{MAC: "02:00:00:00:00:07", From: "198.18.64.0:1024", To: "198.18.0.10:53", Flows: 1 << 20, Services: 10_000}

// packetN returns packet number n of a stream by the plain version.
func packetN(t *testing.T, s Stream, n uint64) []byte {
	t.Helper()
	first, err := s.Probe(64)
	if err != nil {
		t.Fatal(err)
	}
	p := bytes.Clone(first)
	s.Vary(p, first, n)
	Stamp(p, n)
	return p
}

func TestAStreamVisitsItsFlowsAndServicesWithValidPackets(t *testing.T) {
	s := millionFlows
	s.Flows, s.Services = 300, 7
	sources, ports := map[string]bool{}, map[layers.UDPPort]bool{}
	for n := range uint64(10_000) {
		p := gopacket.NewPacket(packetN(t, s, n), layers.LayerTypeEthernet, gopacket.Default)
		ip, _ := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
		udp, _ := p.Layer(layers.LayerTypeUDP).(*layers.UDP)
		if ip == nil || udp == nil || p.ErrorLayer() != nil {
			t.Fatalf("packet %d: %v", n, p)
		}
		if _, sum := ip.VerifyChecksum(); !sum.Valid {
			t.Fatalf("packet %d: header checksum %#x is wrong", n, ip.Checksum)
		}
		sources[ip.SrcIP.String()+udp.SrcPort.String()], ports[udp.DstPort] = true, true
	}
	if len(sources) != 300 || len(ports) != 7 {
		t.Errorf("%d sources and %d ports, want 300 and 7", len(sources), len(ports))
	}
}

// The source's XDP program writes the packets that vary makes, whatever was in the frame before.
func TestTheSourceWritesWhatVaryMakes(t *testing.T) {
	for _, s := range []Stream{millionFlows, {MAC: "02:00:00:00:00:07", From: "198.18.64.0:65000", To: "198.18.0.10:53", Flows: 1, Services: 1}} {
		first, err := s.Probe(64)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []uint64{0, 1, 2, 4095, 1 << 33, 1<<63 + 12345} {
			// The tail of the source's program, with the number in place of its counter.
			p := within("drop")
			p = append(p, asm.LoadImm(asm.R6, int64(n), asm.DWord), asm.StoreMem(asm.R2, seqAt, asm.R6, asm.DWord))
			p = append(append(p, s.headers(first)...), xdpDrop("drop")...)
			prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "Apache-2.0", Instructions: p})
			if err != nil {
				t.Skip("BPF programs need root: ", err)
			}
			out := make([]byte, 256)
			opt := ebpf.RunOptions{Data: bytes.Repeat([]byte{0xa5}, 64), DataOut: out}
			_, err = prog.Run(&opt)
			prog.Close()
			if err != nil {
				t.Fatal(err)
			}
			if want := packetN(t, s, n); !bytes.Equal(opt.DataOut[:probeMin], want[:probeMin]) {
				t.Errorf("packet %d of %+v:\n%x, want\n%x", n, s, opt.DataOut[:probeMin], want[:probeMin])
			}
		}
	}
}
