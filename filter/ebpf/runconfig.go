package ebpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf/btf"

	"github.com/millrace/millrace/pmd/xdp"
)

// runConfig configures how an XDP program is called, by the section .xdp_run_config of its object. The dispatcher protocol
// encodes it in BTF, as maps are: a variable "_PROGRAM" is a struct whose members are pointers to arrays, and the lengths of
// the arrays are the values.
type runConfig struct {
	priority uint32
	actions  xdp.Actions
}

const maxPriority = 1<<31 - 1 // libxdp reads it as an int

func readRunConfig(types *btf.Spec, program string) (runConfig, error) {
	run := runConfig{xdp.DefaultPriority, xdp.DefaultActions}
	var section *btf.Datasec
	if types == nil {
		return run, nil
	}
	if err := types.TypeByName(".xdp_run_config", &section); errors.Is(err, btf.ErrNotFound) {
		return run, nil
	} else if err != nil {
		return run, err
	}
	for _, v := range section.Vars {
		variable, ok := v.Type.(*btf.Var)
		if !ok || variable.Name != "_"+program {
			continue
		}
		s, ok := btf.UnderlyingType(variable.Type).(*btf.Struct)
		if !ok {
			return run, fmt.Errorf("its run configuration is no struct")
		}
		return run.read(s)
	}
	return run, nil
}

// read reads the members. Each action that the struct names is added to the default or taken from it, as libxdp does.
func (run runConfig) read(s *btf.Struct) (runConfig, error) {
	for _, m := range s.Members {
		n, ok := uintOf(m.Type)
		if !ok {
			return run, fmt.Errorf("member %q of its run configuration is no __uint()", m.Name)
		}
		if m.Name == "priority" {
			if n > maxPriority {
				return run, fmt.Errorf("priority %d in its run configuration is too large", n)
			}
			run.priority = n
			continue
		}
		a, err := xdp.ParseAction(m.Name)
		if err != nil {
			return run, fmt.Errorf("its run configuration: %w", err)
		}
		run.actions &^= a
		if n != 0 {
			run.actions |= a
		}
	}
	return run, nil
}

// uintOf returns N of a member that __uint(member, N) has declared.
func uintOf(t btf.Type) (uint32, bool) {
	p, ok := t.(*btf.Pointer)
	if !ok {
		return 0, false
	}
	a, ok := btf.UnderlyingType(p.Target).(*btf.Array)
	if !ok {
		return 0, false
	}
	return a.Nelems, true
}
