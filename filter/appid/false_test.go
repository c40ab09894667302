package appid

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// invented makes payloads that look like a protocol's without being one: lengths that fit, small numbers, text, runs of
// zeros, tags and lengths.
type invented struct {
	*rand.Rand
	b [600]byte
}

func (g *invented) fill(p []byte) {
	for i := range p {
		p[i] = byte(g.Uint32())
	}
}

// small fills p with numbers below 16, most of them 0.
func (g *invented) small(p []byte) {
	for i := range p {
		p[i] = 0
		if g.UintN(3) == 0 {
			p[i] = byte(g.UintN(16))
		}
	}
}

func (g *invented) text(p []byte) {
	const letters = "etaoin shrdlu ETAOINSHRDLU 0123456789 .:/<>{}\"=*+-@\r\n"
	for i := range p {
		p[i] = letters[g.UintN(uint(len(letters)))]
	}
}

func (g *invented) payload() []byte {
	p := g.b[:1+g.UintN(200)]
	switch g.UintN(4) {
	case 0:
		p = p[:1+g.UintN(uint(min(40, len(p))))]
	}
	switch g.UintN(4) {
	case 0:
		g.fill(p)
	case 1:
		g.text(p)
	default:
		g.small(p)
	}
	if len(p) >= 8 && g.UintN(4) != 0 {
		g.framed(p)
	}
	return p
}

// framed writes the length of p, or of what follows, where protocols have it.
func (g *invented) framed(p []byte) {
	at := []int{0, 0, 0, 1, 2, 4}[g.UintN(6)]
	n := len(p) - []int{0, at, at + 2, at + 4, 1, 8}[g.UintN(6)]
	switch g.UintN(6) {
	case 0:
		binary.BigEndian.PutUint16(p[at:], uint16(n))
	case 1:
		binary.LittleEndian.PutUint16(p[at:], uint16(n))
	case 2:
		binary.BigEndian.PutUint32(p[at:], uint32(n))
	case 3:
		binary.LittleEndian.PutUint32(p[at:], uint32(n))
	case 4:
		p[0], p[1], p[2], p[3] = 0x30, byte(len(p)-2)&0x7f, 2, 1
	case 5:
		p[len(p)-2], p[len(p)-1] = '\r', '\n'
	}
}

// random fills all of a payload with random bytes.
func (g *invented) random() []byte {
	p := g.b[:1+g.UintN(uint(len(g.b)))]
	for i := 0; i+8 <= len(g.b); i += 8 {
		binary.LittleEndian.PutUint64(g.b[i:], g.Uint64())
	}
	return p
}

// invent plays n flows of up to six payloads, half of them at the usual port of a recogniser, and counts what they are
// taken for.
func invent(n int, seed uint64, next func(g *invented) []byte) (found [protocols]int, all int) {
	g := &invented{Rand: rand.New(rand.NewPCG(1, seed))}
	usual := usualPorts()
	for i := range n {
		var f Flow
		p := Packet{Transport: tcp, Source: 1024 + uint16(g.UintN(60000)), Sequence: g.Uint32()}
		if i%2 == 0 {
			p.Transport = udp
		}
		p.Destination = uint16(g.UintN(1 << 16))
		if ports := usual[p.Transport]; i%4 < 2 {
			p.Destination = ports[g.UintN(uint(len(ports)))]
		}
		for range 1 + g.UintN(6) {
			p.Payload, p.Reply = next(g), g.UintN(2) == 0
			f.Packet(&p)
			p.Sequence += uint32(len(p.Payload))
		}
		if f.Protocol() != Unknown {
			found[f.Protocol()]++
			all++
		}
	}
	return found, all
}

// usualPorts are the ports at which recognisers are asked first, by transport.
func usualPorts() map[uint8][]uint16 {
	m := map[uint8][]uint16{}
	for _, r := range recognisers {
		m[r.transport] = append(m[r.transport], r.ports...)
	}
	return m
}

// falseFlows is how many flows are invented: MILLRACE_APPID_FLOWS, or few.
func falseFlows(t *testing.T) int {
	s := os.Getenv("MILLRACE_APPID_FLOWS")
	if s == "" {
		return 100_000
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Bytes that are no protocol are recognised as none, whatever their ports.
func TestInventedPayloadsAreUnknown(t *testing.T) {
	n := falseFlows(t)
	for _, c := range []struct {
		name string
		next func(*invented) []byte
		most int // flows of one protocol, in a million
	}{
		{"random", (*invented).random, 35},
		{"structured", (*invented).payload, 75},
	} {
		found, all := invent(n, uint64(len(c.name)), c.next)
		t.Logf("%s: %d of %d flows", c.name, all, n)
		for p, k := range found {
			if k > 0 {
				t.Logf("%s %v: %d", c.name, Protocol(p), k)
			}
			if k > 3+n*c.most/1e6 {
				t.Errorf("%d of %d %s flows are taken for %v", k, n, c.name, Protocol(p))
			}
		}
	}
}
