package ebpf

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// A program that the kernel refuses is reported with its section, its type and the kernel's reason, and as a lack of rights
// only where rights are missing.
func TestRefusedProgramsAreReportedWithTheKernelsReason(t *testing.T) {
	w := newWorld(t)
	_, err := w.store.Load(objects+"fentryabsent.o", "")
	if err == nil || !strings.Contains(err.Error(), "no millrace_absent") && !strings.Contains(err.Error(), "no BTF") || errors.Is(err, ErrPermission) {
		t.Errorf("at a function that is not there: %v", err)
	}
	_, err = w.store.Load(objects+"fentry.o", "")
	if err == nil {
		return
	}
	if errors.Is(err, ErrPermission) || !strings.Contains(err.Error(), "at_entry (section fentry/ip_rcv, type Tracing)") || strings.Contains(err.Error(), "MEMLOCK") {
		t.Errorf("refused: %v", err)
	}
}

func TestExplainRefusal(t *testing.T) {
	missing := &btf.Spec{}
	has := func(err error) func() (*btf.Spec, error) { return func() (*btf.Spec, error) { return missing, err } }
	a := aboutProgram{Name: "p", Section: "fentry/f"}
	traced := &ebpf.ProgramSpec{Type: ebpf.Tracing, AttachTo: "f"}
	unsupported := fmt.Errorf("program p: attach: fentry f %w", ebpf.ErrNotSupported)
	denied := fmt.Errorf("program p: load program: %w (MEMLOCK may be too low)", unix.EPERM)
	for _, c := range []struct {
		what    string
		spec    *ebpf.ProgramSpec
		err     error
		types   error // of reading the kernel's BTF
		capable bool
		want    string
		is      error
	}{
		{"no function", traced, unsupported, nil, true, "the kernel has no f for it", ebpf.ErrNotSupported},
		{"no BTF", traced, unsupported, errors.New("no file"), true, "the kernel has no BTF (CONFIG_DEBUG_INFO_BTF), by which f is found: no file", nil},
		{"a policy", traced, denied, nil, true, "the kernel refuses program p (section fentry/f, type Tracing): operation not permitted", ErrForbidden},
		{"no rights", traced, denied, nil, false, "the kernel refuses program p (section fentry/f, type Tracing): operation not permitted", ErrPermission},
		{"an attach type", traced, fmt.Errorf("program p: load program: %w", unix.EINVAL), nil, true, "type Tracing): invalid argument", unix.EINVAL},
		{"a type", &ebpf.ProgramSpec{Type: ebpf.LSM}, unsupported, nil, true, "program p (section fentry/f, type LSM): program p: attach", ebpf.ErrNotSupported},
	} {
		func() {
			wasCapable, wasTypes := capable, kernelTypes
			defer func() { capable, kernelTypes = wasCapable, wasTypes }()
			capable, kernelTypes = func() bool { return c.capable }, has(c.types)
			err := permission(explainRefusal(a, c.spec, c.err))
			if !strings.Contains(err.Error(), c.want) || c.is != nil && !errors.Is(err, c.is) || strings.Contains(err.Error(), "MEMLOCK") {
				t.Errorf("%s: %v", c.what, err)
			}
			if errors.Is(err, ErrPermission) != (c.is == ErrPermission) || errors.Is(err, ErrForbidden) != (c.is == ErrForbidden) {
				t.Errorf("%s: rights: %v", c.what, err)
			}
		}()
	}
}
