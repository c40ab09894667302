// Command poller serves a thousand and more connections from one goroutine: it sends back what it
// receives, on an address of its own beside the kernel on the same interface.
//
//	sudo poller eth1 198.18.0.2/24
//	nc 198.18.0.2 7                    # on another machine
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
	if err := errors.Join(serve(ctx, stack), stack.Close()); err != nil {
		log.Fatal(err)
	}
}

// serve waits for events of the listener and of all connections.
func serve(ctx context.Context, stack *socket.Stack) error {
	l, err := stack.ListenWith(ctx, &socket.ListenConfig{Backlog: 4096}, "tcp", ":7")
	if err != nil {
		return err
	}
	defer l.Close()
	p := stack.NewPoller()
	if err := p.Add(l, socket.Interest{Events: socket.Readable}); err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _ = p.Close() })
	for events := make([]socket.Event, 256); ; {
		n, err := p.Wait(events, -1)
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		for _, e := range events[:n] {
			if c, ok := e.Data.(*conn); ok {
				c.ready(p)
			} else if c, err := l.AcceptTCP(); err == nil {
				_ = p.Add(c, socket.Interest{Events: socket.Readable, Data: &conn{TCPConn: c}})
			}
		}
	}
}

// conn is a connection of the poller.
type conn struct {
	*socket.TCPConn
	full bool // its send buffer has no room
}

// ready echoes, and waits for room to write where there is none, else for more to read.
func (c *conn) ready(p *socket.Poller) {
	was := c.full
	c.Do(c.echo)
	if c.full != was {
		want := socket.Interest{Events: socket.Readable, Data: c}
		if c.full {
			want.Events = socket.Writable
		}
		_ = p.Mod(c.TCPConn, want) // it fails where echo has closed the connection
	}
}

// echo moves bytes from the receive buffer to the send buffer. It runs on the loop, so that it must not
// block, and one entry of the loop serves all calls.
func (c *conn) echo(in socket.LoopConn) {
	n, waiting := 0, 0
	for _, b := range in.Peek() {
		m, err := in.Write(b)
		if err != nil {
			_ = in.Close()
			return
		}
		n, waiting = n+m, waiting+len(b)
	}
	in.Discard(n)
	c.full = n < waiting
	if waiting == 0 {
		_ = in.Close() // Readable without data is the end
	}
}
