package symmetric

import (
	"errors"
	"fmt"

	"github.com/millrace/millrace/gpukern/cuda"
	"github.com/millrace/millrace/gpukern/cuda/offload"
)

// kernel is a kernel with how many operations a block has, and the bytes of one.
type kernel struct {
	name    string
	perTask int
	opSize  int
}

const (
	warps   = 4   // SY_WARPS
	threads = 128 // SY_THREADS
)

var (
	kernelChaCha = kernel{name: "sy_chacha", perTask: warps, opSize: 40}
	kernelGCM    = kernel{name: "sy_gcm", perTask: warps, opSize: 40}
	kernelSHA256 = kernel{name: "sy_sha256", perTask: threads, opSize: 24}
)

// params is struct sy_aead, and struct sy_sums.
type params struct {
	mem, ops, keys, results cuda.Ptr
	n, flags                uint32
}

// resultNone is the result of an operation that no kernel has ended.
const resultNone = 0

// work are the operations of a call for the device: those of one kernel, by their indices in the batch.
type work struct {
	kernel *kernel
	flags  uint32
	keys   cuda.Ptr
	ops    []int32

	// mem is the memory of an Area or of the device. 0 has texts copied: then room says how much of the flight's memory an
	// operation takes, and copyIn and copyOut move its texts.
	mem     cuda.Ptr
	tears   bool // texts of an Area change in place: those of a launch that is lost are neither what they were nor done
	room    func(i int32) int
	copyIn  func(i int32, data []byte)
	copyOut func(i int32, data []byte)

	op    func(i int32, op []byte, at uint32) // writes an operation, whose copied texts begin at at
	ended func(i int32, result byte)
	redo  func(all []int32) // on the CPU
	torn  func(i int32)
	leave bool // memory of the device: nothing can be done again
}

const (
	textAlign  = 16 // of what is copied: kernels read by as much
	arrayAlign = 256
)

// flight is a launch with its memory, which is alike on the device and on the host:
//
//	operations | results | texts
type flight struct {
	offload.Flight

	results, texts int // where they begin

	launched bool
	w        *work
	ops      []int32  // of w
	at       []uint32 // of each: where its texts are, from texts on
	used     int      // bytes of texts
}

func newFlight(d *cuda.Device, cfg *Config) (*flight, error) {
	f := &flight{at: make([]uint32, cfg.Batch+1)}
	f.results = align(cfg.Batch*kernelGCM.opSize, arrayAlign)
	f.texts = f.results + align(cfg.Batch, arrayAlign)
	size := f.texts + align(cfg.Bytes, arrayAlign)
	if err := f.Open(d, size, size); err != nil {
		return nil, err
	}
	return f, nil
}

func align(n, to int) int { return (n + to - 1) &^ (to - 1) }

// load takes operations of w from next on, as many as fit, and returns how many.
func (f *flight) load(w *work, next, most, room int) int {
	f.w, f.used = w, 0
	n := 0
	for ; n < most && next+n < len(w.ops); n++ {
		f.at[n] = uint32(f.used)
		if w.mem != 0 {
			continue
		}
		size := w.room(w.ops[next+n])
		if f.used+size > room {
			break
		}
		f.used += size
	}
	f.at[n] = uint32(f.used)
	f.ops = w.ops[next : next+n]
	return n
}

// start sends the flight off.
func (f *flight) start() error {
	w, n := f.w, len(f.ops)
	f.launched = false
	f.Begin()
	clear(f.Host.Mem[f.results : f.results+n])
	offload.Parallel(n, leastCopied, func(from, to int) {
		for j := from; j < to; j++ {
			i := f.ops[j]
			w.op(i, f.Host.Mem[j*w.kernel.opSize:][:w.kernel.opSize], f.at[j])
			if w.mem == 0 {
				w.copyIn(i, f.text(j))
			}
		}
	})
	k, err := f.GPU.Kernel(w.kernel.name)
	if err != nil {
		return err
	}
	p := params{mem: w.mem, ops: f.Dev.Ptr, keys: w.keys, results: f.Dev.Ptr + cuda.Ptr(f.results), n: uint32(n), flags: w.flags}
	if w.mem == 0 {
		p.mem = f.Dev.Ptr + cuda.Ptr(f.texts)
	}
	errs := []error{f.copyIn(0, n*w.kernel.opSize), f.Stream.Fill(f.Dev.Ptr+cuda.Ptr(f.results), resultNone, n), f.copyIn(f.texts, f.used)}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := cuda.Launch(f.Stream, k, cuda.Grid{Blocks: (n + w.kernel.perTask - 1) / w.kernel.perTask, Threads: threads}, &p); err != nil {
		return err
	}
	f.launched = true
	errs = []error{f.copyOut(f.results, n), f.copyOut(f.texts, f.used), f.wipeDevice()}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return f.Sent()
}

