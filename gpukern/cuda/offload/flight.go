package offload

import (
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/gpukern/cuda"
)

// Flights of an engine or a pipeline: one is filled and one emptied while the device works on the third.
const Flights = 3

// Flight is a launch with its stream and its memory, on the device and pinned on the host. Open makes it and Close returns what it
// has. Not safe for concurrent use.
type Flight struct {
	GPU    *cuda.Device
	Stream *cuda.Stream
	Host   *cuda.Block  // what is copied
	Dev    *cuda.Buffer // what is copied, and what the kernels need besides

	done  *cuda.Event
	state flightState
	since time.Time
}

// flightState is the state of a flight: Begin, Land and Fail change it.
type flightState uint8

const (
	grounded flightState = iota
	flying
)

// Open allocates the memory, of so many bytes. Where that fails nothing is left.
func (f *Flight) Open(gpu *cuda.Device, host, dev int) (err error) {
	f.GPU = gpu
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	if f.Host, err = gpu.AllocHost(host); err != nil {
		return err
	}
	if f.Dev, err = gpu.Alloc(dev); err != nil {
		return err
	}
	if f.Stream, err = gpu.NewStream(cuda.Patient); err != nil {
		return err
	}
	f.done, err = gpu.NewEvent()
	return err
}

// Begin starts the time of a launch, whose inputs are about to be written.
func (f *Flight) Begin() { f.state, f.since = flying, time.Now() }

// Sent marks the end of what is on the stream as the end of the launch.
func (f *Flight) Sent() error { return f.done.Record(f.Stream) }

// Flying reports whether a launch has begun and neither landed nor failed.
func (f *Flight) Flying() bool { return f.state == flying }

// Land waits for the end of the launch of n operations, which may take so long from Begin on. After an error Fail follows.
func (f *Flight) Land(n int, patience time.Duration) error {
	err := f.done.WaitFor(f.since, patience)
	switch {
	case err == nil:
		f.state = grounded
	case errors.Is(err, cuda.ErrLate):
		err = fmt.Errorf("%d operations have taken longer than %v: %w", n, patience, cuda.ErrLost)
	}
	return err
}

// Fail ends a launch that an error has ended. wipe puts on the stream what overwrites the memory of a device that has refused a call and
// obeys others.
func (f *Flight) Fail(err error, wipe func() error) {
	f.state = grounded
	if f.GPU.Lost() == nil && !errors.Is(err, cuda.ErrLost) {
		_ = errors.Join(wipe(), f.Stream.Wait())
	}
}

// Close returns the memory, which has no secrets while no call is under way.
func (f *Flight) Close() error {
	var errs []error
	if f.done != nil {
		errs = append(errs, f.done.Close())
	}
	if f.Stream != nil {
		errs = append(errs, f.Stream.Close())
	}
	if f.Dev != nil {
		errs = append(errs, f.Dev.Close())
	}
	if f.Host != nil {
		errs = append(errs, f.Host.Close())
	}
	f.done, f.Stream, f.Dev, f.Host = nil, nil, nil, nil
	return errors.Join(errs...)
}
