// Command millrace is the one program of Millrace: it examines the machine (doctor), pushes
// captures through the packet path (replay), joins two devices (forward), runs the load balancer
// (gateway) and measures the batch engine (bench). It only wires: each verb is one file that reads
// flags, opens the parts and prints what came of it. What the parts do is in their packages.
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