// text is the copied text of an operation.
func (f *flight) text(j int) []byte {
	from, to := f.texts+int(f.at[j]), f.texts+int(f.at[j+1])
	return f.Host.Mem[from:to:to]
}

func (f *flight) copyIn(at, n int) error {
	if n == 0 {
		return nil
	}
	return f.Stream.CopyIn(f.Dev.Ptr+cuda.Ptr(at), f.Host, at, n)
}

func (f *flight) copyOut(at, n int) error {
	if n == 0 {
		return nil
	}
	return f.Stream.CopyOut(f.Host, at, f.Dev.Ptr+cuda.Ptr(at), n)
}

// wipeDevice overwrites the texts that the device has a copy of, after what is on its stream.
func (f *flight) wipeDevice() error {
	if f.used == 0 {
		return nil
	}
	return f.Stream.Fill(f.Dev.Ptr+cuda.Ptr(f.texts), 0, f.used)
}

// take reads the results, and the texts that were copied.
func (e *Engine) take(f *flight) {
	w := f.w
	results := f.Host.Mem[f.results : f.results+len(f.ops)]
	var missing []int32
	for j, r := range results {
		if r == resultNone {
			missing = append(missing, f.ops[j])
		}
	}
	offload.Parallel(len(f.ops), leastCopied, func(from, to int) {
		for j := from; j < to; j++ {
			if r := results[j]; r != resultNone {
				if w.mem == 0 {
					w.copyOut(f.ops[j], f.text(j))
				}
				w.ended(f.ops[j], r)
			}
		}
		clear(f.Host.Mem[f.texts+int(f.at[from]) : f.texts+int(f.at[to])])
	})
	e.counters.device.Add(uint64(len(f.ops) - len(missing)))
	if len(missing) > 0 {
		e.counters.faults.Add(uint64(len(missing)))
		e.undone(w, missing)
	}
}

// undone does operations on the CPU that a device was given and has not touched.
func (e *Engine) undone(w *work, ops []int32) {
	if w.leave || len(ops) == 0 {
		return
	}
	e.counters.cpu.Add(uint64(len(ops)))
	w.redo(ops)
}

// fail ends a flight whose device is lost. What was copied is done again. Texts of an Area that a kernel was launched for are torn: it may
// have written some of them, or parts.
func (e *Engine) fail(f *flight, err error) {
	e.device.Lose(err)
	w := f.w
	f.Fail(err, f.wipeDevice)
	clear(f.Host.Mem[f.texts : f.texts+f.used])
	if w.tears && f.launched {
		e.counters.torn.Add(uint64(len(f.ops)))
		offload.Parallel(len(f.ops), leastCopied, func(from, to int) {
			for _, i := range f.ops[from:to] {
				w.torn(i)
			}
		})
		return
	}
	e.counters.lost.Add(uint64(len(f.ops)))
	e.undone(w, f.ops)
}

// land waits for a flight and takes its results.
func (e *Engine) land(f *flight) {
	if !f.Flying() {
		return
	}
	if err := f.Land(len(f.ops), e.cfg.Patience); err != nil {
		e.fail(f, fmt.Errorf("symmetric: %w", err))
		return
	}
	e.take(f)
}

// run does work on the device, and on the CPU what that does not do.
func (e *Engine) run(w *work) {
	next := 0
	for i := 0; next < len(w.ops); i++ {
		f := e.flights[i%offload.Flights]
		e.land(f)
		if e.device.Usable() == nil {
			break
		}
		next += f.load(w, next, e.cfg.Batch, e.cfg.Bytes)
		if err := f.start(); err != nil {
			e.fail(f, err)
		}
	}
	for _, f := range e.flights {
		e.land(f)
	}
	e.undone(w, w.ops[next:])
}
