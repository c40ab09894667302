package cuda

import (
	"unsafe"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/packet"
)

// Work is a batch as the device sees it.
type Work struct {
	Mem   Ptr    // what Desc.Off counts from
	Size  uint64 // nothing at or beyond Mem+Size is read
	Desc  Ptr
	N     int
	Shift uint8 // a frame has 1<<Shift bytes
}

// pass is struct gk_pass of pass.h: one batch for the kernels of the header pass.
type pass struct {
	mem        Ptr
	size       uint64
	desc       Ptr
	tables     Ptr
	state      Ptr
	n          uint32
	ops        gpukern.Ops
	shift      uint32
	epoch      uint32
	generation uint32
	_          uint32
	texts      Ptr
	lines      Ptr
	pieces     Ptr
}

// HeaderPass selects the work of the header pass on a batch.
type HeaderPass struct {
	Ops        gpukern.Ops
	Tables     Ptr     // struct gk_tables, a Table's
	State      Ptr     // struct gk_state; 0 where Ops has no OpFlow
	Epoch      uint32  // of the flow table
	Generation uint32  // of Tables, another one for each; 0 keeps the flow table from remembering findings
	Texts      *Search // that is to have the texts which the pass finds; nil where none are to be listed
}

// coreOps are those of gk_headers_core, the lighter form of the kernel.
const coreOps = gpukern.OpParse | gpukern.OpChecksum | gpukern.OpHash

// Put puts the pass over w on the stream that r records.
func (h HeaderPass) Put(r *Recorder, w Work) error {
	p := pass{
		mem: w.Mem, size: w.Size, desc: w.Desc, tables: h.Tables, state: h.State, n: uint32(w.N), ops: h.Ops &^ gpukern.OpLiterals,
		shift: uint32(w.Shift), epoch: h.Epoch, generation: h.Generation,
	}
	if s := h.Texts; s != nil {
		if err := s.fits(w.N); err != nil {
			return err
		}
		p.ops, p.texts, p.lines = p.ops|gpukern.OpLiterals, s.texts.Ptr, s.linesPtr()
		p.pieces = s.counters.Ptr + literalPieces
	}
	name := "gk_headers"
	if p.ops == coreOps {
		name = "gk_headers_core"
	}
	k, err := r.s.d.Kernel(name)
	if err != nil {
		return err
	}
	return Record(r, k, headersGrid(w.N, k.Threads), &p)
}

// headersGrid is the shape of a launch with a thread for each of n packets, as headers.cuh asks for: a warp
// does its 32 descriptors and ends.
func headersGrid(n, threads int) Grid {
	return Grid{Blocks: max(1, (n+threads-1)/threads), Threads: threads}
}

// descBytes borrows the memory of descriptors.
func descBytes(d []packet.Desc) []byte {
	if len(d) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&d[0])), len(d)*descSize)
}

// descSize is the size of a descriptor in bytes.
const descSize = int(unsafe.Sizeof(packet.Desc{}))

// reach returns the part of the arena that the packets of b lie in, from the first frame's begin to the
// last one's end.
func reach(b *packet.Batch) (low, high int) {
	if len(b.D) == 0 {
		return 0, 0
	}
	low = len(b.Arena.Mem)
	for i := range b.D {
		low = min(low, int(b.D[i].Off))
		high = max(high, int(b.D[i].Off)+int(b.D[i].Len))
	}
	frame := b.Arena.FrameSize()
	low &^= frame - 1
	high = min((high+frame-1)&^(frame-1), len(b.Arena.Mem))
	return low, high
}
