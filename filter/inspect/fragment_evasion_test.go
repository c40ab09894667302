package inspect

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/millrace/millrace/filter/signature"
	"github.com/millrace/millrace/wire"
)

// fragmentReceiver puts together the fragments that pass a gate, as a host does: the bytes that came first count, and a
// datagram that was delivered is forgotten.
type fragmentReceiver struct {
	*gate
	parts map[uint16]map[int]string
	ends  map[uint16]int
	got   []string
}

func newFragmentReceiver(t *testing.T, cfg Config, rules string) *fragmentReceiver {
	return &fragmentReceiver{gate: newGate(t, cfg, rules), parts: map[uint16]map[int]string{}, ends: map[uint16]int{}}
}

// piece sends bytes of a datagram of client to server.
func (r *fragmentReceiver) piece(id uint16, proto uint8, at int, more bool, body string) Result {
	b := ipPacket(client, server, proto, []byte(body))
	ip := wire.IPv4(b)
	ip.SetID(id)
	ip.SetMoreFragments(more)
	ip.SetFragmentOffset(at)
	ip.FillChecksum()
	r.now += 1e6
	result := r.e.Inspect(&Input{Now: r.now, Frame: ether(wire.EtherTypeIPv4, b), Dir: signature.ToServer})
	if result.Outcome != Pass || result.Bound && r.cfg.Refuse || result.Anomaly && r.cfg.DropConflicts {
		return result
	}
	if r.parts[id] == nil {
		r.parts[id] = map[int]string{}
	}
	if _, ok := r.parts[id][at]; !ok {
		r.parts[id][at] = body
	}
	if !more {
		r.ends[id] = at + len(body)
	}
	r.deliver(id)
	return result
}

func (r *fragmentReceiver) deliver(id uint16) {
	whole := ""
	for part, ok := r.parts[id][0]; ok && part != ""; part, ok = r.parts[id][len(whole)] {
		whole += part
	}
	if len(whole) == r.ends[id] && len(whole) > 0 {
		r.got = append(r.got, whole)
		delete(r.parts, id)
		delete(r.ends, id)
	}
}

// udpDatagram and tcpSegment return what IP carries, with its checksum.
func udpDatagram(payload string) string {
	b := append(wire.AppendUDP(nil, 4000, 53, len(payload)), payload...)
	wire.UDP(b).FillChecksum(wire.PseudoHeader4(client, server, wire.ProtoUDP, uint32(len(b))))
	return string(b)
}

func tcpSegment(seq uint32, flags wire.TCPFlags, payload string) string {
	h := wire.TCPHeader{SrcPort: 40000, DstPort: 80, Seq: seq, Ack: 5000, Flags: flags, Window: 65535}
	b := append(wire.AppendTCP(nil, &h), payload...)
	wire.TCP(b).FillChecksum(wire.PseudoHeader4(client, server, wire.ProtoTCP, uint32(len(b))))
	return string(b)
}

const dropAttack = `drop ip any any -> any any (content:"attack at dawn"; sid:7;)`

// Fragments of a datagram that a rule drops, in any order and repeated: the receiver never puts it together.
func TestFragmentsOfADroppedPacketStayDropped(t *testing.T) {
	const text = "we attack at dawn, or a little later in the day"
	rng := rand.New(rand.NewPCG(33, 1))
	for round := range 400 {
		r := newFragmentReceiver(t, Config{Refuse: round%2 == 0}, dropAttack)
		proto, whole := uint8(wire.ProtoUDP), udpDatagram(text)
		if round%4 < 2 {
			r.open()
			proto, whole = wire.ProtoTCP, tcpSegment(1, wire.FlagACK, text)
		}
		var order []int
		for at := 0; at < len(whole); at += 24 {
			order = append(order, at, at, at)
		}
		rng.Shuffle(len(order), func(i, k int) { order[i], order[k] = order[k], order[i] })
		for _, at := range order {
			r.piece(9, proto, at, at+24 < len(whole), whole[at:min(at+24, len(whole))])
		}
		if len(r.got) > 0 {
			t.Fatalf("round %d: in the order %v the receiver has %q", round, order, r.got)
		}
		honest := []byte(udpDatagram("fine, and more"))
		wire.UDP(honest).SetSrcPort(4001) // the first one's flow is blocked
		wire.UDP(honest).FillChecksum(wire.PseudoHeader4(client, server, wire.ProtoUDP, uint32(len(honest))))
		r.piece(10, wire.ProtoUDP, 0, true, string(honest[:16]))
		r.piece(10, wire.ProtoUDP, 16, false, string(honest[16:]))
		if len(r.got) != 1 {
			t.Fatalf("round %d: another datagram did not pass", round)
		}
	}
}

