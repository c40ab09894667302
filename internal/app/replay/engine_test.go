package replay

import (
	"context"
	"testing"
	"time"

	"github.com/millrace/millrace/gpukern/choose"
	"github.com/millrace/millrace/gpukern/cuda"
	"github.com/millrace/millrace/internal/testkit/hostkern"
)

// TestReportHasTheShareOfEachBackEnd uses a driver that runs the kernels on the CPU, and engines of two
// arenas: of streamed and of repeated files.
func TestReportHasTheShareOfEachBackEnd(t *testing.T) {
	drv := hostkern.OpenDriver(t)
	o, err := choose.NewOpener(choose.OpenConfig{Kind: choose.KindAuto, Device: cuda.Options{Library: drv.Path, Management: drv.Path, Patience: time.Minute}})
	if err != nil {
		t.Fatal(err)
	}
	rep, err := Run(context.Background(), Config{Files: []string{numbered(t, 300), numbered(t, 5)}, Laps: 2, Engine: o.Open})
	if err != nil {
		t.Fatal(err)
	}
	e := rep.Engine
	if e.Name != "auto" || len(e.Backends) != 2 || e.Backends[0].Name != "cpu" || e.Backends[1].Name != "cuda" || len(e.Calibrations) == 0 || e.Fault != "" {
		t.Errorf("%+v", e)
	}
	if did := e.Backends[0].Packets + e.Backends[1].Packets; did != 610 || rep.Total.Packets != 610 {
		t.Errorf("%d packets of %d", did, rep.Total.Packets)
	}
	if err := o.Close(); err != nil {
		t.Error(err)
	}
}
