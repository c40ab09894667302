package main

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/gpukern/choose"
	"github.com/millrace/millrace/gpukern/cuda"
	"github.com/millrace/millrace/internal/app/doctor"
	"github.com/millrace/millrace/internal/app/kernbench"
)

const doctorLong = `Examine the kernel, permissions, memory, CPUs, interfaces, GPU and DPDK. Each
line has a status, what was found, and the command that helps. The status is ok,
warn (works with a limit) or fail (needed and missing). Nothing is changed.

A GPU is opened, its driver compiles the kernels, and packets go through them with
every result compared. For 0.3 s it is measured against a core: each calibration
gives the batch size from which the GPU is faster. Without a GPU the line "engine"
gives the reason.

--gpu measures when the GPU pays, in some two minutes: all operations of
` + "`millrace bench kern --quick`" + ` on one core, all cores and the GPU. Where no GPU
can be used, the CPU alone is measured, and a note says what is missing.

Exit code 0 if everything that is needed works, 1 otherwise.

--json prints one object: schema, kernel (release), cpus (number), checks (list
of area, name, status, found, remedy), interfaces (list of name, driver, up, mtu,
queues, xdp, zero_copy, multi_buffer, program, program_by, attach_mode) and
calibrations (list of ops, bytes, break_even, break_even_alone, cpu, gpu:
fixed_ns, packet_ns, pipelined_ns, and text); with --gpu also measured, the object
of ` + "`millrace bench kern --json`" + `.`

const doctorExamples = `  millrace doctor
  millrace doctor --iface eth1 --iface eth2
  millrace-cuda doctor --gpu
  millrace doctor --json | jq '.checks[] | select(.status == "fail")'`

func newDoctor(c *console) *cobra.Command {
	var asJSON, measure bool
	var interfaces []string
	cmd := &cobra.Command{
		Use:     "doctor",
		Short:   "Check what this machine supports",
		Long:    doctorLong,
		Example: doctorExamples,
		Args:    cobra.NoArgs,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&measure, "gpu", false, "measure when the GPU pays (some two minutes)")
	cmd.Flags().StringSliceVarP(&interfaces, "iface", "i", nil, "interface to examine (default: all that are up)")
	complete(cmd, "iface", interfaceNames)
	cmd.RunE = command(func(ctx context.Context, _ []string) error {
		host := doctor.This()
		host.NoGPUs = !cuda.Linked()
		host.GPU = func() (doctor.GPU, error) {
			g, err := probeGPU(cuda.Options{}, choose.DefaultSizes)
			g.Remedy = cuda.Remedy(err)
			return g, err
		}
		rep := doctor.Examine(host, interfaces)
		var measured *kernbench.Report
		var err error
		if measure {
			measured, err = measureGPU(ctx, c, kernbench.Config{Quick: true, Version: thisBuild().Version})
		}
		if asJSON {
			err = errors.Join(err, c.json(struct {
				*doctor.Report
				Measured *kernbench.Report `json:"measured,omitempty"`
			}{rep, measured}))
		} else {
			showReport(c, rep)
			if measured != nil {
				c.printf("\n")
				showKern(c, measured)
			}
		}
		if err == nil && rep.Failed() {
			return errShown
		}
		return err
	})
	return cmd
}

// measureGPU measures the operations on the GPU, beside the CPU. Where no GPU can be used it measures the CPU alone, and the
// notes of the report say why, and what to do.
func measureGPU(ctx context.Context, c *console, cfg kernbench.Config) (*kernbench.Report, error) {
	cfg.Engine = string(choose.KindAuto)
	rep, err := runKern(ctx, c, cfg)
	if rep == nil {
		return nil, err
	}
	if rep.Machine.GPU == "" {
		rep.Notes = append(rep.Notes, "these are the figures of the CPU alone: with a GPU, `millrace-cuda doctor --gpu` has both")
	}
	for _, s := range rep.Failed() {
		err = errors.Join(err, errors.New(s))
	}
	return rep, err
}

var statusColour = map[doctor.Status]string{doctor.OK: green, doctor.Warn: yellow, doctor.Fail: red}

// showReport prints the checks in columns, and each remedy below its check.
func showReport(c *console, rep *doctor.Report) {
	wide := 0
	for _, k := range rep.Checks {
		wide = max(wide, len(k.Name))
	}
	area, count := "", map[doctor.Status]int{}
	for _, k := range rep.Checks {
		count[k.Status]++
		if k.Area != area {
			area = k.Area
			c.printf("%s\n", c.paint(bold, area))
		}
		status := c.paint(statusColour[k.Status], string(k.Status)+strings.Repeat(" ", 4-len(k.Status)))
		c.printf("  %s  %-*s  %s\n", status, wide, k.Name, k.Found)
		if k.Remedy != "" {
			c.printf("  %4s  %*s  %s %s\n", "", wide, "", c.paint(dim, "->"), c.paint(bold, k.Remedy))
		}
	}
	c.printf("\n%d ok, %d warn, %d fail\n", count[doctor.OK], count[doctor.Warn], count[doctor.Fail])
}
