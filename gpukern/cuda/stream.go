package cuda

import (
	"runtime"
	"time"
	"unsafe"
)

// Priority orders streams: kernels of an urgent stream get free multiprocessors first.
type Priority int

// The priorities.
const (
	Patient Priority = iota
	Urgent
)

// Stream is a sequence of copies and kernels, each of which begins when those before it have ended.
type Stream struct {
	d  *Device
	id streamID
	k  *resource
}

// NewStream makes a stream. The caller closes it, when nothing runs on it.
func (d *Device) NewStream(p Priority) (s *Stream, err error) {
	err = d.do(func() (err error) {
		s, err = d.newStream(p)
		return err
	})
	return s, err
}

// newStream is NewStream, for the owner.
func (d *Device) newStream(p Priority) (*Stream, error) {
	number, greatest, err := d.lib.priorities()
	if err != nil {
		return nil, err
	}
	if p == Urgent {
		number = greatest
	}
	id, err := d.lib.streamCreate(number)
	if err != nil {
		return nil, err
	}
	s := &Stream{d: d, id: id}
	s.k = &resource{free: func() error { return d.lib.streamDestroy(id) }}
	d.track(s.k)
	return s, nil
}

// Close ends the stream.
func (s *Stream) Close() error { return s.d.close(s.k) }

// Done reports whether everything on the stream has ended.
func (s *Stream) Done() (ok bool, err error) {
	err = s.d.do(func() (err error) {
		ok, err = s.d.lib.streamQuery(s.id)
		return err
	})
	return ok, err
}

// Wait returns when everything on the stream has ended. It asks again and again, so that other calls of
// the device come in between.
func (s *Stream) Wait() error { return wait(s.Done) }

// wait asks until the answer is yes: at once for short work, later in steps of up to 50 us.
func wait(done func() (bool, error)) error {
	for pause := time.Microsecond; ; {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		if pause < 50*time.Microsecond {
			pause += time.Microsecond
			runtime.Gosched()
			continue
		}
		time.Sleep(pause)
	}
}

// After has what comes next on s wait until e has happened on another stream.
func (s *Stream) After(e *Event) error {
	return s.d.do(func() error { return s.d.lib.streamWait(s.id, e.id) })
}

// CopyIn copies n bytes from a block to device memory.
func (s *Stream) CopyIn(to Ptr, from *Block, at, n int) error {
	return s.d.do(func() error { return s.copyIn(to, from.Mem[at:at+n]) })
}

// CopyOut copies n bytes from device memory to a block.
func (s *Stream) CopyOut(to *Block, at int, from Ptr, n int) error {
	return s.d.do(func() error { return s.copyOut(to.Mem[at:at+n], from) })
}

// CopyWithin copies n bytes of device memory to where they do not overlap.
func (s *Stream) CopyWithin(to, from Ptr, n int) error {
	return s.d.do(func() error { return s.d.lib.copyWithin(to, from, n, s.id) })
}

// Fill sets n bytes of device memory to v.
func (s *Stream) Fill(to Ptr, v byte, n int) error {
	return s.d.do(func() error { return s.d.lib.fill(to, v, n, s.id) })
}

// Event marks a place in a stream.
type Event struct {
	d  *Device
	id eventID
	k  *resource
}

// NewEvent makes an event. The caller closes it.
func (d *Device) NewEvent() (e *Event, err error) {
	err = d.do(func() (err error) {
		e, err = d.newEvent()
		return err
	})
	return e, err
}

// newEvent is NewEvent, for the owner.
func (d *Device) newEvent() (*Event, error) {
	id, err := d.lib.eventCreate(eventPlain)
	if err != nil {
		return nil, err
	}
	e := &Event{d: d, id: id}
	e.k = &resource{free: func() error { return d.lib.eventDestroy(id) }}
	d.track(e.k)
	return e, nil
}

// Close ends the event.
func (e *Event) Close() error { return e.d.close(e.k) }

// Record puts the event at the end of what is on s so far.
func (e *Event) Record(s *Stream) error {
	return e.d.do(func() error { return e.d.lib.eventRecord(e.id, s.id) })
}

// Done reports whether the stream has come to the event.
func (e *Event) Done() (ok bool, err error) {
	err = e.d.do(func() (err error) {
		ok, err = e.d.lib.eventQuery(e.id)
		return err
	})
	return ok, err
}

// Wait returns when the stream has come to the event.
func (e *Event) Wait() error { return wait(e.Done) }

// WaitFor is Wait for what began at since and may take as long as patience: after that its device counts as lost, and the error is
// ErrLate. It is the device's where that is lost meanwhile.
func (e *Event) WaitFor(since time.Time, patience time.Duration) error {
	for pause := time.Microsecond; ; {
		ok, err := e.Done()
		if err != nil || ok {
			return err
		}
		if err := e.d.Lost(); err != nil {
			return err
		}
		if time.Since(since) > patience {
			return ErrLate
		}
		if pause += time.Microsecond; pause < 20*time.Microsecond { // a sleep takes longer than it is asked for
			runtime.Gosched()
			continue
		}
		time.Sleep(min(pause, 50*time.Microsecond))
	}
}

// Since returns the device's time between two events that have happened, to half a microsecond.
func (e *Event) Since(from *Event) (t time.Duration, err error) {
	err = e.d.do(func() error {
		ms, err := e.d.lib.eventElapsed(from.id, e.id)
		t = time.Duration(float64(ms) * float64(time.Millisecond))
		return err
	})
	return t, err
}

// copyIn copies from to the device. from lies outside of the Go heap and stays as it is until the copy
// is done. For the owner.
func (s *Stream) copyIn(to Ptr, from []byte) error {
	if len(from) == 0 {
		return nil
	}
	return s.d.lib.copyIn(to, uintptr(unsafe.Pointer(&from[0])), len(from), s.id)
}

// copyOut copies from the device to memory outside of the Go heap. For the owner.
func (s *Stream) copyOut(to []byte, from Ptr) error {
	if len(to) == 0 {
		return nil
	}
	return s.d.lib.copyOut(uintptr(unsafe.Pointer(&to[0])), from, len(to), s.id)
}
