package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/gpukern/choose"
	"github.com/millrace/millrace/gpukern/cuda"
	"github.com/millrace/millrace/internal/app/doctor"
)

const doctorLong = `Examine the kernel, permissions, memory, CPUs, interfaces, GPU and DPDK. Each
line has a status, what was found, and the command that helps. The status is ok,
warn (works with a limit) or fail (needed and missing). Nothing is changed.

A GPU is opened, its driver compiles the kernels, and packets go through them with
every result compared. For 0.3 s it is measured against a core: each calibration
gives the batch size from which the GPU is faster. Without a GPU the line "engine"
gives the reason.

Exit code 0 if everything that is needed works, 1 otherwise.

--json prints one object: schema, kernel (release), cpus (number), checks (list
of area, name, status, found, remedy), interfaces (list of name, driver, up, mtu,
queues, xdp, zero_copy, multi_buffer, program, program_by, attach_mode) and
calibrations (list of ops, bytes, break_even, break_even_alone, cpu, gpu:
fixed_ns, packet_ns, pipelined_ns, and text).`

const doctorExamples = `  millrace doctor
  millrace doctor --iface eth1 --iface eth2
  millrace doctor --json | jq '.checks[] | select(.status == "fail")'`

func newDoctor(c *console) *cobra.Command {
	var asJSON bool
	var interfaces []string
	cmd := &cobra.Command{
		Use:     "doctor",
		Short:   "Check what this machine supports",
		Long:    doctorLong,
		Example: doctorExamples,
		Args:    cobra.NoArgs,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().StringSliceVarP(&interfaces, "iface", "i", nil, "interface to examine (default: all that are up)")
	complete(cmd, "iface", interfaceNames)
	cmd.RunE = command(func(context.Context, []string) error {
		host := doctor.This()
		host.NoGPUs = !cuda.Linked()
		host.GPU = func() (doctor.GPU, error) { return probeGPU(cuda.Options{}, choose.DefaultSizes) }
		rep := doctor.Examine(host, interfaces)
		if asJSON {
			if err := c.json(rep); err != nil {
				return err
			}
		} else {
			showReport(c, rep)
		}
		if rep.Failed() {
			return errShown
		}
		return nil
	})
	return cmd
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
