package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/millrace/millrace/gpukern/choose"
	"github.com/millrace/millrace/gpukern/cuda"
	"github.com/millrace/millrace/internal/app/doctor"
	"github.com/millrace/millrace/internal/app/kernbench"
)

// probeGPU opens the GPU by the binding that engines use, compiles the kernels, runs a batch through every path
// of the header pass and compares the results. Then it calibrates the GPU against a core, as the engine auto
// does.
func probeGPU(o cuda.Options, sizes []int) (g doctor.GPU, err error) {
	d, err := cuda.Open(o)
	if err != nil {
		return g, err
	}
	i := d.Info()
	g = doctor.GPU{Name: i.Name, Driver: i.Driver, Capability: i.Capability, Memory: i.Memory, Modules: len(i.Modules)}
	if err := d.Close(); err != nil {
		return g, err
	}
	rep, err := kernbench.Run(context.Background(), kernbench.Config{
		Ops: []string{"header"}, Sizes: []string{kernbench.Size64}, Packets: probePackets, Batches: []int{probePackets},
		Time: time.Millisecond, Cores: 1, Engine: "cuda", Device: o,
	})
	if err != nil {
		return g, err
	}
	if failed := rep.Failed(); len(failed) > 0 {
		return g, errors.New(strings.Join(failed, "; "))
	}
	if g.Calibrations, err = kernbench.Calibrate(o, sizes); err != nil {
		return g, err
	}
	g.Bus = rep.Machine.GPUBus
	for _, f := range rep.Rows[0].Figures {
		if strings.HasPrefix(f.Path, "cuda") {
			g.Verified += f.Verified
		}
	}
	for _, l := range rep.Latency {
		if l.Path == kernbench.PathRing && l.N > 0 {
			g.Batch = fmt.Sprintf("%d packets in %.1f us", l.Batch, l.P50)
		}
	}
	return g, nil
}

// probePackets are enough to show that kernels run, and few enough for an interactive command.
const probePackets = 256

// engineWords are the values of --engine.
var engineWords = func() (words []string) {
	for _, k := range choose.Kinds {
		words = append(words, string(k))
	}
	return words
}()

// checkEngine rejects other words.
func checkEngine(word string) error {
	if _, err := choose.ParseKind(word); err != nil {
		return coded{err, errUsage}
	}
	return nil
}

// openEngines opens what --engine names, before any device. With auto it prints what was found and what is
// used.
func openEngines(c *console, word string) (*choose.Opener, error) {
	o, err := choose.NewOpener(choose.OpenConfig{
		Kind: choose.Kind(word),
		Lost: func(err error) {
			c.complain(fmt.Errorf("the GPU has failed, the CPU does its work: %w", err))
		},
		Without: func(err error) {
			c.complain(fmt.Errorf("the GPU cannot be used, the CPU does all work: %w", err))
		},
	})
	if err != nil {
		return nil, engineError(err)
	}
	if word == string(choose.KindAuto) {
		c.complain(errors.New("engine " + o.String()))
	}
	return o, nil
}

// engineError adds a remedy to the error that no GPU can be used.
func engineError(err error) error {
	if errors.Is(err, choose.ErrNoGPU) {
		return fmt.Errorf("%w\n  `millrace doctor` says what is missing; --engine auto goes on without a GPU", err)
	}
	return err
}

// closing closes what at the end of a command and prints its error.
func closing(c *console, what io.Closer) {
	if err := what.Close(); err != nil {
		c.complain(err)
	}
}
