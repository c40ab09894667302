// Command udpecho answers each datagram with the same bytes, on an address of its own beside the kernel on
// the same interface.
//
//	sudo udpecho eth1 198.18.0.2/24
//	echo hello | nc -u -w1 198.18.0.2 7      # on another machine
package main

import (
	"context"
	"errors"
	"log"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"syscall"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/socket"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatalf("usage: %s INTERFACE ADDRESS/BITS", os.Args[0])
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	prefix, err := netip.ParsePrefix(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	stack, err := millrace.Open(os.Args[1], prefix)
	if err != nil {
		log.Fatal(err)
	}
	if err := errors.Join(echo(ctx, stack), stack.Close()); err != nil {
		log.Fatal(err)
	}
}

// echo reads and writes batches of datagrams: as many as have arrived, up to 64, for each call.
func echo(ctx context.Context, stack *socket.Stack) error {
	c, err := stack.ListenPacketWith(ctx, &socket.ListenConfig{}, "udp", ":7")
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _ = c.Close() })
	var (
		msgs  [64]socket.Message
		bufs  [64][1][]byte
		space [64][65507]byte
	)
	for {
		for i := range msgs {
			bufs[i][0] = space[i][:]
			msgs[i] = socket.Message{Buffers: bufs[i][:]}
		}
		n, err := c.ReadMessages(msgs[:])
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		for i := range n {
			bufs[i][0] = bufs[i][0][:msgs[i].N]
			msgs[i].N = 0 // bytes sent
		}
		for out := msgs[:n]; len(out) > 0; {
			sent, err := c.WriteMessages(out)
			if err != nil {
				sent++ // the one behind those sent is lost, which UDP permits
			}
			out = out[sent:]
		}
	}
}
