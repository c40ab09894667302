package xdp

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// Processes lists, as "name (pid N)", the processes that hold a descriptor of the BPF program or of a bpf_link of it.
// Processes that this one may not read are left out.
func Processes(program uint32) []string { return processesBut(program, -1) }

// processesBut is Processes without a descriptor of this process, which only looks at the program.
func processesBut(program uint32, fd int) []string {
	mine := fmt.Sprintf("/proc/%d/fdinfo/%d", os.Getpid(), fd)
	want := fmt.Sprintf("prog_id:\t%d\n", program)
	var out []string
	pids, _ := filepath.Glob("/proc/[0-9]*")
	for _, pid := range pids {
		paths, _ := filepath.Glob(filepath.Join(pid, "fdinfo", "*"))
		for _, path := range paths {
			if path == mine {
				continue
			}
			if text, err := os.ReadFile(path); err != nil || !strings.Contains(string(text), want) {
				continue
			}
			name, _ := os.ReadFile(filepath.Join(pid, "comm"))
			out = append(out, fmt.Sprintf("%s (pid %s)", strings.TrimSpace(string(name)), filepath.Base(pid)))
			break
		}
	}
	return out
}

// Describe returns words for a program on an interface: its id, its name, its bpf_link and the processes that hold it.
func Describe(program uint32) string { return describe(program, -1) }

func describe(program uint32, fd int) string {
	what := fmt.Sprintf("XDP program %d", program)
	if p, err := ebpf.NewProgramFromID(ebpf.ProgramID(program)); err == nil {
		if info, err := p.Info(); err == nil && info.Name != "" {
			what += fmt.Sprintf(" %q", info.Name)
		}
		p.Close()
	}
	if id, ok := linkOf(program); ok {
		what += fmt.Sprintf(", attached by bpf_link %d,", id)
	}
	if holders := processesBut(program, fd); len(holders) > 0 {
		what += " of " + strings.Join(holders, ", ")
	}
	return strings.TrimSuffix(what, ",")
}

// linkOf returns the id of the bpf_link that attaches a program to an interface.
func linkOf(program uint32) (uint32, bool) {
	it := new(link.Iterator)
	defer it.Close()
	for it.Next() {
		info, err := it.Link.Info()
		if err == nil && info.Type == link.XDPType && uint32(info.Program) == program {
			return uint32(info.ID), true
		}
	}
	return 0, false
}

// IsDispatcher reports whether a program is called as dispatchers of the protocol are. Query verifies it.
func IsDispatcher(program uint32) bool {
	p, err := ebpf.NewProgramFromID(ebpf.ProgramID(program))
	if err != nil {
		return false
	}
	defer p.Close()
	info, err := p.Info()
	return err == nil && info.Name == dispatcherName
}
