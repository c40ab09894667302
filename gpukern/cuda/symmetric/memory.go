package symmetric

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/millrace/millrace/gpukern/cuda"
)

// ErrMemory is the error of a batch whose memory is not in the Area.
var ErrMemory = errors.New("symmetric: the memory of the batch is not that of the area")

// Area is memory of the host that the device reads and writes in place, such as an arena of packets. Texts that a
// device was given and has not given back when it is lost, three launches at most, get the result aead.Torn: use it where texts may get
// lost, as packets may.
type Area struct {
	mem    []byte
	region *cuda.Region // nil without a device
}

// Register lets the device use mem, which lies outside of the Go heap and stays mapped until the area is closed. The
// caller closes it before the engine.
func (e *Engine) Register(mem []byte) (*Area, error) {
	a := &Area{mem: mem}
	if e.cfg.Device == nil {
		return a, nil
	}
	var err error
	a.region, err = e.cfg.Device.Register(mem)
	return a, err
}

// Close ends the use of the memory.
func (a *Area) Close() error {
	if a.region == nil {
		return nil
	}
	return a.region.Close()
}

// at returns the address of the device for the memory of a batch: 0 where the device cannot be used.
func (a *Area) at(mem []byte) (cuda.Ptr, error) {
	if len(mem) == 0 {
		return 0, nil
	}
	from := uintptr(unsafe.Pointer(&mem[0])) - uintptr(unsafe.Pointer(&a.mem[0]))
	if from > uintptr(len(a.mem)) || uintptr(len(mem)) > uintptr(len(a.mem))-from {
		return 0, ErrMemory
	}
	if a.region == nil {
		return 0, nil
	}
	return a.region.Ptr + cuda.Ptr(from), nil
}

// lostMemory is the error of a batch in memory of a device that is not there.
func (e *Engine) lostMemory() error {
	if err := e.Lost(); err != nil {
		return fmt.Errorf("symmetric: the texts were in the memory of a device: %w", err)
	}
	return errors.New("symmetric: there is no device")
}
