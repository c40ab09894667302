package gpukern_test

import (
	"bytes"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	. "github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/internal/kernref"
	"github.com/millrace/millrace/packet"
)

// gkText is struct gk_text of gpukern/cuda/text.h.
type gkText struct {
	off        uint32
	from, len  uint16
	tail, mark uint32
}

// texts does the pass over b with ops and returns the texts that it lists, and whether it tells of pieces.
func (k *headersKernel) texts(t testing.TB, b *packet.Batch, ops Ops) ([]gkText, bool) {
	t.Helper()
	room := make([]gkText, len(b.D)+2)
	if uintptr(unsafe.Pointer(&room[0]))%16 != 0 {
		t.Fatal("the list is on no boundary of 16")
	}
	for i := range room {
		room[i] = gkText{1, 2, 3, 4, 5}
	}
	pieces := new(uint32)
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&room[0])
	pin.Pin(pieces)
	lines := make([]byte, textLine*len(b.D)+textLine)
	pin.Pin(&lines[0])
	k.list.lines = unsafe.Pointer(&lines[0])
	k.list.texts, k.list.pieces = unsafe.Pointer(&room[0]), unsafe.Pointer(pieces)
	k.run(t, b, ops|OpLiterals)
	for i := range b.D {
		k.sameLine(t, b, i, room[i].len > 0, lines[i*textLine:])
	}
	if slices.Max(lines[textLine*len(b.D):]) != 0 {
		t.Fatal("the kernel wrote behind the lines")
	}
	if (room[len(b.D)] != gkText{1, 2, 3, 4, 5}) {
		t.Fatal("the kernel wrote behind the list")
	}
	return room[:len(b.D)], *pieces == 1
}

// textLine is GK_TEXT_LINE.
const textLine = 128

// sameLine compares the line that was left of a packet with its bytes; one without a text has none.
func (k *headersKernel) sameLine(t testing.TB, b *packet.Batch, i int, has bool, line []byte) {
	t.Helper()
	d := &b.D[i]
	by := int(d.Off & 15)
	n := min(int(d.Len), textLine-by)
	if !has && slices.Max(line[:textLine]) != 0 {
		t.Fatalf("packet %d has no text, and a line", i)
	}
	if has && !bytes.Equal(line[by:by+n], b.Bytes(i)[:n]) {
		t.Fatalf("packet %d: the line is\n% x, want\n% x", i, line[by:by+n], b.Bytes(i)[:n])
	}
}

// TestTheHeadersKernelListsTheTexts compares the list with the walk over texts, and what else the pass
// finds with the reference, for packets in one piece.
func TestTheHeadersKernelListsTheTexts(t *testing.T) {
	texts, none := 0, 0
	for seed := range uint64(10) {
		g := kernref.NewGenerator(seed + 300)
		l := kernref.Lists{Rules: g.Rules(20), Routes: g.Routes(20)}
		k := newHeadersKernel(t, "gk_headers", compile(t, l), &l.HashKey)
		for i, b := range []*packet.Batch{g.Batch(130), g.L2Encaps(130), g.Batch(130)} {
			for i := range b.D {
				b.D[i].Flags &^= packet.FlagMore
			}
			ops := []Ops{OpsHeader, l2Ops, OpParse}[i]
			ref := &packet.Batch{Arena: b.Arena, D: slices.Clone(b.D)}
			kernref.Reference(ref, ops, l)
			got, pieces := k.texts(t, b, ops)
			if pieces || !slices.Equal(b.D, ref.D) {
				t.Fatalf("%v: told of pieces: %v, or other descriptors than without a list", ops, pieces)
			}
			want := make([]gkText, len(b.D))
			var w StreamWindows
			for w.Begin(ref, nil); w.Next(); {
				want[w.D] = gkText{off: b.D[w.D].Off, from: uint16(w.From), len: uint16(len(w.Bytes))}
			}
			for i := range want {
				if got[i] != want[i] {
					t.Fatalf("%v: packet %d: %+v, want %+v\n%+v\n% x", ops, i, got[i], want[i], b.D[i], b.Bytes(i))
				}
				if want[i].len > 0 {
					texts++
				} else {
					none++
				}
			}
		}
	}
	if texts < 1000 || none < 500 {
		t.Errorf("%d texts, and %d packets without", texts, none)
	}
}

// TestTheHeadersKernelTellsOfPieces has one descriptor of many that goes on.
func TestTheHeadersKernelTellsOfPieces(t *testing.T) {
	g := kernref.NewGenerator(17)
	k := newHeadersKernel(t, "gk_headers", Tables{}, new([40]byte))
	for _, at := range []int{-1, 0, 31, 32, 98} {
		b := g.Batch(99)
		for i := range b.D {
			b.D[i].Flags = 0
			if i == at {
				b.D[i].Flags = packet.FlagMore
				b.D[i].Len -= b.D[i].Len / 4 // its IP packet ends in the next descriptor
			}
		}
		texts, pieces := k.texts(t, b, OpParse)
		if pieces != (at >= 0) {
			t.Errorf("descriptor %d goes on: %v", at, pieces)
		}
		for i, x := range texts {
			if int(x.from)+int(x.len) > int(b.D[i].Len) {
				t.Errorf("descriptor %d of %d bytes: %+v", i, b.D[i].Len, x)
			}
		}
	}
}
