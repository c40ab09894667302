package transport

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/millrace/millrace/rdma/memory"
	"github.com/millrace/millrace/rdma/roce"
)

// guarded is a queue pair whose region lies in the middle of memory that nothing may reach: secret bytes around it.
type guarded struct {
	*pair
	mem    []byte
	inside uint32 // key
}

const (
	guardSize = 4096
	insideLen = 1500
	secret    = 0xee // no byte of the region or of a payload is this
)

var secrets = bytes.Repeat([]byte{secret}, guardSize)

func newGuarded(t testing.TB, service roce.Transport, seed uint64, selective bool) *guarded {
	g := &guarded{pair: newPair(t, options{service: service, psn: 0xfffffa, seed: seed, memory: 1024, selective: selective, line: 1e9, window: 32})}
	g.mem = bytes.Repeat([]byte{secret}, 2*guardSize+insideLen)
	clear(g.mem[guardSize : guardSize+insideLen])
	if err := g.b.tab.Deregister(g.b.key); err != nil {
		t.Fatal(err)
	}
	var err error
	if g.inside, err = g.b.tab.Register(1, g.mem[guardSize:guardSize+insideLen], vaBase, everything); err != nil {
		t.Fatal(err)
	}
	for _, pd := range []memory.PD{2, 3} { // regions of others, on both sides
		if _, err := g.b.tab.Register(pd, g.mem[:guardSize], vaBase, everything); err != nil {
			t.Fatal(err)
		}
	}
	for i := range uint64(4) {
		_ = g.b.qp.PostRecv(&RecvWR{ID: i, List: []SGE{{Addr: vaBase, Length: 700, LKey: g.inside}}})
	}
	g.b.post(SendWR{ID: 1, Op: OpSend, Flags: Inline, Inlined: []byte("own")})
	if service == roce.RC {
		g.b.post(SendWR{ID: 2, Op: OpRead, List: []SGE{{Addr: vaBase, Length: 600, LKey: g.inside}}})
		g.b.post(SendWR{ID: 3, Op: OpFetchAdd, List: []SGE{{Addr: vaBase, Length: 8, LKey: g.inside}}})
	}
	return g
}

// feed gives one packet and looks at what left and at the guards.
func (g *guarded) feed(pk roce.Packet, payload []byte) {
	g.t.Helper()
	for i, v := range payload {
		if v == secret {
			payload[i] = 0
		}
	}
	pk.Payload = payload
	f := roce.Frame{Packet: pk}
	f.Src, f.Dst, f.TOS = g.a.addr, g.b.addr, uint8(pk.MSN&3)
	if pk.Opcode.Transport() == roce.UD { // the headers come from a real frame
		return
	}
	if why := g.b.qp.Input(g.now, &f); why >= Reasons {
		g.t.Fatalf("reason %d", why)
	}
	g.now += 50_000
	g.b.qp.Poll(g.now, func(_ uint32, a *roce.Packet, pieces [][]byte) bool {
		for _, b := range pieces {
			if bytes.IndexByte(b, secret) >= 0 {
				g.t.Fatalf("%+v leaks memory outside of the region", a)
			}
		}
		return true
	})
	for _, side := range [][]byte{g.mem[:guardSize], g.mem[guardSize+insideLen:]} {
		if !bytes.Equal(side, secrets) {
			g.t.Fatalf("%+v wrote outside of the region", pk)
		}
	}
}

