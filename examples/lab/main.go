// Command lab shows Millrace at work between real programs on one machine. It builds four network
// namespaces, starts the gateway on AF_XDP in one of them, two servers behind it and curl and UDP
// clients in front of it, and tells who was served by whom and what the gateway counted. The same
// gateway serves HTTP/1.1, HTTP/2, HTTP/3, WebSocket and gRPC on its own addresses.
//
//	           198.18.0.0/24                 198.18.1.0/24
//	client ------------------- gateway ------------------- one
//	 .2                   .1      |    .1                   .2
//	                              |          198.18.2.0/24
//	  service 198.18.0.10         +----------------------- two
//	                                   .1                   .2
//
// IPv6 has the same shape below 2001:db8::/32. Everything is gone when it ends, by itself or by
// Ctrl-C. `make run` runs it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "lab:", err)
		os.Exit(1)
	}
}

// run is the lab, or one of the programs that the lab starts inside its namespaces.
func run(ctx context.Context, args []string) error {
	if len(args) > 0 {
		switch args[0] {
		case "backend":
			return backend(ctx, args[1:])
		case "udp-client":
			return udpClient(ctx, args[1:])
		case "grpc-client":
			return grpcClient(ctx, args[1:])
		}
	}
	var l lab
	flags := flag.NewFlagSet("lab", flag.ContinueOnError)
	flags.StringVar(&l.millrace, "millrace", "bin/millrace", "the binary to run")
	flags.StringVar(&l.driver, "driver", "auto", "the gateway's driver: auto, afxdp or afpacket")
	flags.BoolVar(&l.keep, "keep", false, "leave everything up until Ctrl-C, with commands to try")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	return l.run(ctx)
}
