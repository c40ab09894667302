package packet

import "testing"

func TestOffloadStaysWhereItIsWhenThePacketStartMoves(t *testing.T) {
	a := &Arena{Mem: make([]byte, 8192), Shift: 11}
	d := Desc{Off: 2*2048 + 256, Len: 1000, Flags: FlagOffload}
	want := Offload{Flags: 1, GSO: 4, HeadersEnd: 310, SegmentSize: 1448, ChecksumFrom: 290, ChecksumAt: 16}
	a.SetOffload(&d, &want)
	for _, move := range []int{0, -40, 80} {
		d.Off = uint32(2*2048 + 256 + move)
		if got := a.Offload(&d); got != want {
			t.Errorf("moved by %d: %+v, want %+v", move, got, want)
		}
	}
	for i, b := range a.Mem {
		if b != 0 && (i < 4096 || i >= 4096+OffloadLen) {
			t.Fatalf("byte %d was written", i)
		}
	}
}
