// Package doctor examines the machine: what the packet path needs of it, what is there, and how to
// get what is missing. It changes nothing: nothing is attached, mounted, reserved or left open.
//
// What can be read from /proc, /sys, /etc and /dev is read through Host.FS, so that a test can show
// it another machine; what only a system call reports comes through the functions of Host.
package doctor

import (
	"fmt"
	"io/fs"
	"strings"

	"github.com/millrace/millrace/gpukern"
)

// Status is the result of one check.
type Status string

// The results.
const (
	OK   Status = "ok"   // works, or is not needed here
	Warn Status = "warn" // works with a limit, or slower than it could
	Fail Status = "fail" // needed and missing
)

// Check is one line of the report.
type Check struct {
	Area   string `json:"area"`   // "kernel", "memory", "cpu", "interface", "gpu", "dpdk"
	Name   string `json:"name"`   // what was looked at
	Status Status `json:"status"` // "ok", "warn" or "fail"
	Found  string `json:"found"`  // what is there, and what follows from it
	Remedy string `json:"remedy"` // a command to type, "" where nothing is to be done
}

// Report is everything that was found, in the order in which people want to read it.
type Report struct {
	Kernel     string      `json:"kernel"` // release
	CPUs       int         `json:"cpus"`
	Checks     []Check     `json:"checks"`
	Interfaces []Interface `json:"interfaces"`

	Calibrations []gpukern.CalibrationReport `json:"calibrations"` // of the GPU against a core; none where there is no GPU
}

// Failed reports whether anything that is needed is missing.
func (r *Report) Failed() bool {
	for i := range r.Checks {
		if r.Checks[i].Status == Fail {
			return true
		}
	}
	return false
}

// Host is the machine to examine: This, or a made-up one.
type Host struct {
	FS      fs.FS                            // the root of the file system
	Env     func(string) string              // environment of the process
	Socket  func() error                     // can an AF_XDP socket be opened
	Program func() error                     // can an XDP program be loaded
	Memlock func() (limit uint64, err error) // RLIMIT_MEMLOCK, bytes; all ones is no limit
	Shared  func() error                     // can memory be shared with another process (vhost-user)
	// OwnMemory writes memory of the process by /proc/self/mem, as the node does that of programs.
	OwnMemory func() error
	Links     func(names []string) ([]Link, error)    // the interfaces named, or all
	Holder    func(fsys fs.FS, program uint32) string // who holds an XDP program: "suricata (pid 12)"
	GPU       func() (GPU, error)                     // opens a GPU and lets it work; nil asks no GPU
	NoGPUs    bool                                    // the program is the static one, which cannot load a driver
}

// GPU is one that has been opened and has worked.
type GPU struct {
	Name         string
	Bus          string // PCI address, and the speed and width of its link where Linux reports them
	Driver       string // the CUDA version that the driver is for
	Capability   int    // compute capability, times ten
	Memory       uint64 // bytes
	Modules      int    // of kernels, translated by the driver
	Verified     uint64 // packets whose results were compared and right
	Calibrations []gpukern.CalibrationReport
	Batch        string // how long one batch took: "256 packets in 8.1 us"; "" where that was not measured
	Remedy       string // of the error beside it; empty where none is known
}

// examination is a report in the making.
type examination struct {
	Host
	rep Report
}

func (x *examination) add(c Check) { x.rep.Checks = append(x.rep.Checks, c) }

// Examine looks at the machine and, of its interfaces, at those named, or at all that are up.
func Examine(h Host, interfaces []string) *Report {
	x := &examination{Host: h, rep: Report{Calibrations: []gpukern.CalibrationReport{}}}
	x.kernel()
	x.permissions()
	x.memory()
	x.cpu()
	x.interfaces(interfaces)
	x.cuda()
	x.dpdk()
	x.rdma()
	return &x.rep
}

// text returns the contents of a file without the white space around them; "" where it cannot be
// read.
func (x *examination) text(path string) string {
	b, err := fs.ReadFile(x.FS, path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// exists reports whether there is such a file.
func (x *examination) exists(path string) bool {
	_, err := fs.Stat(x.FS, path)
	return err == nil
}

// field returns the value of a line "key: value" of a file like /proc/meminfo.
func (x *examination) field(path, key string) string {
	for line := range strings.Lines(x.text(path)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// size renders bytes for people.
func size(n uint64) string {
	switch {
	case n == ^uint64(0):
		return "unlimited"
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.0f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.0f KiB", float64(n)/(1<<10))
}
