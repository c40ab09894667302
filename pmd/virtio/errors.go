package virtio

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"unsafe"

	"github.com/millrace/millrace/pmd"
)

// Errors of this package. ErrGuest is the reason of a pmd.ErrDown: the link is down because the guest broke its rings or took its
// memory away. It is up again when the other end has connected anew.
var (
	ErrGuest    = errors.New("the other end broke its device")
	ErrFeatures = errors.New("the features of both ends do not fit")
	ErrArena    = errors.New("the arena cannot be shared")
)

func (c *Config) fail(op string, queue int, err error, remedy string) error {
	return &pmd.OpError{Op: op, Device: c.Name(), Queue: queue, Err: err, Remedy: remedy}
}

// span is memory of another process: what a fault in it means is known.
type span struct{ start, end uintptr }

func spanOf(mem []byte) span {
	start := uintptr(unsafe.Pointer(unsafe.SliceData(mem)))
	return span{start, start + uintptr(len(mem))}
}

// catchFaults makes accesses to memory that a guest has truncated panic in this goroutine, and not end the process (SIGBUS). It
// returns what was set before, for debug.SetPanicOnFault.
func catchFaults() bool { return debug.SetPanicOnFault(true) }

// faultOf returns the error of a recovered panic, which is a fault in one of the spans. Any other panic goes on.
func faultOf(r any, spans []span) error {
	if e, ok := r.(interface {
		runtime.Error
		Addr() uintptr
	}); ok {
		for _, s := range spans {
			if a := e.Addr(); a >= s.start && a < s.end {
				return fmt.Errorf("%w: its memory is gone at offset %#x of a region (the file was truncated, or has no page there)", ErrGuest, a-s.start)
			}
		}
	}
	panic(r)
}
