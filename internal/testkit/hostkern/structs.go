package hostkern

import (
	"encoding/binary"
	"runtime"
	"testing"
	"unsafe"

	"github.com/millrace/millrace/gpukern/image"
	"github.com/millrace/millrace/gpukern/tuple"
)

// Place returns the struct of m with the addresses of its parts, as gpukern/cuda makes it for a device. The
// result is to be kept while kernels run, and m too.
func Place(m image.Image) []byte {
	out := append([]byte(nil), m.Struct...)
	for _, p := range m.Parts {
		binary.LittleEndian.PutUint64(out[p.At:], uint64(uintptr(unsafe.Pointer(&p.Data[0]))))
	}
	return out
}

// Tuple is struct gk_tuple of gpukern/cuda/parse.cuh.
type Tuple struct {
	srcHi, srcLo, dstHi, dstLo uint64
	ports, end                 uint32
	proto, known, v4           uint8
	_                          [5]uint8
}

// TupleOf returns t, of a packet of the family, as kernels have it.
func TupleOf(t *tuple.Tuple, v4 bool) Tuple {
	g := Tuple{
		srcHi: t.SrcHi, srcLo: t.SrcLo, dstHi: t.DstHi, dstLo: t.DstLo,
		ports: t.Ports, end: t.End, proto: t.Proto, known: uint8(t.Known),
	}
	if v4 {
		g.v4 = 1
	}
	return g
}

// Tuple is the inverse of TupleOf.
func (g *Tuple) Tuple() tuple.Tuple {
	return tuple.Tuple{
		SrcHi: g.srcHi, SrcLo: g.srcLo, DstHi: g.dstHi, DstLo: g.dstLo,
		Ports: g.ports, End: g.end, Proto: g.proto, Known: tuple.Known(g.known),
	}
}

// Pass is struct gk_pass of gpukern/cuda/pass.h.
type Pass struct {
	Mem               unsafe.Pointer
	Size              uint64
	Desc              unsafe.Pointer
	Tables, State     unsafe.Pointer
	N, Ops            uint32
	Shift, Epoch      uint32
	Generation, Spare uint32
	Texts             unsafe.Pointer
	Lines, Pieces     unsafe.Pointer
}

// Lookup runs a kernel of testdata/tables.cu, which looks up the table m and does nothing else, over n entries of
// input and returns what it found.
func (l *Library) Lookup(t testing.TB, kernel string, m image.Image, input unsafe.Pointer, n int) []uint32 {
	t.Helper()
	found := make([]uint32, n)
	params := Place(m)
	if len(params)%8 != 0 {
		t.Fatalf("%s: the struct has %d bytes", kernel, len(params))
	}
	for _, v := range []uint64{uint64(uintptr(input)), uint64(uintptr(unsafe.Pointer(&found[0]))), uint64(n)} {
		params = binary.LittleEndian.AppendUint64(params, v)
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(input)
	pin.Pin(&found[0])
	l.Run(t, kernel, unsafe.Pointer(&params[0]), 3, 64, 0)
	runtime.KeepAlive(m.Parts)
	return found
}
