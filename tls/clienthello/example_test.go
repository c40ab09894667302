package clienthello_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"sync"
	"time"

	"github.com/millrace/millrace/tls/clienthello"
)

// peekers are reused: a Peeker keeps its buffers.
var peekers = sync.Pool{New: func() any { return new(clienthello.Peeker) }}

// route connects a client to the server for the name that it asks for, and does not decrypt.
func route(client net.Conn, serverFor func(name string) (net.Conn, error)) error {
	defer client.Close()
	p := peekers.Get().(*clienthello.Peeker)
	defer func() { p.Reset(); peekers.Put(p) }()
	_ = client.SetReadDeadline(time.Now().Add(10 * time.Second)) // a slow hello holds memory
	hello, err := p.Read(client)
	var bad *clienthello.Error
	if errors.As(err, &bad) {
		_, _ = client.Write(bad.Alert.Append(nil))
	}
	if err != nil {
		return err
	}
	fmt.Printf("%s, h2 %v, TLS 1.3 %v\n", hello.ServerName, hello.ALPN.Contains("h2"), hello.MaxVersion() == tls.VersionTLS13)
	server, err := serverFor(string(hello.ServerName))
	if err != nil {
		_, _ = client.Write(clienthello.AlertUnrecognizedName.Append(nil))
		return err
	}
	defer server.Close()
	_ = client.SetReadDeadline(time.Time{})
	if _, err := server.Write(p.Buffered()); err != nil { // the hello, as it was
		return err
	}
	go func() { _, _ = io.Copy(client, server) }()
	_, err = io.Copy(server, client)
	return err
}

func ExamplePeeker_Read() {
	client, proxy := net.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- tls.Client(client, &tls.Config{ServerName: "unknown.example", NextProtos: []string{"h2"}}).Handshake()
	}()
	err := route(proxy, func(name string) (net.Conn, error) { return nil, errors.New("no server for " + name) })
	fmt.Println(err)
	fmt.Println(<-done)
	// Output:
	// unknown.example, h2 true, TLS 1.3 true
	// no server for unknown.example
	// remote error: tls: unrecognized name
}

func ExampleHello_JA4() {
	client, proxy := net.Pipe()
	go func() { _ = tls.Client(client, &tls.Config{ServerName: "www.example"}).Handshake() }()
	hello, err := new(clienthello.Peeker).Read(proxy)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(hello.JA4()[:4], len(hello.JA4()), len(hello.JA3()))
	// Output: t13d 36 32
}
