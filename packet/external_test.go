package packet

import (
	"bytes"
	"testing"
)

func TestExternal(t *testing.T) {
	a := &Arena{Mem: make([]byte, 8192), Shift: 11}
	d := Desc{Off: 2*2048 + 256, Len: 100, Flags: FlagOffload}
	want := Offload{Flags: OffloadNeedsChecksum, GSO: GSOTCPv4, HeadersEnd: 310, SegmentSize: 1448, ChecksumFrom: 290, ChecksumAt: 16}
	a.SetOffload(&d, &want)
	if a.External(&d) != nil || a.Placed(&d) != 0 {
		t.Fatal("a packet in frames has external payload")
	}
	rest := bytes.Repeat([]byte{7}, 60_000)
	a.SetExternal(&d, rest)
	d.Off -= 40 // a pushed header
	if got := a.External(&d); len(got) != len(rest) || &got[0] != &rest[0] || a.Placed(&d) != len(rest) {
		t.Errorf("%d bytes, %d placed", len(got), a.Placed(&d))
	}
	for i, b := range a.Mem {
		if b != 0 && (i < 4096 || i >= 4096+ExternalHeadroom) {
			t.Fatalf("byte %d was written", i)
		}
	}
	a.ClearExternal(&d)
	if a.External(&d) != nil || a.Placed(&d) != 0 || a.Offload(&d) != want {
		t.Errorf("after the copy: %+v, %d placed", a.Offload(&d), a.Placed(&d))
	}
	a.SetPlaced(&d, 5)
	if a.External(&d) != nil || a.Placed(&d) != 5 {
		t.Error("placed payload is not external")
	}
	a.SetExternal(&d, rest[:1])
	a.SetOffload(&d, &want)
	if a.External(&d) != nil || a.Placed(&d) != 0 {
		t.Error("SetOffload keeps what the packet before had")
	}
}
