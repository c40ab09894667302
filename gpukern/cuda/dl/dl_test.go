package dl_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/gpukern/choose"
	"github.com/millrace/millrace/gpukern/cuda"
	"github.com/millrace/millrace/gpukern/cuda/dl"
)

// TestAProgramWithoutALoaderSaysSo is in a program that imports the engines and no loader, as one that imports the root package does.
func TestAProgramWithoutALoaderSaysSo(t *testing.T) {
	if dl.Linked() || cuda.Linked() {
		t.Fatal("a loader is linked")
	}
	if _, err := dl.Open("libc.so.6"); !errors.Is(err, dl.ErrNoLoader) {
		t.Errorf("Open: %v", err)
	}
	if _, err := dl.Find(0, "setenv"); !errors.Is(err, dl.ErrNoLoader) {
		t.Errorf("Find: %v", err)
	}
	_, err := cuda.Open(cuda.Options{})
	if !errors.Is(err, cuda.ErrNotLinked) || errors.Is(err, cuda.ErrNoDriver) || !strings.Contains(err.Error(), "`make build-cuda`, or go build -tags cuda") {
		t.Errorf("a GPU: %v", err)
	}
	if r := cuda.Remedy(fmt.Errorf("doctor: %w", err)); !strings.HasPrefix(r, "take millrace-cuda") || cuda.Remedy(dl.ErrNoLoader) != "" {
		t.Errorf("remedy %q", r)
	}
	if _, err := choose.NewOpener(choose.OpenConfig{Kind: choose.KindCUDA}); !errors.Is(err, choose.ErrNoGPU) || !errors.Is(err, cuda.ErrNotLinked) {
		t.Errorf("the engine cuda: %v", err)
	}
	o, err := choose.NewOpener(choose.OpenConfig{Kind: choose.KindAuto})
	if err != nil || !strings.Contains(o.String(), "the CPU alone") || !strings.Contains(o.String(), "without support for GPUs") {
		t.Fatalf("the engine auto: %v, %v", o, err)
	}
	e, err := o.Open(gpukern.Config{Ops: gpukern.OpParse}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(e.Close(), o.Close()); err != nil {
		t.Error(err)
	}
}
