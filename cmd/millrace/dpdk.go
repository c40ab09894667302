package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/pmd/dpdk"
)

const dpdkReleaseLong = `Give NICs that were bound to vfio-pci (or uio_pci_generic, igb_uio) back to the
kernel, which makes their interfaces again. A name with bind=vfio-pci does so when
the program ends; one that is killed leaves its NIC there.

A NIC that a process has open is not touched, and neither is one that the kernel
drives. --driver names the driver, where the kernel would choose another one.`

const dpdkReleaseExamples = `  millrace dpdk release 0000:3b:00.0
  millrace dpdk release --driver ice 3b:00.0 3b:00.1`

// newDPDK makes the commands for devices of DPDK. They need neither DPDK nor its shim.
func newDPDK(c *console) *cobra.Command {
	parent := &cobra.Command{
		Use: "dpdk", Short: "Manage devices of DPDK", Args: unknownCommand,

		SuggestionsMinimumDistance: 2,
		RunE:                       showHelp,
	}
	var driver string
	cmd := &cobra.Command{
		Use: "release ADDRESS...", Short: "Give NICs back to the kernel's drivers",
		Long: dpdkReleaseLong, Example: dpdkReleaseExamples, Args: cobra.MinimumNArgs(1),
	}
	cmd.Flags().StringVar(&driver, "driver", "", "the kernel's driver (default: the kernel chooses)")
	cmd.RunE = command(func(_ context.Context, args []string) error {
		var errs []error
		for _, address := range args {
			before, after, err := dpdk.Release(address, driver)
			switch {
			case errors.Is(err, dpdk.ErrArguments):
				err = usage("%w", err)
			case err == nil && before == after:
				c.printf("%s: %s has it, nothing to do\n", address, after)
			case err == nil:
				c.printf("%s: from %s to %s\n", address, before, after)
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
	parent.AddCommand(cmd)
	return parent
}
