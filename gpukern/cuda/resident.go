package cuda

import (
	"errors"
	"time"

	"github.com/millrace/millrace/packet"
)

// Resident is a batch that was copied to the device, frames and descriptors, to be worked on there again
// and again: what kernels do where the bus to the host does not bound them.
type Resident struct {
	d        *Device
	stream   *Stream
	from, to *Event
	frames   *Buffer
	desc     *Buffer // what kernels work on
	original *Buffer // descriptors as they came
	low      int     // offset in the arena of the first byte of frames
	n        int
	shift    uint8
}

// NewResident copies a batch to the device. It borrows the batch until it returns. The caller closes it.
func (d *Device) NewResident(b *packet.Batch) (*Resident, error) {
	low, high := reach(b)
	r := &Resident{d: d, low: low, n: b.Len(), shift: b.Arena.Shift}
	err := d.do(func() error { return r.open(high-low, b.Len()*descSize) })
	if err == nil {
		err = d.stage.upload(d, r.frames.Ptr, b.Arena.Mem[low:high])
	}
	if err == nil {
		err = d.stage.upload(d, r.original.Ptr, descBytes(b.D))
	}
	if err == nil {
		err = r.Restore()
	}
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// open makes what a resident batch needs. For the owner.
func (r *Resident) open(frames, desc int) (err error) {
	if r.frames, err = r.d.alloc(max(frames, 1)); err != nil {
		return err
	}
	if r.desc, err = r.d.alloc(max(desc, 1)); err != nil {
		return err
	}
	if r.original, err = r.d.alloc(max(desc, 1)); err != nil {
		return err
	}
	if r.stream, err = r.d.newStream(Patient); err != nil {
		return err
	}
	if r.from, err = r.d.newEvent(); err != nil {
		return err
	}
	r.to, err = r.d.newEvent()
	return err
}

// Restore makes the descriptors what they were when they came.
func (r *Resident) Restore() error {
	if r.n == 0 {
		return nil
	}
	if err := r.stream.CopyWithin(r.desc.Ptr, r.original.Ptr, r.n*descSize); err != nil {
		return err
	}
	return r.stream.Wait()
}

// Work is the batch as kernels see it.
func (r *Resident) Work() Work {
	return Work{
		Mem: r.frames.Ptr - Ptr(r.low), Size: uint64(r.low + r.frames.Size), Desc: r.desc.Ptr, N: r.n, Shift: r.shift,
	}
}

// Run runs the kernels that put puts on the stream times times, one run after the other, and returns the
// device's time for all of them.
func (r *Resident) Run(times int, put func(r *Recorder, w Work) error) (time.Duration, error) {
	err := r.d.do(func() error {
		if err := r.d.lib.eventRecord(r.from.id, r.stream.id); err != nil {
			return err
		}
		for range times {
			if err := put(&Recorder{r.stream}, r.Work()); err != nil {
				return err
			}
		}
		return r.d.lib.eventRecord(r.to.id, r.stream.id)
	})
	if err != nil {
		return 0, err
	}
	if err := r.to.Wait(); err != nil {
		return 0, err
	}
	return r.to.Since(r.from)
}

// Results copies the descriptors back, into d.
func (r *Resident) Results(d []packet.Desc) error {
	return r.d.stage.download(r.d, descBytes(d[:r.n]), r.desc.Ptr)
}

// Close frees the batch.
func (r *Resident) Close() error {
	var errs []error
	for _, b := range []*Buffer{r.frames, r.desc, r.original} {
		if b != nil {
			errs = append(errs, b.Close())
		}
	}
	for _, e := range []*Event{r.from, r.to} {
		if e != nil {
			errs = append(errs, e.Close())
		}
	}
	if r.stream != nil {
		errs = append(errs, r.stream.Close())
	}
	return errors.Join(errs...)
}
