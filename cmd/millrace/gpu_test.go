package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/gpukern/choose"
	"github.com/millrace/millrace/gpukern/cuda"
	"github.com/millrace/millrace/internal/testkit/hostkern"
)

// TestDoctorChecksTheGPU uses a driver that runs the kernels on the CPU.
func TestDoctorChecksTheGPU(t *testing.T) {
	t.Parallel()
	drv := hostkern.OpenDriver(t)
	g, err := probeGPU(cuda.Options{Library: drv.Path, Management: drv.Path, Patience: time.Minute}, []int{64})
	if err != nil {
		t.Fatal(err)
	}
	if g.Name != "Fake GPU 0" || g.Capability != 80 || g.Memory != 1<<30 || g.Driver != "12.4" || g.Modules == 0 || g.Verified < 3*probePackets || g.Batch == "" {
		t.Errorf("%+v", g)
	}
	if len(g.Calibrations) != 3 { // of the operations of the gateway, the header pass, and that with literals
		t.Errorf("%d calibrations", len(g.Calibrations))
	}
	for _, v := range g.Calibrations {
		if v.CPU.PipelinedNs <= 0 || v.GPU.PipelinedNs <= 0 || v.Bytes != 64 || !strings.Contains(v.Text, v.Ops+", ") {
			t.Errorf("%+v", v)
		}
	}
	if _, err := probeGPU(cuda.Options{Library: "/nonexistent/libcuda.so.1"}, choose.DefaultSizes); !errors.Is(err, cuda.ErrNoDriver) {
		t.Errorf("without a driver: %v", err)
	}
}
