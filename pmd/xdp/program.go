package xdp

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"
)

//go:generate go tool -modfile=../../internal/tools/go.mod bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types -cflags "-O2 -g -Wall -Werror -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu" dispatcher bpf/dispatcher.c

// memlock raises the limit of locked memory, which maps count against before Linux 5.11.
var memlock = sync.OnceValue(rlimit.RemoveMemlock)

// newDispatcher loads a dispatcher with a configuration.
func newDispatcher(c *config) (*ebpf.Program, error) {
	if err := memlock(); err != nil {
		return nil, fmt.Errorf("raise the limit of locked memory for BPF maps: %w", err)
	}
	spec, err := loadDispatcher()
	if err != nil {
		return nil, err
	}
	if err := spec.Variables[dispatcherVarConf].Set(c.bytes()); err != nil {
		return nil, err
	}
	if c.frags {
		spec.Programs[dispatcherProgXdpDispatcher].Flags |= hasFrags
	}
	var objs dispatcherPrograms
	if err := spec.LoadAndAssign(&objs, nil); err != nil {
		return nil, fmt.Errorf("load the XDP dispatcher: %w", err)
	}
	return objs.XdpDispatcher, nil
}

// Function is the function of a dispatcher that a component is loaded for. It may be attached in the place of any other.
const Function = "prog0"

// Template loads a dispatcher that is attached nowhere, for loading components: an extension program is verified against
// the function that it replaces. The file descriptor is the caller's.
func Template() (fd int, err error) {
	p, err := newDispatcher(&config{count: 1})
	if err != nil {
		return -1, err
	}
	return detachFD(p)
}

// ErrNoExtensions reports that the kernel loads no extension programs, so that only one program can be on an interface: it is
// older than 5.10, or a security policy forbids them.
var ErrNoExtensions = errors.New("the kernel refuses extension programs (BPF_PROG_TYPE_EXT), so XDP programs cannot share an interface")

// Extensions returns ErrNoExtensions, with the kernel's reason, where the kernel loads no extension programs. It tries once
// for the process; err is a failure of the attempt.
func Extensions() (refused, err error) {
	r := extensions()
	return r.refused, r.err
}

type extensionSupport struct{ refused, err error }

var extensions = sync.OnceValue(func() (r extensionSupport) {
	target, err := newDispatcher(&config{count: 1})
	if err != nil {
		return extensionSupport{err: err}
	}
	defer target.Close()
	// The smallest component: the function of the dispatcher's own object, which replaces itself.
	spec, err := loadDispatcher()
	if err != nil {
		return extensionSupport{err: err}
	}
	if err := spec.Variables[dispatcherVarConf].Set((&config{}).bytes()); err != nil {
		return extensionSupport{err: err}
	}
	p := spec.Programs[dispatcherProgXdpDispatcher]
	p.Type, p.AttachType, p.AttachTarget, p.AttachTo = ebpf.Extension, ebpf.AttachNone, target, Function
	var objs dispatcherPrograms
	if err := spec.LoadAndAssign(&objs, nil); err != nil {
		if errno := unix.Errno(0); errors.As(err, &errno) {
			err = errno // the library's words are about limits of memory
		}
		return extensionSupport{refused: fmt.Errorf("%w: %w", ErrNoExtensions, err)}
	}
	objs.Close()
	return r
})
