package main

import (
	"errors"
	"testing"

	"github.com/millrace/millrace/gpukern/cuda"
	"github.com/millrace/millrace/internal/hostkern"
)

// TestTheDoctorHasTheGPUWork uses a driver that runs the kernels on the CPU.
func TestTheDoctorHasTheGPUWork(t *testing.T) {
	drv := hostkern.OpenDriver(t)
	g, err := probeGPU(cuda.Options{Library: drv.Path, Management: drv.Path})
	if err != nil {
		t.Fatal(err)
	}
	if g.Name != "Fake GPU 0" || g.Capability != 80 || g.Memory != 1<<30 || g.Driver != "12.4" || g.Modules == 0 || g.Verified < 3*probePackets || g.Batch == "" {
		t.Errorf("%+v", g)
	}
	if _, err := probeGPU(cuda.Options{Library: "/nonexistent/libcuda.so.1"}); !errors.Is(err, cuda.ErrNoDriver) {
		t.Errorf("without a driver: %v", err)
	}
}
