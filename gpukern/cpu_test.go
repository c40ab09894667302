package gpukern_test

import (
	"encoding/hex"
	"errors"
	"testing"

	. "github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/internal/kernref"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// fromHex decodes hex with spaces.
func fromHex(t testing.TB, s string) []byte {
	t.Helper()
	var digits []byte
	for _, c := range []byte(s) {
		if c > ' ' {
			digits = append(digits, c)
		}
	}
	b, err := hex.DecodeString(string(digits))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestTheEngineHoldsDepthBatchesAndReturnsThemInOrder(t *testing.T) {
	c := NewCPU(Config{Depth: 2})
	b := []*packet.Batch{kernref.BatchOf(), kernref.BatchOf(), kernref.BatchOf()}
	for i, want := range []error{nil, nil, ErrFull} {
		if err := c.Submit(b[i]); !errors.Is(err, want) {
			t.Fatalf("submit %d: %v, want %v", i, err, want)
		}
	}
	done := make([]*packet.Batch, 1)
	if n := c.Poll(done); n != 1 || done[0] != b[0] {
		t.Fatalf("first poll: %d", n)
	}
	if err := c.Submit(b[2]); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := c.Submit(b[0]); !errors.Is(err, ErrClosed) {
		t.Fatalf("submit after close: %v", err)
	}
	done = make([]*packet.Batch, 4)
	if n := c.Poll(done); n != 2 || done[0] != b[1] || done[1] != b[2] {
		t.Fatalf("poll after close: %d batches", n)
	}
	if n := c.Poll(done); n != 0 {
		t.Fatalf("poll of an empty engine: %d batches", n)
	}
}

// A DNS query over UDP and IPv4 without a UDP checksum.
const dnsQuery = `
	0200 0000 0002 0200 0000 0001 0800
	4500 0039 0001 0000 4011 f6af c000 0201 c000 0202
	1000 0035 0025 0000 1234 0100 0001 0000 0000 0000 0765 7861 6d70 6c65 0363 6f6d 0000 0100 01`

func TestAUDPPacketIsParsed(t *testing.T) {
	b := kernref.BatchOf(kernref.One(fromHex(t, dnsQuery)))
	c := NewCPU(Config{})
	if err := c.Submit(b); err != nil {
		t.Fatal(err)
	}
	d := b.D[0]
	if d.L3 != 14 || d.L4 != 34 || d.Payload != 42 || d.Proto != wire.ProtoUDP {
		t.Errorf("offsets %d %d %d, protocol %d", d.L3, d.L4, d.Payload, d.Proto)
	}
	if want := packet.FlagIPv4 | packet.FlagIPChecksumOK | packet.FlagL4NoChecksum; d.Flags != want {
		t.Errorf("flags %b, want %b", d.Flags, want)
	}
	if d.Hash == 0 {
		t.Error("no hash")
	}
}
