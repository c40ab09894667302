package quic_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"time"

	"github.com/millrace/millrace/quic"
)

// exampleServer echoes streams and returns its address.
func exampleServer(ctx context.Context) (addr net.Addr, stop func() error) {
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		log.Fatal(err)
	}
	server, err := quic.NewTransport(conn, quic.TransportConfig{}) // takes conn
	if err != nil {
		log.Fatal(err)
	}
	l, err := server.Listen(serverTLS(), &quic.Config{Datagrams: true})
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		for {
			c, err := l.Accept(ctx)
			if err != nil {
				return
			}
			go echo(c)
		}
	}()
	return server.LocalAddr(), func() error { return server.Shutdown(ctx) }
}

func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	addr, stop := exampleServer(ctx)

	conn, err := net.ListenUDP("udp4", nil)
	if err != nil {
		log.Fatal(err)
	}
	client, err := quic.NewTransport(conn, quic.TransportConfig{})
	if err != nil {
		log.Fatal(err)
	}
	c, err := client.Dial(ctx, addr, clientTLS(), nil)
	if err != nil {
		log.Fatal(err)
	}
	s, err := c.OpenStream(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Fprint(s, "hello")
	_ = s.Close() // this direction
	answer, _ := io.ReadAll(s)
	fmt.Printf("%s over QUIC %v\n", answer, c.State().Version)

	_ = c.CloseWithError(0, "done")
	fmt.Println(client.Close(), stop())
	// Output:
	// hello over QUIC v1
	// <nil> <nil>
}

// A connection moves from one network of the client to another.
func ExampleConn_AddPath() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	addr, stop := exampleServer(ctx)
	open := func() *quic.Transport {
		conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			log.Fatal(err)
		}
		t, err := quic.NewTransport(conn, quic.TransportConfig{})
		if err != nil {
			log.Fatal(err)
		}
		return t
	}
	cellular, wifi := open(), open()
	defer cellular.Close()
	defer wifi.Close()

	c, err := cellular.Dial(ctx, addr, clientTLS(), nil)
	if err != nil {
		log.Fatal(err)
	}
	path, err := c.AddPath(wifi)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("probe:", path.Probe(ctx))
	fmt.Println("switch:", path.Switch())
	_ = c.CloseWithError(0, "")
	_ = stop()
	// Output:
	// probe: <nil>
	// switch: <nil>
}
