package digest

import (
	"crypto/sha256"
	"encoding"
	"encoding/binary"
	"unsafe"
)

// lanes is the number of messages that FormAVX512 hashes at once.
const lanes = 16

// fewLanes is the most messages whose hashes the instructions for SHA-256 of one message compute in less time than all lanes
// together, as crypto/sha256 uses them: a block takes 128 cycles there, and 16 take about 900 in lanes.
const fewLanes = 6

// stage is the part of its message that a lane is at.
type stage uint8

const (
	idle    stage = iota
	body          // whole blocks of the message
	ending        // the rest of it with the padding (FIPS 180-4 5.1.1)
	outside       // HMAC: the second hash
)

// lane is one message that is being hashed.
type lane struct {
	op    int // index in Batch.Ops
	left  int // blocks of the stage
	pads  int // blocks in pad
	stage stage
	pad   [2 * sha256.BlockSize]byte
}

// sha256Lanes hashes the messages of a batch. A lane that ends takes the next operation at once, so that lengths may differ.
type sha256Lanes struct {
	state [8][lanes]uint32
	data  [lanes]unsafe.Pointer
	lane  [lanes]lane

	encoded [stateSize]byte // of crypto/sha256

	c    *CPU
	b    *Batch
	dir  direction
	next int // operation that no lane has taken
	busy int // lanes that are not idle
	done int
}

// sha256Initial is the state before the first block (FIPS 180-4 5.3.3).
var sha256Initial = [8]uint32{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}

// emptyState is the state of crypto/sha256 before the first block.
var emptyState = func() (state [stateSize]byte) {
	_, _ = sha256.New().(encoding.BinaryAppender).AppendBinary(state[:0])
	return state
}()

// run hashes all operations that are Pending.
func (w *sha256Lanes) run(c *CPU, b *Batch, d direction) (done int) {
	w.c, w.b, w.dir, w.next, w.busy, w.done = c, b, d, 0, 0, 0
	w.encoded = emptyState
	for l := range w.lane {
		w.lane[l].stage = idle
	}
	for {
		for l := range w.lane {
			if w.lane[l].stage == idle && !w.take(l) {
				break
			}
		}
		if w.busy == 0 {
			break
		}
		for l := range w.lane {
			if w.busy <= fewLanes && w.lane[l].stage == body {
				w.bodyAlone(l)
			}
		}
		w.step()
	}
	if b.Algorithm == HMACSHA256 {
		w.state = [8][lanes]uint32{}
		w.lane = [lanes]lane{}
		w.encoded = emptyState
		clearHash(c.hash)
	}
	w.data = [lanes]unsafe.Pointer{} // keeps no memory
	w.c, w.b = nil, nil
	return w.done
}

// take starts the next operation in a lane.
func (w *sha256Lanes) take(l int) bool {
	for ; w.next < len(w.b.Ops); w.next++ {
		op := &w.b.Ops[w.next]
		if op.Result != Pending {
			continue
		}
		at := &w.lane[l]
		at.op = w.next
		w.next++
		w.busy++
		data, _ := w.b.data(op)
		before := 0
		if w.b.Algorithm == HMACSHA256 {
			before = sha256.BlockSize
			w.setState(l, stateWords(&w.b.Keys[op.Key].inner))
		} else {
			w.setState(l, sha256Initial)
		}
		whole := len(data) &^ (sha256.BlockSize - 1)
		at.pads = padTo(&at.pad, data[whole:], before+len(data))
		at.stage, at.left, w.data[l] = body, whole/sha256.BlockSize, unsafe.Pointer(unsafe.SliceData(data))
		if at.left == 0 {
			w.advance(l)
		}
		return true
	}
	return false
}

// padTo writes the last blocks of a message of so many bytes, and returns how many.
func padTo(pad *[2 * sha256.BlockSize]byte, rest []byte, size int) (blocks int) {
	n := copy(pad[:], rest)
	blocks = (n + 1 + 8 + sha256.BlockSize - 1) / sha256.BlockSize
	end := blocks * sha256.BlockSize
	pad[n] = 0x80
	clear(pad[n+1 : end-8])
	binary.BigEndian.PutUint64(pad[end-8:], uint64(size)*8)
	return blocks
}

func (w *sha256Lanes) setState(l int, words [8]uint32) {
	for i, v := range words {
		w.state[i][l] = v
	}
}

// stateWords returns the words of an encoded state of crypto/sha256. TestStateEncoding holds that they are there.
func stateWords(state *[stateSize]byte) (words [8]uint32) {
	for i := range words {
		words[i] = binary.BigEndian.Uint32(state[4+4*i:])
	}
	return words
}

// step hashes as many blocks as all busy lanes have. Idle lanes hash those of another lane, for nothing.
func (w *sha256Lanes) step() {
	blocks, some := 0, 0
	for l := range w.lane {
		at := &w.lane[l]
		if at.stage != idle && (blocks == 0 || at.left < blocks) {
			blocks, some = at.left, l
		}
	}
	for l := range w.lane {
		if w.lane[l].stage == idle {
			w.data[l] = w.data[some]
		}
	}
	sha256x16(&w.state, &w.data, blocks)
	for l := range w.lane {
		at := &w.lane[l]
		if at.stage == idle {
			continue
		}
		if at.left -= blocks; at.left == 0 {
			w.advance(l)
		} else {
			w.data[l] = unsafe.Add(w.data[l], blocks*sha256.BlockSize)
		}
	}
}

// advance starts the next stage of a lane, or ends its operation.
func (w *sha256Lanes) advance(l int) {
	at := &w.lane[l]
	switch {
	case at.stage == body:
		at.stage, at.left = ending, at.pads
	case at.stage == ending && w.b.Algorithm == HMACSHA256:
		var sum [sha256.Size]byte
		w.sum(l, sum[:])
		at.stage, at.left = outside, padTo(&at.pad, sum[:], sha256.BlockSize+sha256.Size)
		w.setState(l, stateWords(&w.b.Keys[w.b.Ops[at.op].Key].outer))
	default:
		w.sum(l, w.c.sum[:])
		w.end(l)
		return
	}
	w.data[l] = unsafe.Pointer(&at.pad)
}

func (w *sha256Lanes) sum(l int, sum []byte) {
	for i := range w.state {
		binary.BigEndian.PutUint32(sum[4*i:], w.state[i][l])
	}
}

// end stores the sum in w.c.sum as the result of a lane.
func (w *sha256Lanes) end(l int) {
	at := &w.lane[l]
	op := &w.b.Ops[at.op]
	if op.Result = w.b.finish(op, w.dir, &w.c.sum); op.Result == Done {
		w.done++
	}
	at.stage = idle
	w.busy--
}

// bodyAlone hashes the whole blocks that a lane has left by crypto/sha256.
func (w *sha256Lanes) bodyAlone(l int) {
	at := &w.lane[l]
	state := &w.encoded
	for i := range w.state {
		binary.BigEndian.PutUint32(state[4+4*i:], w.state[i][l])
	}
	_ = w.c.hash.(encoding.BinaryUnmarshaler).UnmarshalBinary(state[:]) // encoded by the package
	w.c.hash.Write(unsafe.Slice((*byte)(w.data[l]), at.left*sha256.BlockSize))
	_, _ = w.c.hash.(encoding.BinaryAppender).AppendBinary(state[:0])
	w.setState(l, stateWords(state))
	w.advance(l)
}
