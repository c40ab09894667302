package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/app/collectiveperf"
)

func newCollectiveDoctor(c *console) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Show what ranks on this machine have: interfaces, buffers, cores",
		Long: `Show which interfaces could be rails, with speed, MTU and NUMA node, the largest buffers
of TCP, and what would make collective operations faster. Nothing is changed.

--json prints one object: schema, cores, interfaces (name, addresses, mtu, megabits_per_second,
numa_node), tcp_receive_buffer_bytes, tcp_send_buffer_bytes, advice.`,
		Example: `  millrace collective doctor`,
		Args:    exactly(),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = command(func(context.Context, []string) error {
		m, err := collectiveperf.Look()
		if err != nil {
			return err
		}
		if asJSON {
			return c.json(m)
		}
		c.printf("cores %d; TCP buffers: receive %d, send %d bytes\n", m.Cores, m.ReceiveBuffer, m.SendBuffer)
		w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
		fmt.Fprintf(w, "INTERFACE\tMBIT/S\tMTU\tNUMA\tADDRESSES\n")
		for _, i := range m.Interfaces {
			fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\n", i.Name, known(i.Speed, 0), i.MTU, known(i.Node, -1), strings.Join(i.Addresses, " "))
		}
		if err := w.Flush(); err != nil {
			return err
		}
		for _, a := range m.Advice {
			c.printf("%s\n", a)
		}
		return nil
	})
	return cmd
}

// known prints a number, or a dash for one that stands for unknown.
func known(n, unknown int) string {
	if n == unknown {
		return "-"
	}
	return fmt.Sprint(n)
}
