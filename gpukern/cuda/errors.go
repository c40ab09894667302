package cuda

import (
	"errors"
	"fmt"

	"github.com/millrace/millrace/gpukern/cuda/dl"
)

// Kinds of failure, for errors.Is.
var (
	ErrNoDriver    = errors.New("no CUDA driver")
	ErrNoDevice    = errors.New("no CUDA device")
	ErrTooOld      = errors.New("CUDA driver or device is too old")
	ErrOutOfMemory = errors.New("out of memory on the CUDA device")
	ErrLost        = errors.New("CUDA device is lost") // its context answers no call any more
	ErrLate        = fmt.Errorf("work has taken too long: %w", ErrLost)
	ErrClosed      = errors.New("CUDA device is closed")
	ErrOverlap     = errors.New("memory overlaps memory that is registered already")
	ErrNotLinked   = errors.New("this program is built without support for GPUs") // static: package gpukern/cuda/loader is not in it
)

// notLinkedRemedy names the other program.
const notLinkedRemedy = "take millrace-cuda (`make build-cuda`, or go build -tags cuda); Go programs import gpukern/cuda/loader"

// Linked reports whether the program can load a driver: whether package gpukern/cuda/loader is in it.
func Linked() bool { return dl.Linked() }

// Code is a result of the driver (CUresult).
type Code uint32

// The results that the package distinguishes.
const (
	codeSuccess           Code = 0
	codeOutOfMemory       Code = 2
	codeStub              Code = 34
	codeDeviceUnavailable Code = 46
	codeNoDevice          Code = 100
	codeInvalidDevice     Code = 101
	codeNoBinaryForGPU    Code = 209
	codeECC               Code = 214
	codeNVLink            Code = 220
	codeUnsupportedPTX    Code = 222
	codeContained         Code = 226
	codeSystemNotReady    Code = 802
	codeMismatch          Code = 803 // CUDA_ERROR_SYSTEM_DRIVER_MISMATCH
	codeNotReady          Code = 600
	codeIllegalAddress    Code = 700
	codeLaunchTimeout     Code = 702
	codeContextDestroyed  Code = 709
	codeAssert            Code = 710
	codeRegistered        Code = 712 // CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
	codeHardwareStack     Code = 714
	codeIllegalCode       Code = 715
	codeMisaligned        Code = 716
	codeAddressSpace      Code = 717
	codeInvalidPC         Code = 718
	codeLaunchFailed      Code = 719
	codeUnknown           Code = 999
)

// lost reports whether a result ends a context: every later call of it fails too.
func (c Code) lost() bool {
	switch c {
	case codeECC, codeNVLink, codeContained, codeIllegalAddress, codeLaunchTimeout, codeContextDestroyed, codeAssert,
		codeHardwareStack, codeIllegalCode, codeMisaligned, codeAddressSpace, codeInvalidPC, codeLaunchFailed,
		codeUnknown:
		return true
	}
	return false
}

// kind returns the kind of failure that a result belongs to, nil where it is none of those.
func (c Code) kind() error {
	switch c {
	case codeOutOfMemory:
		return ErrOutOfMemory
	case codeNoDevice, codeInvalidDevice, codeDeviceUnavailable:
		return ErrNoDevice
	case codeUnsupportedPTX, codeNoBinaryForGPU:
		return ErrTooOld
	case codeSystemNotReady, codeMismatch, codeStub:
		return ErrNoDriver
	}
	if c.lost() {
		return ErrLost
	}
	return nil
}

// remedies say what a person can do about a result.
var remedies = map[Code]string{
	codeOutOfMemory:       "load smaller tables or end other programs on the GPU (nvidia-smi lists them)",
	codeNoDevice:          "check that nvidia-smi lists a GPU and that CUDA_VISIBLE_DEVICES does not hide it",
	codeInvalidDevice:     "choose one of the GPUs that nvidia-smi lists, counted from 0",
	codeDeviceUnavailable: "another program holds the GPU alone: end it, or nvidia-smi -c DEFAULT",
	codeUnsupportedPTX:    "install a newer NVIDIA driver",
	codeNoBinaryForGPU:    "use a GPU of compute capability 8.0 or later",
	codeSystemNotReady:    "the driver's kernel module is not ready: nvidia-smi says why",
	codeStub:              "the library is a toolkit's stub: install the NVIDIA driver",
	codeMismatch:          "the driver's library and kernel module differ: restart the machine after an update",
	codeECC:               "the GPU's memory has failed: nvidia-smi -q -d ECC, then restart the machine",
}

// Error is a call to the driver that failed.
type Error struct {
	Op     string // the driver's function, or what was done
	Code   Code   // the driver's result; 0 where the failure is not one of a call
	Name   string // of Code, as the driver calls it
	Text   string // the driver's explanation
	Log    string // the translator's messages, where a module did not load
	Remedy string // what to do about it; empty where there is nothing to say
	kind   error
}

func (e *Error) Error() string {
	s := "cuda: " + e.Op
	if e.Code != codeSuccess {
		s += fmt.Sprintf(": %s (%d)", e.Name, e.Code)
	}
	for _, more := range []string{e.Text, e.Log, e.Remedy} {
		if more != "" {
			s += ": " + more
		}
	}
	return s
}

// Unwrap returns the kind of failure: one of the Err values, or nil.
func (e *Error) Unwrap() error { return e.kind }

// Remedy returns what to do about an error of the driver, "" where nothing is known.
func Remedy(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Remedy
	}
	return ""
}

// failure makes the error of a result.
func (l *library) failure(op string, c Code) error {
	name, text := l.describe(c)
	return &Error{Op: op, Code: c, Name: name, Text: text, Remedy: remedies[c], kind: c.kind()}
}

// isCode reports whether err is the driver's result c.
func isCode(err error, c Code) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == c
}
