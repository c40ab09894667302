package gpukern_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"

	. "github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/internal/testkit/testpackets"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/wire"
)

// segment makes a frame of TCP or UDP with a payload, whose checksum is that of Linux for a device that is to complete it, or right.
func segment(t *testing.T, src, dst string, proto uint8, payload []byte, partial bool) []byte {
	t.Helper()
	a, b := netip.MustParseAddr(src), netip.MustParseAddr(dst)
	l4 := make([]byte, map[uint8]int{wire.ProtoTCP: 20, wire.ProtoUDP: 8}[proto])
	binary.BigEndian.PutUint32(l4, 0x30390050)
	at := 6
	if proto == wire.ProtoTCP {
		l4[12], at = 5<<4, 16
	} else {
		binary.BigEndian.PutUint16(l4[4:], uint16(8+len(payload)))
	}
	l4 = append(l4, payload...)
	pseudo := wire.PseudoHeader(wire.AddrFrom(a), wire.AddrFrom(b), proto, uint32(len(l4)))
	binary.BigEndian.PutUint16(l4[at:], ^wire.Fold(pseudo))
	if !partial {
		binary.BigEndian.PutUint16(l4[at:], 0)
		binary.BigEndian.PutUint16(l4[at:], wire.UDPChecksum(wire.Fold(wire.Sum(l4, pseudo))))
	}
	f := append(make([]byte, 12), 0x08, 0x00)
	if a.Is6() {
		f[12], f[13] = 0x86, 0xdd
		f = append(f, 0x60, 0, 0, 0, byte(len(l4)>>8), byte(len(l4)), proto, 64)
		f = append(append(f, a.AsSlice()...), b.AsSlice()...)
		return append(f, l4...)
	}
	n := 20 + len(l4)
	ip := append([]byte{0x45, 0, byte(n >> 8), byte(n), 0, 0, 0, 0, 64, proto, 0, 0}, append(a.AsSlice(), b.AsSlice()...)...)
	wire.IPv4(ip).FillChecksum()
	return append(append(f, ip...), l4...)
}

// chained appends a frame to a batch in pieces.
func chained(t *testing.T, b *packet.Batch, pool *ring.Pool, f []byte, size int) {
	t.Helper()
	for len(f) > 0 {
		n := min(size, len(f))
		if !testpackets.Append(b, pool, f[:n]) {
			t.Fatal("no frame")
		}
		if f = f[n:]; len(f) > 0 {
			b.D[len(b.D)-1].Flags |= packet.FlagMore
		}
	}
}

// TestChecksumsThatWereLeftToTheDeviceAreCompleted compares them with right ones, whole and in pieces, and leaves others as they are.
func TestChecksumsThatWereLeftToTheDeviceAreCompleted(t *testing.T) {
	arena, err := ring.NewArena(ring.ArenaConfig{Frames: 256, FrameSize: 2048})
	if err != nil {
		t.Fatal(err)
	}
	defer arena.Close()
	pool, err := arena.Cut(256)
	if err != nil {
		t.Fatal(err)
	}
	engine := NewCPU(Config{Ops: OpParse | OpChecksum})
	rnd := rand.New(rand.NewPCG(1, 2))
	through := func(f []byte, size int) (got []byte, completed bool, flags packet.Flags) {
		b := packet.NewBatch(arena.View(), 32)
		chained(t, b, pool, f, size)
		done := make([]*packet.Batch, 1)
		if err := engine.Submit(b); err != nil || engine.Poll(done) != 1 {
			t.Fatal(err)
		}
		completed = CompleteChecksum(b, 0)
		for i := range b.D {
			got = append(got, b.Bytes(i)...)
		}
		flags = b.D[0].Flags
		pool.PutBatch(b)
		return got, completed, flags
	}
	for range 2000 {
		payload := make([]byte, rnd.IntN(1400))
		for i := range payload {
			payload[i] = byte(rnd.Uint32())
		}
		src, dst := "198.18.0.1", "198.18.0.2"
		if rnd.IntN(2) == 0 {
			src, dst = "2001:db8::1", "2001:db8::2"
		}
		proto := []uint8{wire.ProtoTCP, wire.ProtoUDP}[rnd.IntN(2)]
		size := []int{2048, 128, 257}[rnd.IntN(3)] // with an odd one the sum of a piece counts with its bytes swapped
		partial, right := segment(t, src, dst, proto, payload, true), segment(t, src, dst, proto, payload, false)
		got, completed, flags := through(partial, size)
		if !completed || !bytes.Equal(got, right) || !flags.Has(packet.FlagL4ChecksumOK) {
			t.Fatalf("%s, protocol %d, %d bytes in pieces of %d: completed %v\n% x\n% x", src, proto, len(payload), size, completed, got, right)
		}
		wrong := bytes.Clone(partial)
		wrong[len(partial)-len(payload)-1] ^= 1 // in the transport header, beyond the checksum or in it
		wrong[14+12] ^= 1                       // and an address
		if got, completed, _ := through(wrong, size); completed || !bytes.Equal(got, wrong) {
			t.Fatalf("a wrong checksum was completed")
		}
		if short := partial[:len(partial)-1]; len(payload) > 0 {
			if _, completed, _ := through(short, size); completed {
				t.Fatal("the checksum of a packet that is not whole was completed")
			}
		}
	}
}
