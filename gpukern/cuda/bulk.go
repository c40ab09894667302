package cuda

import (
	"errors"
	"fmt"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/packet"
)

// BulkConfig says how a Bulk works.
type BulkConfig struct {
	Packets int // the most of a batch; 0 is 65536
	Depth   int // batches inside at once; 0 is 3: one is copied in, one worked on, one copied out

	// Staged is the most bytes of the arena, from a batch's first frame to its last, that are copied to
	// the device before kernels read them: for operations that read payloads more than once. 0 copies
	// nothing: kernels read the arena in place.
	Staged int

	// Ordered has the kernels of a batch wait for those of the batch before: for operations with a state
	// in which order counts. Copies still overlap.
	Ordered bool
}

// ErrNoRoom says that a batch does not fit a Bulk.
var ErrNoRoom = errors.New("batch is larger than the device was prepared for")

// Bulk runs large batches through ordinary launches, each on a stream of its own, so that the copies of
// one and the kernels of another go on at once. It belongs to one goroutine.
//
// Descriptors in memory that the device maps (NewBatch, a registered arena) are worked on in place;
// others are copied, by the CPU, into the slot and back.
type Bulk struct {
	d     *Device
	mem   *Region
	cfg   BulkConfig
	slots []*bulkSlot
	first int // the oldest batch inside
	n     int // batches inside
}

// bulkSlot is the place of one batch.
type bulkSlot struct {
	stream  *Stream
	done    *Event  // everything of the batch has ended
	ran     *Event  // its kernels have
	mapped  *Block  // descriptors of batches whose own the device does not see
	desc    *Buffer // staged descriptors
	frames  *Buffer // staged frames
	batch   *packet.Batch
	foreign bool // the results are to be copied from mapped to batch.D
}

