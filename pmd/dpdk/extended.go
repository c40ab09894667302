package dpdk

import (
	"strconv"
	"strings"
	"unsafe"

	"github.com/millrace/millrace/pmd"
)

// extendedRoom is the length of the text of a device's extended statistics, bytes: the drivers with the most have some 500, with
// names of up to 64 bytes.
const extendedRoom = 64 << 10

// extended returns the statistics that the driver of the device names (DPDK's xstats), without those that are 0: a NIC has
// hundreds. After Close there are none.
func (d *Device) extended() []pmd.Counter {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.done || !d.started {
		return nil
	}
	buf := make([]byte, extendedRoom)
	n := d.shim.call("mrd_extended", uintptr(d.port), uintptr(unsafe.Pointer(unsafe.SliceData(buf))), uintptr(len(buf)))
	if n <= 0 { // the driver has none
		return nil
	}
	return parseExtended(string(buf[:n]))
}

// parseExtended parses lines of a name and a number.
func parseExtended(text string) (list []pmd.Counter) {
	for line := range strings.Lines(text) {
		name, number, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if v, err := strconv.ParseUint(number, 10, 64); err == nil && v != 0 {
			list = append(list, pmd.Counter{Name: name, Value: v})
		}
	}
	return list
}
