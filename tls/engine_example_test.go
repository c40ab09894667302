package tls_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	stdtls "crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"time"

	"github.com/millrace/millrace/tls"
)

// The loop of this example moves bytes between two engines. Another would move them to and from its connections.
func ExampleEngine() {
	server := tls.NewServerEngine(exampleConfig(), tls.EngineOptions{})
	client := tls.NewClientEngine(&stdtls.Config{InsecureSkipVerify: true}, tls.EngineOptions{})
	defer server.Close()
	defer client.Close()

	receive := func(e *tls.Engine, name string, in []byte) {
		for len(in) > 0 {
			event, n, err := e.Next(in)
			if err != nil {
				fmt.Println(name, err)
				return
			}
			switch event.Kind {
			case tls.HandshakeComplete:
				fmt.Println(name, "handshake complete")
			case tls.Data:
				fmt.Printf("%s received %q\n", name, event.Data)
			}
			in = in[n:]
		}
	}
	buffer := make([]byte, 0, 64<<10)
	for range 3 {
		for _, way := range []struct {
			from, to *tls.Engine
			name     string
		}{{client, server, "server:"}, {server, client, "client:"}} {
			var data []byte
			if way.from == client && client.Handshaken() && server.Handshaken() {
				data = []byte("hello")
			}
			sent, _, err := way.from.Seal(buffer, data)
			if err != nil {
				fmt.Println(err)
				return
			}
			receive(way.to, way.name, sent)
		}
	}
	// Output:
	// client: handshake complete
	// server: handshake complete
	// server: received "hello"
}

// exampleConfig has a certificate that nobody else trusts.
func exampleConfig() *stdtls.Config {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		panic(err)
	}
	return &stdtls.Config{Certificates: []stdtls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}
