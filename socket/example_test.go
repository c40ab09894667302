package socket_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"

	"github.com/millrace/millrace/socket"
)

// open returns a server's and a client's stack, which are joined by a link in memory, so that the examples
// run anywhere. Programs open theirs on an interface: see the folder examples.
func open() (server, client *socket.Stack) {
	server, client, err := socket.Pair(netip.MustParsePrefix("198.18.0.1/24"), netip.MustParsePrefix("198.18.0.2/24"))
	if err != nil {
		log.Fatal(err)
	}
	return server, client
}

// Package net/http serves on a Listener, and its client dials through the stack.
func Example_http() {
	server, client := open()
	defer server.Close()
	defer client.Close()

	l, err := server.Listen("tcp", ":80")
	if err != nil {
		log.Fatal(err)
	}
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "hello from %s", r.Host)
	}))

	web := http.Client{Transport: &http.Transport{DialContext: client.DialContext}}
	resp, err := web.Get("http://198.18.0.1/")
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	fmt.Printf("%s: %s\n", resp.Status, body)
	// Output: 200 OK: hello from 198.18.0.1
}

// One goroutine serves any number of connections.
func ExamplePoller() {
	server, client := open()
	defer server.Close()
	defer client.Close()

	l, err := server.ListenWith(context.Background(), &socket.ListenConfig{}, "tcp", ":7")
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		p := server.NewPoller()
		_ = p.Add(l, socket.Interest{Events: socket.Readable, Data: l})
		var events [64]socket.Event
		for {
			n, err := p.Wait(events[:], -1)
			if err != nil {
				return
			}
			for _, e := range events[:n] {
				if c, ok := e.Data.(*socket.TCPConn); ok {
					echo(c)
				} else if c, err := l.AcceptTCP(); err == nil {
					_ = p.Add(c, socket.Interest{Events: socket.Readable, Data: c})
				}
			}
		}
	}()

	for i := range 3 {
		c, err := client.Dial("tcp", "198.18.0.1:7")
		if err != nil {
			log.Fatal(err)
		}
		fmt.Fprintf(c, "connection %d", i)
		b := make([]byte, 100)
		n, _ := c.Read(b)
		fmt.Printf("%s\n", b[:n])
		c.Close()
	}
	// Output:
	// connection 0
	// connection 1
	// connection 2
}

// echo sends back what has arrived, without blocking, and closes the connection at its end.
func echo(c *socket.TCPConn) {
	c.Do(func(in socket.LoopConn) {
		var b [512]byte
		n, err := in.Read(b[:])
		if err != nil {
			_ = in.Close()
			return
		}
		_, _ = in.Write(b[:n])
	})
}

// The functions change the options that they name. All others stay the stack's defaults.
func ExampleDialer() {
	server, client := open()
	defer server.Close()
	defer client.Close()
	if _, err := server.Listen("tcp", ":80"); err != nil {
		log.Fatal(err)
	}

	d := socket.Dialer{
		Timeout:         time.Second,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: time.Minute},
		TCPOptions:      func(o *socket.TCPOptions) { o.Congestion = "bbr" },
	}
	c, err := client.DialWith(context.Background(), &d, "tcp", "198.18.0.1:80")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	_ = c.(*socket.TCPConn).SetOptions(func(o *socket.TCPOptions) {
		fmt.Println(o.Congestion, o.NoDelay, o.KeepAlive.Idle, o.KeepAlive.Interval)
	})
	// Output: bbr true 1m0s 15s
}

// Errors are those of package net.
func ExampleStack_Dial() {
	server, client := open()
	defer server.Close()
	defer client.Close()

	_, err := client.Dial("tcp", "198.18.0.1:80")
	fmt.Println(err, errors.Is(err, syscall.ECONNREFUSED))
	_, err = client.Listen("tcp", "198.18.0.1:80")
	fmt.Println(err, errors.Is(err, syscall.EADDRNOTAVAIL))
	// Output:
	// dial tcp 198.18.0.1:80: connect: connection refused true
	// listen tcp 198.18.0.1:80: bind: cannot assign requested address true
}

// A UDPConn is a net.PacketConn.
func ExampleStack_ListenPacket() {
	server, client := open()
	defer server.Close()
	defer client.Close()

	p, err := server.ListenPacket("udp", ":7")
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		b := make([]byte, 1500)
		for {
			n, from, err := p.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = p.WriteTo(b[:n], from)
		}
	}()

	c, err := client.Dial("udp", "198.18.0.1:7")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Fprint(c, "hello")
	b := make([]byte, 100)
	n, err := c.Read(b)
	fmt.Printf("%s %v\n", b[:n], err)
	// Output: hello <nil>
}