// NewBulk prepares for batches whose packets lie in a region. The caller closes it when no batch is inside,
// before the region.
func (d *Device) NewBulk(mem *Region, cfg BulkConfig) (*Bulk, error) {
	if cfg.Packets == 0 {
		cfg.Packets = 65536
	}
	if cfg.Depth == 0 {
		cfg.Depth = 3
	}
	b := &Bulk{d: d, mem: mem, cfg: cfg}
	err := d.do(func() error {
		for range cfg.Depth {
			s := new(bulkSlot)
			b.slots = append(b.slots, s)
			if err := s.open(d, cfg); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// open makes what a slot needs. For the owner.
func (s *bulkSlot) open(d *Device, cfg BulkConfig) (err error) {
	if s.stream, err = d.newStream(Patient); err != nil {
		return err
	}
	if s.done, err = d.newEvent(); err != nil {
		return err
	}
	if s.ran, err = d.newEvent(); err != nil {
		return err
	}
	if s.mapped, err = d.allocHost(cfg.Packets * descSize); err != nil {
		return err
	}
	if cfg.Staged == 0 {
		return nil
	}
	if s.desc, err = d.alloc(cfg.Packets * descSize); err != nil {
		return err
	}
	s.frames, err = d.alloc(cfg.Staged)
	return err
}

// close gives back what open made. For the owner.
func (s *bulkSlot) close(d *Device) error {
	var errs []error
	if s.frames != nil {
		errs = append(errs, d.free(s.frames.k))
	}
	if s.desc != nil {
		errs = append(errs, d.free(s.desc.k))
	}
	if s.mapped != nil {
		errs = append(errs, d.free(s.mapped.k))
	}
	for _, e := range []*Event{s.ran, s.done} {
		if e != nil {
			errs = append(errs, d.free(e.k))
		}
	}
	if s.stream != nil {
		errs = append(errs, d.free(s.stream.k))
	}
	return errors.Join(errs...)
}

// Submit takes a batch until Poll returns it; put puts the kernels on the stream (HeaderPass.Put, or
// several). gpukern.ErrFull says to Poll first, ErrNoRoom that the batch is too large: it stays the
// caller's then, as with every error. Kernels that write frames need a Bulk that is not staged.
func (b *Bulk) Submit(batch *packet.Batch, put func(r *Recorder, w Work) error) error {
	if b.n == len(b.slots) {
		return gpukern.ErrFull
	}
	if batch.Len() > b.cfg.Packets {
		return fmt.Errorf("%w: %d packets, it was prepared for %d", ErrNoRoom, batch.Len(), b.cfg.Packets)
	}
	low, high := 0, 0
	if b.cfg.Staged > 0 { // a look at each descriptor costs as much as the GPU takes for its packet
		if low, high = reach(batch); high-low > b.cfg.Staged {
			return fmt.Errorf("%w: it reaches over %d bytes, it was prepared for %d", ErrNoRoom, high-low, b.cfg.Staged)
		}
	}
	i := (b.first + b.n) % len(b.slots)
	s := b.slots[i]
	err := b.d.do(func() error { return b.submit(s, batch, low, high, put) })
	if err != nil {
		s.stream.Wait() // what was put there already must not work on the caller's memory
		return err
	}
	s.batch = batch
	b.n++
	return nil
}

// submit puts a batch on the slot's stream. For the owner.
func (b *Bulk) submit(s *bulkSlot, batch *packet.Batch, low, high int, put func(r *Recorder, w Work) error) error {
	w := Work{Mem: b.mem.Ptr, Size: uint64(len(b.mem.Mem)), N: batch.Len(), Shift: batch.Arena.Shift}
	host := descBytes(batch.D)
	at, mapped := b.d.find(host)
	if s.foreign = !mapped; s.foreign {
		at = s.mapped.Ptr
		copy(s.mapped.Mem, host)
		host = s.mapped.Mem[:len(host)]
	}
	w.Desc = at
	if b.cfg.Staged > 0 {
		if err := s.copyIn(host, b.mem.Mem[low:high]); err != nil {
			return err
		}
		// Offsets go on counting from the arena's first byte, which lies before the copy.
		w.Mem, w.Size, w.Desc = s.frames.Ptr-Ptr(low), uint64(high), s.desc.Ptr
	}
	if err := b.run(s, w, put); err != nil {
		return err
	}
	if b.cfg.Staged > 0 {
		if err := s.stream.copyOut(host, s.desc.Ptr); err != nil {
			return err
		}
	}
	return b.d.lib.eventRecord(s.done.id, s.stream.id)
}

// copyIn puts the copies of descriptors and frames on the stream.
func (s *bulkSlot) copyIn(desc, frames []byte) error {
	if err := s.stream.copyIn(s.desc.Ptr, desc); err != nil {
		return err
	}
	return s.stream.copyIn(s.frames.Ptr, frames)
}

// run puts the kernels on the stream.
func (b *Bulk) run(s *bulkSlot, w Work, put func(r *Recorder, w Work) error) error {
	if b.cfg.Ordered && b.n > 0 {
		before := b.slots[(b.first+b.n-1)%len(b.slots)]
		if err := b.d.lib.streamWait(s.stream.id, before.ran.id); err != nil {
			return err
		}
	}
	if w.N > 0 {
		if err := put(&Recorder{s.stream}, w); err != nil {
			return err
		}
	}
	return b.d.lib.eventRecord(s.ran.id, s.stream.id)
}

// Poll returns the oldest batch inside if it is finished, else nil. It does not wait. With an error the
// batches stay inside: Abandon returns them.
func (b *Bulk) Poll() (*packet.Batch, error) {
	if b.n == 0 {
		return nil, nil
	}
	s := b.slots[b.first]
	if ok, err := s.done.Done(); !ok {
		return nil, err
	}
	if s.foreign {
		copy(descBytes(s.batch.D), s.mapped.Mem)
	}
	return b.leave(), nil
}

// leave takes the oldest batch out.
func (b *Bulk) leave() *packet.Batch {
	s := b.slots[b.first]
	batch := s.batch
	s.batch = nil
	b.first = (b.first + 1) % len(b.slots)
	b.n--
	return batch
}

// Inside returns how many batches are inside.
func (b *Bulk) Inside() int { return b.n }

// Abandon returns all batches inside, the oldest first, without results: of a device that is lost.
func (b *Bulk) Abandon() (all []*packet.Batch) {
	for b.n > 0 {
		all = append(all, b.leave())
	}
	return all
}

// Close gives everything back. It may wait for kernels, as Buffer.Close does.
func (b *Bulk) Close() error {
	err := b.d.do(func() error {
		var errs []error
		for _, s := range b.slots {
			errs = append(errs, s.close(b.d))
		}
		return errors.Join(errs...)
	})
	if err == ErrClosed {
		return nil
	}
	return err
}
