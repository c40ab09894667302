package cuda

import (
	"encoding/binary"
	"slices"
	"sync"

	"github.com/millrace/millrace/gpukern/image"
)

// Table is an image that lies on the device, in one piece:
//
//	[0]  the struct, its pointers filled in
//	...  the parts, each on a boundary of 256 bytes
type Table struct {
	Ptr  Ptr // of the struct
	Size int // bytes of all

	buf   *Buffer
	parts []int // offsets of the parts
}

// Part returns where part i of the image lies, for what kernels write.
func (t *Table) Part(i int) Ptr { return t.Ptr + Ptr(t.parts[i]) }

// partAlign is the boundary that parts lie on: that of a Buffer, and more than any load needs.
const partAlign = 256

// Upload brings an image to the device. What it borrows may change when Upload has returned. The caller
// closes the table, or retires it where a kernel may run that still reads it.
func (d *Device) Upload(m image.Image) (*Table, error) {
	at, size := layout(m)
	buf, err := d.Alloc(size)
	if err != nil {
		return nil, err
	}
	s := slices.Clone(m.Struct)
	for i, p := range m.Parts {
		binary.LittleEndian.PutUint64(s[p.At:], uint64(buf.Ptr)+uint64(at[i]))
	}
	err = d.stage.upload(d, buf.Ptr, s)
	for i, p := range m.Parts {
		if err == nil {
			err = d.stage.upload(d, buf.Ptr+Ptr(at[i]), p.Data)
		}
	}
	if err != nil {
		buf.Close()
		return nil, err
	}
	return &Table{buf.Ptr, size, buf, at}, nil
}

// layout returns where the parts of an image go, and the bytes of all.
func layout(m image.Image) (at []int, size int) {
	size = len(m.Struct)
	for _, p := range m.Parts {
		size = (size + partAlign - 1) &^ (partAlign - 1)
		at = append(at, size)
		size += len(p.Data)
	}
	return at, max(size, 1)
}

// Close frees the table, as Buffer.Close does.
func (t *Table) Close() error { return t.buf.Close() }

// stage is the host memory that uploads go through, in two halves: one is filled while the other is
// copied. Go's own memory may not be given to the copy engine.
type stage struct {
	sync.Mutex
	block  *Block
	stream *Stream
	copied [2]*Event
	half   int
}

// stageHalf is the bytes of a half: enough that a copy takes longer than its call.
const stageHalf = 1 << 20

// open makes the stage. For the owner.
func (s *stage) open(d *Device) (err error) {
	if s.block, err = d.allocHost(2 * stageHalf); err != nil {
		return err
	}
	if s.stream, err = d.newStream(Patient); err != nil {
		return err
	}
	for i := range s.copied {
		if s.copied[i], err = d.newEvent(); err != nil {
			return err
		}
	}
	return nil
}

// upload copies from to the device and returns when it is there.
func (s *stage) upload(d *Device, to Ptr, from []byte) error {
	s.Lock()
	defer s.Unlock()
	for len(from) > 0 {
		n := min(len(from), stageHalf)
		if err := s.piece(d, to, from[:n]); err != nil {
			return err
		}
		to, from = to+Ptr(n), from[n:]
	}
	return s.stream.Wait()
}

// piece copies what fits in one half, when that half is free.
func (s *stage) piece(d *Device, to Ptr, from []byte) error {
	i := s.half
	s.half ^= 1
	if err := s.copied[i].Wait(); err != nil {
		return err
	}
	mem := s.block.Mem[i*stageHalf:][:len(from)]
	copy(mem, from)
	return d.do(func() error {
		if err := s.stream.copyIn(to, mem); err != nil {
			return err
		}
		return d.lib.eventRecord(s.copied[i].id, s.stream.id)
	})
}

// download copies from the device to memory of any kind and returns when it is there.
func (s *stage) download(d *Device, to []byte, from Ptr) error {
	s.Lock()
	defer s.Unlock()
	for len(to) > 0 {
		mem := s.block.Mem[:min(len(to), len(s.block.Mem))]
		if err := d.do(func() error { return s.stream.copyOut(mem, from) }); err != nil {
			return err
		}
		if err := s.stream.Wait(); err != nil {
			return err
		}
		to, from = to[copy(to, mem):], from+Ptr(len(mem))
	}
	return nil
}

// Download copies device memory to memory of any kind.
func (d *Device) Download(to []byte, from Ptr) error { return d.stage.download(d, to, from) }
