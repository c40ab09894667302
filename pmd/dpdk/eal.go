package dpdk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// EALVariable is the environment variable with arguments of DPDK's environment (EAL), separated by spaces. They follow
// those that the package chooses.
const EALVariable = "MILLRACE_DPDK_EAL"

// environment holds the arguments and the result of EAL's start: once in a process, and for good. A second start, and one after a failure,
// leave DPDK in pieces.
type environment struct {
	started bool
	args    []string
	err     error
}

var eal environment // under loaded

// startEAL starts DPDK's environment unless it runs. huge requires huge pages, as devices with DMA do.
func (s *shim) startEAL(huge bool) error {
	loaded.Lock()
	defer loaded.Unlock()
	if !eal.started {
		eal.args = ealArguments(hugePagesFree(), os.Getenv(EALVariable), firstCPU())
		eal.started = true
		joined := cString(strings.Join(eal.args, "\n"))
		if err := errno(s.call("mrd_eal", uintptr(unsafe.Pointer(joined)))); err != nil {
			eal.err = ealError(err, eal.args, s.log())
		}
		// EAL leaves an empty folder for files that this process does not share.
		_ = os.Remove(filepath.Join("/var/run/dpdk", filePrefix()))
	}
	if eal.err == nil && huge && !withHugePages(eal.args) {
		return ErrNoHugePages
	}
	return eal.err
}

// ealError explains why EAL did not start.
func ealError(err error, args []string, log string) error {
	if errors.Is(err, unix.EALREADY) {
		return fmt.Errorf("%w: another part of this process has started it: %w", ErrEnvironment, err)
	}
	err = fmt.Errorf("%w with %q: %w", ErrEnvironment, strings.Join(args[1:], " "), err)
	if last := lastLines(log); last != "" {
		err = fmt.Errorf("%w: %s", err, last)
	}
	return err
}

// withHugePages reports whether EAL may use huge pages, by its arguments.
func withHugePages(args []string) bool {
	for _, a := range args {
		if a == "--no-huge" {
			return false
		}
	}
	return true
}

// smallMemory is EAL's heap without huge pages, in MiB: queues and rings of virtual devices. Frames are not in it.
const smallMemory = 64

// ealArguments returns the arguments of EAL. One lcore, which no thread of this program becomes; no files shared with
// other processes; no device but those that are opened by name.
func ealArguments(huge bool, extra string, cpu int) []string {
	args := []string{"millrace", "-l", strconv.Itoa(cpu), "--no-telemetry", "--file-prefix=" + filePrefix(), "--log-level=notice"}
	if strings.Contains(extra, "--no-huge") {
		huge = false
		extra = strings.ReplaceAll(extra, "--no-huge", "")
	}
	if huge {
		args = append(args, "--in-memory")
	} else {
		args = append(args, "--no-huge", "--no-shconf")
		if !strings.Contains(" "+extra, " -m") {
			args = append(args, "-m", strconv.Itoa(smallMemory))
		}
	}
	if exists(os.DirFS("/"), "/sys/bus/pci/devices") {
		args = append(args, "-a", "0000:00:00.0") // none: an empty list would take them all
	} else {
		args = append(args, "--no-pci")
	}
	return append(args, strings.Fields(extra)...)
}

func filePrefix() string { return "millrace" + strconv.Itoa(os.Getpid()) }

// hugePagesFree reports whether the machine has free huge pages.
func hugePagesFree() bool {
	files, _ := filepath.Glob("/sys/kernel/mm/hugepages/hugepages-*/free_hugepages")
	for _, f := range files {
		b, err := os.ReadFile(f)
		if n, _ := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && n > 0 {
			return true
		}
	}
	return false
}

// firstCPU returns the first CPU that this process may use.
func firstCPU() int {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) == nil {
		for i := range 1024 {
			if set.IsSet(i) {
				return i
			}
		}
	}
	return 0
}
