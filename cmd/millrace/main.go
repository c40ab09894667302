// Command millrace is the one program of Millrace: it examines the machine (doctor), replays captures
// through the packet path (replay), bridges two devices (forward), runs the load balancer (gateway) and a
// host (stack), talks to WebSocket servers (ws), and measures the batch engine (bench). It only wires: each command is one file that reads
// flags, opens the parts and prints the results. The packages do the work.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := execute(ctx, os.Args[1:], terminal(os.Stdout, os.Stderr))
	stop()
	os.Exit(code)
}
