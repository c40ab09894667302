package symmetric

import (
	"runtime"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/millrace/millrace/gpukern/aead"
	"github.com/millrace/millrace/gpukern/cuda"
	"github.com/millrace/millrace/gpukern/cuda/offload"
)

// mostBytes is the longest text of a kernel; longer ones are the CPU's.
const mostBytes = 1 << 30

// kernelOf returns the kernel of an algorithm, or nil.
func kernelOf(a aead.Algorithm) *kernel {
	switch a {
	case aead.ChaCha20Poly1305:
		return &kernelChaCha
	case aead.AES128GCM, aead.AES256GCM:
		return &kernelGCM
	}
	return nil
}

// way of a batch.
type way uint8

const (
	seal way = iota
	open
)

// where the memory of a batch is.
type where struct {
	ptr      cuda.Ptr // 0: the host's, and texts are copied
	tears    bool     // an Area
	resident bool
}

// Seal is aead.CPU.Seal.
func (e *Engine) Seal(b *aead.Batch) (done int) { return e.aead(b, seal, where{}, len(b.Mem)) }

// Open is aead.CPU.Open.
func (e *Engine) Open(b *aead.Batch) (done int) { return e.aead(b, open, where{}, len(b.Mem)) }

// SealIn is Seal for a batch whose memory is in an area.
func (e *Engine) SealIn(a *Area, b *aead.Batch) (done int, err error) { return e.aeadIn(a, b, seal) }

// OpenIn is Open for a batch whose memory is in an area.
func (e *Engine) OpenIn(a *Area, b *aead.Batch) (done int, err error) { return e.aeadIn(a, b, open) }

// SealResident is Seal for texts in the memory of the device: Batch.Mem is not looked at. Operations of algorithms
// without a kernel stay Pending, and so do those of a device that is lost, which is the error.
func (e *Engine) SealResident(mem *cuda.Buffer, b *aead.Batch) (done int, err error) {
	return e.aeadResident(mem, b, seal)
}

// OpenResident is Open for texts in the memory of the device, with the rules of SealResident.
func (e *Engine) OpenResident(mem *cuda.Buffer, b *aead.Batch) (done int, err error) {
	return e.aeadResident(mem, b, open)
}

func (e *Engine) aeadIn(a *Area, b *aead.Batch, to way) (int, error) {
	at, err := a.at(b.Mem)
	if err != nil {
		return 0, err
	}
	return e.aead(b, to, where{ptr: at, tears: at != 0}, len(b.Mem)), nil
}

func (e *Engine) aeadResident(mem *cuda.Buffer, b *aead.Batch, to way) (int, error) {
	if e.device.Usable() == nil {
		return 0, e.lostMemory()
	}
	done := e.aead(b, to, where{ptr: mem.Ptr, resident: true}, mem.Size&^(textAlign-1))
	if e.Lost() != nil {
		return done, e.lostMemory()
	}
	return done, nil
}

// aead does a batch in size bytes of memory.
func (e *Engine) aead(b *aead.Batch, to way, at where, size int) (done int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.check(b, to, uint64(size))
	e.split(b, at)
	for k, ops := range e.lists[:onCPU] {
		if len(ops) > 0 {
			e.run(e.aeadWork(b, to, at, aeadKernels[k], ops))
		}
	}
	if rest := e.lists[onCPU]; !at.resident {
		e.counters.cpu.Add(uint64(len(rest)))
		e.aeadOnCPU(b, to, rest)
	}
	return count(len(b.Ops), func(i int) bool { return b.Ops[i].Result == aead.Done })
}

// check refuses what cannot be done, on all processors.
func (e *Engine) check(b *aead.Batch, to way, size uint64) {
	offload.Parallel(len(b.Ops), leastChecked, func(from, end int) { b.Check(size, from, end) })
	if to == open {
		return
	}
	parts := max(1, min(runtime.GOMAXPROCS(0), len(b.Ops)/leastChecked))
	for len(e.valid) < parts {
		e.valid = append(e.valid, aead.Validator{})
	}
	offload.Parallel(parts, 1, func(from, end int) {
		for part := from; part < end; part++ {
			e.valid[part].FindReused(b, part, parts)
		}
	})
}

// count returns for how many of n is is true, which all processors ask.
func count(n int, is func(i int) bool) int {
	var sum atomic.Int64
	offload.Parallel(n, leastChecked, func(from, end int) {
		part := 0
		for i := from; i < end; i++ {
			if is(i) {
				part++
			}
		}
		sum.Add(int64(part))
	})
	return int(sum.Load())
}

// Lists of operations: those of each kernel, and what is left to the CPU.
const (
	ofChaCha = iota
	ofGCM
	onCPU
	kinds
)

