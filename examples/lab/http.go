package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/millrace/millrace/internal/testkit/testcert"
	"github.com/millrace/millrace/websocket"
)

// grpcMethod is the one method of the lab's gRPC service. Its messages are empty, and one string.
const grpcMethod = "/lab.Names/Name"

// writeCertificate writes a certificate of its own authority, and its key.
func writeCertificate(dir string) error {
	cert, _ := testcert.SelfSigned("gateway.test", net.ParseIP(gateway4), net.ParseIP(gateway6))
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "site.pem"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}), 0o644),
		os.WriteFile(filepath.Join(dir, "site.key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600),
	)
}

// chat answers each message of a WebSocket with the server's name.
func chat(w http.ResponseWriter, r *http.Request, name string) {
	c, err := websocket.Accept(w, r, nil)
	if err != nil {
		return // Accept has answered
	}
	for {
		if _, _, err := c.ReadMessage(nil); err != nil {
			return
		}
		if err := c.WriteMessage(websocket.Text, []byte(name)); err != nil {
			return
		}
	}
}

// serveGRPC answers a call with the server's name. A message of gRPC has a prefix of 5 bytes, and the status comes in trailers.
func serveGRPC(w http.ResponseWriter, r *http.Request, name string) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return
	}
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set("Trailer", "Grpc-Status")
	field := append([]byte{1<<3 | 2, byte(len(name))}, name...) // field 1 of the message, a string
	_, _ = w.Write(append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(field))), field...))
	w.Header().Set("Grpc-Status", "0")
}

// grpcClient makes a call over HTTP/2 and prints who has answered.
func grpcClient(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("grpc-client", flag.ContinueOnError)
	to := flags.String("to", "", "address and port")
	ca := flags.String("cacert", "", "PEM file of the authority")
	if err := flags.Parse(args); err != nil {
		return err
	}
	text, err := os.ReadFile(*ca)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+*to+grpcMethod, bytes.NewReader(make([]byte, 5)))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("TE", "trailers")
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if status := resp.Trailer.Get("Grpc-Status"); resp.ProtoMajor != 2 || status != "0" || len(body) < 7 {
		return fmt.Errorf("%s, grpc-status %q, %d bytes", resp.Proto, status, len(body))
	}
	fmt.Println(string(body[7:]))
	return nil
}