// A packet that was dropped is remembered for as long as a receiver may wait, with little memory.
func TestDroppedPacketsAreForgottenAfterTheirTime(t *testing.T) {
	r := newFragmentReceiver(t, Config{Refuse: true}, dropAttack)
	whole := udpDatagram(strings.Repeat("x", 1000) + "attack at dawn")
	send := func() (last Result) {
		for at := 0; at < len(whole); at += 400 {
			last = r.piece(9, wire.ProtoUDP, at, at+400 < len(whole), whole[at:min(at+400, len(whole))])
		}
		return last
	}
	if got := send(); got.Outcome != Drop || got.Blocked {
		t.Fatalf("%+v", got)
	}
	if _, used := r.e.Flows(); used > 1000 {
		t.Errorf("%d bytes are held of a packet that was dropped", used)
	}
	r.now += droppedLife - 1e9
	if got := send(); got.Outcome != Drop || !got.Blocked {
		t.Errorf("sent again: %+v", got)
	}
	r.now += droppedLife
	r.e.Expire(r.now, 10)
	if n := len(r.e.frags); n != 0 {
		t.Errorf("%d packets are remembered after their time", n)
	}
}

// A packet that met a bound when it was whole is inspected again with each fragment of it that comes again.
func TestAPacketAtABoundIsInspectedAgain(t *testing.T) {
	r := newFragmentReceiver(t, Config{Refuse: true, MaxFlows: 1}, dropAttack)
	r.open() // the one flow that there may be
	whole := udpDatagram("attack at dawn")
	r.piece(9, wire.ProtoUDP, 0, true, whole[:16])
	for n := range 3 {
		if got := r.piece(9, wire.ProtoUDP, 16, false, whole[16:]); !got.Bound {
			t.Fatalf("the last fragment, sent %d times: %+v", n+1, got)
		}
	}
	if len(r.got) > 0 {
		t.Errorf("the receiver has %q", r.got)
	}
}

// Bytes that a receiver discards for their checksum are not those that came first.
func TestAPacketWithAWrongChecksumHidesNothing(t *testing.T) {
	for _, c := range []struct {
		name  string
		cfg   Config
		proto uint8
	}{{"TCP", Config{}, wire.ProtoTCP}, {"UDP", Config{}, wire.ProtoUDP}} {
		r := newFragmentReceiver(t, c.cfg, dropAttack)
		r.open()
		whole := []byte(udpDatagram("just some text here"))
		if c.proto == wire.ProtoTCP {
			whole = []byte(tcpSegment(1, wire.FlagACK, "just some text here"))
		}
		whole[len(whole)-1] ^= 1
		r.piece(9, c.proto, 0, true, string(whole[:16]))
		if got := r.piece(9, c.proto, 16, false, string(whole[16:])); got.Outcome != Drop {
			t.Errorf("%s: %+v", c.name, got)
		}
		if f := r.e.oldest; f != nil && f.sides[0].stream.Next() != 0 {
			t.Errorf("%s: the stream has %d bytes", c.name, f.sides[0].stream.Next())
		}
	}
}

// Fragments that contradict each other about where the packet ends are an anomaly, and change nothing.
func TestFragmentsContradictTheEnd(t *testing.T) {
	whole := udpDatagram("we attack at dawn, or later")
	for _, c := range []struct {
		name   string
		pieces []fragmentPart
		last   []bool
		want   int // the piece that is an anomaly
	}{
		{"a shorter last one", []fragmentPart{{16, []byte(whole[16:])}, {8, []byte(whole[8:16])}}, []bool{true, true}, 1},
		{"bytes behind the last", []fragmentPart{{16, []byte(whole[16:24])}, {24, []byte(whole[24:32])}}, []bool{true, false}, 1},
		{"a last one before others", []fragmentPart{{16, []byte(whole[16:24])}, {8, []byte(whole[8:16])}}, []bool{false, true}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newFragmentReceiver(t, Config{DropConflicts: true}, dropAttack)
			for i, q := range c.pieces {
				if got := r.piece(9, wire.ProtoUDP, q.at, !c.last[i], string(q.data)); got.Anomaly != (i == c.want) {
					t.Errorf("piece %d: %+v", i, got)
				}
			}
		})
	}
}

// A packet that is dropped because its bytes contradict earlier ones stays dropped, in fragments too.
func TestContradictingSegmentsInFragmentsStayDropped(t *testing.T) {
	for _, drop := range []bool{true, false} {
		r := newFragmentReceiver(t, Config{DropConflicts: drop}, dropAttack)
		r.open()
		r.segment(true, 1, wire.FlagACK, "some honest text")
		whole := tcpSegment(1, wire.FlagACK, "some other text!")
		r.piece(9, wire.ProtoTCP, 0, true, whole[:24])
		r.piece(9, wire.ProtoTCP, 24, false, whole[24:])
		r.piece(9, wire.ProtoTCP, 24, false, whole[24:])
		if passed := len(r.got) > 0; passed == drop {
			t.Errorf("%s passed: %v", fmt.Sprintf("with DropConflicts %v the segment", drop), passed)
		}
	}
}

// A fragment that a rule drops by its header is not kept: the receiver does not have it.
func TestADroppedFragmentIsNotKept(t *testing.T) {
	r := newFragmentReceiver(t, Config{}, `drop udp any any -> any any (fragbits:M; sid:1;)`)
	if got := r.piece(9, wire.ProtoUDP, 0, true, udpDatagram("some text")[:16]); got.Outcome != Drop || len(r.e.frags) != 0 {
		t.Errorf("%+v, %d packets are kept", got, len(r.e.frags))
	}
}