// aeadKernels are those of the lists.
var aeadKernels = [onCPU]*kernel{ofChaCha: &kernelChaCha, ofGCM: &kernelGCM}

// place is where a key of a batch is on the device, if it is there.
type place struct {
	list int
	at   uint32
}

// split sorts the operations that are Pending into lists.
func (e *Engine) split(b *aead.Batch, at where) {
	e.resolve(b)
	var bytes [kinds]int
	for l := range e.lists {
		e.lists[l] = e.lists[l][:0]
	}
	for i := range b.Ops {
		op := &b.Ops[i]
		if op.Result != aead.Pending {
			continue
		}
		l := e.resolved[op.Key].list
		if op.Len >= mostBytes || at.ptr == 0 && aeadRoom(op) > e.cfg.Bytes {
			l = onCPU
		}
		e.lists[l] = append(e.lists[l], int32(i))
		bytes[l] += int(op.Len)
	}
	for l, k := range aeadKernels {
		if !e.pays(k, at, len(e.lists[l]), bytes[l]) {
			e.lists[onCPU] = append(e.lists[onCPU], e.lists[l]...)
			e.lists[l] = e.lists[l][:0]
		}
	}
}

// resolve finds the keys of a batch on the device, once for all operations.
func (e *Engine) resolve(b *aead.Batch) {
	usable := e.loaded(b)
	e.resolved = e.resolved[:0]
	for _, key := range b.Keys {
		p := place{list: onCPU}
		if usable && key != nil {
			if k := kernelOf(key.Algorithm()); k != nil && e.aeadKeys.has(key) {
				p = place{list: slices.Index(aeadKernels[:], k), at: e.aeadKeys.places[key]}
			}
		}
		e.resolved = append(e.resolved, p)
	}
}

// loaded brings the keys of a batch to the device, and returns false where there is none.
func (e *Engine) loaded(b *aead.Batch) bool {
	if !e.ready() {
		return false
	}
	if err := e.loadKeys(e.cfg.Device, b.Keys); err != nil {
		e.device.Lose(err)
		return false
	}
	return true
}

// aeadRoom returns the bytes of a flight that an operation takes: its associated data, and its text with the tag.
func aeadRoom(op *aead.Op) int {
	return align(int(op.AADLen), textAlign) + align(int(op.Len)+aead.TagSize, textAlign)
}

// aeadWork is the work of one kernel.
func (e *Engine) aeadWork(b *aead.Batch, to way, at where, k *kernel, ops []int32) *work {
	copied := func(op *aead.Op) (text []byte) {
		end := uint64(op.Text) + uint64(op.Len) + aead.TagSize
		return b.Mem[op.Text:end]
	}
	return &work{
		kernel: k, flags: uint32(to), keys: e.aeadKeys.dev.Ptr, ops: ops, mem: at.ptr, tears: at.tears, leave: at.resident,
		room: func(i int32) int { return aeadRoom(&b.Ops[i]) },
		copyIn: func(i int32, data []byte) {
			op := &b.Ops[i]
			copy(data, b.Mem[op.AAD:][:op.AADLen])
			copy(data[align(int(op.AADLen), textAlign):], copied(op))
		},
		copyOut: func(i int32, data []byte) {
			op := &b.Ops[i]
			copy(copied(op), data[align(int(op.AADLen), textAlign):])
		},
		op: func(i int32, to []byte, from uint32) {
			op := b.Ops[i]
			if at.ptr == 0 {
				op.AAD, op.Text = from, from+uint32(align(int(op.AADLen), textAlign))
			}
			op.Key = e.resolved[op.Key].at
			*(*aead.Op)(unsafe.Pointer(&to[0])) = op
		},
		ended: func(i int32, result byte) { b.Ops[i].Result = aead.Result(result) },
		redo:  func(all []int32) { e.aeadOnCPU(b, to, all) },
		torn: func(i int32) {
			clear(copied(&b.Ops[i]))
			b.Ops[i].Result = aead.Torn
		},
	}
}

// aeadOnCPU does operations that are Pending.
func (e *Engine) aeadOnCPU(b *aead.Batch, to way, all []int32) {
	offload.Parallel(len(all), leastDone, func(from, end int) {
		c := e.ciphers.Get().(*aead.CPU)
		defer e.ciphers.Put(c)
		part := aead.Batch{Mem: b.Mem, Keys: b.Keys, Ops: make([]aead.Op, end-from)}
		for j := range part.Ops {
			part.Ops[j] = b.Ops[all[from+j]]
		}
		if to == seal {
			c.SealPending(&part)
		} else {
			c.OpenPending(&part)
		}
		for j := range part.Ops {
			b.Ops[all[from+j]].Result = part.Ops[j].Result
		}
	})
}
