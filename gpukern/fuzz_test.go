package gpukern_test

import (
	"encoding/binary"
	"sync"
	"testing"

	. "github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/internal/kernref"
	"github.com/millrace/millrace/internal/testkit/guardpages"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// fuzzTables are small tables that packets of a generator meet.
var fuzzTables = sync.OnceValue(func() kernref.Lists {
	g := kernref.NewGenerator(9)
	return kernref.Lists{Rules: g.Rules(30), Routes: g.Routes(30)}
})

// fuzzBatch reads a batch from bytes: for each descriptor a byte of length, a byte whose low bit is
// FlagMore and whose other bits add to the length, and the packet.
func fuzzBatch(data []byte) *packet.Batch {
	b := packet.NewBatch(&packet.Arena{Shift: 11}, 64)
	for len(data) >= 2 && b.Room() > 0 {
		n := min(int(data[0])|int(data[1]>>5)<<8, len(data)-2)
		d := packet.Desc{Off: uint32(len(b.D)) << 11, Len: uint16(n)}
		if data[1]&1 != 0 {
			d.Flags = packet.FlagMore
		}
		frame := make([]byte, 1<<11)
		copy(frame, data[2:2+n])
		b.Arena.Mem = append(b.Arena.Mem, frame...)
		b.Append(d)
		data = data[2+n:]
	}
	return b
}

// fuzzInput is the inverse of fuzzBatch.
func fuzzInput(packets ...[][]byte) []byte {
	var out []byte
	for _, pieces := range packets {
		for i, p := range pieces {
			p = p[:min(len(p), 2047)]
			more := byte(0)
			if i < len(pieces)-1 {
				more = 1
			}
			out = append(out, byte(len(p)), byte(len(p)>>8)<<5|more)
			out = append(out, p...)
		}
	}
	return out
}

func FuzzEngine(f *testing.F) {
	g := kernref.NewGenerator(7)
	for range 40 {
		f.Add(fuzzInput(g.Split(g.Packet()), g.Split(g.Damage(g.Packet()))))
	}
	l := fuzzTables()
	c := NewCPU(Config{Tables: compile(f, l)})
	f.Fuzz(func(t *testing.T, data []byte) { agree(t, fuzzBatch(data), c, l) })
}

// TestNothingBeyondAPacketIsRead puts packets at the very end of memory: a read behind them is a
// fault, one in front of them that mattered would change what is found.
func TestNothingBeyondAPacketIsRead(t *testing.T) {
	const size = 1 << 12
	mem := guardpages.New(t, size)
	g := kernref.NewGenerator(11)
	l := fuzzTables()
	c := NewCPU(Config{Ops: OpsHeader | OpL2Encap, Tables: compile(t, l)})
	done := make([]*packet.Batch, 1)
	b := packet.NewBatch(&packet.Arena{Mem: mem, Shift: 12}, 1)
	try := func(p []byte) packet.Desc {
		b.Reset()
		at := size - len(p)
		copy(mem[at:], p)
		b.Append(packet.Desc{Off: uint32(at), Len: uint16(len(p))})
		if err := c.Submit(b); err != nil {
			t.Fatal(err)
		}
		c.Poll(done)
		return b.D[0]
	}
	for i := range 300 {
		p := g.Packet()
		if i%2 == 0 {
			p = g.L2Encap()
		}
		for n := range len(p) + 1 {
			clear(mem[:size])
			want := try(p[:n])
			for i := range size - n {
				mem[i] = 0xff
			}
			if got := try(p[:n]); got != want {
				t.Fatalf("bytes in front of a packet matter: %+v, %+v", got, want)
			}
		}
	}
}

// TestAPacketMayEndBeyond64KiB covers lengths that no test with small frames reaches: a packet of
// several pieces whose IP length is the largest there is.
func TestAPacketMayEndBeyond64KiB(t *testing.T) {
	g := kernref.NewGenerator(1)
	p := make([]byte, 14+65535)
	binary.BigEndian.PutUint16(p[12:], wire.EtherTypeIPv4)
	p[14], p[16], p[17], p[23] = 0x45, 0xff, 0xff, 17
	copy(p[26:], g.Bytes(8))
	binary.BigEndian.PutUint16(p[38:], 65515)
	copy(p[42:], g.Bytes(len(p)-42))
	var pieces [][]byte
	for rest := p; len(rest) > 0; {
		n := min(len(rest), 1501)
		pieces, rest = append(pieces, rest[:n]), rest[n:]
	}
	b := kernref.BatchOf(pieces)
	agree(t, b, NewCPU(Config{}), kernref.Lists{})
	if b.D[0].Flags&(packet.FlagTruncated|packet.FlagMalformed) != 0 {
		t.Errorf("flags %b", b.D[0].Flags)
	}
	// The sum over all pieces but for the field itself gives the right checksum.
	pseudo := wire.PseudoHeader4([4]byte(p[26:]), [4]byte(p[30:]), 17, 65515)
	p[40], p[41] = 0, 0
	binary.BigEndian.PutUint16(p[40:], wire.Fold(wire.SumPlain(p[34:], pseudo)))
	copy(b.Arena.Mem, pieces[0])
	agree(t, b, NewCPU(Config{}), kernref.Lists{})
	if !b.D[0].Flags.Has(packet.FlagL4ChecksumOK) {
		t.Error("the checksum over all pieces is not found right")
	}
}

func TestTheEngineAllocatesNothing(t *testing.T) {
	g := kernref.NewGenerator(4)
	l := fuzzTables()
	c := NewCPU(Config{Tables: compile(t, l)})
	b := g.Batch(600)
	done := make([]*packet.Batch, 4)
	if n := testing.AllocsPerRun(20, func() {
		if err := c.Submit(b); err != nil {
			t.Fatal(err)
		}
		c.Poll(done)
	}); n != 0 {
		t.Errorf("%v allocations a batch", n)
	}
}

func TestTablesAreReplacedWhileBatchesGoThrough(t *testing.T) {
	g := kernref.NewGenerator(6)
	rules := g.Rules(50)
	t1 := compile(t, kernref.Lists{Rules: rules})
	c := NewCPU(Config{})
	b := g.Batch(100)
	done := make([]*packet.Batch, 1)
	submit := func() {
		if err := c.Submit(b); err != nil {
			t.Fatal(err)
		}
		c.Poll(done)
	}
	var loads sync.WaitGroup
	loads.Go(func() {
		for range 100 {
			c.Load(Tables{})
			c.Load(t1)
		}
	})
	for range 100 {
		submit()
	}
	loads.Wait()
	submit()
	matched := 0
	for i := range b.D {
		if b.D[i].Rule != 0 {
			matched++
		}
	}
	if matched == 0 {
		t.Error("the tables loaded last are not in force")
	}
}
