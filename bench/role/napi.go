package role

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/bench/harness"
)

// openNAPI stands for the kernel as a forwarder: the thread that polls a device (threaded NAPI) is
// bound to this process's CPU and its CPU time is told as the part's. Without it the kernel forwards
// on the back of whoever sends.
func openNAPI(o roleOptions) (roleWork, error) {
	others := napiThreads(o.dev)
	if err := threaded(o.dev); err != nil {
		return roleWork{}, fmt.Errorf("threaded NAPI of %s: %w", o.dev, err)
	}
	pids, err := newThreads(o.dev, others)
	if err != nil {
		return roleWork{}, err
	}
	var here unix.CPUSet
	if err := unix.SchedGetaffinity(0, &here); err != nil {
		return roleWork{}, err
	}
	for _, pid := range pids {
		if err := unix.SchedSetaffinity(pid, &here); err != nil {
			return roleWork{}, fmt.Errorf("bind the thread of %s: %w", o.dev, err)
		}
	}
	return roleWork{
		version: "Linux " + harness.ReadFile("/proc/sys/kernel/osrelease"),
		counts:  func() (map[string]uint64, error) { return map[string]uint64{}, nil },
		cpu: func() (sum int64, err error) {
			for _, pid := range pids {
				t, err := harness.ProcessCPU(pid)
				if err != nil {
					return 0, err
				}
				sum += int64(t)
			}
			return sum, nil
		},
	}, nil
}

// threaded has the device polled by a thread. sysfs shows the devices of the namespace in which it
// was mounted, so it is mounted anew, for this thread of the process alone.
func threaded(dev string) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return err
	}
	if err := unix.Mount("sysfs", "/sys", "sysfs", 0, ""); err != nil {
		return err
	}
	return os.WriteFile("/sys/class/net/"+dev+"/threaded", []byte("1"), 0o644)
}

// newThreads waits for the threads of a device. Those of devices with the same name in other
// namespaces are there before it asks for its own.
func newThreads(dev string, others []int) (pids []int, err error) {
	for range 50 {
		for _, pid := range napiThreads(dev) {
			if !slices.Contains(others, pid) {
				pids = append(pids, pid)
			}
		}
		if len(pids) > 0 {
			return pids, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil, errors.New("the kernel's threads cannot be seen, so their CPU time cannot be told")
}

// napiThreads returns the threads that poll devices of a name, in all namespaces.
func napiThreads(dev string) (pids []int) {
	paths, _ := filepath.Glob("/proc/[0-9]*/comm")
	for _, path := range paths {
		comm, _ := os.ReadFile(path)
		if strings.HasPrefix(string(comm), "napi/"+dev+"-") {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			pids = append(pids, pid)
		}
	}
	return pids
}
