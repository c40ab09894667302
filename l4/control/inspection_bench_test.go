package control

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// literalRules are so many rules of one content.
func literalRules(n int) string {
	var b strings.Builder
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range n {
		w := make([]byte, 8+rng.IntN(12))
		for k := range w {
			w[k] = byte('a' + rng.IntN(26))
		}
		fmt.Fprintf(&b, "alert ip any any -> any any (msg:\"m\"; content:\"%s\"; sid:%d;)\n", w, i+1)
	}
	return b.String()
}

// BenchmarkInspectedPacket is a packet of 1000 bytes through the engine's header pass and the handler, of one in 64 UDP flows or TCP
// connections, without inspection and with rules.
func BenchmarkInspectedPacket(b *testing.B) {
	for _, proto := range []string{"udp", "tcp"} {
		for _, c := range []struct {
			name, policies string
			rules          int
		}{
			{"none", "  policies: [{name: p, devices: gw1, rules: a.rules}]\n", 1},
			{"detect-1", detectAll, 1},
			{"detect-10000", detectAll, 10_000},
			{"prevent-10000", preventAll, 10_000},
		} {
			b.Run(proto+"/"+c.name, func(b *testing.B) {
				s := guard(b, fill(""), c.policies, literalRules(c.rules))
				benchPackets(b, s, proto)
			})
		}
	}
}

func benchPackets(b *testing.B, s *guarded, proto string) {
	const flows, size = 64, 1000
	rng := rand.New(rand.NewPCG(5, 6))
	text := make([]byte, size)
	for i := range text {
		text[i] = "etaoin shrdlu,.<>/=\r\n0123456789"[rng.IntN(30)]
	}
	var list, backs [][]byte
	var acks []seg
	for i := range flows {
		src := fmt.Sprintf("198.18.9.9:%d", 40000+i)
		if proto == "tcp" {
			acks = append(acks, answer(s.handshake(src), "A"))
			list = append(list, data(src, 0, string(text)))
			continue
		}
		u := client(src, guardedDNS, "")
		u.payload = string(text)
		list = append(list, u.bytes())
	}
	seq := uint32(firstSeq)
	ba := s.batch(0, list...)
	template := append([]packet.Desc(nil), ba.D...)
	b.SetBytes(size)
	b.ResetTimer()
	for n := 0; n < b.N; n += flows {
		copy(ba.D, template)
		for i := range ba.D {
			copy(s.arena.Mem[ba.D[i].Off:], list[i])
			if proto == "tcp" {
				tcp := wire.TCP(s.arena.Mem[ba.D[i].Off+34:])
				tcp.SetChecksum(wire.Apply(tcp.Checksum(), wire.Diff32(tcp.Seq(), seq)))
				binary.BigEndian.PutUint32(tcp[4:], seq)
			}
		}
		s.run(ba)
		for i := range ba.D {
			if ba.D[i].Verdict != packet.Forward {
				b.Fatalf("round %d, packet %d: %v", n, i, ba.D[i].Verdict)
			}
		}
		if proto == "tcp" {
			b.StopTimer()
			seq += size
			backs = backs[:0]
			for i := range acks {
				acks[i].ack, acks[i].payload = seq, ""
				backs = append(backs, acks[i].bytes())
			}
			s.run(s.batch(1, backs...))
			b.StartTimer()
		}
	}
}
