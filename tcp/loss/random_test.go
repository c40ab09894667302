package loss

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/wire"
)

// wild feeds a board whatever data says, sense or not, and checks what must be true always: that the
// records cover the flight, that its parts add up, and that no byte arrives twice.
func wild(t *testing.T, data []byte) {
	if len(data) < 2 {
		return
	}
	const size = 500
	o := Options{MSS: size, SACK: data[0]&1 == 0}
	if data[0]&2 == 0 {
		o.Tick = time.Millisecond
	}
	var p Pool
	var b Scoreboard
	start := uint32(data[1]) << 24
	b.Init(&p, start, o)
	now := clock.Time(time.Minute)
	var s Sample
	for data = data[2:]; len(data) >= 8; data = data[8:] {
		x, y := binary.LittleEndian.Uint16(data[2:]), binary.LittleEndian.Uint32(data[4:])
		now += clock.Time(x) * clock.Time(10*time.Microsecond)
		switch data[0] % 8 {
		case 0, 1:
			if b.Outstanding() < 1<<20 {
				b.Sent(now, b.next, y%30_000+1)
			}
		case 2, 3, 4:
			b.Ack(now, wildAck(&b, data), &s)
		case 5:
			if seq, n := b.Lost(); n > 0 {
				b.Resent(now, seq, min(n, y%20_000+1))
			}
		case 6:
			b.OnTimer(max(now, min(b.Timer(), now+1<<40)), &s)
			if s.Events&Probe != 0 {
				if seq, n := b.Probe(); n > 0 && y&1 == 0 {
					b.Resent(now, seq, n)
					b.Probed(b.next, false)
				}
			}
		case 7:
			switch y % 4 {
			case 0:
				b.SetAppLimited()
			case 1:
				b.NewDataSent(x&1 == 0)
			case 2:
				b.RetransmitAll()
			case 3:
				o.MSS = size + uint32(data[1])
				b.SetOptions(o)
			}
		}
		checkWild(t, &b, &p)
	}
	b.Release()
	if p.Records() != 0 {
		t.Fatalf("%d records are left", p.Records())
	}
}

// wildAck makes an ACK whose numbers lie around those in flight.
func wildAck(b *Scoreboard, data []byte) *Ack {
	y := binary.LittleEndian.Uint32(data[4:])
	span := b.Outstanding() + 2000
	a := &Ack{Una: b.una + uint32(data[1])%64*(b.Outstanding()/63), Duplicate: data[0]&8 == 0, Packets: uint16(data[0] >> 6)}
	if data[0]&16 == 0 {
		a.Una = b.una
	}
	if data[0]&32 == 0 {
		a.Echo = clock.Time(time.Minute) + clock.Time(y)
	}
	for i := range int(data[1] % 4) {
		left := b.una - 1000 + (y*uint32(i*i+1))%span
		a.SACK = append(a.SACK, wire.SACKBlock{Left: left, Right: left + y>>8%5000})
	}
	return a
}

func checkWild(t *testing.T, b *Scoreboard, p *Pool) {
	t.Helper()
	f := b.f
	if (f == nil) != (b.una == b.next) || f == nil && p.Records() != 0 {
		t.Fatalf("outstanding %d, %d records", b.Outstanding(), p.Records())
	}
	if f == nil {
		if b.Timer() != clock.Never || b.Flight() != 0 {
			t.Fatal("a flight or timer where nothing is outstanding")
		}
		return
	}
	checkLists(t, b)
	var have [3]uint32
	first := uint32(0)
	for i := f.head; i != 0; i = b.record(i).next {
		r := b.record(i)
		switch r.state & (sacked | missing) {
		case 0:
			have[0] += r.len()
		case missing:
			if first == 0 {
				first = i
			}
			have[1] += r.len()
		case sacked:
			have[2] += r.len()
		default:
			t.Fatal("SACKed and lost")
		}
	}
	if have != [3]uint32{f.pipe, f.missing, f.sacked} {
		t.Fatalf("pipe, missing, SACKed are %v, want %v", [3]uint32{f.pipe, f.missing, f.sacked}, have)
	}
	if seq, n := b.Lost(); n > 0 && seq != b.record(first).seq || n == 0 && first != 0 && !b.WantsNewData() {
		t.Fatalf("Lost is %d+%d, the first is record %d", seq, n, first)
	}
	if b.Timer() == clock.Never || f.rtoTimer == 0 {
		t.Fatal("no timer with data in flight")
	}
	if b.opts.SACK && b.delivered < uint64(f.sacked) {
		t.Fatalf("delivered %d with %d SACKed", b.delivered, f.sacked)
	}
}

func TestScoreboardWithRandomInput(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 8985))
		data := make([]byte, 4000)
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		if !t.Run("", func(t *testing.T) { wild(t, data) }) {
			t.Fatalf("seed %d", seed)
		}
	}
}

func FuzzBoardInTheWild(f *testing.F) {
	f.Add([]byte{0, 255, 0, 0, 1, 0, 0, 80, 0, 0, 2, 3, 90, 0, 5, 6, 7, 8, 6, 0, 255, 255, 0, 0, 0, 0, 5, 1, 1, 1, 1, 1, 1, 1})
	f.Fuzz(func(t *testing.T, data []byte) { wild(t, data) })
}
