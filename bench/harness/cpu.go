package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ProcessCPU returns the CPU time of a process so far, user and system, to the nanosecond. Work
// that the kernel does for it in a soft interrupt on its back is in it.
func ProcessCPU(pid int) (time.Duration, error) {
	var ts unix.Timespec
	clock := int32(^pid<<3 | 2) // clock_getcpuclockid(3): the scheduler's clock of a process
	if err := unix.ClockGettime(clock, &ts); err != nil {
		return 0, fmt.Errorf("CPU clock of process %d: %w", pid, err)
	}
	return time.Duration(ts.Nano()), nil
}

// softirqThreads returns the processes that run the soft interrupts which a CPU has put off, by
// CPU. It is empty where they cannot be seen, as in a PID namespace.
func softirqThreads(cpus []int) map[int]int {
	found := map[int]int{}
	paths, _ := filepath.Glob("/proc/[0-9]*/comm")
	for _, path := range paths {
		comm, _ := os.ReadFile(path)
		for _, cpu := range cpus {
			if strings.TrimSpace(string(comm)) == "ksoftirqd/"+strconv.Itoa(cpu) {
				found[cpu], _ = strconv.Atoi(filepath.Base(filepath.Dir(path)))
			}
		}
	}
	return found
}

// cpuBusy returns how long the CPUs were not idle since boot, summed, whoever used them. The
// kernel counts in ticks of 10 ms.
func cpuBusy(cpus []int) (time.Duration, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	var ticks int
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		for _, cpu := range cpus {
			if len(f) > 8 && f[0] == "cpu"+strconv.Itoa(cpu) {
				ticks += busyTicks(f[1:])
			}
		}
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}

// busyTicks sums user, nice, system, irq, softirq and steal; idle and iowait (columns 4 and 5) are
// not work.
func busyTicks(f []string) (n int) {
	for _, i := range []int{0, 1, 2, 5, 6, 7} {
		v, _ := strconv.Atoi(f[i])
		n += v
	}
	return n
}
