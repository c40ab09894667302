package main

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/app/rdmaperf"
	"github.com/millrace/millrace/rdma"
)

func newRDMAShow(c *console) *cobra.Command {
	var socket string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show the device, queue pairs and counters of a running server",
		Long: `Show the device that rdma serve has, with its memory regions, connections, counters and
queue pairs. Devices of other processes, as of programs with package rdma, are not
listed: their metrics have the same numbers.

--json prints one object: schema, address, mtu, memory_regions, connections, half_open,
received_packets, sent_packets, dropped_packets, unreachable_packets, queue_pairs, and
queue_pair_list (the first 1000, with number, service, state, peer, peer_number, mtu,
sent_packets, received_packets, repeated_packets, timeouts, sequence_naks, rnr_naks).`,
		Example: `  millrace rdma show
  millrace rdma show --json --socket /run/millrace/rdma.sock`,
		Args: exactly(),
	}
	socketFlag(cmd, &socket, rdmaperf.DefaultSocket, "unix socket")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = command(func(ctx context.Context, _ []string) error {
		r, err := rdmaperf.Report(ctx, socket)
		if err != nil {
			return err
		}
		if asJSON {
			return c.json(r)
		}
		showRDMA(c, &r)
		return nil
	})
	return cmd
}

// showRDMA prints the state of a device.
func showRDMA(c *console, r *rdma.Report) {
	c.printf("%s\n", c.paint(bold, fmt.Sprintf("%s: mtu %d", r.Address, r.MTU)))
	c.printf("    queue pairs %d, memory regions %d, connections %d (half-open %d)\n", r.QueuePairs, r.Regions, r.Connections, r.HalfOpen)
	c.printf("    packets: received %d, sent %d, dropped %d, unreachable %d\n", r.Received, r.Sent, r.Dropped, r.Unreachable)
	if len(r.QueuePairList) == 0 {
		return
	}
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "QP\tSERVICE\tSTATE\tPEER\tPEER QP\tSENT\tRECEIVED\tREPEATED\tTIMEOUTS\n")
	for i := range r.QueuePairList {
		q := &r.QueuePairList[i]
		peer := "-"
		if q.Peer.IsValid() {
			peer = q.Peer.String()
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\n", q.Number, q.Service, q.State, peer, q.PeerNumber, q.Sent, q.Received, q.Repeated, q.Timeouts)
	}
	_ = w.Flush()
	if more := r.QueuePairs - len(r.QueuePairList); more > 0 {
		c.printf("and %d more\n", more)
	}
}