// packet makes a packet of fuzzed bytes: numbers near those that are right are likely.
func (g *guarded) packet(b []byte) (roce.Packet, []byte) {
	var w [16]byte
	copy(w[:], b)
	rest := b[min(len(b), 16):]
	op := roce.Opcode(w[0])
	if w[0] >= 0xc0 {
		op = roce.Opcode(w[0] & 0x1f)
	}
	around := func(v byte, at uint64) uint64 { return at + uint64(int64(int8(v))) }
	p := roce.Packet{Opcode: op, PKey: 0xffff, Flags: roce.Flags(w[1] & 7), DestQP: g.b.qp.QPN(), MSN: uint32(w[12]), Imm: 1}
	p.PSN = uint32(around(w[2]&3, uint64(g.b.qp.resp.psn))) & roce.Mask24
	if w[2]&4 != 0 {
		p.PSN = uint32(around(w[2]>>3&3, uint64(g.b.qp.req.una))) & roce.Mask24
	}
	if w[2]&0xc0 == 0xc0 {
		p.PSN = uint32(around(w[3], uint64(p.PSN))) & roce.Mask24
	}
	p.VA = around(w[4], []uint64{vaBase, vaBase + insideLen, vaBase + 1024, 0}[w[5]&3])
	p.RKey = g.inside
	if w[5]&0xf0 == 0xf0 {
		p.RKey ^= 1 << (w[6] & 31)
	}
	p.Length = uint32(around(w[7], uint64([]int{0, 256, 512, insideLen, 1 << 31, len(rest), 8, 600}[w[8]&7])))
	p.Syndrome, p.Swap, p.Compare, p.InvKey = roce.Syndrome(w[9]), uint64(w[10]&0x7f), uint64(w[11]), g.inside^uint32(w[13]>>7)
	n := []int{0, 256, len(rest), 8, 88}[w[14]%5]
	payload := make([]byte, n)
	copy(payload, rest)
	if !op.Part().Has(roce.Carries) {
		payload = nil
	}
	return p, payload
}

// TestNothingOutsideOfRegions is the property in short: random sequences of packets, many of them right.
func TestNothingOutsideOfRegions(t *testing.T) {
	reached, answered := 0, uint64(0)
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 4))
		service := []roce.Transport{roce.RC, roce.RC, roce.UC}[seed%3]
		g := newGuarded(t, service, seed, seed%2 == 0)
		for range 40 {
			b := make([]byte, 16+r.IntN(300))
			for i := range b {
				b[i] = byte(r.Uint32())
			}
			b[0] = byte(r.IntN(0x18))
			p, payload := g.packet(b)
			if r.IntN(8) > 0 { // a right one
				p.Opcode = []roce.Opcode{roce.WriteOnly, roce.ReadRequest, roce.FetchAdd, roce.SendOnly}[r.IntN(4)]
				payload = payload[:0]
				if p.Opcode.Part().Has(roce.Carries) {
					payload = append(payload, b[16:16+min(256, len(b)-16)]...)
				}
				p.PSN, p.RKey, p.Length = g.b.qp.resp.psn, g.inside, uint32(len(payload))
				p.VA = vaBase + uint64(r.IntN(insideLen-len(payload)+1))&^7
			}
			p.Opcode = p.Opcode.Of(service)
			if p.Opcode.Kind() == roce.KindNone {
				continue
			}
			g.feed(p, payload)
		}
		if len(bytes.Trim(g.mem[guardSize:guardSize+insideLen], "\x00")) > 0 {
			reached++
		}
		answered += g.b.qp.Counters().Sent
	}
	if reached < 1000 || answered < 3000 {
		t.Errorf("only %d sequences wrote, %d packets were answered: the test finds nothing", reached, answered)
	}
}

// FuzzInput is the same with sequences of the fuzzer's choice: a length before each packet.
func FuzzInput(f *testing.F) {
	for op := range byte(0x18) {
		one := append([]byte{op, 4, 0, 0, 1, 0, 0, 0, 1, 0x1f, 5, 0, 1, 0, 1, 0}, bytes.Repeat([]byte{op + 1}, 256)...)
		sequence := append(binary.BigEndian.AppendUint16(nil, uint16(len(one))), one...)
		f.Add(byte(roce.RC), sequence)
		f.Add(byte(roce.RC)|2, append(bytes.Clone(sequence), sequence...))
	}
	f.Fuzz(func(t *testing.T, service byte, b []byte) {
		s := roce.Transport(service & 1)
		g := newGuarded(t, s, 1, service&2 != 0)
		for i := 0; len(b) >= 2 && i < 100; i++ {
			n := min(int(binary.BigEndian.Uint16(b)), len(b)-2, 600)
			p, payload := g.packet(b[2 : 2+n])
			b = b[2+n:]
			if p.Opcode.Kind() != roce.KindNone {
				g.feed(p, payload)
			}
		}
	})
}
