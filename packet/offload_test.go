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

func TestSegments(t *testing.T) {
	for _, c := range [][3]int{{0, 0, 1}, {0, 10, 1}, {9, 0, 1}, {9, -1, 1}, {9, 10, 1}, {10, 10, 1}, {11, 10, 2}, {20, 10, 2}, {21, 10, 3}} {
		if got := Segments(c[0], c[1]); got != c[2] {
			t.Errorf("%d bytes in segments of %d: %d, want %d", c[0], c[1], got, c[2])
		}
	}
}
