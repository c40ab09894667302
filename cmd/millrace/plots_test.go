package main

import (
	"strings"
	"testing"
)

// TestChartsNeedTheProgramWithGPUs: the static program says which one draws.
func TestChartsNeedTheProgramWithGPUs(t *testing.T) {
	if drawCharts != nil {
		t.Skip("this is the program with GPUs")
	}
	code, out, errText := run("bench", "kern", "--quick", "--plot", t.TempDir())
	if code != 2 || !strings.Contains(errText, "make build-cuda") || out != "" {
		t.Errorf("exit code %d, %q, %q", code, out, errText)
	}
}
