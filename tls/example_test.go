package tls_test

import (
	"context"
	stdtls "crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	"github.com/millrace/millrace/tls"
)

// A server whose certificates, authorities of clients and ticket secret are files that may change
// while it runs.
func Example() {
	store := &tls.Store{}
	if err := store.Load(tls.KeyPair{CertFile: "www.pem", KeyFile: "www.key", Default: true}); err != nil {
		fmt.Println("there are no such files in this example")
		return
	}
	tickets, err := tls.LoadTicketKeys(0, "tickets") // the same file on all instances
	if err != nil {
		log.Fatal(err)
	}
	config, err := tls.NewServerConfig(tls.ServerOptions{Store: store, Tickets: tickets, Protocols: []string{"h2", "http/1.1"}})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	report := func(err error) { log.Print(err) }
	go tls.Watch(ctx, time.Minute, report, store, tickets)
	stapler := &tls.Stapler{Store: store, Report: func(id string, err error) { log.Print(id, err) }}
	go func() { _ = stapler.Run(ctx) }()

	l, err := stdtls.Listen("tcp", ":443", config)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.Serve(l, nil))
	// Output: there are no such files in this example
}

// A server with Encrypted ClientHello prints the record to publish, and rotates its key.
func ExampleECHKeys() {
	dir, err := os.MkdirTemp("", "ech-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	keys, err := tls.LoadECHKeys(dir)
	if err != nil {
		log.Fatal(err)
	}
	if err := keys.Rotate("public.example", 3); err != nil { // once a day, by a timer
		log.Fatal(err)
	}
	record, err := keys.Record("www.example", time.Hour, "h2")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(record[:strings.Index(record, "ech=")+4] + "...")
	config, err := tls.NewServerConfig(tls.ServerOptions{Store: &tls.Store{}, ECH: keys})
	fmt.Println(config.GetEncryptedClientHelloKeys != nil, err)
	// Output:
	// www.example. 3600 IN HTTPS 1 . alpn=h2 ech=...
	// true <nil>
}

// Diagnose says why a certificate was refused.
func ExampleDiagnose() {
	server := httptest.NewUnstartedServer(nil) // its authority is its own
	server.Config.ErrorLog = log.New(discard{}, "", 0)
	server.StartTLS()
	defer server.Close()
	config, err := tls.NewClientConfig(tls.ClientOptions{ServerName: "example.com"})
	if err != nil {
		log.Fatal(err)
	}
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	err = tls.Diagnose(stdtls.Client(conn, config).Handshake())
	fmt.Println(errors.Is(err, tls.ErrUnknownCA))
	// Output: true
}

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }
