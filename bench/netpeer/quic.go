package netpeer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/quic-go/quic-go"

	"github.com/millrace/millrace/internal/testkit/testcert"
)

// PacketPair is two packet conns that reach each other, for QUIC.
type PacketPair struct {
	Client, Server net.PacketConn
	Close          func() error
}

// packetPairs are the stacks whose UDP can carry QUIC in one process.
var packetPairs = map[string]func() (*PacketPair, error){"kernel": kernelPackets}

// OpenPackets opens a pair of UDP conns of the stack of that name.
func OpenPackets(name string) (*PacketPair, error) {
	open := packetPairs[name]
	if open == nil {
		return nil, fmt.Errorf("no UDP of a stack %q", name)
	}
	return open()
}

// kernelPackets are two sockets on loopback, as large as quic-go likes them.
func kernelPackets() (*PacketPair, error) {
	var conns [2]*net.UDPConn
	for i := range conns {
		c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			return nil, err
		}
		conns[i] = c
	}
	return &PacketPair{conns[0], conns[1], func() error { return errors.Join(conns[0].Close(), conns[1].Close()) }}, nil
}

// ListenPacket opens a UDP conn on a port of n's address, 0 for any.
func ListenPacket(n Net, port uint16) (net.PacketConn, error) {
	switch n := n.(type) {
	case *millrace:
		return n.ListenPacket("udp", netip.AddrPortFrom(n.addr, port).String())
	case *kernel:
		return net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(n.addr, port)))
	}
	return nil, fmt.Errorf("no UDP of %T", n)
}

const alpn = "bulk"

// DriveQUIC sends one stream from client to server until ctx ends; c counts what the server read.
func DriveQUIC(ctx context.Context, p *PacketPair, c *Counters) error {
	cert, _ := testcert.SelfSigned("bench.example")
	server := &quic.Transport{Conn: p.Server}
	l, err := server.Listen(&tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{alpn}}, nil)
	if err != nil {
		return err
	}
	go serveQUIC(ctx, l, c)
	client := &quic.Transport{Conn: p.Client}
	conn, err := client.Dial(ctx, p.Server.LocalAddr(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{alpn}}, nil)
	if err != nil {
		return fmt.Errorf("QUIC: %w", err)
	}
	stream, err := conn.OpenUniStreamSync(ctx)
	if err != nil {
		return fmt.Errorf("QUIC: %w", err)
	}
	go sendUntil(ctx, stream.Write)
	return nil
}

func serveQUIC(ctx context.Context, l *quic.Listener, c *Counters) {
	conn, err := l.Accept(ctx)
	if err != nil {
		return
	}
	stream, err := conn.AcceptUniStream(ctx)
	if err != nil {
		return
	}
	bulk(stream.Read, &c.loop[0])
}

// sendUntil writes chunks until ctx ends or a write fails.
func sendUntil(ctx context.Context, write func([]byte) (int, error)) {
	buf := make([]byte, chunk)
	for ctx.Err() == nil {
		if _, err := write(buf); err != nil {
			return
		}
	}
}
