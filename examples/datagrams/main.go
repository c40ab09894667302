// Command datagrams sends QUIC datagrams over a link that loses packets, without and with forward error correction, and prints
// what arrives. Both ends and the link are in this process, on the loopback interface.
//
//	datagrams -loss 5 -count 2000
package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"os"
	"sync"
	"time"

	"github.com/millrace/millrace/quic"
	"github.com/millrace/millrace/quic/fec"
)

func main() {
	loss := flag.Float64("loss", 5, "percentage of packets that the link loses")
	count := flag.Int("count", 2000, "number of datagrams")
	flag.Parse()
	if err := compare(os.Stdout, *loss/100, *count); err != nil {
		log.Fatal(err)
	}
}

// compare sends count datagrams by each scheme and writes a line for each.
func compare(w io.Writer, loss float64, count int) error {
	fmt.Fprintf(w, "%d datagrams, %.3g %% of packets lost\n\n", count, 100*loss)
	fmt.Fprintf(w, "%-8s %12s %12s %12s\n", "repair", "arrived", "recovered", "not arrived")
	for _, scheme := range []fec.Scheme{fec.None, fec.XOR, fec.RLC} {
		r, err := measure(scheme, loss, count)
		if err != nil {
			return fmt.Errorf("%v: %w", scheme, err)
		}
		fmt.Fprintf(w, "%-8v %12d %12d %11.2f%%\n", scheme, r.arrived, r.recovered, 100-100*float64(r.arrived)/float64(count))
	}
	return nil
}

type result struct{ arrived, recovered int }

// measure sends count datagrams over a link that loses a share of the packets.
func measure(scheme fec.Scheme, loss float64, count int) (r result, err error) {
	config := &quic.Config{Datagrams: true}
	if scheme != fec.None {
		config.DatagramRepair = &fec.Config{Scheme: scheme}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	link := &lossyConn{rand: mathrand.New(mathrand.NewPCG(1, 2))}
	client, server, closeAll, err := connect(ctx, link, config)
	if err != nil {
		return r, err
	}
	defer closeAll()
	link.lose(loss)
	received := make(chan int)
	go func() { received <- receiveAll(ctx, server) }()
	if err := sendAll(client, count); err != nil {
		return r, err
	}
	r.arrived = <-received
	r.recovered = int(server.RepairStats().Recovered)
	return r, nil
}

// payloadBytes lets one datagram travel in a packet. Of small ones several share a packet and are lost together, with their
// repair symbol: a code for 1 loss in 10 does not help there.
const payloadBytes = 1000

// sendAll sends datagrams at 20 000 a second, and a repair symbol for the last ones.
func sendAll(c *quic.Conn, count int) error {
	payload := make([]byte, payloadBytes)
	for i := range count {
		if err := c.SendDatagram(payload); err != nil {
			return err
		}
		if i%20 == 19 {
			time.Sleep(time.Millisecond)
		}
	}
	return c.FlushDatagrams()
}

// receiveAll counts datagrams until none has come for half a second.
func receiveAll(ctx context.Context, c *quic.Conn) (n int) {
	for {
		wait, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		_, err := c.ReceiveDatagram(wait)
		cancel()
		if err != nil {
			return n
		}
		n++
	}
}

// connect opens a connection whose client sends through link.
func connect(ctx context.Context, link *lossyConn, config *quic.Config) (client, server *quic.Conn, closeAll func(), err error) {
	var transports []*quic.Transport
	closeAll = func() {
		for _, t := range transports {
			_ = t.Close()
		}
	}
	for range 2 {
		conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			return nil, nil, nil, err
		}
		var p net.PacketConn = conn
		if len(transports) == 0 {
			link.PacketConn, p = conn, link
		}
		t, err := quic.NewTransport(p, quic.TransportConfig{})
		if err != nil {
			return nil, nil, nil, errors.Join(err, conn.Close())
		}
		transports = append(transports, t)
	}
	cert, pool, err := selfSigned()
	if err != nil {
		return nil, nil, nil, err
	}
	l, err := transports[1].Listen(&tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"telemetry"}}, config)
	if err != nil {
		return nil, nil, nil, err
	}
	client, err = transports[0].Dial(ctx, transports[1].LocalAddr(), &tls.Config{RootCAs: pool, ServerName: "localhost", NextProtos: []string{"telemetry"}}, config)
	if err != nil {
		return nil, nil, nil, err
	}
	server, err = l.Accept(ctx)
	return client, server, closeAll, err
}

// lossyConn loses a share of the packets that are sent.
type lossyConn struct {
	net.PacketConn

	mu    sync.Mutex
	share float64
	rand  *mathrand.Rand
}

func (c *lossyConn) lose(share float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.share = share
}

// WriteTo sends a packet, or loses it.
func (c *lossyConn) WriteTo(b []byte, to net.Addr) (int, error) {
	c.mu.Lock()
	lost := c.rand.Float64() < c.share
	c.mu.Unlock()
	if lost {
		return len(b), nil
	}
	return c.PacketConn.WriteTo(b, to)
}

// selfSigned returns a certificate for localhost, and the pool that trusts it.
func selfSigned() (tls.Certificate, *x509.CertPool, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool, nil
}
