package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/gpukern/choose"
	"github.com/millrace/millrace/gpukern/cuda"
	"github.com/millrace/millrace/internal/app/kernbench"
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

// TestDoctorMeasuresTheCPUWithoutAGPU has what is missing, and how to get it, beside the figures of the CPU.
func TestDoctorMeasuresTheCPUWithoutAGPU(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	rep, err := measureGPU(t.Context(), &console{out: &out, err: &out}, kernbench.Config{
		Ops: []string{"header"}, Sizes: []string{kernbench.Size64}, Packets: 256, Batches: []int{256}, Time: time.Millisecond, Cores: 1,
		Device: cuda.Options{Library: "/nonexistent/libcuda.so.1"},
	})
	if err != nil || rep == nil || len(rep.Rows) != 1 || len(rep.Rows[0].Figures) == 0 || rep.Rows[0].Figures[0].PacketsPerSecond == 0 {
		t.Fatalf("the CPU was not measured: %+v, %v", rep, err)
	}
	notes := strings.Join(rep.Notes, "\n")
	for _, want := range []string{"no GPU", "/nonexistent/libcuda.so.1", "install the NVIDIA driver", "millrace-cuda doctor --gpu"} {
		if !strings.Contains(notes, want) {
			t.Errorf("no %q in the notes: %s", want, notes)
		}
	}
}
