package http3_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"time"

	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/http3/qpack"
)

// A server of HTTP/3, and one of HTTP/1.1 and HTTP/2 that refers clients to it.
func ExampleServer() {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "Hello over", r.Proto)
	})
	h3 := &http3.Server{Handler: handler}
	go func() { log.Fatal(h3.ListenAndServe(":443", "cert.pem", "key.pem")) }()
	log.Fatal(http.ListenAndServeTLS(":443", "cert.pem", "key.pem", http3.AltSvcHandler(handler, 443, 24*time.Hour)))
}

// A client that uses HTTP/3 where a server has announced it.
func ExampleAltSvcTransport() {
	h3 := &http3.Transport{}
	defer h3.Close()
	client := &http.Client{Transport: &http3.AltSvcTransport{HTTP3: h3}}
	resp, err := client.Get("https://www.example.com/")
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(resp.Proto, len(b))
}

// A session of WebTransport that returns what comes on its streams.
func ExampleAcceptSession() {
	s := &http3.Server{
		Machine: http3.MachineOptions{WebTransport: 100},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			session, err := http3.AcceptSession(w, r, nil)
			if err != nil {
				return // the client has the reason
			}
			for {
				stream, err := session.AcceptStream(context.Background())
				if err != nil {
					return
				}
				go func() {
					_, _ = io.Copy(stream, stream)
					_ = stream.Close()
				}()
			}
		}),
	}
	log.Fatal(s.ListenAndServe(":443", "cert.pem", "key.pem"))
}

// Two machines without a network: what an event loop does with the bytes of streams.
func ExampleMachine() {
	client := http3.NewMachine(http3.RoleClient, http3.MachineOptions{})
	server := http3.NewMachine(http3.RoleServer, http3.MachineOptions{})

	request := client.AppendHeaders(nil, 0, []qpack.Field{
		{Name: ":method", Value: "GET"},
		{Name: ":scheme", Value: "https"},
		{Name: ":authority", Value: "www.example.com"},
		{Name: ":path", Value: "/index.html"},
	})
	stream, err := server.Open(0)
	if err != nil {
		log.Fatal(err)
	}
	for {
		ev, n, err := server.Input(stream, request, true)
		if err != nil {
			log.Fatal(err)
		}
		request = request[n:]
		switch ev.Kind {
		case http3.Headers:
			m := stream.Message
			fmt.Println(m.Method, m.Authority, m.Path)
		case http3.End:
			fmt.Println("complete")
			return
		}
	}
	// Output:
	// GET www.example.com /index.html
	// complete
}
