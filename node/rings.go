package node

import (
	"bufio"
	"cmp"
	"os"
	"strconv"
	"strings"

	"github.com/millrace/millrace/pmd/device"
)

// StackRing is the Ring of devices whose packets end at this host (device.StackRing).
const StackRing = device.StackRing

// ringMemory is the part of the available memory that packets which wait for loops may take. A driver pins it.
const ringMemory = 8

// fitRings halves the longest rings until their frames take no more than a part of available bytes of memory, and logs what it
// has changed. Where the memory is not known (0) the rings stay. No ring becomes shorter than device.MinRing.
func (n *Node) fitRings(available uint64) {
	const frame = 2 << 10 // bytes; jumbo frames have twice as many
	bytes := func() (sum uint64) {
		for i := range n.cfg.Devices {
			sum += uint64(n.ring(i)) * frame * uint64(n.cfg.Loops)
		}
		return sum
	}
	before := make([]int, len(n.cfg.Devices))
	for i := range before {
		before[i] = n.ring(i)
	}
	for available > 0 && bytes() > available/ringMemory {
		longest := 0
		for i := range n.cfg.Devices {
			if n.ring(i) > n.ring(longest) {
				longest = i
			}
		}
		if n.ring(longest) <= device.MinRing {
			break
		}
		n.cfg.Devices[longest].Ring = n.ring(longest) / 2
	}
	for i, was := range before {
		if now := n.ring(i); now != was {
			n.log.Warn("ring", "device", n.cfg.Devices[i].Name, "packets", now, "configured", was,
				"why", "the memory for longer rings is not available", "available_bytes", available, "remedy", "fewer queues, or more memory")
		}
	}
}

// ring returns how many packets of a queue of device i may wait.
func (n *Node) ring(i int) int { return cmp.Or(n.cfg.Devices[i].Ring, device.DefaultRing) }

// availableMemory returns how many bytes programs may still take without swapping (MemAvailable, proc(5)); 0 where that is not known.
func availableMemory() uint64 {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "MemAvailable:"); ok {
			kib, _ := strconv.ParseUint(strings.TrimSpace(strings.TrimSuffix(text, "kB")), 10, 64)
			return kib << 10
		}
	}
	return 0
}
