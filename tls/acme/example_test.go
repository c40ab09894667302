package acme_test

import (
	"context"
	stdtls "crypto/tls"
	"fmt"
	"log"
	"net/http"

	"github.com/millrace/millrace/tls"
	"github.com/millrace/millrace/tls/acme"
)

// A server of HTTPS whose certificate comes from Let's Encrypt.
func Example() {
	store := &tls.Store{}
	m, err := acme.New(acme.Options{
		Directory: acme.LetsEncryptStaging, AgreeToTerms: false, // yours to agree to
		Dir: "/var/lib/millrace/acme", Store: store, Default: true,
		Report: func(e acme.Event) { log.Printf("%v: %v, next %v", e.Names, e.Err, e.Next) },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer m.Close()
	if err := m.Manage("www.example.com"); err != nil {
		log.Fatal(err)
	}
	config, err := tls.NewServerConfig(tls.ServerOptions{Store: store, Protocols: []string{"h2", "http/1.1"}})
	if err != nil {
		log.Fatal(err)
	}
	m.Attach(config)                                                          // tls-alpn-01
	go func() { log.Print(http.ListenAndServe(":80", m.HTTPHandler(nil))) }() // http-01
	go func() { _ = m.Run(context.Background()) }()
	l, err := stdtls.Listen("tcp", ":443", config)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.Serve(l, nil))
	// Output: acme: bad options: the authority's terms of service are not agreed to
}
