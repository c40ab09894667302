package symmetric

import (
	"unsafe"

	"github.com/millrace/millrace/gpukern/cuda"
	"github.com/millrace/millrace/gpukern/cuda/offload"
	"github.com/millrace/millrace/gpukern/digest"
)

// Flags of sy_sha256.
const (
	flagKeyed  = 1
	flagVerify = 2
)

// Sum is digest.CPU.Sum. The device has SHA-256 and HMAC-SHA-256.
func (e *Engine) Sum(b *digest.Batch) (done int) { return e.digest(b, false, where{}, len(b.Mem)) }

// Verify is digest.CPU.Verify.
func (e *Engine) Verify(b *digest.Batch) (done int) { return e.digest(b, true, where{}, len(b.Mem)) }

// SumIn is Sum for a batch whose memory is in an area.
func (e *Engine) SumIn(a *Area, b *digest.Batch) (done int, err error) {
	return e.digestIn(a, b, false)
}

// VerifyIn is Verify for a batch whose memory is in an area.
func (e *Engine) VerifyIn(a *Area, b *digest.Batch) (done int, err error) {
	return e.digestIn(a, b, true)
}

// SumResident is Sum for data in the memory of the device: Batch.Mem is not looked at. Operations of other
// algorithms stay Pending, and so do those of a device that is lost, which is the error.
func (e *Engine) SumResident(mem *cuda.Buffer, b *digest.Batch) (done int, err error) {
	return e.digestResident(mem, b, false)
}

// VerifyResident is Verify for data in the memory of the device, with the rules of SumResident.
func (e *Engine) VerifyResident(mem *cuda.Buffer, b *digest.Batch) (done int, err error) {
	return e.digestResident(mem, b, true)
}

func (e *Engine) digestIn(a *Area, b *digest.Batch, verifies bool) (int, error) {
	at, err := a.at(b.Mem)
	if err != nil {
		return 0, err
	}
	// No text is changed, and a sum can be written again: nothing is torn.
	return e.digest(b, verifies, where{ptr: at}, len(b.Mem)), nil
}

func (e *Engine) digestResident(mem *cuda.Buffer, b *digest.Batch, verifies bool) (int, error) {
	if e.device.Usable() == nil {
		return 0, e.lostMemory()
	}
	done := e.digest(b, verifies, where{ptr: mem.Ptr, resident: true}, mem.Size&^(textAlign-1))
	if e.Lost() != nil {
		return done, e.lostMemory()
	}
	return done, nil
}

// digest does a batch in size bytes of memory.
func (e *Engine) digest(b *digest.Batch, verifies bool, at where, size int) (done int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	offload.Parallel(len(b.Ops), leastChecked, func(from, end int) { b.Check(uint64(size), from, end) })
	ours, rest := e.splitSums(b, at)
	if len(ours) > 0 {
		e.run(e.digestWork(b, verifies, at, ours))
	}
	if !at.resident {
		e.counters.cpu.Add(uint64(len(rest)))
		e.digestOnCPU(b, verifies, rest)
	}
	return count(len(b.Ops), func(i int) bool { return b.Ops[i].Result == digest.Done })
}

// splitSums finds the operations that the device is to do, and those of the CPU.
func (e *Engine) splitSums(b *digest.Batch, at where) (ours, rest []int32) {
	keyed := b.Algorithm == digest.HMACSHA256
	usable := (keyed || b.Algorithm == digest.SHA256) && e.ready()
	if usable && keyed {
		if err := e.loadHMACKeys(e.cfg.Device, b.Keys); err != nil {
			e.device.Lose(err)
			usable = false
		}
	}
	bytes := 0
	var there []bool // of the keys
	if usable && keyed {
		for _, k := range b.Keys {
			there = append(there, e.hmacKeys.has(k))
		}
	}
	ours, rest = e.lists[0][:0], e.lists[1][:0]
	for i := range b.Ops {
		op := &b.Ops[i]
		if op.Result != digest.Pending {
			continue
		}
		if usable && op.Len < mostBytes && (!keyed || there[op.Key]) && (at.ptr != 0 || digestRoom(op) <= e.cfg.Bytes) {
			ours = append(ours, int32(i))
			bytes += int(op.Len)
			continue
		}
		rest = append(rest, int32(i))
	}
	if !e.pays(&kernelSHA256, at, len(ours), bytes) {
		ours, rest = ours[:0], append(rest, ours...)
	}
	e.lists[0], e.lists[1] = ours, rest
	return ours, rest
}

// digestRoom returns the bytes of a flight that an operation takes: its sum, and its data.
func digestRoom(op *digest.Op) int { return sumRoom + align(int(op.Len), textAlign) }

const sumRoom = 32

func (e *Engine) digestWork(b *digest.Batch, verifies bool, at where, ops []int32) *work {
	var places []uint32 // of the keys
	if b.Algorithm == digest.HMACSHA256 {
		for _, k := range b.Keys {
			places = append(places, e.hmacKeys.places[k])
		}
	}
	w := &work{
		kernel: &kernelSHA256, ops: ops, mem: at.ptr, leave: at.resident,
		room: func(i int32) int { return digestRoom(&b.Ops[i]) },
		copyIn: func(i int32, data []byte) {
			op := &b.Ops[i]
			copy(data, b.Mem[op.Sum:][:op.SumLen])
			copy(data[sumRoom:], b.Mem[op.Data:][:op.Len])
		},
		copyOut: func(i int32, data []byte) {
			op := &b.Ops[i]
			copy(b.Mem[op.Sum:][:op.SumLen], data)
		},
		op: func(i int32, to []byte, from uint32) {
			op := b.Ops[i]
			if at.ptr == 0 {
				op.Sum, op.Data = from, from+sumRoom
			}
			if places != nil {
				op.Key = places[op.Key]
			}
			*(*digest.Op)(unsafe.Pointer(&to[0])) = op
		},
		ended: func(i int32, result byte) { b.Ops[i].Result = digest.Result(result) },
		redo:  func(all []int32) { e.digestOnCPU(b, verifies, all) },
	}
	if b.Algorithm == digest.HMACSHA256 {
		w.keys, w.flags = e.hmacKeys.dev.Ptr, flagKeyed
	}
	if verifies {
		w.flags |= flagVerify
	}
	return w
}

// digestOnCPU does operations that are Pending.
func (e *Engine) digestOnCPU(b *digest.Batch, verifies bool, all []int32) {
	offload.Parallel(len(all), leastDone, func(from, end int) {
		c := e.hashes.Get().(*digest.CPU)
		defer e.hashes.Put(c)
		part := digest.Batch{Algorithm: b.Algorithm, Mem: b.Mem, Keys: b.Keys, Ops: make([]digest.Op, end-from)}
		for j := range part.Ops {
			part.Ops[j] = b.Ops[all[from+j]]
		}
		if verifies {
			c.VerifyPending(&part)
		} else {
			c.SumPending(&part)
		}
		for j := range part.Ops {
			b.Ops[all[from+j]].Result = part.Ops[j].Result
		}
	})
}
