package ebpf

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// permission adds to an error of rights which rights are missing, or that none is.
func permission(err error) error {
	if v := new(VerifierError); errors.As(err, &v) { // EACCES too
		return err
	}
	if !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) {
		return err
	}
	if capable() {
		return fmt.Errorf("%w: %w", err, ErrForbidden)
	}
	return fmt.Errorf("%w: %w", ErrPermission, err)
}

// capable reports whether this process has the capabilities of ErrPermission, in the first user namespace: bpf(2) asks for
// them there.
var capable = func() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if unix.Capget(&header, &data[0]) != nil {
		return false
	}
	has := func(c int) bool { return data[c/32].Effective>>(c%32)&1 != 0 }
	bpf := has(unix.CAP_SYS_ADMIN) || has(unix.CAP_BPF) && has(unix.CAP_PERFMON)
	return bpf && has(unix.CAP_NET_ADMIN) && firstUserNamespace()
}

// firstUserNamespace reports whether users of this process are those of the machine: user_namespaces(7), "0 0 4294967295".
func firstUserNamespace() bool {
	text, err := os.ReadFile("/proc/self/uid_map")
	fields := strings.Fields(string(text))
	return err != nil || len(fields) == 3 && fields[2] == "4294967295"
}

// explainCollection names the program that the kernel has not loaded: the library says it only in a sentence.
func explainCollection(o *object, err error) error {
	for _, a := range o.about.Programs {
		if !strings.Contains(err.Error(), "program "+a.Name+":") {
			continue
		}
		if e := explainLoad(a.Name, err); e != err {
			return e
		}
		return explainRefusal(a, o.spec.Programs[a.Name], err)
	}
	return explainLoad("", err)
}

// explainRefusal names the section and the type of a program that the kernel has refused before its verifier, and what the
// program is for.
func explainRefusal(a aboutProgram, p *ebpf.ProgramSpec, err error) error {
	what := fmt.Sprintf("program %s (section %s, type %v)", a.Name, a.Section, p.Type)
	if errno := unix.Errno(0); errors.As(err, &errno) {
		return fmt.Errorf("the kernel refuses %s: %w", what, errno) // the library's words are about limits of memory
	}
	if p.AttachTo == "" || !errors.Is(err, ebpf.ErrNotSupported) {
		return fmt.Errorf("%s: %w", what, err)
	}
	if _, noBTF := kernelTypes(); noBTF != nil {
		return fmt.Errorf("%s: the kernel has no BTF (CONFIG_DEBUG_INFO_BTF), by which %s is found: %w", what, p.AttachTo, noBTF)
	}
	return fmt.Errorf("%s: the kernel has no %s for it (not in its BTF: another name or version, or inlined): %w", what, p.AttachTo, ebpf.ErrNotSupported)
}

// kernelTypes reads the kernel's BTF.
var kernelTypes = btf.LoadKernelSpec
