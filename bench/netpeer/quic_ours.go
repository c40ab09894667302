package netpeer

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"

	"github.com/millrace/millrace/internal/testkit/testcert"
	"github.com/millrace/millrace/quic"
	"github.com/millrace/millrace/socket"
)

// DriveMillraceQUIC is DriveQUIC with package quic. With offloads, the transports have what the conns
// can do beyond net.PacketConn; a kernel socket has it in any case.
func DriveMillraceQUIC(ctx context.Context, p *PacketPair, offloads bool, c *Counters) error {
	cert, _ := testcert.SelfSigned("bench.example")
	server, err := QUICTransport(p.Server, offloads)
	if err != nil {
		return err
	}
	l, err := server.Listen(&tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{alpn}}, nil)
	if err != nil {
		return err
	}
	go func() {
		conn, err := l.Accept(ctx)
		if err != nil {
			return
		}
		stream, err := conn.AcceptUniStream(ctx)
		if err != nil {
			return
		}
		bulk(stream.Read, &c.loop[0])
	}()
	client, err := QUICTransport(p.Client, offloads)
	if err != nil {
		return err
	}
	conn, err := client.Dial(ctx, p.Server.LocalAddr(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{alpn}}, nil)
	if err != nil {
		return fmt.Errorf("QUIC: %w", err)
	}
	stream, err := conn.OpenUniStream(ctx)
	if err != nil {
		return fmt.Errorf("QUIC: %w", err)
	}
	go sendUntil(ctx, stream.Write)
	return nil
}

// QUICTransport takes conn, with what it can do beyond net.PacketConn where offloads is set.
func QUICTransport(conn net.PacketConn, offloads bool) (*quic.Transport, error) {
	var c quic.TransportConfig
	if ours, ok := conn.(*socket.UDPConn); ok && offloads {
		c.Messages = ours
	}
	return quic.NewTransport(conn, c)
}
