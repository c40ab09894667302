package http3_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/internal/testkit/h3cases"
	"github.com/millrace/millrace/quic"
)

// suiteHandler answers as package h3cases wants it.
func suiteHandler(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodConnect {
		_ = http.NewResponseController(w).Flush()
	}
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return
	}
	if r.URL.Path == "/cookie" && r.Header.Get("Cookie") != "a=1; b=2" {
		w.WriteHeader(http.StatusInternalServerError)
	}
}

func quicTransport(t testing.TB) *quic.Transport {
	t.Helper()
	pc, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	tr, err := quic.NewTransport(pc, quic.TransportConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tr.Close() })
	return tr
}

func TestSuiteAgainstTheServer(t *testing.T) {
	tr := quicTransport(t)
	s := &http3.Server{
		Handler: http.HandlerFunc(suiteHandler), TLS: serverTLS(),
		Machine: http3.MachineOptions{ExtendedConnect: true, Datagrams: true},
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.ServeTransport(tr)
	}()
	defer func() {
		_ = s.Close()
		<-done
	}()
	from := quicTransport(t)
	tc := clientTLS()
	tc.ServerName, tc.NextProtos = "test.example", []string{http3.NextProto}
	cases := h3cases.ServerCases()
	if len(cases) < 180 {
		t.Fatalf("%d cases", len(cases))
	}
	for _, c := range cases {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		conn, err := from.Dial(ctx, tr.LocalAddr(), tc, &quic.Config{Datagrams: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := h3cases.RunServer(ctx, conn, c); err != nil {
			t.Errorf("RFC %s: %s: %v", c.Section, c.Name, err)
		}
		cancel()
	}
}

func TestSuiteAgainstTheClient(t *testing.T) {
	tr := quicTransport(t)
	tc := serverTLS()
	tc.NextProtos = []string{http3.NextProto}
	cases := h3cases.ClientCases()
	if len(cases) < 120 {
		t.Fatalf("%d cases", len(cases))
	}
	for _, c := range cases {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		client := &http3.Transport{TLS: clientTLS()}
		l, err := tr.Listen(tc, nil)
		if err != nil {
			t.Fatal(err)
		}
		err = h3cases.RunClient(ctx, l, c, func(ctx context.Context) error {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+tr.LocalAddr().String(), nil)
			if err != nil {
				return err
			}
			resp, err := client.RoundTrip(req)
			if err != nil {
				return err
			}
			_, err = io.Copy(io.Discard, resp.Body)
			return errors.Join(err, resp.Body.Close())
		})
		if err != nil {
			t.Errorf("RFC %s: %s: %v", c.Section, c.Name, err)
		}
		cancel()
		_ = client.Close()
		_ = l.Close() // with the connections of second tries
	}
}
