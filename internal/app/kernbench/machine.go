package kernbench

import (
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/millrace/millrace/gpukern"
)

func newReport(cfg *Config) *Report {
	return &Report{
		Schema: Schema, Version: cfg.Version, Seed: cfg.Seed, Packets: cfg.Packets, Seconds: cfg.Time.Seconds(),
		Notes: []string{}, Rows: []Row{}, Latency: []Latency{}, Keys: []KeyRow{}, Calibrations: []gpukern.CalibrationReport{},
		Machine: Machine{
			Date: time.Now().UTC().Format(time.RFC3339), CPU: cpuModel(), Kernel: line("/proc/sys/kernel/osrelease"),
			Go: runtime.Version(), Vector: gpukern.NewCPU(gpukern.Config{}).Info().Device,
		},
	}
}

// cpuModel returns the name of the CPU as Linux tells it.
func cpuModel() string {
	b, _ := os.ReadFile("/proc/cpuinfo")
	for l := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(l, ":"); ok && strings.TrimSpace(k) == "model name" {
			return strings.TrimSpace(v)
		}
	}
	return runtime.GOARCH
}

func line(file string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(b))
}
