// Command webtransport-peer is webtransport-go as one end of a session.
//
//	server CERT KEY HOST   prints its port; serves sessions until its input ends, and prints how each ended
//	client PORT HOST       uses streams of both kinds and datagrams of one session; prints "ok"
//
// The server greets on a stream of its own, echoes bidirectional streams and datagrams, and answers a unidirectional stream by
// another one with its bytes in upper case.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/quic-go/webtransport-go"
)

const greeting = "from the server"

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var err error
	switch {
	case len(os.Args) == 5 && os.Args[1] == "server":
		err = server(os.Args[2], os.Args[3], os.Args[4])
	case len(os.Args) == 4 && os.Args[1] == "client":
		err = client(ctx, net.JoinHostPort(os.Args[3], os.Args[2]))
	default:
		err = errors.New("usage: server CERT KEY HOST | client PORT HOST")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// limits are below what one session moves in all: the credit has to be renewed.
var limits = &webtransport.Config{MaxIncomingStreams: 3, MaxIncomingUniStreams: 2, MaxIncomingData: 100_000}

// config has packets of 1200 bytes: what every path carries.
func config() *quic.Config {
	return &quic.Config{EnableDatagrams: true, EnableStreamResetPartialDelivery: true, InitialPacketSize: 1200}
}

func server(certFile, keyFile, host string) error {
	cert, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return err
	}
	pc, err := net.ListenPacket("udp", net.JoinHostPort(host, "0"))
	if err != nil {
		return err
	}
	s := &webtransport.Server{Config: limits}
	s.H3 = &http3.Server{TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"h3"}}, QUICConfig: config()}
	s.H3.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		session, err := s.Upgrade(w, r)
		if err != nil {
			fmt.Println("refused:", err)
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		err = serve(session)
		var se *webtransport.SessionError
		if errors.As(err, &se) {
			fmt.Println("closed", se.ErrorCode, se.Message)
			return
		}
		fmt.Println("ended:", err)
	})
	webtransport.ConfigureHTTP3Server(s.H3)
	fmt.Println(pc.LocalAddr().(*net.UDPAddr).Port)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	return s.Serve(pc)
}

// serve returns how the session has ended.
func serve(s *webtransport.Session) error {
	ctx := s.Context()
	if own, err := s.OpenStreamSync(ctx); err == nil {
		_, _ = own.Write([]byte(greeting))
		_ = own.Close()
	}
	go func() {
		for {
			p, err := s.ReceiveDatagram(ctx)
			if err != nil {
				return
			}
			_ = s.SendDatagram(p)
		}
	}()
	go func() {
		for {
			in, err := s.AcceptUniStream(ctx)
			if err != nil {
				return
			}
			b, err := io.ReadAll(in)
			if err != nil {
				continue
			}
			if out, err := s.OpenUniStreamSync(ctx); err == nil {
				_, _ = out.Write(bytes.ToUpper(b))
				_ = out.Close()
			}
		}
	}()
	for {
		st, err := s.AcceptStream(ctx)
		if err != nil {
			return err
		}
		go func() {
			_, _ = io.Copy(st, st)
			_ = st.Close()
		}()
	}
}

func client(ctx context.Context, addr string) error {
	to, err := net.ResolveUDPAddr("udp", addr)
	if err != nil {
		return err
	}
	pc, err := net.ListenUDP("udp", nil)
	if err != nil {
		return err
	}
	// The certificate has no issuer that anybody knows.
	c, err := quic.Dial(ctx, pc, to, &tls.Config{ServerName: "b", InsecureSkipVerify: true, NextProtos: []string{"h3"}}, config())
	if err != nil {
		return err
	}
	h, err := (&webtransport.Transport{Config: limits}).NewClientConn(c)
	if err != nil {
		return err
	}
	_, s, err := h.Dial(ctx, "https://"+addr+"/", nil)
	if err != nil {
		return fmt.Errorf("the session: %w", err)
	}
	for _, part := range []func(context.Context, *webtransport.Session) error{greeted, echoes, shouts, datagrams, reset} {
		if err := part(ctx, s); err != nil {
			return err
		}
	}
	if err := s.CloseWithError(77, "bye"); err != nil {
		return err
	}
	time.Sleep(300 * time.Millisecond) // the close is on its way
	fmt.Println("ok")
	return nil
}

func greeted(ctx context.Context, s *webtransport.Session) error {
	own, err := s.AcceptStream(ctx)
	if err != nil {
		return err
	}
	if b, err := io.ReadAll(own); err != nil || string(b) != greeting {
		return fmt.Errorf("the greeting: %q, %w", b, err)
	}
	return nil
}

func echoes(ctx context.Context, s *webtransport.Session) error {
	for i := range 5 {
		st, err := s.OpenStreamSync(ctx)
		if err != nil {
			return err
		}
		sent := bytes.Repeat([]byte{byte('0' + i), 'x'}, 30_000)
		go func() {
			_, _ = st.Write(sent)
			_ = st.Close()
		}()
		if got, err := io.ReadAll(st); err != nil || !bytes.Equal(got, sent) {
			return fmt.Errorf("%d bytes of %d come back, %w", len(got), len(sent), err)
		}
	}
	return nil
}

func shouts(ctx context.Context, s *webtransport.Session) error {
	out, err := s.OpenUniStreamSync(ctx)
	if err != nil {
		return err
	}
	_, _ = out.Write([]byte("shout"))
	_ = out.Close()
	in, err := s.AcceptUniStream(ctx)
	if err != nil {
		return err
	}
	if b, err := io.ReadAll(in); err != nil || string(b) != "SHOUT" {
		return fmt.Errorf("unidirectional: %q, %w", b, err)
	}
	return nil
}

// datagrams sends until one comes back: they may be lost.
func datagrams(ctx context.Context, s *webtransport.Session) error {
	for range 50 {
		if err := s.SendDatagram([]byte("datagram")); err != nil {
			return err
		}
		short, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		p, err := s.ReceiveDatagram(short)
		cancel()
		if err == nil && string(p) == "datagram" {
			return nil
		}
	}
	return errors.New("no datagram comes back")
}

// reset cancels a stream right after its first bytes: the server must still know whose it is, and the session goes on.
func reset(ctx context.Context, s *webtransport.Session) error {
	st, err := s.OpenStreamSync(ctx)
	if err != nil {
		return err
	}
	st.CancelWrite(5)
	return echoes(ctx, s)
}
