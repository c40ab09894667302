package netpeer

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"time"
)

// DatagramPort is the UDP port that ServeDatagrams answers at.
const DatagramPort = 9021

// packets is a stack with datagrams, in the form of package socket.
type packets interface {
	ListenPacket(network, address string) (net.PacketConn, error)
}

func listenPacket(n Net, at netip.AddrPort) (net.PacketConn, error) {
	p, ok := n.(packets)
	if !ok {
		return nil, errors.New("the stack has no datagrams here")
	}
	return p.ListenPacket("udp", at.String())
}

// ServeDatagrams sends datagrams back until ctx ends.
func ServeDatagrams(ctx context.Context, n Net, at netip.Addr, c *Counters) error {
	conn, err := listenPacket(n, netip.AddrPortFrom(at, DatagramPort))
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { conn.Close() })
	go func() {
		var b [2048]byte
		for {
			k, from, err := conn.ReadFrom(b[:])
			if err == nil {
				_, err = conn.WriteTo(b[:k], from)
			}
			if err != nil {
				return
			}
			c.loop[0].Ops.Add(1)
		}
	}()
	return nil
}

// DriveDatagrams sends datagrams of size bytes, each after the answer to the one before. One that is lost is sent anew.
func DriveDatagrams(ctx context.Context, n Net, from, to netip.Addr, size int, c *Counters) (wait func(), err error) {
	conn, err := listenPacket(n, netip.AddrPortFrom(from, DatagramPort))
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { conn.Close() })
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		out, in := make([]byte, size), make([]byte, size)
		dst := net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, DatagramPort))
		for ctx.Err() == nil {
			begin := time.Now()
			_ = conn.SetReadDeadline(begin.Add(time.Second))
			_, err := conn.WriteTo(out, dst)
			if err == nil {
				_, _, err = conn.ReadFrom(in)
			}
			if err != nil {
				if ctx.Err() == nil && errors.Is(err, os.ErrDeadlineExceeded) {
					c.loop[0].Failed.Add(1)
				}
				continue
			}
			c.loop[0].Latency.Record(uint64(time.Since(begin)))
			c.loop[0].Ops.Add(1)
		}
	}()
	return func() { <-ended }, nil
}
