package kernbench

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// meter adds up the energy that the CPU packages take while runs are on, from the counters of RAPL
// (Linux, Documentation/power/powercap), and notes what the GPU says that it draws at the end of each.
type meter struct {
	zones  []zone
	at     time.Time
	start  []uint64
	joules float64
	spent  time.Duration
	power  func() (float64, bool) // of the GPU; nil where none works
	gpu    []float64
}

// zone is the energy counter of a CPU package.
type zone struct {
	file string
	wrap uint64 // the counter's range, microjoules
}

// raplRoot is where Linux shows the zones.
var raplRoot = "/sys/class/powercap"

func openMeter(power func() (float64, bool)) *meter {
	m := &meter{power: power}
	dirs, _ := filepath.Glob(filepath.Join(raplRoot, "intel-rapl:[0-9]*"))
	for _, dir := range dirs {
		if strings.Count(filepath.Base(dir), ":") != 1 { // a part of a package, which is counted already
			continue
		}
		z := zone{file: filepath.Join(dir, "energy_uj")}
		if _, ok := readCounter(z.file); !ok { // it takes root
			continue
		}
		z.wrap, _ = readCounter(filepath.Join(dir, "max_energy_range_uj"))
		m.zones = append(m.zones, z)
	}
	m.start = make([]uint64, len(m.zones))
	return m
}

func readCounter(file string) (uint64, bool) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	v, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	return v, err == nil
}

func (m *meter) begin() {
	for i, z := range m.zones {
		m.start[i], _ = readCounter(z.file)
	}
	m.at = time.Now()
}

func (m *meter) end() {
	m.spent += time.Since(m.at)
	for i, z := range m.zones {
		v, ok := readCounter(z.file)
		if !ok {
			continue
		}
		if v < m.start[i] {
			v += z.wrap
		}
		m.joules += float64(v-m.start[i]) / 1e6
	}
	if m.power == nil {
		return
	}
	if w, ok := m.power(); ok {
		m.gpu = append(m.gpu, w)
	}
}

// reset forgets what was measured.
func (m *meter) reset() { m.joules, m.spent, m.gpu = 0, 0, nil }

// watts returns the mean power of the CPU packages and of the GPU; 0 where it is not known.
func (m *meter) watts() (cpu, gpu float64) {
	if len(m.zones) > 0 && m.spent > 0 {
		cpu = m.joules / m.spent.Seconds()
	}
	for _, w := range m.gpu {
		gpu += w / float64(len(m.gpu))
	}
	return cpu, gpu
}
