package cuda

import (
	"time"
	"unsafe"

	"github.com/millrace/millrace/gpukern/cuda/dl"
)

// power reads a GPU's watts by NVIDIA's management library, where there is one that reports them.
type power struct {
	handle        uintptr // of the GPU
	usage, energy uintptr // functions
}

// defaultManagement is the name that the driver installs its management library under.
const defaultManagement = "libnvidia-ml.so.1"

// openPower finds the GPU at a PCI address. It returns nil where the library is missing or does not know
// it: watts are worth having, no more.
func openPower(path, bus string) *power {
	if path == "" {
		path = defaultManagement
	}
	lib, err := dl.Open(path)
	if err != nil {
		return nil
	}
	start, err1 := dl.Find(lib, "nvmlInit_v2")
	find, err2 := dl.Find(lib, "nvmlDeviceGetHandleByPciBusId_v2")
	usage, err3 := dl.Find(lib, "nvmlDeviceGetPowerUsage")
	energy, err4 := dl.Find(lib, "nvmlDeviceGetTotalEnergyConsumption")
	if err1 != nil || err2 != nil || err3 != nil || err4 != nil {
		return nil
	}
	if nvml(start) != 0 {
		return nil
	}
	p := &power{usage: usage, energy: energy}
	name := append([]byte(bus), 0)
	if nvml(find, uintptr(unsafe.Pointer(&name[0])), uintptr(unsafe.Pointer(&p.handle))) != 0 {
		return nil
	}
	return p
}

// nvml calls a function of the library and returns its result, 0 where it succeeded.
//
//go:uintptrescapes
func nvml(fn uintptr, args ...uintptr) uint32 {
	return uint32(dl.Call(fn, args...))
}

// Watts returns what the GPU draws now, as an average over about a second; false where the driver does
// not report them.
func (d *Device) Watts() (float64, bool) {
	if d.power == nil {
		return 0, false
	}
	var mw uint32
	if nvml(d.power.usage, d.power.handle, uintptr(unsafe.Pointer(&mw))) != 0 {
		return 0, false
	}
	return float64(mw) / 1000, true
}

// Joules returns the energy that the GPU has used since the driver was loaded; false where the driver
// does not report it. Two readings and the time between them give watts.
func (d *Device) Joules() (float64, bool) {
	if d.power == nil {
		return 0, false
	}
	var mj uint64
	if nvml(d.power.energy, d.power.handle, uintptr(unsafe.Pointer(&mj))) != 0 {
		return 0, false
	}
	return float64(mj) / 1000, true
}

// Meter measures energy over a time.
type Meter struct {
	d      *Device
	joules float64
	since  time.Time
}

// StartMeter begins to measure.
func (d *Device) StartMeter() *Meter {
	j, _ := d.Joules()
	return &Meter{d, j, time.Now()}
}

// Watts returns the average since the meter was started: of the energy counter where there is one, else
// what the GPU draws now. False where the driver reports neither. The counter advances every 20 to 100 ms:
// shorter times show nothing.
func (m *Meter) Watts() (float64, bool) {
	if j, ok := m.d.Joules(); ok {
		if t := time.Since(m.since); t >= 200*time.Millisecond {
			return (j - m.joules) / t.Seconds(), true
		}
	}
	return m.d.Watts()
}
